/*
 * What happened over time in one rank: bytes delivered per interval, times in which something that
 * had work made no progress. Recorded by the progress thread while a timed stretch runs; times are
 * ns since trace_clock_start. Thread: the progress thread records; the main thread reads while the
 * progress thread is idle. Nothing blocks.
 */
#ifndef R2_PERF_TRACE_H
#define R2_PERF_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pauses shorter than this are not kept one by one. */
#define TRACE_GAP_MIN_NS 100000ull

/* One pause: from end_ns - len_ns to end_ns. rank and peer name the connection; peer -1: all of the
 * rank's. */
struct trace_gap {
    uint64_t end_ns, len_ns;
    int32_t rank, peer, channel;
    int32_t receiving; /* 1: the receiving end of the connection */
};

struct trace_gaps {
    struct trace_gap *list;
    size_t n, room;
    uint64_t min_ns; /* shorter ones are not kept */
};

/* One operation, or several that follow each other, told as one once there are too many. */
struct trace_op {
    uint64_t first;            /* number of the first of them, from 0 */
    uint64_t start_ns, end_ns; /* of the first, of the last */
    uint64_t busy_ns;          /* time of all of them: no checks between batches */
    int64_t wrong;             /* elements on this rank; negative: not checked */
    uint32_t n;
    uint32_t placements; /* TRACE_OUT, TRACE_IN, or both */
};
#define TRACE_OUT     1
#define TRACE_IN      2
#define TRACE_OPS_MAX 4096

struct trace_ops {
    struct trace_op *list;
    size_t n, room;
    uint64_t count; /* operations so far */
    uint32_t per;   /* so many are told as one, once there were TRACE_OPS_MAX; a power of two */
};

struct trace {
    bool on;
    int rank;
    uint64_t t0, interval_ns;
    uint64_t *bytes,
        *active; /* per interval: bytes delivered to this rank; ns in which a timed stretch ran */
    size_t nbins, room;
    uint64_t active_since, last_progress; /* absolute; 0: no stretch is running */
    struct trace_gaps conn_gaps, rank_gaps;
    struct trace_ops ops; /* the main thread's; those that somebody adds */
};

void trace_init(struct trace *s, int rank, uint64_t interval_ns);
void trace_free(struct trace *s);
/* @t0 is time zero, and from now on things are recorded. */
void trace_clock_start(struct trace *s, uint64_t t0);
/* A timed stretch starts or ends. */
void trace_stretch_start(struct trace *s, uint64_t now);
void trace_stretch_stop(struct trace *s, uint64_t now);
/* @bytes arrived and were taken. */
void trace_bytes_add(struct trace *s, uint64_t now, size_t bytes);
/* The rank's end of a connection with @peer finished a message; it had work without progress since
 * @since. */
void trace_conn_note(struct trace *s, uint64_t since, uint64_t now, int peer, int channel,
                     bool receiving);
/*
 * The next operation, between two moments of util_now_ns(), which do not overlap those of the one
 * before. Where the list is full, neighbours become one. @wrong: negative where nothing was
 * checked. Thread: main, while the progress thread is idle.
 */
void trace_op_add(struct trace *s, uint64_t start, uint64_t end, bool in_place, int64_t wrong);

#endif
