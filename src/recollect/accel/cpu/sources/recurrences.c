/* RNN, GRU and LSTM on a CPU: the time loop, forward and backward. vectors.c precedes this text.

   What does not depend on the step before is done elsewhere, for all steps at once: W_ih x before the loop, the weights'
   gradients after it. Here, at every step, a few rows are multiplied with W_hh and updated. Rows do not depend on each
   other, so each thread runs over the whole sequence with its own rows and never waits. Rows are ordered longest first
   (`order`); those that have ended take no further part. */

#define GROUP 32 /* rows of one loop: a few tiles for each pass over the weights, and a small working set */

/* ---- arguments --------------------------------------------------------------------------------------------------- */

enum { RNN_TANH, RNN_RELU, GRU, LSTM };

typedef struct { /* shapes as in Python: batch first; what a kind does not need is not read */
  int64_t kind, rows, steps, hidden, is_kept, is_backward, threads;
  const int64_t *order, *lengths; /* rows by falling length; steps of each row */
  const value *weight;            /* W_hh */
  operand *panels;                /* W_hh as it is multiplied; backwards its transpose */
  const real *bias;               /* b_hh */
  value *gates;                   /* (B, T, G·H): W_ih x + b_ih; where they are kept, then the gates */
  value *outputs, *inner;         /* (B, T, H): h; GRU: W_hh~ h + b_hh~, LSTM: c */
  const value *first, *first_cell;
  value *last, *last_cell;
  const value *d_outputs, *d_last, *d_last_cell;
  value *d_gates, *d_inner; /* gradients of W_ih x + b_ih; GRU: that of W_hh~ h + b_hh~ */
  value *d_first, *d_first_cell;
  char *scratch;
} Call;

typedef struct { /* a row at one step */
  const Call *call;
  int64_t row, t;
  operand *state; /* h; backwards the gradients of W_hh h */
  real *product;  /* W_hh h; backwards the gradient of h */
  real *cell;     /* c; backwards its gradient */
} Place;

static const int GATES[] = {1, 1, 3, 4};

INLINE int64_t at(const Place *p, int64_t width) { return (p->row * p->call->steps + p->t) * width; }
INLINE const value *before(const Place *p, const value *all_steps, const value *first) {
  int64_t hidden = p->call->hidden;
  return p->t ? all_steps + at(p, hidden) - hidden : first + p->row * hidden;
}
INLINE int fewer(int64_t left) { return left < LANES ? (int)left : LANES; }
#define EACH_UNIT for (int64_t j = 0, count; j < H && (count = fewer(H - j)); j += LANES)

/* ---- one step of one row ----------------------------------------------------------------------------------------- */

INLINE void step_rnn(const Place *p, int is_tanh) {
  const int64_t H = p->call->hidden;
  const value *x = p->call->gates + at(p, H);
  value *y = p->call->outputs + at(p, H);
  EACH_UNIT {
    vec h = load(x + j, count) + load_real(p->product + j);
    h = is_tanh ? hyperbolic_tangent(h) : choose(h < all(0), all(0), h);
    store(y + j, h, count);
    store_operand(p->state + j, h, count);
  }
}

INLINE void back_rnn(const Place *p, int is_tanh) {
  const int64_t H = p->call->hidden, here = at(p, H);
  EACH_UNIT {
    vec d = load_real(p->product + j) + load(p->call->d_outputs + here + j, count);
    vec h = load(p->call->outputs + here + j, count);
    d = is_tanh ? d * (1 - h * h) : choose(h > all(0), d, all(0));
    store(p->call->d_gates + here + j, d, count);
    store_operand(p->state + j, d, count);
    store_real(p->product + j, all(0));
  }
}

INLINE void step_gru(const Place *p, int is_kept) {
  const int64_t H = p->call->hidden;
  value *gates = p->call->gates + at(p, 3 * H), *y = p->call->outputs + at(p, H), *inner = p->call->inner + at(p, H);
  const real *product = p->product;
  EACH_UNIT {
    vec r = sigmoid(load(gates + j, count) + load_real(product + j));
    vec z = sigmoid(load(gates + H + j, count) + load_real(product + H + j));
    vec from_h = load_real(product + 2 * H + j);
    vec candidate = hyperbolic_tangent(load(gates + 2 * H + j, count) + r * from_h);
    vec h = candidate + z * (load_operand(p->state + j, count) - candidate);
    store(y + j, h, count);
    store_operand(p->state + j, h, count);
    if (!is_kept) continue;
    store(gates + j, r, count);
    store(gates + H + j, z, count);
    store(gates + 2 * H + j, candidate, count);
    store(inner + j, from_h, count);
  }
}

INLINE void back_gru(const Place *p) {
  const int64_t H = p->call->hidden, here = at(p, H);
  const value *gates = p->call->gates + 3 * here, *h_before = before(p, p->call->outputs, p->call->first);
  value *d_gates = p->call->d_gates + 3 * here;
  EACH_UNIT {
    vec r = load(gates + j, count), z = load(gates + H + j, count), candidate = load(gates + 2 * H + j, count);
    vec d = load_real(p->product + j) + load(p->call->d_outputs + here + j, count);
    vec d_candidate = d * (1 - z) * (1 - candidate * candidate);
    vec d_z = d * (load(h_before + j, count) - candidate) * z * (1 - z);
    vec d_r = d_candidate * load(p->call->inner + here + j, count) * r * (1 - r);
    store(d_gates + j, d_r, count);
    store(d_gates + H + j, d_z, count);
    store(d_gates + 2 * H + j, d_candidate, count);
    store(p->call->d_inner + here + j, d_candidate * r, count);
    store_operand(p->state + j, d_r, count);
    store_operand(p->state + H + j, d_z, count);
    store_operand(p->state + 2 * H + j, d_candidate * r, count);
    store_real(p->product + j, d * z);
  }
}

INLINE void step_lstm(const Place *p, int is_kept) {
  const int64_t H = p->call->hidden;
  value *gates = p->call->gates + at(p, 4 * H), *y = p->call->outputs + at(p, H), *inner = p->call->inner + at(p, H);
  const real *product = p->product;
  EACH_UNIT {
    vec i = sigmoid(load(gates + j, count) + load_real(product + j));
    vec f = sigmoid(load(gates + H + j, count) + load_real(product + H + j));
    vec candidate = hyperbolic_tangent(load(gates + 2 * H + j, count) + load_real(product + 2 * H + j));
    vec o = sigmoid(load(gates + 3 * H + j, count) + load_real(product + 3 * H + j));
    vec c = widen(narrow(f * load_real(p->cell + j) + i * candidate)); /* as it is stored */
    vec h = o * hyperbolic_tangent(c);
    store_real(p->cell + j, c);
    store(y + j, h, count);
    store_operand(p->state + j, h, count);
    if (!is_kept) continue;
    store(gates + j, i, count);
    store(gates + H + j, f, count);
    store(gates + 2 * H + j, candidate, count);
    store(gates + 3 * H + j, o, count);
    store(inner + j, c, count);
  }
}

INLINE void back_lstm(const Place *p) {
  const int64_t H = p->call->hidden, here = at(p, H);
  const value *gates = p->call->gates + 4 * here, *c_before = before(p, p->call->inner, p->call->first_cell);
  value *d_gates = p->call->d_gates + 4 * here;
  EACH_UNIT {
    vec i = load(gates + j, count), f = load(gates + H + j, count);
    vec candidate = load(gates + 2 * H + j, count), o = load(gates + 3 * H + j, count);
    vec c = hyperbolic_tangent(load(p->call->inner + here + j, count));
    vec d = load_real(p->product + j) + load(p->call->d_outputs + here + j, count);
    vec d_c = load_real(p->cell + j) + d * o * (1 - c * c);
    vec d_gate[] = {d_c * candidate * i * (1 - i), d_c * load(c_before + j, count) * f * (1 - f),
                    d_c * i * (1 - candidate * candidate), d * c * o * (1 - o)};
    for (int g = 0; g < 4; g++) {
      store(d_gates + g * H + j, d_gate[g], count);
      store_operand(p->state + g * H + j, d_gate[g], count);
    }
    store_real(p->cell + j, d_c * f);
    store_real(p->product + j, all(0));
  }
}

static void step(const Place *p) {
  switch (p->call->kind) {
    case RNN_TANH: step_rnn(p, 1); break;
    case RNN_RELU: step_rnn(p, 0); break;
    case GRU: if (p->call->is_kept) step_gru(p, 1); else step_gru(p, 0); break;
    case LSTM: if (p->call->is_kept) step_lstm(p, 1); else step_lstm(p, 0); break;
  }
}

static void back(const Place *p) {
  switch (p->call->kind) {
    case RNN_TANH: back_rnn(p, 1); break;
    case RNN_RELU: back_rnn(p, 0); break;
    case GRU: back_gru(p); break;
    case LSTM: back_lstm(p); break;
  }
}

/* ---- the time loop ----------------------------------------------------------------------------------------------- */

typedef struct { /* rows of one loop, longest first, and their states */
  int64_t rows[GROUP], count;
  int64_t state_stride, product_stride, cell_stride;
  operand *states;
  real *products, *cells;
} Group;

static char *lay_out(const Call *call, Group *group, char *scratch) {
  int64_t all_gates = GATES[call->kind] * call->hidden, padded = round_up(call->hidden, WIDTH);
  group->state_stride = round_up(call->is_backward ? all_gates : call->hidden, WIDTH);
  group->product_stride = call->is_backward ? padded : round_up(all_gates, WIDTH) + LANES;
  group->cell_stride = padded;
  group->states = (operand *)scratch;
  scratch += round_up(GROUP * group->state_stride * (int64_t)sizeof(operand), 64);
  group->products = (real *)scratch;
  scratch += round_up(GROUP * group->product_stride * (int64_t)sizeof(real), 64);
  group->cells = (real *)scratch;
  return scratch + round_up(GROUP * group->cell_stride * (int64_t)sizeof(real), 64);
}

INLINE Place place(const Call *call, const Group *group, int64_t i, int64_t t) {
  return (Place){call, group->rows[i], t, group->states + i * group->state_stride,
                 group->products + i * group->product_stride, group->cells + i * group->cell_stride};
}

/* Copy between a row in memory and its state. */
static void take(real *carried, const value *row, int64_t H) {
  EACH_UNIT store_real(carried + j, load(row + j, (int)count));
}
static void give(value *row, const real *carried, int64_t H) {
  EACH_UNIT store(row + j, load_real(carried + j), (int)count);
}

static void walk_forwards(const Call *call, Group *group) {
  const int64_t H = call->hidden, outputs = GATES[call->kind] * H;
  int64_t active = group->count;
  for (int64_t i = 0; i < active; i++) {
    operand *state = group->states + i * group->state_stride;
    EACH_UNIT store_operand(state + j, load(call->first + group->rows[i] * H + j, (int)count), (int)count);
    if (call->kind == LSTM) take(group->cells + i * group->cell_stride, call->first_cell + group->rows[i] * H, H);
  }
  for (int64_t t = 0; t < call->steps; t++) {
    while (active && call->lengths[group->rows[active - 1]] <= t) active--;
    for (int64_t i = 0; i < active; i++)
      memcpy(group->products + i * group->product_stride, call->bias, outputs * sizeof(real));
    multiply(active, group->states, group->state_stride, H, call->panels, outputs, group->products,
             group->product_stride);
    for (int64_t i = 0; i < active; i++) {
      Place here = place(call, group, i, t);
      step(&here);
    }
  }
  for (int64_t i = 0; i < group->count; i++) {
    const operand *state = group->states + i * group->state_stride;
    value *last = call->last + group->rows[i] * H;
    EACH_UNIT store(last + j, load_operand(state + j, (int)count), (int)count);
    if (call->kind == LSTM) give(call->last_cell + group->rows[i] * H, group->cells + i * group->cell_stride, H);
  }
}

static void walk_backwards(const Call *call, Group *group) {
  const int64_t H = call->hidden, size = GATES[call->kind] * H;
  int64_t active = 0;
  for (int64_t i = 0; i < group->count; i++) {
    take(group->products + i * group->product_stride, call->d_last + group->rows[i] * H, H);
    if (call->kind == LSTM) take(group->cells + i * group->cell_stride, call->d_last_cell + group->rows[i] * H, H);
  }
  for (int64_t t = call->steps - 1; t >= 0; t--) {
    while (active < group->count && call->lengths[group->rows[active]] > t) active++;
    for (int64_t i = 0; i < active; i++) {
      Place here = place(call, group, i, t);
      back(&here);
    }
    multiply(active, group->states, group->state_stride, size, call->panels, H, group->products,
             group->product_stride);
  }
  for (int64_t i = 0; i < group->count; i++) {
    give(call->d_first + group->rows[i] * H, group->products + i * group->product_stride, H);
    if (call->kind == LSTM) give(call->d_first_cell + group->rows[i] * H, group->cells + i * group->cell_stride, H);
  }
}

/* Zeros where a row has ended: large matmuls read them. */
static void clear(const Call *call, value *t, int64_t row, int64_t width) {
  int64_t length = call->lengths[row];
  if (t) memset(t + (row * call->steps + length) * width, 0, (call->steps - length) * width * sizeof(value));
}

int64_t scratch_bytes(const Call *call) {
  Group group;
  return lay_out(call, &group, 0) - (char *)0;
}
int64_t panel_bytes(const Call *call) {
  int64_t rows = GATES[call->kind] * call->hidden, H = call->hidden;
  int64_t outputs = call->is_backward ? H : rows, inputs = call->is_backward ? rows : H;
  return round_up(outputs, WIDTH) * round_up(inputs, PAIR) * (int64_t)sizeof(operand);
}

/* ---- division among threads -------------------------------------------------------------------------------------- */

/* Pack W_hh (G·H, H), or its transpose, into panels: for every WIDTH outputs the weights of each input, in pairs where two
   are multiplied at once. Each thread packs every n-th panel. */
static void lay_out_panels(const Call *call, int64_t thread) {
  const int64_t H = call->hidden, rows = GATES[call->kind] * H;
  const int64_t outputs = call->is_backward ? H : rows, inputs = call->is_backward ? rows : H;
  const int64_t across = call->is_backward ? 1 : H, along = call->is_backward ? H : 1;
  const int64_t size = round_up(inputs, PAIR) * WIDTH;
  for (int64_t first = thread * WIDTH; first < outputs; first += call->threads * WIDTH) {
    operand *panel = call->panels + first / WIDTH * size;
    const value *from = call->weight + first * across;
    const int64_t count = outputs - first < WIDTH ? outputs - first : WIDTH;
    if (count < WIDTH || inputs % PAIR) memset(panel, 0, size * sizeof(operand));
    for (int64_t k = 0; k < inputs; k++)
      for (int64_t j = 0; j < count; j++)
        panel[(k / PAIR * WIDTH + j) * PAIR + k % PAIR] = as_operand(from[k * along + j * across]);
  }
}

/* Run the loop over every n-th row, so that all threads have long and short ones. */
static void walk(const Call *call, int64_t thread) {
  Group group;
  char *scratch = call->scratch + thread * scratch_bytes(call);
  memset(scratch, 0, lay_out(call, &group, scratch) - scratch);
  int64_t rank = thread;
  while (rank < call->rows) {
    for (group.count = 0; group.count < GROUP && rank < call->rows; rank += call->threads)
      group.rows[group.count++] = call->order[rank];
    if (call->is_backward) walk_backwards(call, &group);
    else walk_forwards(call, &group);
    for (int64_t i = 0; i < group.count; i++) {
      clear(call, call->is_backward ? 0 : call->outputs, group.rows[i], call->hidden);
      clear(call, call->d_gates, group.rows[i], GATES[call->kind] * call->hidden);
      clear(call, call->d_inner, group.rows[i], call->hidden);
    }
  }
}

/* First all panels, then the time loop. */
void share(const Call *call, int64_t is_walk, int64_t thread) {
  if (is_walk) walk(call, thread);
  else lay_out_panels(call, thread);
}
