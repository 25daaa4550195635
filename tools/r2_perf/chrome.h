/*
 * A run as a trace in the JSON form of Chrome's tracing, which ui.perfetto.dev and chrome://tracing
 * open: a row for the run and one for each rank; operations, the plugin's events, bytes by NIC,
 * faults and their stalls. All times are microseconds since the clock of the watched size started.
 * share/schemas/r2_perf_trace.json describes it.
 */
#ifndef R2_PERF_CHROME_H
#define R2_PERF_CHROME_H

#include "tools/r2_perf/stats.h"
#include "tools/r2_perf/timeline.h"

/* More points of the rate over time are told as means of several. */
#define CHROME_POINTS_MAX 4096

/* What is known of one rank. */
struct chrome_rank {
    char host[64];
    int32_t pid;
    uint32_t per;   /* operations that are told as one */
    uint64_t count; /* operations */
    uint64_t nops;
    const struct trace_op *ops;
    struct stats_told *told; /* NULL: none */
};

struct chrome {
    int nranks;
    struct chrome_rank *ranks;
    char *memory[2]; /* of ops, of told */
};

/* What the file says beyond that. */
struct chrome_run {
    const char *operation, *plugin, *title;
    size_t size;     /* the watched size, as the table has it */
    double op_bytes; /* bytes that count for algbw, of one operation */
    const struct timeline *timeline;
};

/* What all ranks have. All call it; only rank 0's @c is filled. @told: NULL: none. Blocks. 0, or -1
 * once the run has failed. chrome_free in both cases. */
int chrome_gather(struct chrome *c, struct boot *boot, int rank, int nranks, const char *host,
                  const struct trace *trace, const struct stats_told *told);
void chrome_free(struct chrome *c);

/* To @f, whose errors are the caller's to look for. Thread: main of rank 0; blocks in writes only.
 */
void chrome_write(const struct chrome *c, const struct chrome_run *run, FILE *f);

#endif
