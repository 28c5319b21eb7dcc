"""Threads in C that help and are never waited for: one that is not running delays nobody.

Work is cut into chunks. Each thread does those of its own range first, then what is left of the others', so that a core
reads the same part of a matrix in every step as long as nothing disturbs it. The thread that starts a job does all that
nobody else has begun, and waits only for chunks in progress. Where other programs keep the cores busy that is the speed
of one thread, and not, as with OpenMP, a wait for threads that wait for a core. A forked child, which has none of them,
works alone. Which thread did a chunk changes no bit.
"""

from __future__ import annotations

CHUNK = 1 << 16  # bytes of a matrix that a thread reads in one chunk

# In every source: how a step divides work among threads.
TEAM = """
typedef void chunk(char *const *p, long begin, long end); /* does part of a whole */
typedef struct team team;
struct team { void (*share)(team *t, chunk *does, char *const *p, long size, long grain); };
static inline void share(team *t, chunk *does, char *const *p, long size, long grain) {
    if (t) t->share(t, does, p, size, grain); else does(p, 0, size);
}
"""

# Once per process. A range's `left` is its job, the next chunk and the end, in one word: while a thread has a chunk
# of a job, the job stays as it is.
POOL = """
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE __asm__ volatile("yield")
#else
#define PAUSE (void)0
#endif
enum { MOST_THREADS = 64, MOST_CHUNKS = 4096, SPINS = 1 << 13 };
typedef struct { _Alignas(64) _Atomic uint64_t left, done; } range;
static struct {
    team face; /* first: a pointer to it is one to the whole */
    chunk *does; char *const *p; long size, grain; uint64_t expected; int helpers, is_ready;
    _Alignas(64) _Atomic uint64_t job;
    _Alignas(64) _Atomic int threads, asleep;
    range ranges[MOST_THREADS];
} pool;
static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER;
static sem_t bell;

static void help(int me) {
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    for (int k = 0; k < threads; k++) {
        range *r = &pool.ranges[(me + k) % threads];
        for (;;) {
            uint64_t got = atomic_fetch_add_explicit(&r->left, 1 << 16, memory_order_acquire);
            uint64_t next = got >> 16 & 0xffff;
            if (next >= (got & 0xffff)) break;
            long begin = next * pool.grain, end = begin + pool.grain;
            pool.does(pool.p, begin, end < pool.size ? end : pool.size);
            atomic_fetch_add_explicit(&pool.ranges[me].done, 1, memory_order_release);
        }
    }
}
static void *serve(void *number) {
    int me = (int)(intptr_t)number;
    uint64_t seen = 0;
    for (long idle = 0;; idle++) {
        uint64_t job = atomic_load_explicit(&pool.job, memory_order_acquire);
        if (job != seen) {
            seen = job, idle = 0;
            if (me < atomic_load_explicit(&pool.threads, memory_order_relaxed)) help(me);
        } else if (idle < SPINS) {
            PAUSE;
        } else { /* a job that comes now is done without; the next rings */
            atomic_fetch_add(&pool.asleep, 1);
            sem_wait(&bell);
            idle = 0;
        }
    }
    return 0;
}
static void give_out(team *t, chunk *does, char *const *p, long size, long grain) {
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    long least = (size + MOST_CHUNKS - 1) / MOST_CHUNKS;
    pool.does = does, pool.p = p, pool.size = size, pool.grain = grain = grain < least ? least : grain;
    uint64_t job = atomic_load_explicit(&pool.job, memory_order_relaxed) + 1, chunks = (size + grain - 1) / grain;
    for (int k = 0; k < threads; k++) {
        uint64_t left = job << 32 | chunks * k / threads << 16 | chunks * (k + 1) / threads;
        atomic_store_explicit(&pool.ranges[k].left, left, memory_order_release);
    }
    atomic_store(&pool.job, job);
    int asleep = atomic_load(&pool.asleep) ? atomic_exchange(&pool.asleep, 0) : 0;
    for (; asleep; asleep--) sem_post(&bell);
    help(0);
    pool.expected += chunks;
    for (;;) {
        uint64_t done = 0;
        for (int k = 0; k <= pool.helpers; k++)
            done += atomic_load_explicit(&pool.ranges[k].done, memory_order_acquire);
        if (done == pool.expected) return;
        PAUSE;
    }
}
static int begin_helper(void) { /* signals are for others: Python's own thread must be woken by them */
    sigset_t none, before;
    pthread_t thread;
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    int is_there = !pthread_create(&thread, 0, serve, (void *)(intptr_t)(pool.helpers + 1));
    pthread_sigmask(SIG_SETMASK, &before, 0);
    if (is_there) pthread_detach(thread), pool.helpers++;
    return is_there;
}
static team *take(int threads) { /* NULL: work alone. Of two that come at once one works alone */
    if (threads < 2 || pthread_mutex_trylock(&in_use)) return 0;
    if (!pool.is_ready) pool.is_ready = !sem_init(&bell, 0, 0), pool.face.share = give_out;
    while (pool.is_ready && pool.helpers + 1 < threads && pool.helpers + 1 < MOST_THREADS && begin_helper()) {}
    atomic_store(&pool.threads, threads < pool.helpers + 1 ? threads : pool.helpers + 1);
    if (pool.helpers) return &pool.face;
    pthread_mutex_unlock(&in_use);
    return 0;
}
static void leave(team *t) { if (t) pthread_mutex_unlock(&in_use); }
"""
