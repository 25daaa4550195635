/*
 * Weights in a closed loop: what connections carried by the last weights is the demand of the next
 * division, as in r2_balance.c, with its hysteresis. Random worlds, by seed, in which nothing
 * changes: plans have to come to rest.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "balance/balance_plan.h"
#include "tests/unit/balance_draw.h"
#include "tests/unit/suite.h"

#define NICS   6
#define CONNS  16
#define PORTS  (NICS + CONNS * NICS)
#define WORLDS 1000
#define STEPS  200
#define CALM   100 /* divisions after which nothing is to change any more */

static struct balance_conn conn[CONNS];
static struct balance_facts f;
static uint64_t demand[CONNS];
static uint32_t now[CONNS][BALANCE_PLAN_PATHS], link_mbps[1];
static double port[PORTS]; /* of this host, then of each other one */
static double want[CONNS], carried[CONNS];

/* 2 to 6 NICs; connections over all or most of them, some over one; most want all that they can
 * get. */
static void world_make(uint32_t s)
{
    uint32_t nics, kind, hosts, little, alone;

    seed = s * 2654435761u + 1;
    nics = 2 + any(NICS - 1);
    memset(conn, 0, sizeof(conn));
    memset(demand, 0, sizeof(demand));
    f = (struct balance_facts){
        .nics = nics, .conns = 1 + any(CONNS), .link = link_mbps, .conn = conn, .demand = demand};
    kind = any(3), hosts = 1 + any(f.conns), little = any(3) ? 0 : any(60),
    alone = any(3) ? any(40) : 0;
    for (int i = 0; i < PORTS; i++) {
        port[i] = some_rate(kind);
    }
    for (uint32_t i = 0; i < nics; i++) {
        f.port[i] = (uint32_t)port[i];
    }
    for (uint32_t c = 0; c < f.conns; c++) {
        uint32_t one = any(100) < alone, first = one ? any(nics) : 0;

        conn[c].host = any(hosts);
        want[c] = any(100) < little ? 1000 + any(200000) : 1e12;
        for (uint32_t n = first; n < (one ? first + 1 : nics); n++) {
            struct balance_pair *p = &conn[c].pair[conn[c].n];

            if (!one && conn[c].n && any(10) == 0) {
                continue;
            }
            p->nic = p->there = (uint8_t)n;
            p->port_there = (uint32_t)port[NICS + conn[c].host * NICS + n];
            conn[c].n++;
        }
    }
}

/* The ports of pair @i of connection @c. */
static void ports_of(uint32_t c, uint32_t i, uint32_t out[2])
{
    out[0] = conn[c].pair[i].nic;
    out[1] = NICS + conn[c].host * NICS + conn[c].pair[i].there;
}

static void loads_set(const int *rises, double *load)
{
    memset(load, 0, PORTS * sizeof(load[0]));
    for (uint32_t c = 0; c < f.conns; c++) {
        for (uint32_t i = 0; rises[c] && i < conn[c].n; i++) {
            uint32_t p[2];

            ports_of(c, i, p);
            load[p[0]] += (double)now[c][i] / BALANCE_ONE;
            load[p[1]] += (double)now[c][i] / BALANCE_ONE;
        }
    }
}

static int is_held(uint32_t c, const double *left)
{
    int held = carried[c] >= want[c] * (1 - 1e-9);

    for (uint32_t i = 0; i < conn[c].n; i++) {
        uint32_t p[2];

        ports_of(c, i, p);
        held |= now[c][i] && (left[p[0]] <= port[p[0]] * 1e-9 || left[p[1]] <= port[p[1]] * 1e-9);
    }
    return held;
}

/* What each carries: all rise alike, until it has what it wants or a port that it uses is full
 * (max-min fair). */
static void carry(void)
{
    double left[PORTS], load[PORTS], room = 0;
    int rises[CONNS];

    memcpy(left, port, sizeof(left));
    for (uint32_t c = 0; c < f.conns; c++) {
        carried[c] = 0;
        rises[c] = 1;
    }
    for (uint32_t turn = 0; turn < PORTS + CONNS && room < 1e300; turn++) {
        room = 1e300;
        loads_set(rises, load);
        for (int p = 0; p < PORTS; p++) {
            room = load[p] > 0 && left[p] / load[p] < room ? left[p] / load[p] : room;
        }
        for (uint32_t c = 0; c < f.conns; c++) {
            room = rises[c] && want[c] - carried[c] < room ? want[c] - carried[c] : room;
        }
        for (int p = 0; p < PORTS && room < 1e300; p++) {
            left[p] -= room * load[p];
        }
        for (uint32_t c = 0; c < f.conns && room < 1e300; c++) {
            carried[c] += rises[c] ? room : 0;
            rises[c] = rises[c] && !is_held(c, left);
        }
    }
}

/* Of those that want more than they have; 0: all have what they want. */
static double least_get(void)
{
    double least = 0;

    for (uint32_t c = 0; c < f.conns; c++) {
        if (carried[c] < want[c] * 0.999 && (least == 0 || carried[c] < least)) {
            least = carried[c];
        }
    }
    return least;
}

/* One division, published as r2_balance.c does. Returns the largest change of a weight; 0: nothing
 * was worth a plan. */
static uint32_t divide(void *work, unsigned percent)
{
    uint32_t next[CONNS][BALANCE_PLAN_PATHS], most = 0;

    ck_assert_int_eq(balance_plan(&f, work, next), 0);
    for (uint32_t c = 0; c < f.conns; c++) {
        if (conn[c].n < 2 || !balance_weights_differ(now[c], next[c], conn[c].n, percent)) {
            continue;
        }
        for (uint32_t i = 0; i < conn[c].n; i++) {
            uint32_t d = (uint32_t)labs((long)next[c][i] - (long)now[c][i]);

            most = d > most ? d : most;
        }
        memcpy(now[c], next[c], sizeof(now[c]));
    }
    return most;
}

/* The largest change in the second half of the loop. */
static uint32_t loop(void *work)
{
    uint32_t most = 0;

    for (uint32_t c = 0; c < f.conns; c++) {
        balance_plan_own(&f, &conn[c], now[c]);
    }
    for (int step = 0; step < STEPS; step++) {
        uint32_t change;

        carry();
        for (uint32_t c = 0; c < f.conns; c++) {
            demand[c] = demand[c] / 2 + (uint64_t)(carried[c] * 125000) / 2;
        }
        change = divide(work, 10);
        most = step >= CALM && change > most ? change : most;
    }
    carry();
    return most;
}

/*
 * Nearly all worlds come to rest. What a connection is held down to counts as all that it wants, so
 * a division can keep it there: what is lost by that against equal demand is bounded here, not
 * excluded.
 */
START_TEST(plans_come_to_rest)
{
    int restless = 0, behind = 0;

    for (uint32_t s = 0; s < WORLDS; s++) {
        uint32_t change;
        double least, equal;
        void *work;

        world_make(s);
        work = malloc(balance_plan_size(&f));
        ck_assert_ptr_nonnull(work);
        change = loop(work);
        restless += change != 0;
        ck_assert_msg(change <= BALANCE_ONE / 4, "world %u: a weight still changes by %u of %u", s,
                      change, BALANCE_ONE);
        least = least_get();
        memset(demand, 0, sizeof(demand));
        divide(work, 0);
        free(work);
        carry();
        equal = least_get();
        if (least == 0 || equal == 0) {
            continue;
        }
        behind += least < equal * 0.97;
        ck_assert_msg(least > equal * 0.35, "world %u: the least gets %.0f, by equal demand %.0f",
                      s, least, equal);
    }
    ck_assert_msg(restless <= WORLDS / 200, "%d of %d worlds are restless", restless, WORLDS);
    ck_assert_msg(behind <= WORLDS * 3 / 10, "in %d of %d worlds somebody is held down", behind,
                  WORLDS);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, plans_come_to_rest);
}

int main(void)
{
    return suite_run("balance_loop", 300, NULL, NULL, add);
}
