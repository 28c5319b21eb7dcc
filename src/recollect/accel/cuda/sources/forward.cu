// One launch runs a recurrent layer over all steps. W_hh never leaves the registers.
//
// Tensors are given by where the time loop begins, and by the stride of a step: negative where the loop begins at the end
// of time. Then what was given before the first step is stored after the last.
//
// A group of blocks reads ROWS rows of the batch; each block owns all gates of UNITS units, so that the elementwise part is
// local to it and the cell stays in registers. What the blocks exchange is h: it is written in the layout that wgmma reads,
// either into the L2 cache, from where every block copies all of it, or directly into the shared memory of all blocks of the
// cluster. There slices of h are ordered by distance: a block's own first, then that of the block before it, which arrives
// first, and so on around the cluster. So the product of the nearer half runs while the other half is in flight: a block
// receives 14 bytes a clock, which takes as long as its product.
//
// A tile has 64 rows of W_hh: 16 units with 4 slots. Their order lets a thread and its neighbour four lanes away hold all
// slots of a unit: row 16 w + 8 high + 2 v + low is slot 2 high + low of unit 4 w + v.
#include "common.cuh"

constexpr int UNITS = WIDE * 16;
constexpr int DEPTH = (THROUGH_L2 ? CHUNKS * PER_CHUNK * WIDE : BLOCKS * WIDE) * FOLD;  // tiles of k for a warpgroup
constexpr int KEPT = DEPTH - LAID;  // tiles of weights in registers
constexpr int SLICE = WIDE * FOLD, SLICE_BYTES = SLICE * TILE_BYTES;  // tiles of k of a block's units
constexpr bool COMES_LONG = CLUSTER > 2 && (CLUSTER - 1) * SLICE_BYTES >= 4096;  // else two waits cost more than they save
constexpr int PIECES = THROUGH_L2 ? CHUNKS : COMES_LONG ? 2 : 1;                 // parts in which h is awaited
constexpr int CHAINS = ROWS == 8 && DEPTH > PIECES ? 2 : 1;  // small matmuls overlap better in two sums
constexpr int MINE = (COLUMN_TILES + DEEP - 1) / DEEP;  // column tiles whose elements a thread finishes
constexpr int BUFFERS = THROUGH_L2 ? 1 : 2;
constexpr int STATE_BYTES = DEEP * DEPTH * TILE_BYTES;
constexpr int CHUNK_BYTES = THROUGH_L2 ? PER_CHUNK * SLICE_BYTES : 0;
constexpr int SUMS_BYTES = DEEP > 1 ? WARPGROUPS * COLUMN_TILES * 2048 : 0;

DEVICE constexpr int first_slice(int piece) { return (piece * (DEPTH / SLICE) + PIECES - 1) / PIECES; }
DEVICE constexpr int coming_bytes(int piece) {  // of a part of h, from other blocks of the cluster
    return (first_slice(piece + 1) - first_slice(piece) - (piece == 0)) * SLICE_BYTES;
}

struct Forward {
    Number* logits;         // (T, B, H, SLOTS): W_ih x, and the gates afterwards where `keeps`
    const float* bias;      // (H, SLOTS), or null
    const Number* weights;  // packed
    const float *hidden, *cell;     // (B, H)
    const int* lengths;             // (B,), or null
    Number *outputs, *cells;        // (T + 1, B, H), the initial state first; cells only where `keeps`
    float *last_hidden, *last_cell;  // (B, H)
    Number* exchange;                // (2, groups, k / BESIDE, ROWS, BESIDE), zero
    u32 *counters, *failed, *told;   // zero
    int steps, by_step, rows, width, groups, keeps;  // by_step: the B rows of a step, or -B; rows: those of this launch
};

struct Element {  // a unit in a row of the batch: the state that this thread keeps of it
    float hidden, cell;
    int length;  // valid steps, 0 for an element out of range
    bool real;
    Words logits;
};

// One step of one element from its logits, of which the GRU's candidate has two; returns what backward needs.
DEVICE void step(Element& e, const float* from_x, const float* from_hidden, float* kept) {
#if CELL == 0
    const float i = sigmoid(from_x[0] + from_hidden[0]), f = sigmoid(from_x[1] + from_hidden[1]);
    const float g = hyperbolic(from_x[2] + from_hidden[2]), o = sigmoid(from_x[3] + from_hidden[3]);
    e.cell = f * e.cell + i * g;
    e.hidden = o * hyperbolic(e.cell);
    kept[0] = i, kept[1] = f, kept[2] = g, kept[3] = o;
#elif CELL == 1  // the fourth slot is W_hn h + b_hn, which the reset gate multiplies
    const float r = sigmoid(from_x[0] + from_hidden[0]), z = sigmoid(from_x[1] + from_hidden[1]);
    const float inner = from_x[3] + from_hidden[3], n = hyperbolic(from_x[2] + r * inner);
    e.hidden = n + z * (e.hidden - n);
    kept[0] = r, kept[1] = z, kept[2] = n, kept[3] = inner;
#else
    const float total = from_x[0] + from_hidden[0];
    e.hidden = CELL == 2 ? hyperbolic(total) : (total > 0.0f ? total : 0.0f);
    kept[0] = e.hidden;
#endif
}

struct Place {  // the indices of this thread
    int group, block, warpgroup, part, thread, warp, lane, unit, row;  // of its first element; the row is the group's
    u32 first;  // offset of its first element within a step's (B, H)
    bool odd;
    float bias[SLOTS];  // of its unit
};

DEVICE Place find_place(const Forward& a) {
    Place me;
    me.group = block_index() / BLOCKS, me.block = block_index() % BLOCKS;
    me.warpgroup = of_warp(thread_index() / 128), me.part = DEEP == 1 ? 0 : me.warpgroup / WIDE;
    me.thread = thread_index() % 128, me.warp = me.thread / 32, me.lane = me.thread % 32;
    me.odd = me.lane / 4 % 2;
    me.unit = me.block * UNITS + me.warpgroup % WIDE * 16 + me.warp * 4 + me.lane / 8;
    me.row = me.part * 8 + me.lane % 4 * 2 + me.odd;
    me.first = (u32)(me.group * ROWS + me.row) * a.width + me.unit;
    for (int s = 0; s < SLOTS; ++s) me.bias[s] = a.bias && me.unit < a.width ? a.bias[me.unit * SLOTS + s] : 0.0f;
    return me;
}

// Element i: its row within the group, and its offset within (B, H). Few instructions: a block has too few warps to hide them.
DEVICE int row_of(const Place& me, int i) { return me.row + i * DEEP * 8; }
DEVICE u32 place_of(const Forward& a, const Place& me, int i) { return me.first + i * DEEP * 8 * a.width; }

// Whose slice of h is at this distance from the beginning.
DEVICE int owner_of(const Place& me, int slice) {
    return THROUGH_L2 ? slice : me.block >= slice ? me.block - slice : me.block - slice + BLOCKS;
}

DEVICE void begin(const Forward& a, const Place& me, Element* mine) {
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
        Element& e = mine[i];
        const int row = me.group * ROWS + row_of(me, i);
        e.real = i * DEEP + me.part < COLUMN_TILES && me.unit < a.width && row < a.rows;
        e.length = 0, e.hidden = 0.0f, e.cell = 0.0f;
        e.logits = Words();
        if (!e.real) continue;
        const u32 at = place_of(a, me, i);
        e.length = a.lengths ? a.lengths[row] : a.steps;
        e.hidden = a.hidden[at];
        if (CELL == 0) e.cell = a.cell[at];
        a.outputs[at] = narrow(e.hidden);
        if (a.keeps && CELL == 0) a.cells[at] = narrow(e.cell);
        e.logits = load_words(a.logits + (u64)at * SLOTS);
    }
}

// All of h_0, as every block needs it: no exchange yet.
DEVICE void load_first_state(const Forward& a, const Place& me, Number* state) {
    for (int i = thread_index(); i < STATE_BYTES / (int)sizeof(Number); i += THREADS) {
        const int lies = i / BESIDE / ROWS * BESIDE + i % BESIDE, row = me.group * ROWS + i / BESIDE % ROWS;
        const int k = owner_of(me, lies / UNITS) * UNITS + lies % UNITS;
        state[i] = k < a.width && row < a.rows ? factor(a.hidden[(u64)row * a.width + k]) : (Number)0;
    }
}

struct Shared {
    u8 *state, *sums, *laid;
    u32 state_address, laid_address, barriers;  // of 8 bytes each
};

DEVICE u32 state_barrier(const Shared& shared, int i) { return shared.barriers + 8 * i; }

#if THROUGH_L2
// A lane for each chunk: when all its blocks have written, copy it to shared memory.
DEVICE void fetch_state(const Forward& a, const Place& me, const Shared& shared, Guard& guard, int step) {
    if (me.warpgroup % WIDE == 0 && me.warp == 0) {
        if (me.lane < CHUNKS) {
            const int chunk = me.part * CHUNKS + me.lane;
            const u32* counter = a.counters + (me.group * DEEP * CHUNKS + chunk) * COUNTER_GAP;
            const u32 wanted = fillers(chunk) * step, offset = chunk * CHUNK_BYTES;
            const u8* from = (const u8*)a.exchange + (u64)(step % 2 * a.groups + me.group) * STATE_BYTES + offset;
            bool asked = false;
            guard.until([&] {
                if (!asked && look(counter) >= wanted) {
                    fence_for_copies();
                    barrier_expect(state_barrier(shared, chunk), CHUNK_BYTES);
                    copy_bulk(shared.state_address + offset, from, CHUNK_BYTES, state_barrier(shared, chunk));
                    asked = true;
                }
                return asked;
            });
        }
        warp_sync();
    }
}
#endif

// h_0 is present from the beginning, and its barriers are passed: no branch may separate one product from the next.
DEVICE void await_state(const Place& me, const Shared& shared, Guard& guard, int step, int piece) {
#if THROUGH_L2
    const u32 barrier = state_barrier(shared, me.part * CHUNKS + piece);
    guard.until([&] { return barrier_passed(barrier, step % 2); });
    warp_sync();
#else
    if (CLUSTER == 1) return;
    const u32 barrier = state_barrier(shared, step % 2 * PIECES + piece);
    guard.until([&] { return barrier_passed(barrier, step / 2 % 2); });
    if (thread_index() == 0 && !guard.gave_up) barrier_expect(barrier, coming_bytes(piece));  // for the step after next
    fence_for_products();
    warp_sync();
#endif
}

// sums (64, ROWS) = W h over this warpgroup's share of k.
DEVICE void multiply(const Forward& a, const Place& me, const Shared& shared, Guard& guard, const u32 (*weights)[4],
                     int step, float (*sums)[COLUMN_TILES * 4]) {
    const u32 buffer = shared.state_address + step % BUFFERS * STATE_BYTES;
    const u64 state = describe(buffer + me.part * DEPTH * TILE_BYTES);
    const u64 laid = LAID ? describe(shared.laid_address + me.warpgroup * LAID * 2048, 64) : 0;
    auto use = [&](int piece) {
        wgmma_fence();
        const int first = first_slice(piece) * SLICE, end = first_slice(piece + 1) * SLICE;
#pragma unroll
        for (int tile = first; tile < end; ++tile) {
            multiply_tile<KEPT>(sums[tile % CHAINS], weights, laid, tile, state + (u64)(tile * TILE_BYTES >> 4),
                                tile >= CHAINS);
        }
        wgmma_commit();
    };
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        await_state(me, shared, guard, step, piece);
        use(piece);
    }
    wgmma_wait();
#pragma unroll
    for (int i = 0; i < COLUMN_TILES * 4; ++i) {
        settle(sums[0][i]);
        if (CHAINS == 2) settle(sums[CHAINS - 1][i]), sums[0][i] += sums[CHAINS - 1][i];
    }
}

// The warpgroups that share rows add their sums; each finishes its own column tiles.
DEVICE void gather(const Place& me, const Shared& shared, const float* sums, float (*mine)[4]) {
#pragma unroll
    for (int tile = 0; tile < COLUMN_TILES; ++tile) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            float sum = sums[tile * 4 + r];
            settle(sum);  // else the compiler turns the selection into an index, and spills all sums to memory
            if (tile % DEEP == me.part) mine[tile / DEEP][r] = sum;
        }
    }
#if DEEP > 1
    float4* board = (float4*)shared.sums;  // [warpgroup][column tile][thread]
#pragma unroll
    for (int tile = 0; tile < COLUMN_TILES; ++tile)
        if (tile % DEEP != me.part)
            board[(me.warpgroup * COLUMN_TILES + tile) * 128 + me.thread] =
                make_float4(sums[tile * 4], sums[tile * 4 + 1], sums[tile * 4 + 2], sums[tile * 4 + 3]);
    block_sync();
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
        const int tile = i * DEEP + me.part;
#pragma unroll
        for (int other = 1; other < DEEP && tile < COLUMN_TILES; ++other) {
            const int from = (me.part + other) % DEEP * WIDE + me.warpgroup % WIDE;
            const float4 more = board[(from * COLUMN_TILES + tile) * 128 + me.thread];
            mine[i][0] += more.x, mine[i][1] += more.y, mine[i][2] += more.z, mine[i][3] += more.w;
        }
    }
#endif
}

// Even lanes hold slots 0 and 2 of two rows, odd lanes slots 1 and 3: each sends the row that the other finishes.
DEVICE void trade(bool odd, const float* sums, float* slots) {
    const float first = from_lane_xor(either(odd, sums[0], sums[1]), 4);
    const float second = from_lane_xor(either(odd, sums[2], sums[3]), 4);
    slots[0] = either(odd, first, sums[0]), slots[1] = either(odd, sums[1], first);
    slots[2] = either(odd, second, sums[2]), slots[3] = either(odd, sums[3], second);
}

// Send h to the blocks that need it.
DEVICE void send_state(const Forward& a, const Place& me, const Shared& shared, const Guard& guard, const Element* mine,
                       int step) {
#if THROUGH_L2
    Number* to = a.exchange + (u64)(step % 2 * a.groups + me.group) * (STATE_BYTES / sizeof(Number));
    const int lies = me.unit;
#else
    Number* to = (Number*)(shared.state + step % 2 * STATE_BYTES);
    const int lies = me.unit - me.block * UNITS;
#endif
#pragma unroll
    for (int i = 0; i < MINE; ++i)
        if (i * DEEP + me.part < COLUMN_TILES) to[place(lies, row_of(me, i))] = factor(mine[i].hidden);
#if THROUGH_L2
    block_sync();  // after one thread's release all of the block's stores are visible
    const int chunk = me.block / PER_CHUNK;
    if (thread_index() == 0) raise(a.counters + (me.group * DEEP * CHUNKS + chunk) * COUNTER_GAP);
#else
    fence_for_products();
    block_sync();
    if (guard.gave_up) return;
    constexpr int PARTS = SLICE_BYTES / 16, AT_ONCE = THREADS / PARTS;  // every thread sends its part to some of the peers
    const u32 mine_at = shared.state_address + step % 2 * STATE_BYTES + thread_index() % PARTS * 16;
    const u32* words = (const u32*)(shared.state + (mine_at - shared.state_address));
    const u32 four[4] = {words[0], words[1], words[2], words[3]};
#pragma unroll
    for (int i = 0; i < (CLUSTER - 1 + AT_ONCE - 1) / AT_ONCE; ++i) {
        const int distance = i * AT_ONCE + thread_index() / PARTS + 1, peer = me.block + distance;
        const int rank = peer < CLUSTER ? peer : peer - CLUSTER, piece = PIECES > 1 && distance >= first_slice(1);
        const u32 barrier = state_barrier(shared, step % 2 * PIECES + piece);
        const bool has_part = AT_ONCE * PARTS == THREADS || thread_index() < AT_ONCE * PARTS;
        if (has_part && distance < CLUSTER)
            store_async(address_in(mine_at + distance * SLICE_BYTES, rank), four, address_in(barrier, rank));
    }
#endif
}

// The next step's logits. A product waits for all loads before it, so they are issued after it: at once inside a cluster,
// where a step is short and later steps' values are prefetched; else when the state is sent, for which others wait.
DEVICE void look_ahead(const Forward& a, const Place& me, const Number* logits, int t, Element* mine) {
    const i64 step_size = (i64)a.by_step * a.width;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
        const Number* next = logits + (step_size + place_of(a, me, i)) * SLOTS;
        if (mine[i].real && t + 1 < a.steps) mine[i].logits = load_words(next);
        const bool asks = TF32 ? me.lane / 8 % 2 == 0 : me.lane < 8;  // 32 bytes are prefetched: four units, or two
        if (!THROUGH_L2 && mine[i].real && asks && t + 1 + AHEAD < a.steps)
            prefetch(next + AHEAD * step_size * SLOTS);
    }
}

DEVICE Shared lay_out(u8* memory) {
    Shared shared;
    shared.state = memory;
    shared.sums = memory + BUFFERS * STATE_BYTES;
    shared.state_address = of_warp(shared_address(memory));
    shared.laid = shared.sums + SUMS_BYTES;
    shared.laid_address = shared.state_address + BUFFERS * STATE_BYTES + SUMS_BYTES;
    shared.barriers = shared.laid_address + LAID_BYTES;
    const int count = THROUGH_L2 ? DEEP * CHUNKS : 2 * PIECES;
    if (thread_index() == 0) {
        for (int i = 0; i < count; ++i) barrier_init(state_barrier(shared, i), 1);
        barrier_init_fence();
        for (int i = 0; i < count; ++i)
            barrier_expect(state_barrier(shared, i), THROUGH_L2 || i < PIECES ? 0 : coming_bytes(i % PIECES));
    }
    return shared;
}

KERNEL(THREADS) recurrent_forward(const Forward a) {
    SHARED_MEMORY(memory);
    if (a.steps == 0) return;  // a launch that only checks whether it is accepted
    const Place me = find_place(a);
    const Shared shared = lay_out(memory);
    Guard guard = {a.failed, a.told, false};
    u32 weights[KEPT][4];
    load_weights<KEPT, DEPTH>(weights, a.weights, me.block,
                              [&](int tile) { return owner_of(me, tile / SLICE) * SLICE + tile % SLICE; });
#if LAID
    lay_weights<DEPTH>(shared.laid, a.weights, me.block);
#endif
    Element mine[MINE];
    begin(a, me, mine);
    load_first_state(a, me, (Number*)shared.state);
    fence_for_products();
    block_sync();
    if (CLUSTER > 1) cluster_sync();

    const i64 step_size = (i64)a.by_step * a.width;
    Number *logits = a.logits, *outputs = a.outputs + step_size, *cells = a.cells + step_size;  // of step t; after it
    for (int t = 0; t < a.steps; ++t, logits += step_size * SLOTS, outputs += step_size, cells += step_size) {
#if THROUGH_L2
        if (t > 0) fetch_state(a, me, shared, guard, t);
#endif
        float sums[CHAINS][COLUMN_TILES * 4], own[MINE][4] = {}, kept[MINE][4];
        multiply(a, me, shared, guard, weights, t, sums);
        Words now[MINE];
#pragma unroll
        for (int i = 0; i < MINE; ++i) now[i] = mine[i].logits;
        if (!THROUGH_L2) look_ahead(a, me, logits, t, mine);
        gather(me, shared, sums[0], own);
#pragma unroll
        for (int i = 0; i < MINE; ++i) {
            Element next = mine[i];
            float slots[4], from_x[SLOTS];
            for (int s = 0; s < SLOTS; ++s) from_x[s] = now[i].at(s) + me.bias[s];
            trade(me.odd, own[i], slots);
            step(next, from_x, slots, kept[i]);
            if (t < mine[i].length) mine[i].hidden = next.hidden, mine[i].cell = next.cell;
        }
        if (t + 1 < a.steps) send_state(a, me, shared, guard, mine, t + 1);
        if (THROUGH_L2) look_ahead(a, me, logits, t, mine);
#pragma unroll
        for (int i = 0; i < MINE; ++i) {
            const u32 at = place_of(a, me, i);
            if (mine[i].real) {
                outputs[at] = narrow(mine[i].hidden);
                if (a.keeps && CELL < 2) store_words(logits + (u64)at * SLOTS, kept[i]);
                if (a.keeps && CELL == 0) cells[at] = narrow(mine[i].cell);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
        if (!mine[i].real) continue;
        a.last_hidden[place_of(a, me, i)] = mine[i].hidden;
        if (CELL == 0) a.last_cell[place_of(a, me, i)] = mine[i].cell;
    }
    if (CLUSTER > 1) cluster_sync();
}
