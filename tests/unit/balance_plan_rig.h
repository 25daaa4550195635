/* What the suites of weights share: facts about a host's connections, made one by one, the plan of
 * them, and what NICs then carry. */
#ifndef TEST_BALANCE_PLAN_RIG_H
#define TEST_BALANCE_PLAN_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "balance/balance_plan.h"
#include "tests/unit/suite.h"

#define CONNS 600
#define MBPS  100000u

static struct balance_conn conn[CONNS];
static uint64_t demand[CONNS];
static struct balance_other other[BALANCE_PLAN_OTHERS];
static uint32_t link_mbps[BALANCE_PLAN_LINKS], weight[CONNS][BALANCE_PLAN_PATHS];
static struct balance_facts f;

static inline void begin(uint32_t nics)
{
    memset(conn, 0, sizeof(conn));
    memset(demand, 0, sizeof(demand));
    memset(other, 0, sizeof(other));
    f = (struct balance_facts){
        .nics = nics, .conn = conn, .demand = demand, .other = other, .link = link_mbps};
    for (uint32_t i = 0; i < nics && i < BALANCE_PLAN_NICS; i++) {
        f.port[i] = MBPS;
    }
}

/* A connection over the NIC pairs of @nics, same rail at both ends. */
static inline struct balance_conn *conn_add(uint32_t host, uint32_t nics, uint64_t wants)
{
    struct balance_conn *c = &conn[f.conns];

    c->host = host;
    for (uint32_t m = nics; m; m &= m - 1) {
        c->pair[c->n].nic = c->pair[c->n].there = (uint8_t)__builtin_ctz(m);
        c->n++;
    }
    demand[f.conns++] = wants;
    return c;
}

static inline void other_add(uint32_t nics, uint32_t conns, uint64_t wants)
{
    other[f.others++] = (struct balance_other){.nics = nics, .conns = conns, .demand = wants};
}

static inline void plan(void)
{
    size_t size = balance_plan_size(&f);
    uint8_t *work = malloc(size + 8);

    ck_assert(size > 0 && work != NULL);
    memset(work, 0xa5, size + 8);
    memset(weight, 0xff, sizeof(weight));
    ck_assert_int_eq(balance_plan(&f, work, weight), 0);
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(work[size + (size_t)i] == 0xa5, "written behind the working memory");
    }
    free(work);
    for (uint32_t c = 0; c < f.conns; c++) {
        uint64_t sum = 0;

        for (int i = 0; i < BALANCE_PLAN_PATHS; i++) {
            ck_assert(i < (int)conn[c].n || conn[c].n > BALANCE_PLAN_PATHS || weight[c][i] == 0);
            sum += weight[c][i];
        }
        ck_assert_uint_eq(sum, conn[c].n && conn[c].n <= BALANCE_PLAN_PATHS ? BALANCE_ONE : 0);
    }
}

/* What each NIC carries of what the connections want. */
static inline void loads_add(double load[BALANCE_PLAN_NICS])
{
    for (uint32_t c = 0; c < f.conns; c++) {
        for (uint32_t i = 0; i < conn[c].n; i++) {
            load[conn[c].pair[i].nic] += (double)demand[c] * weight[c][i] / BALANCE_ONE;
        }
    }
}

/* The highest load for its port, over that of a division without any limit but the ports of @nics.
 */
static inline double over_ideal(const double *load, uint32_t nics)
{
    double all = 0, rate = 0, most = 0;

    for (uint32_t m = nics; m; m &= m - 1) {
        int i = __builtin_ctz(m);

        all += load[i];
        rate += f.port[i];
        most = load[i] / f.port[i] > most ? load[i] / f.port[i] : most;
    }
    return most / (all / rate);
}

#endif
