/*
 * How flows share ports: shares computed by hand; for flows drawn from a seed, that no port is over
 * its capacity and each flow is held by one that is full, where it has its fair part.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"
#include "tools/r2_perf/util.c"
#include "tools/schedule/share.c"

#define NODES 8
#define FLOWS 40
#define TOL   1e-7

static double capacity[2 * NODES];
static struct share_flow flow[FLOWS];
static int flows;

static void begin(void)
{
    flows = 0;
    for (int i = 0; i < 2 * NODES; i++) {
        capacity[i] = 1;
    }
}

/* From node @src's sending port to node @dst's receiving port. */
static int add(int src, int dst, double weight)
{
    flow[flows] = (struct share_flow){
        .out = src, .in = NODES + dst, .pair = src * NODES + dst, .weight = weight};
    return flows++;
}

static int fill(enum share_by by)
{
    struct share s;
    int circles;

    share_open(&s, capacity, 2 * NODES, NODES * NODES);
    circles = share_fill(&s, by, flow, flows);
    share_close(&s);
    return circles;
}

static void rates_are(const double *rate)
{
    for (int i = 0; i < flows; i++) {
        ck_assert_msg(fabs(flow[i].rate - rate[i]) < 1e-12, "flow %d has %.12f, not %.12f", i,
                      flow[i].rate, rate[i]);
    }
}

/* Three flows from 0, one from 1, all to 7. */
static void three_and_one(void)
{
    begin();
    for (int i = 0; i < 3; i++) {
        add(0, 7, 1);
    }
    add(1, 7, 1);
}

START_TEST(receiver_gives_senders_equal_parts)
{
    three_and_one();
    ck_assert_int_eq(fill(SHARE_SENDERS), 0);
    rates_are((double[]){1 / 6., 1 / 6., 1 / 6., 1 / 2.});
    ck_assert_int_eq(fill(SHARE_FLOWS), 0);
    rates_are((double[]){1 / 4., 1 / 4., 1 / 4., 1 / 4.});
}
END_TEST

START_TEST(what_is_held_elsewhere_leaves_the_rest)
{
    three_and_one();
    capacity[1] = 0.1; /* the one sender cannot take its half */
    ck_assert_int_eq(fill(SHARE_SENDERS), 0);
    rates_are((double[]){0.3, 0.3, 0.3, 0.1});

    /* One of three goes on to a receiver of its own: no part of the contest. */
    begin();
    add(0, 7, 1);
    add(0, 7, 1);
    add(0, 6, 1);
    add(1, 7, 1);
    ck_assert_int_eq(fill(SHARE_SENDERS), 0);
    rates_are((double[]){1 / 4., 1 / 4., 1 / 2., 1 / 2.});

    /* A receiver that is slow for one flow of a sender leaves its other flows more at theirs. */
    begin();
    capacity[NODES + 6] = 0.1;
    add(0, 7, 1);
    add(0, 6, 1);
    add(1, 7, 1);
    add(2, 7, 1);
    ck_assert_int_eq(fill(SHARE_SENDERS), 0);
    rates_are((double[]){1 / 3., 0.1, 1 / 3., 1 / 3.});
}
END_TEST

/* Of the flows of a sender at a receiver, one has its part fixed at the port that it leaves by. */
START_TEST(rest_stays_with_the_sender_first)
{
    begin();
    capacity[0] = 0.3;
    add(0, 7, 1);
    add(0, 7, 1);
    add(0, 7, 1);
    add(1, 7, 1);
    ck_assert_int_eq(fill(SHARE_SENDERS), 0);
    rates_are((double[]){0.1, 0.1, 0.1, 0.7});
}
END_TEST

START_TEST(weights_count_within_a_sender)
{
    begin();
    add(0, 7, 3);
    add(0, 7, 1);
    add(1, 7, 1);
    ck_assert_int_eq(fill(SHARE_SENDERS), 0);
    rates_are((double[]){3 / 8., 1 / 8., 1 / 2.});
    ck_assert_int_eq(fill(SHARE_FLOWS), 0);
    rates_are((double[]){3 / 5., 1 / 5., 1 / 5.});
}
END_TEST

/*
 * Senders 0 and 1, receivers 2 and 3. Of sender 0 three flows go to 2, where they would have 1/6
 * each, less than their 1/4 at the sender; its one to 3 would have 1/2 there, more than 1/4. Of
 * sender 1 it is the other way round. With these smaller parts every port is full to 3/4: all rise
 * by a third.
 */
START_TEST(parts_that_turn_in_a_circle_rise_together)
{
    begin();
    for (int i = 0; i < 3; i++) {
        add(0, 2, 1);
        add(1, 3, 1);
    }
    add(0, 3, 1);
    add(1, 2, 1);
    ck_assert_int_eq(fill(SHARE_SENDERS), 1);
    rates_are((double[]){2 / 9., 2 / 9., 2 / 9., 2 / 9., 2 / 9., 2 / 9., 1 / 3., 1 / 3.});
}
END_TEST

/* --- from a seed --- */

static double port_load(int port)
{
    double load = 0;

    for (int i = 0; i < flows; i++) {
        load += flow[i].out == port || flow[i].in == port ? flow[i].rate : 0;
    }
    return load;
}

static double pair_load(int pair)
{
    double load = 0;

    for (int i = 0; i < flows; i++) {
        load += flow[i].pair == pair ? flow[i].rate : 0;
    }
    return load;
}

/* At full @port, no flow like @f has more for its weight. */
static bool is_most_of_port(const struct share_flow *f, int port)
{
    for (int i = 0; i < flows; i++) {
        const struct share_flow *g = &flow[i];

        if ((g->out == port || g->in == port) && g->rate / g->weight > f->rate / f->weight + TOL) {
            return false;
        }
    }
    return true;
}

/* No sender has more at the port, and no flow of this one. */
static bool is_most_by_sender(const struct share_flow *f)
{
    for (int i = 0; i < flows; i++) {
        const struct share_flow *g = &flow[i];

        if (g->in == f->in && pair_load(g->pair) > pair_load(f->pair) + TOL) {
            return false;
        }
        if (g->pair == f->pair && g->rate / g->weight > f->rate / f->weight + TOL) {
            return false;
        }
    }
    return true;
}

static bool is_full_port(int port)
{
    return port_load(port) > capacity[port] - TOL;
}

/* By definition, without any filling. */
static void fair_check(enum share_by by, bool has_circle)
{
    for (int i = 0; i < 2 * NODES; i++) {
        ck_assert_msg(port_load(i) <= capacity[i] + TOL, "port %d is over its capacity", i);
    }
    for (int i = 0; i < flows; i++) {
        const struct share_flow *f = &flow[i];
        bool at_out = is_full_port(f->out), at_in = is_full_port(f->in);

        ck_assert_msg(f->rate > 0, "flow %d has nothing", i);
        ck_assert_msg(at_out || at_in, "nothing holds flow %d", i);
        ck_assert_msg(
            has_circle || (at_out && is_most_of_port(f, f->out)) ||
                (at_in && (by == SHARE_FLOWS ? is_most_of_port(f, f->in) : is_most_by_sender(f))),
            "flow %d has less than its part", i);
    }
}

static void flows_draw(uint64_t *seed)
{
    int n = 2 + (int)plan_random(seed, NODES - 1);

    begin();
    for (int i = 0; i < 2 * NODES; i++) {
        capacity[i] = (1 + plan_random(seed, 8)) / 8.0;
    }
    for (int i = 1 + (int)plan_random(seed, FLOWS - 1); i > 0; i--) {
        int src = (int)plan_random(seed, (uint32_t)n), dst = (int)plan_random(seed, (uint32_t)n);

        add(src, dst, plan_random(seed, 2) ? 1 : (1 + plan_random(seed, 4)) / 2.0);
    }
}

START_TEST(shares_are_feasible_and_fair)
{
    uint64_t seed = 5;
    int circles = 0, rounds = plan_rounds(4000);

    for (int round = 0; round < rounds; round++) {
        int c;

        flows_draw(&seed);
        ck_assert_int_eq(fill(SHARE_FLOWS), 0);
        fair_check(SHARE_FLOWS, false);
        c = fill(SHARE_SENDERS);
        fair_check(SHARE_SENDERS, c > 0);
        circles += c > 0;
    }
    ck_assert_int_gt(circles, 0);
    ck_assert_int_lt(circles, rounds / 4);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, receiver_gives_senders_equal_parts);
    tcase_add_test(t, what_is_held_elsewhere_leaves_the_rest);
    tcase_add_test(t, rest_stays_with_the_sender_first);
    tcase_add_test(t, weights_count_within_a_sender);
    tcase_add_test(t, parts_that_turn_in_a_circle_rise_together);
    tcase_add_test(t, shares_are_feasible_and_fair);
}

int main(void)
{
    return suite_run("plan_share", plan_limit_s(), NULL, NULL, tests_add);
}
