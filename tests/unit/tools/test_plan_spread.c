/*
 * Transfers over NICs: every element of each goes by one NIC, none by one that is down where
 * another is there; what NICs carry is what the planner says of their node, and even; the simulator
 * of NICs agrees with that of nodes where NICs make no difference.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/planner_bound.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"
#include "tools/r2_perf/util.c"
#include "tools/schedule/sched.c"
#include "tools/schedule/share.c"
#include "tools/schedule/sim.c"
#include "tools/schedule/spread.c"
#include "tools/schedule/steps.c"

#define COUNT 99991 /* elements; a prime, so that nothing divides */

static double b[STEPS_NODES];
static uint32_t up[STEPS_NODES];
static int order[STEPS_NODES];

/* @n nodes of @nics, of which @one has lost @lost, from the last one down; -1: any, any number. */
static struct sched nodes_make(uint64_t *seed, int n, int nics, int one, int lost)
{
    for (int i = 0; i < n; i++) {
        int gone = one < 0 ? (int)plan_random(seed, (uint32_t)nics) : i == one ? lost : 0;

        up[i] = (1u << (nics - gone)) - 1;
        b[i] = (double)(nics - gone) / nics;
        order[i] = (i + 1) % n;
    }
    return (struct sched){.nodes = n, .b = b, .order = order, .pieces = 2, .abreast = 2};
}

static void parts_check(const struct spread *p)
{
    const struct steps *s = p->steps;
    size_t begin, n;

    ck_assert_uint_eq(p->begin[0], 0);
    ck_assert_uint_eq(p->begin[s->chunks], COUNT);
    for (int i = 0; i < s->ops; i++) {
        const struct steps_op *op = &s->op[i];
        uint32_t both = up[op->src] & up[op->dst];
        size_t at = p->begin[op->chunk];

        if (op->src == op->dst) {
            continue;
        }
        for (int k = 0; k < p->nics; k++) {
            spread_part(p, i, k, &begin, &n);
            ck_assert_msg(n == 0 || both == 0 || (both >> k & 1), "n%d is down", k);
            ck_assert(n == 0 || begin == at);
            at += n;
        }
        ck_assert_uint_eq(at, p->begin[op->chunk + steps_moves(op)]);
        ck_assert(both == 0 || (both >> spread_first(p, i) & 1));
    }
}

START_TEST(each_element_goes_once)
{
    uint64_t seed = 5;

    for (int round = 0; round < plan_rounds(30); round++) {
        int n = 2 + round % 5, nics = 1 + round % 4;
        struct sched c = nodes_make(&seed, n, nics, -1, 0);

        for (int kind = 0; kind < SCHED_KINDS; kind++) {
            struct steps *s = sched_make(&c, kind);
            struct spread p;

            if (s == NULL) {
                ck_assert_int_eq(kind, SCHED_SERIAL); /* all alike */
                continue;
            }
            spread_open(&p, s, up, nics, COUNT);
            parts_check(&p);
            spread_close(&p);
            steps_close(s);
        }
    }
}
END_TEST

/* By sent or received, in D: the most of a NIC, in what it has of its node. */
static double busy_find(const struct spread *p, double slack)
{
    struct spread_load load[STEPS_NODES];
    double most = 0;

    spread_loads(p, load);
    for (int i = 0; i < p->steps->nodes; i++) {
        for (int k = 0; k < p->nics; k++) {
            double sent = (double)load[i].sent[k], received = (double)load[i].received[k];

            ck_assert(up[i] >> k & 1 || (sent == 0 && received == 0));
            most = sent > most ? sent : most;
            most = received > most ? received : most;
        }
    }
    return (most - slack) / COUNT * p->nics;
}

/* One node has lost NICs: those of no node carry more than the planner's longest load. An element
 * for each op may be where rounding has put it. */
START_TEST(nics_carry_what_the_planner_says)
{
    uint64_t seed = 6;

    for (int n = 3; n <= 6; n++) {
        for (int nics = 2; nics <= 4; nics++) {
            for (int kind = 0; kind < SCHED_SERIAL; kind++) {
                struct sched c = nodes_make(&seed, n, nics, n - 1, 1);
                struct steps *s = sched_make(&c, kind);
                double load = sched_load(&c, kind), busy;
                struct spread p;

                spread_open(&p, s, up, nics, COUNT);
                busy = busy_find(&p, s->ops);
                if (busy > load * 1.001) {
                    ck_abort_msg("%s of %d with %d NICs: %.4f, the planner says %.4f",
                                 sched_name(kind), n, nics, busy, load);
                }
                spread_close(&p);
                steps_close(s);
            }
        }
    }
}
END_TEST

/* Nothing lost: all NICs are alike, so the simulator finds the same times as without any. */
START_TEST(nics_that_are_alike_make_no_difference)
{
    uint64_t seed = 7;

    for (int kind = 0; kind < SCHED_SERIAL; kind++) {
        struct sched c = nodes_make(&seed, 5, 4, 0, 0);
        struct steps *s = sched_make(&c, kind);
        struct sim_result by_node, by_nic;
        struct spread p;

        spread_open(&p, s, up, 4, COUNT);
        for (int by = SIM_BYTES; by <= SIM_SENDERS; by++) {
            sim_run(s, b, (enum sim_by)by, &by_node);
            sim_run_spread(&p, (enum sim_by)by, &by_nic);
            ck_assert_str_eq(by_nic.wrong, "");
            ck_assert_double_eq_tol(by_node.time, by_nic.time, 1e-6);
            ck_assert_double_eq_tol(by_node.sent[1], by_nic.sent[1], 1e-6);
        }
        spread_close(&p);
        steps_close(s);
    }
}
END_TEST

/* A NIC that is down is missed: its node, in a ring, takes as much longer as it has fewer. */
START_TEST(nic_that_is_down_is_missed)
{
    uint64_t seed = 8;
    struct sched c = nodes_make(&seed, 4, 2, 1, 1);
    struct steps *s = sched_make(&c, PLANNER_RING);
    struct sim_result r;
    struct spread p;

    spread_open(&p, s, up, 2, COUNT);
    sim_run_spread(&p, SIM_CONNECTIONS, &r);
    ck_assert_str_eq(r.wrong, "");
    ck_assert_double_eq_tol(r.time, 3, 0.01);
    spread_close(&p);
    steps_close(s);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, each_element_goes_once);
    tcase_add_test(t, nics_carry_what_the_planner_says);
    tcase_add_test(t, nics_that_are_alike_make_no_difference);
    tcase_add_test(t, nic_that_is_down_is_missed);
}

int main(void)
{
    return suite_run("plan_spread", plan_limit_s(), NULL, NULL, tests_add);
}
