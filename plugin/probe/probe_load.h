/*
 * When silence is congestion (docs/health.md): what the NICs of both ends moved while a
 * probe went unanswered, and how much longer its answer may take for that. Pure. Times in ns; `at`
 * is on the clock of the process that reports its NIC, all others on the watch's clock of the one
 * that probes.
 */
#ifndef PROBE_LOAD_H
#define PROBE_LOAD_H

#include <stdint.h>

#define PROBE_PEAK_NS   100000000ull /* a rate is measured over so long: messages end in lumps */
#define PROBE_TRACK_NS  60000000ull  /* ... and judged over the last one to two of these */
#define PROBE_BUSY_PART 4 /* of the best rate seen: a NIC that moves this part of it is busy */
#define PROBE_BUSY_WAIT                                                                            \
    4 /* T_probe that a busy end is waited for while the other one is silent                       \
       */
#define PROBE_QUEUED_MAX (1ull << 40) /* bytes: reports of more are limited to it */

/* A NIC, as the processes of its host together see it. */
struct probe_load {
    uint64_t moved;  /* bytes whose send completed and bytes that arrived; 0 and less than before:
                        begin anew */
    uint64_t queued; /* bytes posted without completion, and bytes that receives are open for */
    uint64_t front;  /* ... of these, those of the message that comes next on each queue pair */
    uint64_t age;    /* ns since it moved last */
    uint64_t rate;   /* bytes/s, the best seen; 0: not measured */
    uint64_t at;     /* when that was so; 0: nothing is known */
};

/* The best rate of a NIC. */
struct probe_peak {
    uint64_t at, moved; /* begin of the present sample; at 0: none */
    uint64_t rate;
};

/* At @now a NIC had moved @moved bytes in all: keeps the best rate over PROBE_PEAK_NS. */
void probe_peak_take(struct probe_peak *p, uint64_t now, uint64_t moved);

/* What became known of one end since the probe was posted. All zero: nothing. */
struct probe_track {
    struct probe_load from, mid, last;
    uint64_t moved_at; /* the latest time at which it is known to have moved; 0: none */
};

/* @l is known of that end, at @clock. */
void probe_track_take(struct probe_track *t, const struct probe_load *l, uint64_t clock);

enum probe_activity {
    PROBE_ACTIVITY_UNKNOWN,
    PROBE_ACTIVITY_SILENT,
    PROBE_ACTIVITY_MOVES,
    PROBE_ACTIVITY_BUSY,
    PROBE_ACTIVITY_COUNT
};
const char *probe_activity_name(enum probe_activity e);

/* @fresh: what moved longer ago does not count. */
enum probe_activity probe_track_end(const struct probe_track *t, uint64_t clock, uint64_t fresh);

/* Time that @bytes take there. */
uint64_t probe_load_expect(const struct probe_load *l, uint64_t bytes);

/* A probe without an answer. */
struct probe_case {
    uint64_t from; /* since when the answer may be expected */
    uint64_t t_probe;
    uint64_t limit; /* how long it may take without any congestion by others */
    uint64_t most;  /* longest wait whatever moves; below @limit it means nothing */
    uint64_t
        done_at; /* when a send of ours between the same two ports completed last; 0: none did */
    enum probe_activity here, there;
    uint64_t queue_here, queue_there; /* time that what is queued there takes */
};

/* From when on the silence is a fault. */
uint64_t probe_case_deadline(const struct probe_case *c);

#endif
