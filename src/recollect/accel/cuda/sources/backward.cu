// The time loop from the last step to the first: the gradient through h is W_hh' dgates, with dgates of all units.
//
// That is four times as much to exchange as h, so a cluster divides the work: its blocks own CLUSTER * UNITS units; each
// multiplies its own share of k for all of them and sends every partial sum to the block that owns the units, which adds
// them. Where a group is one cluster, a block's share of k is what the block itself has computed, and nothing else is
// exchanged. Otherwise dgates go through the L2 cache, and a block reads 1 / CLUSTER of them.
//
// Sums are twice the bytes of a state, and a block receives 14 a clock: in bf16 they are sent in pairs (PAIRED), and those
// of 64 units are sent while the next 64 are multiplied.
//
// dW_hh, dW_ih, dx and db are large matmuls over all steps, which the host leaves to cuBLAS.
#include "common.cuh"
#include "pairs.cuh"

// HIGH: tiles of 64 rows (units) for a warpgroup. TILES: groups of 16 units of a block.
constexpr int SENT = CELL == 0 ? 4 : CELL == 1 ? 3 : 1;  // slots that W_hh multiplies
constexpr int UNITS = TILES * 16;
constexpr int DEPTH = (THROUGH_L2 ? CHUNKS * PER_CHUNK : 1) * TILES * SENT * FOLD;  // tiles of k for a warpgroup
constexpr int KEPT = HIGH * DEPTH - LAID;  // tiles of weights in registers; LAID only where HIGH is 1
constexpr int PIECES = THROUGH_L2 ? CHUNKS : 1, PIECE = DEPTH / PIECES;
constexpr int CHAINS = THROUGH_L2 && ROWS == 8 && PIECE > 1 ? 2 : 1;  // else not worth the registers
constexpr int SHARE_BYTES = DEEP * DEPTH * TILE_BYTES;  // a block's share of k
constexpr int BUFFERS = THROUGH_L2 ? 1 : 2;
constexpr int CHUNK_BYTES = THROUGH_L2 ? PER_CHUNK * TILES * SENT * FOLD * TILE_BYTES : 0;
constexpr int SENDERS = CLUSTER * DEEP;
constexpr int FRAGMENT_BYTES = COLUMN_TILES * (PAIRED ? 256 : 512);  // 16 units of partial sums from one sender
constexpr int SUMS_BYTES = SENDERS * TILES * FRAGMENT_BYTES;
constexpr int ITEMS = TILES * COLUMN_TILES * 64;  // an item: one unit in two neighbouring rows
constexpr int MINE = (ITEMS + THREADS - 1) / THREADS;
constexpr int SHARES = THROUGH_L2 ? CLUSTER * DEEP * CHUNKS : 1;  // chunks of a group

struct Backward {
    const Number* gates;             // (T, B, H, SLOTS), as forward.cu has left them
    const Number *cells, *outputs;   // (T + 1, B, H)
    const Number* weights;           // packed
    const int* lengths;              // (B,), or null
    const Number* d_outputs;         // (T, B, H) by its strides, or null
    const float *d_last_hidden, *d_last_cell;  // (B, H), or null
    Number* d_logits;                          // (T, B, H, SLOTS)
    float *d_hidden, *d_cell;                  // (B, H)
    float* d_bias;                             // (pairs of rows, H, SLOTS), or null: summed over all steps
    Number* exchange;                          // (2, groups, k / BESIDE, ROWS, BESIDE), zero
    u32 *counters, *failed, *told;             // zero
    i64 step_stride, row_stride;               // of d_outputs
    int steps, by_step, rows, width, groups;   // as forward.cu's
};

struct Element {
    float d_hidden, d_cell;  // the gradient that bypasses W_hh; that of the cell
    float cell;              // c_t
    int length;
    bool real;
};

struct Seen {  // of one step: read ahead
    Words gates;
    Number before, d_output;  // c_{t-1} for the LSTM, h_{t-1} for the GRU, h_t for the RNN
};

// From the gradient of h_t to those of the logits; `sent` is what W_hh multiplies.
DEVICE void step_back(Element& e, const Seen& seen, float d_hidden, float* d_logits, float* sent) {
    const float before = widen(seen.before);
#if CELL == 0
    const float i = seen.gates.at(0), f = seen.gates.at(1), g = seen.gates.at(2);
    const float o = seen.gates.at(3), squashed = hyperbolic(e.cell);
    const float d_cell = e.d_cell + d_hidden * o * (1.0f - squashed * squashed);
    d_logits[0] = d_cell * g * i * (1.0f - i), d_logits[1] = d_cell * before * f * (1.0f - f);
    d_logits[2] = d_cell * i * (1.0f - g * g), d_logits[3] = d_hidden * squashed * o * (1.0f - o);
    for (int s = 0; s < 4; ++s) sent[s] = d_logits[s];
    e.d_hidden = 0.0f, e.d_cell = d_cell * f;
#elif CELL == 1
    const float r = seen.gates.at(0), z = seen.gates.at(1), n = seen.gates.at(2);
    const float d_candidate = d_hidden * (1.0f - z) * (1.0f - n * n);
    d_logits[0] = d_candidate * seen.gates.at(3) * r * (1.0f - r);
    d_logits[1] = d_hidden * (before - n) * z * (1.0f - z);
    d_logits[2] = d_candidate, d_logits[3] = d_candidate * r;
    sent[0] = d_logits[0], sent[1] = d_logits[1], sent[2] = d_logits[3];
    e.d_hidden = d_hidden * z;
#else
    d_logits[0] = CELL == 2 ? d_hidden * (1.0f - before * before) : (before > 0.0f ? d_hidden : 0.0f);
    sent[0] = d_logits[0];
    e.d_hidden = 0.0f;
#endif
}

struct Place {
    int group, block, rank, warpgroup, part, thread, warp, lane;
};

DEVICE Place find_place() {
    Place me;
    me.group = block_index() / BLOCKS, me.block = block_index() % BLOCKS, me.rank = me.block % CLUSTER;
    me.warpgroup = of_warp(thread_index() / 128), me.part = DEEP == 1 ? 0 : me.warpgroup / WIDE;
    me.thread = thread_index() % 128, me.warp = me.thread / 32, me.lane = me.thread % 32;
    return me;
}

// Where an item is: its number counts halves of a fragment's 16 bytes, so that threads read them contiguously. A warp has
// all 16 units of four rows: what is adjacent in memory is loaded at once.
struct Item {
    int number, tile, unit, row;  // unit within the 16 of the tile; first of two rows within the group
};

// A thread's items differ by whole rows or tiles, so that the others' offsets follow from the first's in few instructions:
// a block has too few warps to hide them.
constexpr int ITEMS_OF_TILE = COLUMN_TILES * 64;
DEVICE int tiles_on(int i) { return i * THREADS / ITEMS_OF_TILE; }
DEVICE int rows_on(int i) { return i * THREADS % ITEMS_OF_TILE / 64 * 8; }

DEVICE Item find_item(int i) {
    const int first = thread_index();
    Item item;
    item.number = first + i * THREADS;
    item.tile = first / ITEMS_OF_TILE + tiles_on(i);
    item.unit = first / 2 % 8 + first % 2 * 8;
    item.row = first / 64 % COLUMN_TILES * 8 + first / 16 % 4 * 2 + rows_on(i);
    return item;
}

DEVICE int unit_of(const Place& me, const Item& item) { return me.block * UNITS + item.tile * 16 + item.unit; }

struct First {  // where a thread's first element is: within a step's (B, H), and within d_outputs'
    u32 at;
    u64 d_at;
};

DEVICE First find_first(const Backward& a, const Place& me) {
    const Item item = find_item(0);
    const u32 row = me.group * ROWS + item.row, unit = unit_of(me, item);
    return {row * a.width + unit, row * a.row_stride + unit};
}

DEVICE u32 place_of(const Backward& a, const First& first, int i, int r) {
    return first.at + (rows_on(i) + r) * a.width + tiles_on(i) * 16;
}

DEVICE u64 d_place_of(const Backward& a, const First& first, int i, int r) {
    return first.d_at + (rows_on(i) + r) * a.row_stride + tiles_on(i) * 16;
}

struct Step {  // where one step's values are: advanced from step to step, as each multiplication in the loop costs
    const Number *gates, *before, *d_outputs;
    Number* d_logits;

    DEVICE Step(const Backward& a, int t) {
        const i64 size = (i64)a.by_step * a.width;
        gates = a.gates + t * size * SLOTS;
        before = CELL == 0 ? a.cells + t * size : a.outputs + (CELL == 1 ? t : t + 1) * size;
        d_outputs = a.d_outputs + t * a.step_stride;
        d_logits = a.d_logits + t * size * SLOTS;
    }
    DEVICE void go_back(const Backward& a) {
        const i64 size = (i64)a.by_step * a.width;
        gates -= size * SLOTS, before -= size, d_outputs -= a.step_stride, d_logits -= size * SLOTS;
    }
    DEVICE Seen see(const Backward& a, const First& first, int i, int r) const {
        Seen seen;
        const u32 at = place_of(a, first, i, r);
        seen.gates = Words();
        if (CELL < 2) seen.gates = load_words(gates + (u64)at * SLOTS);
        seen.before = before[at];
        seen.d_output = 0;
        if (a.d_outputs) seen.d_output = d_outputs[d_place_of(a, first, i, r)];
        return seen;
    }
    // Prefetch what `see` will load in some steps: units are adjacent, one lane requests 32 bytes of them.
    DEVICE void bring_near(const Backward& a, const First& first, int i, int r) const {
        const i64 size = (i64)a.by_step * a.width, at = place_of(a, first, i, r) - AHEAD * size;
        if (CELL < 2) prefetch(gates + at * SLOTS);
        prefetch(before + at);
        if (a.d_outputs) prefetch(d_outputs + d_place_of(a, first, i, r) - AHEAD * a.step_stride);
    }
};

DEVICE void begin(const Backward& a, const Place& me, const First& first, int i, Element* pair, Seen* seen) {
    const Item item = find_item(i);
    for (int r = 0; r < 2; ++r) {
        Element& e = pair[r];
        e.real = item.number < ITEMS && unit_of(me, item) < a.width && me.group * ROWS + item.row + r < a.rows;
        e.length = 0, e.d_hidden = 0.0f, e.d_cell = 0.0f, e.cell = 0.0f;
        seen[r] = Seen();
        if (!e.real) continue;
        const u32 at = place_of(a, first, i, r);
        e.length = a.lengths ? a.lengths[me.group * ROWS + item.row + r] : a.steps;
        if (a.d_last_hidden) e.d_hidden = a.d_last_hidden[at];
        if (CELL == 0 && a.d_last_cell) e.d_cell = a.d_last_cell[at];
        if (CELL == 0) e.cell = widen(a.cells[(i64)a.steps * a.by_step * a.width + at]);
        seen[r] = Step(a, a.steps - 1).see(a, first, i, r);
    }
}

struct Shared {
    u8 *share, *sums, *laid;  // BUFFERS shares of k, two boards of partial sums, weights
    u32 share_address, sums_address, laid_address, barriers;
};

DEVICE u32 sums_barrier(const Shared& shared, int turn) { return shared.barriers + turn % 2 * 8; }
DEVICE u32 chunk_barrier(const Shared& shared, int chunk) { return shared.barriers + 16 + chunk * 8; }

// A turn is an iteration of this loop: turn 0 is the last step in time. Its sums are what turn - 1 has sent.
DEVICE void await_sums(const Shared& shared, Guard& guard, int turn) {
    const u32 barrier = sums_barrier(shared, turn);
    guard.until([&] { return barrier_passed(barrier, (turn - 1) / 2 % 2); });
    if (thread_index() == 0 && !guard.gave_up) barrier_expect(barrier, SUMS_BYTES);  // for the turn after next
}

// An item as one sender sends it, and where: sixteen bytes have two units in four rows, or two pairs of those. Of an odd
// number of column tiles the last is sent alone, as eight bytes.
#if PAIRED
typedef u32 Sent;
DEVICE float2 both_of(Sent sent) { return unpack_pair(sent); }
DEVICE int lies_at(int number) {
    const int begin = COLUMN_TILES % 2 ? number / ITEMS_OF_TILE * ITEMS_OF_TILE : 0, own = number - begin;
    if (COLUMN_TILES % 2 && own >= ITEMS_OF_TILE - 64) return number;
    return begin + own / 128 * 128 + own % 64 / 2 * 4 + own / 64 % 2 * 2 + own % 2;
}
#else
typedef float2 Sent;
DEVICE float2 both_of(Sent sent) { return sent; }
DEVICE int lies_at(int number) { return number; }
#endif

DEVICE void add_sums(const Shared& shared, const Item& item, int turn, float* pair) {
    constexpr int EACH = SUMS_BYTES / SENDERS / sizeof(Sent);
    const Sent* board = (const Sent*)(shared.sums + turn % 2 * SUMS_BYTES) + lies_at(item.number);
#pragma unroll
    for (int sender = 0; sender < SENDERS; ++sender) {
        const float2 more = both_of(board[sender * EACH]);
        pair[0] += more.x, pair[1] += more.y;
    }
}

// One item's step: the gradients of its logits, sent to the blocks that multiply them and stored for the large matmuls.
DEVICE void work(const Backward& a, const Place& me, const Shared& shared, int turn, int i, Element* pair, const Seen* seen,
                 float (*d_logits)[4]) {
    const Item item = find_item(i);
    if (MINE * THREADS > ITEMS && item.number >= ITEMS) return;
    float flow[2] = {0.0f, 0.0f};
    if (turn > 0) add_sums(shared, item, turn, flow);
#if THROUGH_L2
    Number* to = a.exchange + (u64)(turn % 2 * a.groups + me.group) * (CLUSTER * (SHARE_BYTES / sizeof(Number)));
    to += place((me.block * TILES + item.tile) * SENT * 16 + item.unit, item.row);
#else
    Number* to = (Number*)(shared.share + turn % 2 * SHARE_BYTES) + place(item.tile * SENT * 16 + item.unit, item.row);
#endif
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        Element& e = pair[r];
        Element after = e;
        float sent[4];
        const float d_hidden = e.d_hidden + flow[r] + widen(seen[r].d_output);
        step_back(after, seen[r], d_hidden, d_logits[r], sent);
        // A row that has ended passes its gradient on. No branch, so that the arithmetic of all elements overlaps.
        const bool runs = a.steps - 1 - turn < e.length;
        e.d_hidden = either(runs, after.d_hidden, d_hidden), e.d_cell = either(runs, after.d_cell, e.d_cell);
        if (CELL == 0) e.cell = widen(seen[r].before);
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) d_logits[r][s] = either(runs, d_logits[r][s], 0.0f);
#pragma unroll
        for (int s = 0; s < SENT; ++s) to[place(s * 16, r)] = factor(either(runs, sent[s], 0.0f));
    }
}

DEVICE void announce(const Backward& a, const Place& me) {
#if THROUGH_L2
    block_sync();
    if (thread_index() == 0) raise(a.counters + (me.group * SHARES + me.block / PER_CHUNK) * COUNTER_GAP);
#else
    fence_for_products();
    block_sync();
#endif
}

#if THROUGH_L2
DEVICE void fetch_share(const Backward& a, const Place& me, const Shared& shared, Guard& guard, int turn) {
    if (me.warpgroup % WIDE == 0 && me.warp == 0) {
        if (me.lane < CHUNKS) {
            const int own = me.part * CHUNKS + me.lane, chunk = me.rank * DEEP * CHUNKS + own;
            const u32* counter = a.counters + (me.group * SHARES + chunk) * COUNTER_GAP;
            const u32 wanted = fillers(chunk) * (turn + 1);
            const u64 group = (u64)(turn % 2 * a.groups + me.group) * CLUSTER * SHARE_BYTES;
            const u8* from = (const u8*)a.exchange + group + chunk * CHUNK_BYTES;
            bool asked = false;
            guard.until([&] {
                if (!asked && look(counter) >= wanted) {
                    fence_for_copies();
                    barrier_expect(chunk_barrier(shared, own), CHUNK_BYTES);
                    copy_bulk(shared.share_address + own * CHUNK_BYTES, from, CHUNK_BYTES, chunk_barrier(shared, own));
                    asked = true;
                }
                return asked;
            });
        }
        warp_sync();
    }
}
#endif

// sums (64, ROWS) = W' dgates over this warpgroup's share of k, for one of its tiles of 64 units: issued, not awaited.
DEVICE void multiply(const Backward& a, const Place& me, const Shared& shared, Guard& guard, const u32 (*weights)[4],
                     int turn, int high, float (*sums)[COLUMN_TILES * 4]) {
    const u32 buffer = shared.share_address + turn % BUFFERS * SHARE_BYTES;
    const u64 share = describe(buffer + me.part * DEPTH * TILE_BYTES);
    const u64 laid = LAID ? describe(shared.laid_address + me.warpgroup * LAID * 2048, 64) : 0;
    auto use = [&](int piece) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
            const int tile = piece * PIECE + i;
            multiply_tile<KEPT>(sums[i % CHAINS], weights, laid, high * DEPTH + tile,
                                share + (u64)(tile * TILE_BYTES >> 4), piece > 0 || i >= CHAINS);
        }
        wgmma_commit();
    };
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
#if THROUGH_L2
        const u32 barrier = chunk_barrier(shared, me.part * CHUNKS + piece);
        guard.until([&] { return barrier_passed(barrier, turn % 2); });
        warp_sync();
#endif
        use(piece);
    }
}

// Each warp holds 16 units of a 64: they are sent to the block that owns them, as they are in the registers.
DEVICE void send_sums(const Place& me, const Shared& shared, int turn, int high, const float* sums) {
    const int sixteen = (me.warpgroup % WIDE * HIGH + high) * 4 + me.warp, owner = sixteen / TILES;
    if (owner >= CLUSTER) return;
    const u32 board = shared.sums_address + turn % 2 * SUMS_BYTES;
    const int fragment = (me.rank * DEEP + me.part) * TILES + sixteen % TILES;
    const int slot = me.lane % 4 * 8 + me.lane / 4;  // adjacent units, then rows
    const u32 to = address_in(board + fragment * FRAGMENT_BYTES + slot * 16, owner);
    const u32 barrier = address_in(sums_barrier(shared, turn), owner);
#pragma unroll
    for (int tile = 0; tile < COLUMN_TILES; tile += PAIRED ? 2 : 1) {
        const float* from = sums + tile * 4;
        const bool goes_alone = PAIRED && tile + 1 == COLUMN_TILES;
        u32 words[4];
#pragma unroll
        for (int r = 0; r < (goes_alone ? 2 : 4); ++r)
            words[r] = PAIRED ? pack_pair(from[2 * r], from[2 * r + 1]) : bits_of(from[r]);
        if (goes_alone)
            store_async_two(to + tile * 256 - slot * 8, words, barrier);  // eight bytes a slot
        else
            store_async(to + tile * (PAIRED ? 256 : 512), words, barrier);
    }
}

// Read those sums, once they have arrived.
DEVICE void pass_on(const Place& me, const Shared& shared, const Guard& guard, int turn, int high,
                    float (*sums)[COLUMN_TILES * 4]) {
#pragma unroll
    for (int i = 0; i < COLUMN_TILES * 4; ++i) {
        settle(sums[0][i]);
        if (CHAINS == 2) settle(sums[CHAINS - 1][i]), sums[0][i] += sums[CHAINS - 1][i];
    }
    if (!guard.gave_up) send_sums(me, shared, turn, high, sums[0]);
}

DEVICE Shared lay_out(u8* memory) {
    Shared shared;
    shared.share = memory;
    shared.sums = memory + BUFFERS * SHARE_BYTES;
    shared.share_address = of_warp(shared_address(memory));
    shared.sums_address = shared.share_address + BUFFERS * SHARE_BYTES;
    shared.laid = shared.sums + 2 * SUMS_BYTES;
    shared.laid_address = shared.sums_address + 2 * SUMS_BYTES;
    shared.barriers = shared.laid_address + LAID_BYTES;
    if (thread_index() == 0) {
        for (int i = 0; i < 2; ++i) barrier_init(sums_barrier(shared, i), 1);
        for (int i = 0; i < DEEP * CHUNKS && THROUGH_L2; ++i) barrier_init(chunk_barrier(shared, i), 1);
        barrier_init_fence();
        for (int i = 0; i < 2; ++i) barrier_expect(sums_barrier(shared, i), SUMS_BYTES);
    }
    return shared;
}

DEVICE void finish(const Backward& a, const Place& me, const Shared& shared, const First& first, int i,
                   const Element* pair, const float* d_bias) {
    const Item item = find_item(i);
    if (item.number >= ITEMS) return;
    float flow[2] = {0.0f, 0.0f};
    add_sums(shared, item, a.steps, flow);
    for (int r = 0; r < 2; ++r) {
        if (!pair[r].real) continue;
        a.d_hidden[place_of(a, first, i, r)] = pair[r].d_hidden + flow[r];
        if (CELL == 0) a.d_cell[place_of(a, first, i, r)] = pair[r].d_cell;
    }
    if (!a.d_bias || !pair[0].real) return;
    const u64 at = (u64)((me.group * ROWS + item.row) / 2) * a.width + unit_of(me, item);
    for (int s = 0; s < SLOTS; ++s) a.d_bias[at * SLOTS + s] = d_bias[s];
}

KERNEL(THREADS) recurrent_backward(const Backward a) {
    SHARED_MEMORY(memory);
    if (a.steps == 0) return;  // a launch that only checks whether it is accepted
    const Place me = find_place();
    const First first = find_first(a, me);
    const Shared shared = lay_out(memory);
    Guard guard = {a.failed, a.told, false};
    u32 weights[KEPT][4];
    load_weights<KEPT, HIGH * DEPTH>(weights, a.weights, me.block, [](int tile) { return tile; });
#if LAID
    lay_weights<HIGH * DEPTH>(shared.laid, a.weights, me.block);
    fence_for_products();
#endif
    Element mine[MINE][2];
    Seen seen[MINE][2];
    float d_bias[MINE][SLOTS] = {};
#pragma unroll
    for (int i = 0; i < MINE; ++i) begin(a, me, first, i, mine[i], seen[i]);
    block_sync();
    if (CLUSTER > 1) cluster_sync();

    Step now(a, a.steps - 1);
    for (int turn = 0; turn < a.steps; ++turn) {
        const int t = a.steps - 1 - turn;
        float d_logits[MINE][2][4] = {};
        if (turn > 0) await_sums(shared, guard, turn);
#pragma unroll
        for (int i = 0; i < MINE; ++i) work(a, me, shared, turn, i, mine[i], seen[i], d_logits[i]);
        announce(a, me);
#pragma unroll
        for (int i = 0; i < MINE; ++i) {
#pragma unroll
            for (int s = 0; s < SLOTS; ++s) d_bias[i][s] += d_logits[i][0][s] + d_logits[i][1][s];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (!mine[i][r].real) continue;
                store_words(now.d_logits + (u64)place_of(a, first, i, r) * SLOTS, d_logits[i][r]);
                if (t > AHEAD && me.lane / 2 % (TF32 ? 2 : 4) == 0) now.bring_near(a, first, i, r);
            }
        }
#if THROUGH_L2
        fetch_share(a, me, shared, guard, turn);
#endif
        float sums[2][CHAINS][COLUMN_TILES * 4];
#pragma unroll
        for (int high = 0; high < HIGH; ++high) {  // while one tile is multiplied, the sums of the one before it are sent
            multiply(a, me, shared, guard, weights, turn, high, sums[high % 2]);
            if (high == 0) continue;
            wgmma_wait(1);
            pass_on(me, shared, guard, turn + 1, high - 1, sums[(high - 1) % 2]);
        }
        wgmma_wait();
        pass_on(me, shared, guard, turn + 1, HIGH - 1, sums[(HIGH - 1) % 2]);
        now.go_back(a);
#pragma unroll
        for (int i = 0; i < MINE; ++i)  // after the product, which would wait for these loads
#pragma unroll
            for (int r = 0; r < 2; ++r)
                if (mine[i][r].real && t > 0) seen[i][r] = now.see(a, first, i, r);
    }
    await_sums(shared, guard, a.steps);
#pragma unroll
    for (int i = 0; i < MINE; ++i) finish(a, me, shared, first, i, mine[i], d_bias[i]);
    if (CLUSTER > 1) cluster_sync();
}
