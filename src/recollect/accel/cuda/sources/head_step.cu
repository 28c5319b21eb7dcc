// One step through the output projection, and the norm before it: y = W norm(x) + b, bound by reading W. Every block
// computes the norm of x itself, and has loads of its next iteration's rows in flight while it multiplies. The
// readable forms are `LayerNorm.map`, `RMSNorm.map` and `Linear.map`. Constants of the compilation:
//
//   SCALAR 0 float, 1 bfloat16, 2 half; ROWS; WIDTH, WIDTH_OUT; NORMS 0 no norm before, 1 one; RMS; EPS; WARPS; BLOCKS

#include "products.cuh"

struct Arguments {
    const scalar *norm, *norm_bias, *weight, *bias;
    const scalar* input;                       // (ROWS, WIDTH)
    scalar* output;                            // (ROWS, WIDTH_OUT)
};

KERNEL(THREADS) head_step(const Arguments given) {
    SHARED_MEMORY(shared);
    float* vector = (float*)shared;            // (ROWS, padded WIDTH)
    float* x = vector + ROWS * padded(WIDTH);  // (ROWS, WIDTH), where there is a norm
    float* between = x + ROWS * WIDTH;         // (ROWS, WARPS, 2)
    Product<WIDTH, WIDTH_OUT> product;
    product.ask(given.weight, given.bias, 0);
    Norm norm;
    if (NORMS) norm.ask(given.norm, given.norm_bias);
    for (int i = thread_index(); i < ROWS * WIDTH; i += THREADS)
        (NORMS ? x[i] : vector[i / WIDTH * padded(WIDTH) + place(i % WIDTH)]) = to_float(given.input[i]);
    block_sync();
    if (NORMS) norm.run(x, vector, between);
    product.run(given.weight, given.bias, vector, [&](int row, int b, float y) {
        given.output[(long long)b * WIDTH_OUT + row] = from_float(y);
    });
}
