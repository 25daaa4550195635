/* How a batch begins and ends, whoever runs its operations: r2_perf's own engine or NCCL. */
#include "tools/r2_perf/engine.h"

#include <errno.h>
#include <time.h>

#include "tools/r2_perf/util.h"
#include "tools/r2_perf/watch.h"

int engine_batch_start(struct engine_batch *b, struct boot *boot, struct trace *trace)
{
    uint64_t t0 = 0;
    b->excluded_ns = 0;
    if (b->clock_start && (boot_barrier(boot) != 0 || boot_clock_agree(boot, &t0) != 0)) {
        return -1;
    }
    if (boot_barrier(boot) != 0) {
        return -1;
    }
    b->start_ns = util_now_ns();
    watch_phase_set("running an operation");
    if (b->late_ns) {
        struct timespec left = {.tv_sec = (time_t)(b->late_ns / R2_NS_PER_S),
                                .tv_nsec = (long)(b->late_ns % R2_NS_PER_S)};
        while (nanosleep(&left, &left) != 0 && errno == EINTR) {
        }
    }
    if (b->clock_start) {
        trace_clock_start(trace, t0);
    }
    if (b->started) {
        b->started(b->started_arg, t0);
    }
    if (b->timed) {
        trace_stretch_start(trace, b->start_ns);
    }
    return 0;
}

void engine_batch_stop(struct engine_batch *b, struct trace *trace)
{
    b->end_ns = util_now_ns();
    trace_stretch_stop(trace, b->end_ns);
}
