/*
 * What the linear program of balance_fill() is for: the same random worlds divided by progressive
 * filling alone, in which each flow rises by its share, over its paths in the ratio of what they
 * could carry, and what a full path does not take goes to the flow's others. Both are measured at
 * the bound that the dual prices prove.
 */
#include <stdlib.h>
#include <string.h>

#include "balance/balance_fill.h"
#include "tests/bench/bench.h"
#include "tests/unit/balance_draw.h"

#define WORLDS 1000
#define NICS   8
#define FLOWS  16
#define HOSTS  16
#define PORTS  (NICS + HOSTS * NICS)

static struct balance_path path[FLOWS * NICS];
static struct balance_flow flow[FLOWS];
static uint32_t mbps[PORTS], weight[FLOWS * NICS];
static double rate[FLOWS * NICS], step[FLOWS * NICS], left[PORTS], sum[PORTS];

/* 2 to 8 NICs, flows to some hosts over all or most of their rails, a few over one; ports alike, of
 * three sizes, or of any. */
static void world_make(uint32_t s, struct balance_net *net)
{
    uint32_t nics, kind, flows, hosts, alone;

    seed = s * 2654435761u + 1;
    nics = 2 + any(NICS - 1), kind = any(3), flows = 1 + any(FLOWS), hosts = 1 + any(flows);
    alone = any(3) ? any(40) : 0;
    *net = (struct balance_net){mbps, path, flow, PORTS, 0, 0};
    memset(path, 0, sizeof(path));
    for (int i = 0; i < PORTS; i++) {
        mbps[i] = some_rate(kind);
    }
    for (uint32_t f = 0; f < flows; f++) {
        uint32_t one = any(100) < alone, first = one ? any(nics) : 0, host = any(hosts);

        flow[net->flows++] = (struct balance_flow){.share = 1, .first = net->paths};
        for (uint32_t n = first; n < (one ? first + 1 : nics); n++) {
            struct balance_path *p = &path[net->paths];

            if (!one && flow[f].n && any(10) == 0) {
                continue;
            }
            p->res[p->n++] = (uint16_t)n;
            p->res[p->n++] = (uint16_t)(NICS + host * NICS + n);
            flow[f].n++;
            net->paths++;
        }
    }
}

static double path_least(const struct balance_path *p, int full)
{
    double least = 1e300;

    for (int i = 0; i < p->n; i++) {
        double is = full ? left[p->res[i]] - 1e-9 * mbps[p->res[i]] : mbps[p->res[i]];

        least = is < least ? is : least;
    }
    return least;
}

/* How fast each path rises now: its flow's share, over those that are not full. Returns whether any
 * does. */
static int steps_set(const struct balance_net *net)
{
    int rises = 0;

    memset(sum, 0, sizeof(sum));
    for (uint32_t f = 0; f < net->flows; f++) {
        uint32_t from = flow[f].first, to = from + flow[f].n;
        double all = 0;

        for (uint32_t p = from; p < to; p++) {
            step[p] = path_least(&path[p], 1) > 0 ? path_least(&path[p], 0) : 0;
            all += step[p];
        }
        for (uint32_t p = from; p < to && all > 0; p++) {
            step[p] *= flow[f].share / all;
            rises |= step[p] > 0;
            for (int i = 0; i < path[p].n; i++) {
                sum[path[p].res[i]] += step[p];
            }
        }
    }
    return rises;
}

/* What the flow that gets least gets, per share. */
static double filling(const struct balance_net *net)
{
    double least = 1e300;

    memset(rate, 0, sizeof(rate));
    for (int r = 0; r < PORTS; r++) {
        left[r] = mbps[r];
    }
    while (steps_set(net)) {
        double room = 1e300;

        for (int r = 0; r < PORTS; r++) {
            room = sum[r] > 0 && left[r] / sum[r] < room ? left[r] / sum[r] : room;
        }
        for (int r = 0; r < PORTS; r++) {
            left[r] -= room * sum[r];
        }
        for (uint32_t p = 0; p < net->paths; p++) {
            rate[p] += room * step[p];
        }
    }
    for (uint32_t f = 0; f < net->flows; f++) {
        double all = 0;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            all += rate[p];
        }
        least = all / flow[f].share < least ? all / flow[f].share : least;
    }
    return least;
}

static void loss_add(double least, double bound, double *mean, double *worst)
{
    double loss = 1 - least / bound;

    *mean += loss / WORLDS;
    *worst = loss > *worst ? loss : *worst;
}

void bench_filling_run(struct bench_filling *out)
{
    *out = (struct bench_filling){.worlds = WORLDS};
    for (uint32_t s = 0; s < WORLDS; s++) {
        struct balance_result result;
        struct balance_net net;
        size_t size;
        void *work;

        world_make(s, &net);
        size = balance_fill_size(&net);
        work = malloc(size);
        if (size == 0 || work == NULL || balance_fill(&net, work, NULL, weight, &result) != 0) {
            bench_die("world %u is refused", s);
        }
        free(work);
        loss_add(result.least, result.bound, &out->lp_mean, &out->lp_worst);
        loss_add(filling(&net), result.bound, &out->filling_mean, &out->filling_worst);
    }
}
