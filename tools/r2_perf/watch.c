#include "tools/r2_perf/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_perf/util.h"

/* After a failure the main thread gets this long to leave the plugin, close its connections and
 * report. */
#define WATCH_GRACE_NS (4 * R2_NS_PER_S)
#define WATCH_TICK_NS  (R2_NS_PER_S / 5)

static struct {
    struct boot *boot;
    int rank;
    bool prints; /* nobody else shows the error */
    uint64_t limit_ns;
    pthread_t thread;
    pthread_mutex_t lock; /* guards stop */
    pthread_cond_t cond;
    bool running, stop;
    _Atomic(const char *) phase; /* alone: no data is handed over with it */
    _Atomic uint64_t progress;   /* likewise: only its changing counts */
} watch_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void watch_phase_set(const char *phase)
{
    atomic_fetch_add_explicit(&watch_state.progress, 1, memory_order_relaxed);
    atomic_store_explicit(&watch_state.phase, phase, memory_order_relaxed);
}

void watch_progress_note(void)
{
    uint64_t n = atomic_load_explicit(&watch_state.progress, memory_order_relaxed);
    atomic_store_explicit(&watch_state.progress, n + 1, memory_order_relaxed);
}

void watch_error_print(const struct board *board)
{
    if (!atomic_exchange_explicit(&((struct board *)board)->printed, 1, memory_order_relaxed)) {
        printf("# error: %s\n", board->text);
        fflush(stdout);
    }
}

static void watch_process_end(void)
{
    const struct board *board = boot_error(watch_state.boot);
    if (watch_state.prints) {
        watch_error_print(board);
    }
    fprintf(stderr, "%s: rank %d is stuck in the plugin after the failure; leaving it\n",
            program_invocation_short_name, watch_state.rank);
    _exit(board->code);
}

/* Sleep one tick; true when the watch is to stop. */
static bool watch_tick(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)WATCH_TICK_NS;
    until.tv_sec += until.tv_nsec / (long)R2_NS_PER_S;
    until.tv_nsec %= (long)R2_NS_PER_S;
    pthread_mutex_lock(&watch_state.lock);
    if (!watch_state.stop) {
        pthread_cond_timedwait(&watch_state.cond, &watch_state.lock, &until);
    }
    bool stop = watch_state.stop;
    pthread_mutex_unlock(&watch_state.lock);
    return stop;
}

static void *watch_main(void *arg)
{
    uint64_t last = 0, last_ns = util_now_ns(), failed_ns = 0;
    while (!watch_tick()) {
        uint64_t now = util_now_ns();
        uint64_t progress = atomic_load_explicit(&watch_state.progress, memory_order_relaxed);
        const char *phase = atomic_load_explicit(&watch_state.phase, memory_order_relaxed);
        if (progress != last || !phase) {
            last = progress;
            last_ns = now;
        }
        if (boot_failed(watch_state.boot)) {
            failed_ns = failed_ns ? failed_ns : now;
            if (now - failed_ns > WATCH_GRACE_NS) {
                watch_process_end();
            }
        } else if (now - last_ns > watch_state.limit_ns) {
            char text[256];
            snprintf(text, sizeof(text), "timeout: no progress for %.0f s on rank %d while %s",
                     (double)watch_state.limit_ns / 1e9, watch_state.rank, phase);
            boot_fail(watch_state.boot, PERF_TIMEOUT, text);
        }
    }
    return NULL;
}

void watch_start(struct boot *boot, int rank, bool prints, uint64_t limit_ns)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&watch_state.cond, &attr);
    watch_state.boot = boot;
    watch_state.rank = rank;
    watch_state.prints = prints;
    watch_state.limit_ns = limit_ns;
    watch_state.running = pthread_create(&watch_state.thread, NULL, watch_main, NULL) == 0;
}

void watch_stop(void)
{
    pthread_mutex_lock(&watch_state.lock);
    watch_state.stop = true;
    if (watch_state.running) {
        pthread_cond_signal(&watch_state.cond);
    }
    pthread_mutex_unlock(&watch_state.lock);
    if (watch_state.running) {
        pthread_join(watch_state.thread, NULL);
        watch_state.running = false;
    }
}
