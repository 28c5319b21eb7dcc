// One step through pre-norm Transformer blocks, one after another, in one launch: all thread blocks are persistent, and
// exchange what the next product reads.
//
//   q, k, v = W_qkv norm(x)                 | each warp has rows of W; every block computes the norm of x itself
//   c = softmax(q kᵀ) v                     | a head's keys are split over several blocks
//   x = x + W_out c                         | the partial contexts are combined by every block itself
//   h = φ(W_up norm(x));  x = x + W_down h
//
// What a layer costs: five exchanges (exchange.cuh; about 1 µs each) with little work between them. Its weights, read once,
// arrive meanwhile: in the L2 cache while the layer before exchanges words, and in registers while few blocks attend and
// most wait for them; requested just before a wait they would delay the polling behind them. The readable form is
// `Block.read`. Sizes are constants of the compilation:
//
//   SCALAR 0 float, 1 bfloat16, 2 half; ROWS; WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD; ACTIVATION 0 relu, 1 gelu,
//   2 gelu by tanh; RMS; ROTARY; SCALE; EPS; WARPS; BLOCKS, at most WIDTH; SPLITS, of a head's keys, at most; MOST_LAYERS

#include "attention.cuh"
#include "portion.cuh"

struct Layer {
    const scalar *norm, *norm_bias, *qkv, *qkv_bias, *out, *out_bias;
    const scalar *next_norm, *next_norm_bias, *up, *up_bias, *down, *down_bias;
    scalar *keys, *values;
    const long long* length;                   // (B,)
    long long* length_after;                   // (B,)
    long long slots;

    DEVICE Lists lists() const { return {keys, values, slots}; }
};

using Qkv = Portion<WIDTH, QKV, 2>;
using Out = Portion<WIDTH, WIDTH, 1>;
using Up = Portion<WIDTH, HIDDEN, 2>;
using Down = Portion<HIDDEN, WIDTH, 1>;
constexpr bool HAS_ROOM = (sizeof(Up) + sizeof(Down)) / 4 <= 100;  // registers for both, while words are polled

// What blocks exchange in a layer. Each word is written once in a layer, and again in the next one only when all have read
// it: every block sends at least one number of `between` and of `x` (BLOCKS is at most WIDTH), each after all that it reads
// before. A block that has received x therefore knows that all have read qkv, parts, between and hidden; one that has
// received `between`, that all have read the x before. The sums passed from layer to layer stay in full precision.
struct Words {
    u64 *qkv, *parts, *between, *hidden, *x;   // (ROWS, …): QKV / PACK; SPLITS, HEADS, PART; WIDTH; HIDDEN / PACK; WIDTH

    DEVICE explicit Words(u64* begin)
        : qkv(begin), parts(qkv + ROWS * QKV / PACK), between(parts + PARTS), hidden(between + ROWS * WIDTH),
          x(hidden + ROWS * HIDDEN / PACK) {}
};
enum Exchange { SAID_QKV, SAID_PART, SAID_BETWEEN, SAID_HIDDEN, SAID_X, EXCHANGES };  // in a layer

DEVICE constexpr int larger_of(int a, int b) { return a > b ? a : b; }

// In shared memory. Offsets are constants: for a pointer selected among two the compiler loses that it is to shared memory.
struct Rooms {
    static constexpr int AT_VECTOR = ROWS * WIDTH, AT_PARTS = AT_VECTOR + ROWS * padded(WIDTH);
    static constexpr int AT_COLLECTED = AT_PARTS + PARTS, AT_HEADS = AT_COLLECTED + WARPS * COLLECTED;
    static constexpr int AT_BETWEEN = larger_of(AT_HEADS + 3 * HEAD, AT_VECTOR + ROWS * padded(HIDDEN));
    static constexpr int AT_SUMS = AT_BETWEEN + 2 * ROWS * WARPS;
    static constexpr int SUMS = larger_of(larger_of(Qkv::SUMS, Out::SUMS), larger_of(Up::SUMS, Down::SUMS));
    static constexpr int AT_LENGTHS = AT_SUMS + 8 * ROWS * larger_of(Qkv::EACH, larger_of(Up::EACH, Down::EACH));
    static_assert(SUMS <= AT_LENGTHS - AT_SUMS, "room for sums");

    float* x;                                  // (ROWS, WIDTH)
    float* vector;                             // (ROWS, padded WIDTH or HIDDEN): what a product reads
    u32* parts;                                // (ROWS, SPLITS, HEADS, PART), in the place of the later hidden vector
    float* collected;                          // (WARPS, COLLECTED)
    float* heads;                              // (3, HEAD): query, key and value of one head
    float* between;                            // (ROWS, WARPS, 2)
    float* sums;                               // of a product's rows
    int* lengths;                              // (MOST_LAYERS, ROWS)

    DEVICE explicit Rooms(void* begin)
        : x((float*)begin), vector(x + AT_VECTOR), parts((u32*)(x + AT_PARTS)), collected(x + AT_COLLECTED), heads(x + AT_HEADS),
          between(x + AT_BETWEEN), sums(x + AT_SUMS), lengths((int*)(x + AT_LENGTHS)) {}
};

// Attend to this block's share. One without a share waits until the query has arrived: its requests then delay nobody.
DEVICE bool attend_to_all(const Layer& layer, const Words& words, const Rooms& rooms, const int* lengths, u32 tag) {
    bool has_none = true;
    for (u32 at = block_index(); at < ROWS * HEADS * SPLITS; at += BLOCKS) {
        const Item item(at, lengths);
        if (!item.is_there) continue;
        has_none = false;
        Slots slots;
        slots.ask(layer.lists(), item, item.begin);
        if (!block_and(collect_head(item, words.qkv, tag + SAID_QKV, rooms.heads))) return false;
        attend(layer.lists(), item, slots, rooms.heads, rooms.collected, words.parts + at * PART, tag + SAID_PART);
    }
    if (!has_none) return true;
    return block_and(collect<1>(1, tag + SAID_QKV, [&](int) { return words.qkv; }, [](int, int, u32, u32) {}));
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
    const char* next;                          // what is read after the last layer; null: unknown
    long long next_bytes;                      // of it, as many as the cache may hold
    int layers;
    Layer layer[MOST_LAYERS];
};

// Receive a vector of sums that every block needs, into x.
DEVICE bool collect_sums(const u64* words, u32 tag, float* x) {
    constexpr int TWOS = ROWS * WIDTH / 2, EACH = (TWOS + THREADS - 1) / THREADS;
    auto take = [&](int, u32 at, u32 first, u32 second) { *(float2*)(x + 2 * at) = make_float2(float_of(first), float_of(second)); };
    return block_and(collect<(EACH < 6 ? EACH : 6)>(TWOS, tag, [&](int at) { return words + 2 * at; }, take));
}

// The same, and compute its norm: the elements of one row stay in registers; x_0 is sent to all.
DEVICE bool collect_normalised(const u64* words, u32 tag, const Norm& norm, const Rooms& rooms) {
    if (ROWS > 1) {
        if (!collect_sums(words, tag, rooms.x)) return false;
        norm.run(rooms.x, rooms.vector, rooms.between);
        return true;
    }
    constexpr u32 EACH = Norm::EACH, TWOS = Norm::TWOS;
    float2 mine[EACH];
    float shift = 0.0f;
    auto where = [&](u32 at) { return words + (at < EACH * THREADS ? 2 * min(at, TWOS - 1) : 0); };
    auto take = [&](int i, u32 at, u32 first, u32 second) {
        if (i == (int)EACH)
            shift = RMS ? 0.0f : float_of(first);
        else
            mine[i] = make_float2(float_of(first), float_of(second));
        if (at < TWOS) *(float2*)(rooms.x + 2 * at) = make_float2(float_of(first), float_of(second));
    };
    const bool came = collect<EACH + 1>((EACH + 1) * THREADS, tag, where, take);
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const bool is_there = Norm::two_at(i) < TWOS;
        mine[i] = make_float2(either(is_there, mine[i].x - shift, 0.0f), either(is_there, mine[i].y - shift, 0.0f));
    }
    if (!norm.end(mine, rooms.vector, rooms.between, came)) return false;
    block_sync();
    return true;
}

// Receive the hidden vector, to where a product reads it.
DEVICE bool collect_hidden(const u64* words, u32 tag, float* vector) {
    constexpr int IN_TWO = 2 * PACK, TWOS = ROWS * HIDDEN / IN_TWO, EACH = (TWOS + THREADS - 1) / THREADS;
    auto take = [&](int, u32 at, u32 first, u32 second) {
        const u32 came[2] = {first, second}, b = ROWS == 1 ? 0 : at * IN_TWO / HIDDEN, d = at * IN_TWO - b * HIDDEN;
        float* to = vector + b * padded(HIDDEN) + place(d);  // four from a multiple of four on are adjacent
        const float2 low = both_of(came, 0), high = both_of(came, IN_TWO - 2);
        if (PACK == 2)
            *(float4*)to = make_float4(low.x, low.y, high.x, high.y);
        else
            *(float2*)to = low;
    };
    return block_and(collect<(EACH < 6 ? EACH : 6)>(TWOS, tag, [&](int at) { return words + 2 * at; }, take));
}

// While the last layer's words are in flight, prefetch the beginning of what the next kernel reads.
DEVICE void announce_next(const Arguments& given) {
    constexpr long long PIECE = 4096;
    if (thread_index() % 32) return;
#pragma unroll 1
    for (long long at = (block_index() * WARPS + thread_index() / 32) * PIECE; at < given.next_bytes; at += BLOCKS * WARPS * PIECE)
        prefetch_bulk(given.next + at, (u32)min(PIECE, given.next_bytes - at));
}

// Norms and biases: few bytes, but each block would wait for them to come from memory. A line by each thread, a vector by
// each block, the last block first: the first ones attend.
DEVICE void announce_small(const Layer& layer) {
    constexpr int LINE = 128 / sizeof(scalar);
#pragma unroll 1
    for (int i = BLOCKS - 1 - block_index(); i < 12; i += BLOCKS) {  // as they stand in `Layer`, among them four matrices
        const scalar* vector = (&layer.norm)[i];
        if (i == 2 || i == 4 || i == 8 || i == 10 || !vector) continue;
        const int size = i == 3 ? QKV : i == 9 ? HIDDEN : WIDTH;
#pragma unroll 1
        for (int at = thread_index() * LINE; at < size; at += THREADS * LINE) prefetch(vector + at);
    }
}

// Keys and values, each block for the opposite one: few attend.
DEVICE void announce_lists(const Layer& layer, const int* lengths) {
    for (u32 at = BLOCKS - 1 - block_index(); at < ROWS * HEADS * SPLITS; at += BLOCKS) {
        const Item item(at, lengths);
        if (item.is_there) item.announce(layer.lists());
    }
}

// While the words between the two halves of a layer are in flight, prefetch what the next one begins with.
DEVICE void announce_beginning(const Layer& after, const int* lengths) {
    Qkv::announce(after.qkv);
    Out::announce(after.out);
    announce_small(after);
    announce_lists(after, lengths);
}

// Request what a layer begins with.
struct Beginning {
    Norm norm;
    Qkv qkv;

    DEVICE void ask(const Layer& layer) {
        qkv.ask(layer.qkv, layer.qkv_bias);
        norm.ask(layer.norm, layer.norm_bias);
    }
};

// One layer, from x and norm(x) to those of the next in shared memory, or to the output; false: words did not arrive. `tag` is the first of its own.
DEVICE bool step(const Arguments& given, int at, const Words& words, const Rooms& rooms, Beginning& beginning, u32 tag) {
    const Layer& layer = given.layer[at];
    const bool is_last = at + 1 == given.layers;
    const Layer& after = given.layer[is_last ? at : at + 1];
    const int* lengths = rooms.lengths + at * ROWS;

    beginning.qkv.run(layer.qkv, layer.qkv_bias, rooms.vector, rooms.sums, [&](int row, int b, const float* y) {
        send_both(words.qkv + b * QKV / PACK, row, y[0], y[1], tag + SAID_QKV);
    });
    Out out;
    out.ask(layer.out, layer.out_bias);
    if (!attend_to_all(layer, words, rooms, lengths, tag)) return false;
    Norm norm;                                 // here, where most blocks are idle: later exchanges would wait behind it
    Up up;
    Down down;
    norm.ask(layer.next_norm, layer.next_norm_bias);
    up.ask(layer.up, layer.up_bias);
    if (HAS_ROOM) down.ask(layer.down, layer.down_bias);
    if (!gather_contexts(words.parts, rooms.parts, rooms.vector, lengths, tag + SAID_PART)) return false;

    out.run(layer.out, layer.out_bias, rooms.vector, rooms.sums, [&](int row, int b, const float* y) {
        send(words.between + b * WIDTH + row, rooms.x[b * WIDTH + row] + *y, tag + SAID_BETWEEN);
    });
    if (!HAS_ROOM) down.ask(layer.down, layer.down_bias);
    if (is_last)
        announce_next(given);
    else
        announce_beginning(after, lengths + ROWS);
    if (!collect_normalised(words.between, tag + SAID_BETWEEN, norm, rooms)) return false;  // a row is sent after x was read

    up.run(layer.up, layer.up_bias, rooms.vector, rooms.sums, [&](int row, int b, const float* y) {
        send_both(words.hidden + b * HIDDEN / PACK, row, activated(y[0]), activated(y[1]), tag + SAID_HIDDEN);
    });
    if (!is_last) Up::announce(after.up), Down::announce(after.down);
    if (!collect_hidden(words.hidden, tag + SAID_HIDDEN, rooms.vector)) return false;

    down.run(layer.down, layer.down_bias, rooms.vector, rooms.sums, [&](int row, int b, const float* y) {
        const float sum = rooms.x[b * WIDTH + row] + *y;
        if (is_last)
            given.output[b * WIDTH + row] = from_float(sum);
        else
            send(words.x + b * WIDTH + row, sum, tag + SAID_X);
    });
    beginning = Beginning{};                   // it is dead from here on, or requested again
    if (is_last) return true;
    beginning.ask(after);
    return collect_normalised(words.x, tag + SAID_X, beginning.norm, rooms);
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
    if (goes_on) beginning.norm.run(rooms.x, rooms.vector, rooms.between);
    for (int at = 0; goes_on && at < given.layers; at++)
        goes_on = step(given, at, words, rooms, beginning, first + at * EXCHANGES);
    if (!goes_on) {
        *given.failed = 1;
        return;
    }
    if (block_index() != 0) return;
    if (thread_index() == 0) *given.launches += 1;  // all have read it: they have sent words since
    for (int i = thread_index(); i < given.layers * ROWS; i += THREADS)
        given.layer[i / ROWS].length_after[i % ROWS] = rooms.lengths[i] + (given.valid ? given.valid[i % ROWS] : 1);
}
