/*
 * balance_fill against a plain implementation of what it computes: resource by resource of each
 * path, in each round, none left out. Random worlds, by seed.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "balance/balance_fill.h"
#include "tests/unit/balance_draw.h"
#include "tests/unit/suite.h"

#define NICS      8
#define FLOWS     256
#define WORLDS    3000
#define RESOURCES (NICS * (NICS + 1) + 1 + FLOWS * NICS * 2)

static uint32_t mbps[RESOURCES];
static struct balance_path path[FLOWS * NICS];
static struct balance_flow flow[FLOWS];
static struct balance_net net;

static uint32_t weight[FLOWS * NICS], rate[FLOWS * NICS], plain_weight[FLOWS * NICS];
static struct balance_result result, plain_result;

/* --- the plain one --- */

static double part[FLOWS * NICS], best[FLOWS * NICS], load[RESOURCES], dual[RESOURCES],
    mean[RESOURCES];

static void plain_begin(void)
{
    for (uint32_t f = 0; f < net.flows; f++) {
        double sum = 0;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            part[p] = 1e9;
            for (int i = 0; i < path[p].n; i++) {
                part[p] = mbps[path[p].res[i]] < part[p] ? mbps[path[p].res[i]] : part[p];
            }
            sum += part[p];
        }
        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n && sum > 0; p++) {
            part[p] *= flow[f].share / sum;
        }
    }
    memset(best, 0, sizeof(best));
    memset(mean, 0, sizeof(mean));
}

static double plain_loads(void)
{
    double most = 0;

    memset(load, 0, sizeof(load));
    for (uint32_t p = 0; p < net.paths; p++) {
        for (int i = 0; i < path[p].n; i++) {
            load[path[p].res[i]] += part[p];
        }
    }
    for (uint32_t r = 0; r < net.resources; r++) {
        load[r] = mbps[r] ? load[r] / mbps[r] : 0;
        most = load[r] > most ? load[r] : most;
    }
    return most;
}

static double path_cost(uint32_t p, const double *of)
{
    double cost = 0;

    for (int i = 0; i < path[p].n; i++) {
        cost += of[path[p].res[i]];
    }
    return cost;
}

static double cheapest(uint32_t f, const double *of)
{
    double least = -1;

    for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
        double cost = path_cost(p, of);

        if (part[p] > 0 && (least < 0 || cost < least)) {
            least = cost;
        }
    }
    return least;
}

/* The bound that these dual prices prove. */
static double proved(const double *of)
{
    double all = 0, pay = 0;

    for (uint32_t r = 0; r < net.resources; r++) {
        all += of[r] * mbps[r];
    }
    for (uint32_t f = 0; f < net.flows; f++) {
        pay += cheapest(f, of) > 0 ? cheapest(f, of) * flow[f].share : 0;
    }
    return pay > 0 ? all / pay : 1e300;
}

static void plain_move(double keep)
{
    for (uint32_t f = 0; f < net.flows; f++) {
        double least = cheapest(f, dual), sum = 0;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            if (path_cost(p, dual) > 0) {
                part[p] *= (least / path_cost(p, dual) + keep) / (1 + keep);
            }
            sum += part[p];
        }
        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n && sum > 0; p++) {
            part[p] *= flow[f].share / sum;
        }
    }
}

static void plain_search(void)
{
    int sharp = 4, since = 0;

    plain_result = (struct balance_result){0, 1e300};
    plain_begin();
    for (int round = 0; round < 96; round++) {
        double most = plain_loads();

        if (most <= 0) {
            return;
        }
        if (1 / most > plain_result.least * (1 + 1e-9)) {
            plain_result.least = 1 / most;
            since = round;
            memcpy(best, part, sizeof(best));
        }
        for (uint32_t r = 0; r < net.resources; r++) {
            dual[r] = load[r] / most;
            for (int k = 1; k < sharp; k *= 2) {
                dual[r] *= dual[r];
            }
            dual[r] = mbps[r] ? dual[r] / mbps[r] : 0;
            mean[r] = mean[r] * 0.75 + dual[r];
        }
        if (round % 4 == 3 && proved(mean) < plain_result.bound) {
            plain_result.bound = proved(mean);
        }
        if (proved(dual) < plain_result.bound) {
            plain_result.bound = proved(dual);
        }
        if (plain_result.least >= plain_result.bound * 0.98) {
            return;
        }
        plain_move(sharp / 2.0 - 1);
        if ((round - since >= 6 || round % 8 == 7) && sharp < 64) {
            sharp *= 2;
            since = round;
        }
    }
}

/* --- progressive filling, in whole numbers: the same to the last bit for the same parts --- */

static uint64_t step[FLOWS * NICS], is[FLOWS * NICS], left[RESOURCES], sum[RESOURCES];

static void path_stop(uint32_t p, uint64_t level)
{
    for (int i = 0; i < path[p].n; i++) {
        sum[path[p].res[i]] -= step[p];
    }
    is[p] = level * step[p];
    step[p] = 0;
}

static void full_stop(uint32_t r, uint64_t level)
{
    int full = sum[r] && left[r] < sum[r] * (1 + (level >> 8));

    for (uint32_t p = 0; p < net.paths && full; p++) {
        for (int i = 0; i < path[p].n; i++) {
            if (path[p].res[i] == r && step[p]) {
                path_stop(p, level);
                break;
            }
        }
    }
}

static void plain_filling(void)
{
    uint64_t level = 0, room = 0;

    memset(is, 0, sizeof(is));
    memset(sum, 0, sizeof(sum));
    for (uint32_t p = 0; p < net.paths; p++) {
        step[p] = (uint64_t)(best[p] * BALANCE_ONE);
        for (int i = 0; i < path[p].n; i++) {
            sum[path[p].res[i]] += step[p];
        }
    }
    for (uint32_t r = 0; r < net.resources; r++) {
        left[r] = (uint64_t)mbps[r] << 24;
    }
    while (room != UINT64_MAX) {
        room = UINT64_MAX;
        for (uint32_t r = 0; r < net.resources; r++) {
            room = sum[r] && left[r] / sum[r] < room ? left[r] / sum[r] : room;
        }
        level += room != UINT64_MAX ? room : 0;
        for (uint32_t r = 0; r < net.resources; r++) {
            left[r] -= sum[r] ? room * sum[r] : 0;
        }
        for (uint32_t r = 0; r < net.resources; r++) {
            full_stop(r, level);
        }
    }
    for (uint32_t f = 0; f < net.flows; f++) {
        uint64_t all = 0;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            all += is[p] >> 16;
        }
        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            plain_weight[p] =
                (uint32_t)(all ? (is[p] >> 16) * BALANCE_ONE / all : BALANCE_ONE / flow[f].n);
        }
    }
}

/* --- worlds --- */

static void path_add(uint16_t nic, uint32_t dev, uint32_t host, uint32_t slow)
{
    struct balance_path *p = &path[net.paths++];
    const uint32_t link = NICS, socket = link + NICS * NICS, remote = socket + 1;

    *p = (struct balance_path){.n = 0};
    p->res[p->n++] = nic;
    p->res[p->n++] = (uint16_t)(link + dev * NICS + nic);
    if ((dev < NICS / 2) != (nic < NICS / 2)) {
        p->res[p->n++] = (uint16_t)socket;
    }
    p->res[p->n++] = (uint16_t)(remote + host * NICS + nic);
    if (any(100) < slow) {
        mbps[net.resources] = 100 + any(any(2) ? 400000 : 5000);
        p->res[p->n++] = (uint16_t)net.resources++;
    }
}

/* 8 NICs, a few or all of the hosts different, sometimes NICs lost, paths that are slow, flows that
 * have one path. */
static void world_make(uint32_t s, uint32_t flows)
{
    uint32_t kind, hosts, devs, slow, alone, shares;

    seed = s * 2654435761u + 1;
    kind = any(3), hosts = any(3) ? 1 + any(flows) : flows, devs = 1 + any(NICS),
    slow = any(3) ? 0 : any(100);
    alone = any(2) ? 0 : any(50), shares = any(2);
    net = (struct balance_net){mbps, path, flow, 0, 0, 0};
    for (int i = 0; i < NICS; i++) {
        mbps[net.resources++] = some_rate(kind);
    }
    for (int i = 0; i < NICS * NICS; i++) {
        mbps[net.resources++] = kind == 0 ? (any(2) ? 234000 : 512000) : 100000 + any(400000);
    }
    mbps[net.resources++] = 200000 + any(800000);
    for (uint32_t i = 0; i < hosts * NICS; i++) {
        mbps[net.resources++] = some_rate(kind);
    }
    for (uint32_t lost = any(50) ? any(3) : 100; lost > 0; lost--) {
        mbps[any(NICS)] = 0; /* all of them by 100 draws */
    }
    for (uint32_t f = 0; f < flows; f++) {
        uint32_t dev = f % devs, host = hosts == flows ? f : any(hosts);
        int one = any(100) < alone;

        flow[net.flows++] = (struct balance_flow){.share = (uint16_t)(shares ? 1 + any(256) : 1),
                                                  .n = one ? 1 : NICS,
                                                  .first = net.paths};
        for (uint32_t n = 0; n < (one ? 1 : NICS); n++) {
            path_add((uint16_t)(one ? any(NICS) : n), dev, host, slow);
        }
    }
}

static void fill(void)
{
    size_t size = balance_fill_size(&net), entries = 0;
    void *work = malloc(size);

    for (uint32_t p = 0; p < net.paths; p++) {
        entries += path[p].n;
    }
    ck_assert(size > 0 && work != NULL);
    ck_assert_uint_ge(balance_fill_size_most(net.resources, net.flows, net.paths, entries), size);
    ck_assert_int_eq(balance_fill(&net, work, rate, weight, &result), 0);
    free(work);
}

/* The largest difference of a weight from the plain one's, of BALANCE_ONE. */
static uint32_t weights_compare(void)
{
    uint32_t most = 0;

    for (uint32_t p = 0; p < net.paths; p++) {
        uint32_t d = (uint32_t)labs((long)weight[p] - (long)plain_weight[p]);

        most = d > most ? d : most;
    }
    return most;
}

static int is_near(double a, double b)
{
    return a >= b * 0.999 && a <= b * 1.001;
}

/* What the search leaves out decides nothing: no bound, no rate of the one that gets least, and no
 * weight by as much as hysteresis would let pass. */
START_TEST(as_the_plain_one)
{
    int exact = 0, slow = 0, nothing = 0;

    for (uint32_t s = 0; s < WORLDS; s++) {
        world_make(s, s % 20 ? 1 + s % 37 : FLOWS);
        fill();
        plain_search();
        plain_filling();
        slow += net.resources > NICS * (NICS + 1) + 1 + FLOWS * NICS;
        if (plain_result.least == 0) {
            nothing++;
            ck_assert(result.least == 0);
            continue;
        }
        ck_assert_msg(is_near(result.least, plain_result.least), "world %u: the least %g, plain %g",
                      s, result.least, plain_result.least);
        ck_assert_msg(is_near(result.bound, plain_result.bound), "world %u: bound %g, plain %g", s,
                      result.bound, plain_result.bound);
        ck_assert_msg(weights_compare() <= BALANCE_LITTLE, "world %u: a weight is %u of %u off", s,
                      weights_compare(), BALANCE_ONE);
        exact +=
            weights_compare() <= 1; /* what is left over by rounding down is given away otherwise */
    }
    ck_assert_msg(exact >= WORLDS * 97 / 100, "only %d of %d worlds are the same", exact, WORLDS);
    ck_assert_int_gt(nothing, 0);
    ck_assert_int_gt(slow, 0);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, as_the_plain_one);
}

int main(void)
{
    return suite_run("balance_same", 300, NULL, NULL, add);
}
