/* What the parts of r2_plan share. One thread; everything may block in writes. */
#ifndef R2_PLAN_TOOL_H
#define R2_PLAN_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "plugin/planner/planner_bound.h"
#include "plugin/planner/planner_choose.h"
#include "plugin/planner/planner_ring.h"
#include "tools/r2_plan/hosts.h"
#include "tools/schedule/sim.h"
#include "tools/shared/sources.h"

#define TOOL_NICS     32
#define TOOL_PATTERNS 50 /* as many as the paper draws */
#define TOOL_RAILS    64 /* their numbers are below */

enum rate_by { RATE_ASSUMED, RATE_READ, RATE_SAID }; /* from hosts; by --rate */

/* What the command line says, or hosts. */
struct job {
    int nodes, nics, gpus;
    double gbps; /* of a NIC */
    uint64_t bytes;
    uint32_t rails[PLANNER_NODES]; /* a bit for each NIC that is left */
    double b[PLANNER_NODES];       /* the share of NICs that is left */
    bool is_counted;               /* of some node only the number of lost NICs is known */
    bool rail_only, json;
    int what_if;    /* 0: not asked */
    int patterns;   /* for what_if */
    int pieces;     /* simulate: as sched.pieces */
    enum sim_by by; /* simulate */
    enum rate_by rate_by;
    const struct hosts *hosts; /* node i is its host i; NULL: nodes have numbers alone */
};

/* Sets rails[] and b[] to what is there before anything is lost. */
void job_begin(struct job *j);

/*
 * Reads "3:1,17:n2+n5" into rails[] and b[]: node 3 has lost one NIC, whichever, node 17 two.
 * False:
 * @why says what was wrong.
 */
bool job_lost_read(struct job *j, const char *text, char *why, size_t room);

/* @left: a bit for each NIC that node @node has left. */
void job_rails_set(struct job *j, int node, uint32_t left);

/*
 * What is known of hosts: nodes, NICs, their rate, rails[] and b[]. A host with fewer NICs than
 * another has lost the rest. False: @why says which host cannot be planned for.
 */
bool hosts_job(const struct hosts *h, struct job *j, char *why, size_t room);

/*
 * Reads hosts from @from, and into @j what they say. 0; else the exit status, with what was wrong
 * said on stderr: then there is no plan, since an order that lacks a host is none. Hosts that
 * others know and nothing was read of are said, too. Blocks as sources_read() does.
 */
int hosts_read(struct hosts *h, const struct sources *from, struct job *j);

struct planner_facts job_facts(const struct job *j);

/* --- what is found --- */

struct answer {
    struct planner_plan plan;
    int seat[PLANNER_NODES];
    double work[2 * PLANNER_NODES];
    /* for rail_only */
    int present, printed; /* width of the present order, and by the paper's Algorithm 1 */
    struct planner_ring ring;
    int order[PLANNER_NODES], paper[PLANNER_NODES], spare[PLANNER_NODES];
    struct planner_cover cover;
};

/* False: planner_choose() refused, which job_lost_read() and the options rule out. */
bool answer_find(const struct job *j, struct answer *a);

/* The time with nothing lost, of whatever NCCL would take; microseconds. */
double healthy_us(const struct planner_plan *p);

/* What losing NICs costs, as a part of the time with nothing lost; below 0: it is faster. */
struct loss {
    double ring; /* Balance on a ring, against a ring */
    double nccl; /* the fastest that NCCL runs, against the fastest that it ran */
    double best; /* the fastest of all, against the same */
};

enum loss_where { LOSS_ONE, LOSS_EACH, LOSS_RANDOM }; /* one node, a node each, anywhere */

/* Means over job.patterns for LOSS_RANDOM, from the same seed each time. False: nodes do not have
 * that many. */
bool loss_find(const struct job *j, enum loss_where where, int lost, struct loss *loss);

/* rails[] and b[] of @j become those after @lost NICs fell out at random, never the last one of a
 * node. @state: the seed, which moves on. */
void job_lose_random(struct job *j, int lost, uint64_t *state);

/* All schedules on the simulator, at most STEPS_NODES nodes. False: some data was wrong, as it
 * says.
 */
bool simulate_write(FILE *f, const struct job *j);

/* "bytes", "connections" or "senders". False: another word. */
bool simulate_by_read(const char *text, enum sim_by *by);

void text_write(FILE *f, const struct job *j, const struct answer *a);
void json_write(FILE *f, const struct job *j, const struct answer *a);

#endif
