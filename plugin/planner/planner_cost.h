/*
 * What an all_reduce of a size takes: latency and bandwidth with the constants of NCCL's tuner
 * (src/graph/tuning.cc, 2.19 to 2.30) for protocol Simple, NVLink inside nodes, compute capability
 * 8.0 and later. Small messages in other protocols are faster than this. Microseconds, bytes, bytes
 * per microsecond (MB/s). Pure; any thread; does not block.
 */
#ifndef PLANNER_COST_H
#define PLANNER_COST_H

#include <stdint.h>

struct planner_net {
    int nodes, gpus;
    double rate; /* B, in bytes per microsecond */
};

/* Steps between GPUs of a node and between nodes, one after the other. */
double planner_cost_ring_latency(const struct planner_net *net, uint64_t bytes);
double planner_cost_tree_latency(const struct planner_net *net);

/* What NCCL expects of its tree beside what wires carry: 0.92, and less for middle sizes. */
double planner_cost_tree_efficiency(uint64_t bytes);

/* @load: D/B, as everywhere in this folder. */
double planner_cost_ring(const struct planner_net *net, uint64_t bytes, double load);
double planner_cost_tree(const struct planner_net *net, uint64_t bytes, double load);

/*
 * For schedules that NCCL does not have, an estimate by the same constants: a ring, then @hops from
 * node to node that are not part of it; with rings == 0 only these, behind a reduction inside
 * nodes.
 */
double planner_cost_other(const struct planner_net *net, uint64_t bytes, double load, int rings,
                          int hops);

#endif
