// The entry for Python: one kernel, compiled with the macros of one plan.
#include KERNEL_FILE

extern "C" __attribute__((visibility("default"))) int launch(int grid, int cluster, int threads, int shared, unsigned seed, int silent,
                                                              const KERNEL_ARGUMENTS* arguments) {
    const KERNEL_ARGUMENTS given = *arguments;
    return emulator::run(grid, cluster, threads, shared, seed, silent, [&given] { KERNEL_ENTRY(given); });
}
