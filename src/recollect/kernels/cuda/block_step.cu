// One step through pre-norm Transformer blocks, one after another, in one launch: all blocks of threads stay, and tell each
// other what the next product reads.
//
//   q, k, v = W_qkv norm(x)                 | each warp takes rows of W; every block normalises x for itself
//   c = softmax(q kᵀ) v                     | a head's list is split over several blocks
//   x = x + W_out c                         | the parts of c are put together by every block for itself
//   h = φ(W_up norm(x));  x = x + W_down h
//
// What a layer costs: five exchanges (exchange.cuh; about 1.2 µs each) with little work between them. Its weights, read
// once, come meanwhile: a warp asks for its next rows before it waits, and for the same rows of the layer after when it
// has them, which brings those into the second-level cache. The readable form is `Block.read`. Sizes are constants of the
// compilation:
//
//   SCALAR 0 float, 1 bfloat16, 2 half; ROWS; WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD; ACTIVATION 0 relu, 1 gelu,
//   2 gelu by tanh; RMS; ROTARY; SCALE; EPS; WARPS; BLOCKS, at most WIDTH; SPLITS, of a list, at most; MOST_LAYERS

#include "exchange.cuh"

constexpr int QKV = (HEADS + 2 * KV_HEADS) * HEAD;
constexpr int LANES = HEAD / 8;                // lanes that share a slot of the list: eight features each
constexpr int TOGETHER = 32 / LANES;           // slots that a warp looks at together
constexpr int GROUPS = WARPS * TOGETHER;       // and a block
constexpr int AHEAD = 4;                       // times so many slots are asked for before the query is there
constexpr int SHORTEST = AHEAD * GROUPS;       // slots worth a block of their own
constexpr int PART = HEAD + 2;                 // a part of a context: its sum, and the sum's weight and largest score
constexpr int LISTS = ROWS * HEADS;

struct Layer {
    const scalar *norm, *norm_bias, *qkv, *qkv_bias, *out, *out_bias;
    const scalar *next_norm, *next_norm_bias, *up, *up_bias, *down, *down_bias;
    scalar *keys, *values;                     // (B, S, KV_HEADS, HEAD)
    const long long* length;                   // (B,)
    long long* length_after;                   // (B,)
    long long slots;                           // S
};

// What blocks tell each other in a layer. Each place is written once in a layer, and again in the next one only when all
// have read it: every block says at least one number of `between` and of `x` (BLOCKS is at most WIDTH), each after all
// that it reads before. Who has collected x has therefore outlived everybody's reading of qkv, parts, between and hidden;
// who has collected `between`, everybody's reading of the x before.
struct Words {
    u64 *qkv, *parts, *between, *hidden, *x;   // (ROWS, …): QKV; HEADS, SPLITS, PART; WIDTH; HIDDEN; WIDTH

    DEVICE explicit Words(u64* begin)
        : qkv(begin), parts(qkv + ROWS * QKV), between(parts + LISTS * SPLITS * PART), hidden(between + ROWS * WIDTH),
          x(hidden + ROWS * HIDDEN) {}
};
enum Exchange { SAID_QKV, SAID_PART, SAID_BETWEEN, SAID_HIDDEN, SAID_X, EXCHANGES };  // in a layer

struct Rooms {                                 // in shared memory
    float* x;                                  // (ROWS, WIDTH)
    float* vector;                             // (ROWS, padded WIDTH or HIDDEN): what a product reads
    float* parts;                              // (LISTS, SPLITS, PART), where the hidden vector is later
    float* collected;                          // (WARPS, PART)
    float* heads;                              // (3, HEAD): query, key and value of one head
    float* between;                            // (ROWS, WARPS, 2)
    int* lengths;                              // (MOST_LAYERS, ROWS)

    DEVICE explicit Rooms(void* begin)
        : x((float*)begin), vector(x + ROWS * WIDTH), parts(vector + ROWS * padded(WIDTH)),
          collected(parts + LISTS * SPLITS * PART), heads(collected + WARPS * PART) {
        float *end = heads + 3 * HEAD, *end_of_hidden = vector + ROWS * padded(HIDDEN);
        between = end > end_of_hidden ? end : end_of_hidden;
        lengths = (int*)(between + ROWS * WARPS * 2);
    }
};

using Qkv = Product<WIDTH, QKV>;
using Out = Product<WIDTH, WIDTH>;
using Up = Product<WIDTH, HIDDEN>;
using Down = Product<HIDDEN, WIDTH>;

// ---- attention ---------------------------------------------------------------------------------------------------

DEVICE int splits_of(int length) {
    const int wanted = length / SHORTEST + 1;  // of length + 1 slots
    return wanted < SPLITS ? wanted : SPLITS;
}

// Lay out eight features of a head, turned by their position where positions are rotary.
DEVICE void turned(const float* from, int first, int position, float* to) {
    for (int j = 0; j < 8; j++) to[j] = from[first + j];
    if (!ROTARY) return;
    for (int j = 0; j < 8; j += 2) {
        const float angle = (float)position / powf(10000.0f, (float)(first + j) / HEAD);
        const float sine = sinf(angle), cosine = cosf(angle), even = to[j], odd = to[j + 1];
        to[j] = even * cosine - odd * sine;
        to[j + 1] = even * sine + odd * cosine;
    }
}

struct Running {                               // a softmax-weighted sum, as far as it has come
    float most, weight, sum[8];

    DEVICE void see(float score, const float* value) {
        const float larger = fmaxf(most, score), fade = expf(most - larger), share = expf(score - larger);
        most = larger;
        weight = weight * fade + share;
        for (int j = 0; j < 8; j++) sum[j] = sum[j] * fade + share * value[j];
    }

    DEVICE void join_over_warp() {             // the lanes that hold the same features
#pragma unroll
        for (int step = LANES; step < 32; step *= 2) {
            const float other = from_lane_xor(most, step), larger = fmaxf(most, other);
            const float mine = expf(most - larger), theirs = expf(other - larger);
            most = larger;
            weight = weight * mine + from_lane_xor(weight, step) * theirs;
#pragma unroll
            for (int j = 0; j < 8; j++) sum[j] = sum[j] * mine + from_lane_xor(sum[j], step) * theirs;
        }
    }
};

DEVICE float product_of(const float* a, const float* b) {  // over the lanes that share a slot
    float dot = 0.0f;
    for (int j = 0; j < 8; j++) dot += a[j] * b[j];
    return over_lanes<LANES>(dot);
}

struct Item {                                  // one head of one row over one split of its list
    int row, head, kv, split, splits, length, begin, end;

    DEVICE Item(int item, const int* lengths)
        : row(item / SPLITS / HEADS), head(item / SPLITS % HEADS), kv(head / (HEADS / KV_HEADS)), split(item % SPLITS),
          splits(splits_of(lengths[row])), length(lengths[row]) {
        const int each = (length + splits - 1) / splits;
        begin = min(split * each, length);
        end = min(begin + each, length);
    }
    DEVICE bool is_there() const { return split < splits; }
    DEVICE bool is_last() const { return split == splits - 1; }

    // Where this lane's features of a slot are.
    DEVICE long long place_of(const Layer& layer, int slot) const {
        return ((row * layer.slots + slot) * KV_HEADS + kv) * HEAD + (u32)thread_index() % LANES * 8;
    }
};

DEVICE int slot_at(int base, int turn) { return base + turn * GROUPS + (u32)thread_index() / LANES; }

struct Slots {                                 // some slots of a list, on their way
    Eight keys[AHEAD], values[AHEAD];

    DEVICE void ask(const Layer& layer, const Item& item, int base) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const long long at = item.place_of(layer, slot_at(base, i));
            if (slot_at(base, i) < item.end) keys[i] = fetch_changing(layer.keys + at), values[i] = fetch_changing(layer.values + at);
        }
    }

    DEVICE static void announce(const Layer& layer, const Item& item) {
        for (int i = 0; i < AHEAD; i++) {
            if (slot_at(item.begin, i) >= item.end) continue;
            prefetch(layer.keys + item.place_of(layer, slot_at(item.begin, i)));
            prefetch(layer.values + item.place_of(layer, slot_at(item.begin, i)));
        }
    }
};

// The query of a head and, where the step itself is looked at, its key and value, into shared memory.
DEVICE bool collect_head(const Item& item, const u64* qkv, u32 tag, float* heads) {
    constexpr int BY_TWOS = HEAD / 2;
    auto where = [&](u32 at) {
        const int first = at < BY_TWOS ? item.head : HEADS + item.kv + (at < 2 * BY_TWOS ? 0 : KV_HEADS);
        return qkv + item.row * QKV + first * HEAD + at % BY_TWOS * 2;
    };
    return collect<1>(item.is_last() ? 3 * BY_TWOS : BY_TWOS, tag, where, [&](int at, float first, float second) {
        heads[2 * at] = first;
        heads[2 * at + 1] = second;
    });
}

// The step itself, which is also written down.
DEVICE void see_itself(const Layer& layer, const Item& item, const float* q, const float* heads, Running& running) {
    const int first = (u32)thread_index() % LANES * 8;
    float key[8], value[8];
    turned(heads + HEAD, first, item.length, key);
    for (int j = 0; j < 8; j++) {              // as the next step will see them
        key[j] = to_float(from_float(key[j]));
        value[j] = to_float(from_float(heads[2 * HEAD + first + j]));
    }
    const float score = product_of(q, key);
    if ((u32)thread_index() / LANES != 0) return;
    running.see(score, value);
    if (item.head % (HEADS / KV_HEADS) != 0 || item.length >= layer.slots) return;
    const long long at = item.place_of(layer, item.length);
    for (int j = 0; j < 8; j++) layer.keys[at + j] = from_float(key[j]), layer.values[at + j] = from_float(value[j]);
}

// A part of a context, which is told to all.
DEVICE void attend(const Layer& layer, const Item& item, Slots slots, const Rooms& rooms, u64* part, u32 tag) {
    const int first = (u32)thread_index() % LANES * 8;
    float q[8];
    turned(rooms.heads, first, item.length, q);
    for (int j = 0; j < 8; j++) q[j] *= SCALE;
    Running running = {-1e30f, 0.0f, {}};
    for (int base = item.begin; base < item.end; base += SHORTEST) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float key[8] = {}, value[8] = {};
            const bool is_there = slot_at(base, i) < item.end;
            if (is_there) spread(slots.keys[i], key), spread(slots.values[i], value);
            const float score = product_of(q, key);
            if (is_there) running.see(score, value);
        }
        slots.ask(layer, item, base + SHORTEST);
    }
    if (item.is_last()) see_itself(layer, item, q, rooms.heads, running);
    running.join_over_warp();
    float* own = rooms.collected + (u32)thread_index() / 32 * PART;
    if ((u32)thread_index() % 32 < LANES)
        for (int j = 0; j < 8; j++) own[first + j] = running.sum[j];
    if ((u32)thread_index() % 32 == 0) own[HEAD] = running.weight, own[HEAD + 1] = running.most;
    block_sync();
    for (int h = thread_index(); h < PART; h += THREADS) {
        float most = -1e30f, sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) most = fmaxf(most, rooms.collected[w * PART + HEAD + 1]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += rooms.collected[w * PART + h] * expf(rooms.collected[w * PART + HEAD + 1] - most);
        send(part + h, h == HEAD + 1 ? most : sum, tag);
    }
    block_sync();
}

DEVICE bool attend_to_all(const Layer& layer, const Words& words, const Rooms& rooms, const int* lengths, u32 tag) {
    for (int at = block_index(); at < LISTS * SPLITS; at += BLOCKS) {
        const Item item(at, lengths);
        if (!item.is_there()) continue;
        Slots slots;
        slots.ask(layer, item, item.begin);
        if (!block_and(collect_head(item, words.qkv, tag + SAID_QKV, rooms.heads))) return false;
        attend(layer, item, slots, rooms, words.parts + at * PART, tag + SAID_PART);
    }
    return true;
}

// Put the splits of all contexts together, in shared memory.
DEVICE bool gather_contexts(const Words& words, const Rooms& rooms, const int* lengths, u32 tag) {
    constexpr int BY_TWOS = PART / 2;
    bool came = true;
    for (int row = 0; row < ROWS; row++) {
        const int splits = splits_of(lengths[row]);
        auto place_of = [&](u32 at) {          // of the words of the splits that there are, split by split
            const u32 split = at / (HEADS * BY_TWOS), head = at / BY_TWOS % HEADS;
            return ((row * HEADS + head) * SPLITS + split) * PART + at % BY_TWOS * 2;
        };
        auto take = [&](int at, float first, float second) {
            rooms.parts[place_of(at)] = first;
            rooms.parts[place_of(at) + 1] = second;
        };
        came = came && collect<4>(HEADS * splits * BY_TWOS, tag, [&](int at) { return words.parts + place_of(at); }, take);
    }
    if (!block_and(came)) return false;
    for (int at = thread_index(); at < ROWS * WIDTH; at += THREADS) {
        const int row = at / WIDTH, splits = splits_of(lengths[row]);
        const float* parts = rooms.parts + at / HEAD * SPLITS * PART;
        float most = -1e30f, weight = 0.0f, sum = 0.0f;
        for (int s = 0; s < splits; s++) most = fmaxf(most, parts[s * PART + HEAD + 1]);
        for (int s = 0; s < splits; s++) {
            const float share = expf(parts[s * PART + HEAD + 1] - most);
            weight += share * parts[s * PART + HEAD];
            sum += share * parts[s * PART + at % HEAD];
        }
        rooms.vector[row * padded(WIDTH) + place(at % WIDTH)] = sum / weight;
    }
    block_sync();
    return true;
}

DEVICE float activated(float x) {
    if (ACTIVATION == 0) return fmaxf(x, 0.0f);
    if (ACTIVATION == 1) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

// ---- the step ----------------------------------------------------------------------------------------------------

struct Arguments {
    const scalar* input;
    scalar* output;
    const u8* valid;
    u64* launches;                             // so far, over these words; no two launches share tags
    u64* failed;
    u64* words;
    const char* next;                          // what is read after the last layer; null: not known
    long long next_bytes;                      // of it, as many as the cache may hold
    int layers;
    Layer layer[MOST_LAYERS];
};

// Take a vector that every block wants.
template <int SIZE, typename To>
DEVICE bool collect_vector(const u64* words, u32 tag, To to) {
    constexpr int TWOS = ROWS * SIZE / 2, EACH = (TWOS + THREADS - 1) / THREADS;
    auto take = [&](u32 at, float first, float second) {
        *to(2 * at / SIZE, 2 * at % SIZE) = first;
        *to(2 * at / SIZE, 2 * at % SIZE + 1) = second;
    };
    return block_and(collect<(EACH < 6 ? EACH : 6)>(TWOS, tag, [&](int at) { return words + 2 * at; }, take));
}

// While the last layer's words travel, memory brings the beginning of what the next kernel reads.
DEVICE void announce_next(const Arguments& given) {
    constexpr long long PIECE = 4096;
    if (thread_index() % 32) return;
    for (long long at = (block_index() * WARPS + thread_index() / 32) * PIECE; at < given.next_bytes; at += BLOCKS * WARPS * PIECE)
        prefetch_bulk(given.next + at, (u32)min(PIECE, given.next_bytes - at));
}

// Ask for what a layer begins with.
struct Beginning {
    Norm norm;
    Qkv qkv;

    DEVICE void ask(const Layer& layer) {
        qkv.ask(layer.qkv, layer.qkv_bias, 0);
        norm.ask(layer.norm, layer.norm_bias);
    }
};

// One layer, from x to x in shared memory, or to the output; false: words did not come. `tag` is the first of its own.
DEVICE bool step(const Arguments& given, int at, const Words& words, const Rooms& rooms, Beginning& beginning, u32 tag) {
    const Layer& layer = given.layer[at];
    const bool is_last = at + 1 == given.layers;
    const Layer& after = given.layer[is_last ? at : at + 1];
    const int* lengths = rooms.lengths + at * ROWS;
    auto to_x = [&](int b, int d) { return rooms.x + b * WIDTH + d; };

    beginning.norm.run(rooms.x, rooms.vector, rooms.between);
    beginning.qkv.run(layer.qkv, layer.qkv_bias, rooms.vector, [&](int row, int b, float y) {
        send(words.qkv + b * QKV + row, y, tag + SAID_QKV);
    });
    if (is_last)
        announce_next(given);
    else
        Qkv::announce(after.qkv), Out::announce(after.out);
    if (!attend_to_all(layer, words, rooms, lengths, tag)) return false;
    Out out;
    out.ask(layer.out, layer.out_bias, 0);
    if (!gather_contexts(words, rooms, lengths, tag + SAID_PART)) return false;

    out.run(layer.out, layer.out_bias, rooms.vector, [&](int row, int b, float y) {
        send(words.between + b * WIDTH + row, rooms.x[b * WIDTH + row] + y, tag + SAID_BETWEEN);
    });
    Norm norm;
    Up up;
    up.ask(layer.up, layer.up_bias, 0);
    norm.ask(layer.next_norm, layer.next_norm_bias);
    if (!is_last) Up::announce(after.up);
    if (!collect_vector<WIDTH>(words.between, tag + SAID_BETWEEN, to_x)) return false;  // a row is told after x was read

    norm.run(rooms.x, rooms.vector, rooms.between);
    up.run(layer.up, layer.up_bias, rooms.vector, [&](int row, int b, float y) {
        send(words.hidden + b * HIDDEN + row, activated(y), tag + SAID_HIDDEN);
    });
    Down down;
    down.ask(layer.down, layer.down_bias, 0);
    if (!is_last) Down::announce(after.down);
    block_sync();                              // the hidden vector comes where the products read
    auto to_vector = [&](int b, int d) { return rooms.vector + b * padded(HIDDEN) + place(d); };
    if (!collect_vector<HIDDEN>(words.hidden, tag + SAID_HIDDEN, to_vector)) return false;

    down.run(layer.down, layer.down_bias, rooms.vector, [&](int row, int b, float y) {
        const float sum = rooms.x[b * WIDTH + row] + y;
        if (is_last)
            given.output[b * WIDTH + row] = from_float(sum);
        else
            send(words.x + b * WIDTH + row, sum, tag + SAID_X);
    });
    beginning = Beginning{};                   // it is not wanted from here on, or asked for
    if (is_last) return true;
    beginning.ask(after);
    for (int i = block_index(); i < LISTS * SPLITS; i += BLOCKS) {
        const Item item(i, lengths + ROWS);
        if (item.is_there()) Slots::announce(after, item);
    }
    return collect_vector<WIDTH>(words.x, tag + SAID_X, to_x);
}

KERNEL(THREADS) block_step(const Arguments given) {
    SHARED_MEMORY(shared);
    const Rooms rooms(shared);
    const Words words(given.words);
    Beginning beginning;
    beginning.ask(given.layer[0]);
    Up::announce(given.layer[0].up);
    Down::announce(given.layer[0].down);
    for (int i = thread_index(); i < given.layers * ROWS; i += THREADS)
        rooms.lengths[i] = (int)given.layer[i / ROWS].length[i % ROWS];
    for (int i = thread_index(); i < ROWS * WIDTH; i += THREADS) rooms.x[i] = to_float(given.input[i]);
    const u32 first = (u32)*given.launches * (MOST_LAYERS * EXCHANGES) + 1;
    bool goes_on = block_and(*given.failed == 0);
    for (int at = 0; goes_on && at < given.layers; at++)
        goes_on = step(given, at, words, rooms, beginning, first + at * EXCHANGES);
    if (!goes_on) {
        *given.failed = 1;
        return;
    }
    if (block_index() != 0) return;
    if (thread_index() == 0) *given.launches += 1;  // all have read it: they have spoken since
    for (int i = thread_index(); i < given.layers * ROWS; i += THREADS)
        given.layer[i / ROWS].length_after[i % ROWS] = rooms.lengths[i] + (given.valid ? given.valid[i % ROWS] : 1);
}
