/*
 * An all_reduce by a planned schedule (--algo): which NICs work, the plan for that, made anew when
 * that changes between two operations; what went by each NIC beside what the plan says, and the
 * time beside the simulator's. Thread: main; blocks.
 */
#ifndef R2_PERF_PLANNED_H
#define R2_PERF_PLANNED_H

#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/engine.h"
#include "tools/r2_perf/measure.h"
#include "tools/r2_perf/opts.h"
#include "tools/schedule/sim.h"

/* --- what the options name --- */

/* The schedule called @name: an enum planner_strategy or SCHED_SERIAL; -1: there is none. */
int planned_algo_find(const char *name);
#define PLANNED_ALGOS "ring tree r2 r2-serial leaf recursion leaves star"

/*
 * @text is "rank", "seats" (tree) or hosts as in 2,0,1: NULL, or what is wrong with it. order[]:
 * the host of each position, which for seats come with the plan; *seats says that.
 */
const char *planned_order_read(const char *text, int *order, int *n, bool *seats);

/* --- a run --- */

/* All operations of one size with the same NICs working. */
struct planned_run {
    size_t bytes;
    uint32_t up[BOOT_RANKS_MAX];
    bool changed; /* NICs did during these operations: what the plan says was for before */
    int order[BOOT_RANKS_MAX];
    int operations;
    double seconds, simulated;                /* of one; simulated in D/B */
    struct spread_load plan[BOOT_RANKS_MAX];  /* bytes of one operation */
    struct spread_load moved[BOOT_RANKS_MAX]; /* bytes, of all, as r2_perf handed them over */
    struct spread_load wire[BOOT_RANKS_MAX];  /* bytes, of all, as the fabric counts */
};

#define PLANNED_RUNS 32

struct planned {
    const struct opts *o;
    struct boot *boot;
    struct engine *engine;
    const struct plugin *plugin;
    int rank, nranks, nics;
    int channels;    /* of the wire */
    uint64_t *links; /* [channel][rank] */
    bool has_wire;   /* the fabric counts */
    uint64_t rate;   /* bytes a second of a NIC; 0: not known */
    double b[BOOT_RANKS_MAX];
    uint32_t up[BOOT_RANKS_MAX];
    int order[BOOT_RANKS_MAX];
    size_t bytes, type_size; /* of the plan */
    struct steps *steps;
    struct spread spread;
    double simulated;
    struct spread_load counted[BOOT_RANKS_MAX]; /* by the fabric, before the operations */
    struct planned_run *runs;
    int nruns;
};

/* Before there are connections: finds channels and links. 0, or -1: the run has been failed with
 * the reason. */
int planned_open(struct planned *p, const struct opts *o, const struct boot_place *place,
                 struct boot *boot, const struct plugin *plugin);
void planned_close(struct planned *p);

/* measure.before and .after: all ranks. */
int planned_before(void *arg, const struct measure_case *c, bool timed);
int planned_after(void *arg, const struct measure_case *c, bool timed, int operations,
                  double seconds);

/* --- planned_report.c; rank 0 --- */

void planned_print(const struct planned *p);
void planned_json(struct r2_json *j, const struct planned *p);

#endif
