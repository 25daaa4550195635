#include "planner_cost.h"

/* Of tuning.cc, microseconds, protocol Simple: base, GPU to GPU over NVLink for ring and tree, and
 * node to node. */
#define BASE        8.4
#define RING_INSIDE 3.4
#define TREE_INSIDE 4.0
#define BETWEEN     14.0
/* "Plateau effect of ring": from 64 bytes per rank and channel on, where there are several nodes.
 */
#define PLATEAU       1.4
#define PLATEAU_BYTES 64
#define CHANNELS      16
#define TREE_BUS      0.92

/* By the highest bit of the size in units of 64 bytes; 1 beyond. */
static const double tree_correction[] = {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
                                         .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9};

static int log2_floor(uint64_t value)
{
    return value < 2 ? 0 : 63 - __builtin_clzll(value);
}

double planner_cost_ring_latency(const struct planner_net *net, uint64_t bytes)
{
    double ranks = (double)net->nodes * net->gpus, between = 2.0 * (net->nodes - 1);
    double us = BASE + (2 * (ranks - 1) - between) * RING_INSIDE + between * BETWEEN;

    return (double)bytes >= PLATEAU_BYTES * CHANNELS * ranks && net->nodes > 1 ? us * PLATEAU : us;
}

double planner_cost_tree_latency(const struct planner_net *net)
{
    return BASE + 2 * ((net->gpus - 1) * TREE_INSIDE + log2_floor(net->nodes) * BETWEEN);
}

double planner_cost_tree_efficiency(uint64_t bytes)
{
    uint64_t units = bytes >> 6;
    int power = log2_floor(units);

    if (units > 0 && power < (int)(sizeof(tree_correction) / sizeof(tree_correction[0]))) {
        return TREE_BUS * tree_correction[power];
    }
    return TREE_BUS;
}

static double wire(const struct planner_net *net, uint64_t bytes, double load)
{
    return (double)bytes * load / net->rate;
}

double planner_cost_ring(const struct planner_net *net, uint64_t bytes, double load)
{
    return planner_cost_ring_latency(net, bytes) + wire(net, bytes, load);
}

double planner_cost_tree(const struct planner_net *net, uint64_t bytes, double load)
{
    return planner_cost_tree_latency(net) +
           wire(net, bytes, load) / planner_cost_tree_efficiency(bytes);
}

double planner_cost_other(const struct planner_net *net, uint64_t bytes, double load, int rings,
                          int hops)
{
    double inside = BASE + 2 * (net->gpus - 1) * TREE_INSIDE;

    return (rings ? planner_cost_ring_latency(net, bytes) : inside) + hops * BETWEEN +
           wire(net, bytes, load);
}
