/* Which order of ranks a job should have, by what its hosts have left. */
#include <check.h>
#include <string.h>

#include "place/place_plan.h"
#include "tests/unit/suite.h"

#define RANKS 32

static struct place_facts facts[RANKS];
static const struct place_facts *of[RANKS];
static int n, newrank[RANKS];
static struct place_plan plan;

/* @hosts of @per ranks and 8 NICs each. */
static void job(int hosts, int per)
{
    n = hosts * per;
    memset(facts, 0, sizeof(facts));
    for (int r = 0; r < n; r++) {
        facts[r] = (struct place_facts){.rank = (uint32_t)r,
                                        .ranks = (uint32_t)n,
                                        .mbps = 50000,
                                        .host = 100 + (uint64_t)(r / per),
                                        .nics = 8,
                                        .usable = 8,
                                        .used = (uint16_t)(8 / per),
                                        .can = PLACE_CAN};
        of[r] = &facts[r];
    }
}

static void host_has(int host, int usable)
{
    for (int r = 0; r < n; r++) {
        if (facts[r].host == 100 + (uint64_t)host) {
            facts[r].usable = (uint16_t)usable;
        }
    }
}

static bool no_ring;

static enum place_plan_verdict planned(const int *now)
{
    static uint64_t host[RANKS];
    static int node[RANKS], per[RANKS], order[RANKS], seat[RANKS], first[RANKS];
    static double share[RANKS], load[2 * RANKS];
    struct place_plan_work work = {host, node, per, order, seat, first, share, load, no_ring};

    memset(newrank, 0xff, sizeof(newrank));
    place_plan_make(of, n, now, &work, &plan, newrank);
    return plan.verdict;
}

/* newrank[] is an order of all ranks, those of a host beside each other and in their order. */
static void is_an_order(int per)
{
    int who[RANKS];

    memset(who, 0xff, sizeof(who));
    for (int r = 0; r < n; r++) {
        ck_assert(newrank[r] >= 0 && newrank[r] < n);
        ck_assert_int_eq(who[newrank[r]], -1);
        who[newrank[r]] = r;
    }
    for (int i = 0; i < n; i++) {
        ck_assert_uint_eq(facts[who[i]].host, facts[who[i - i % per]].host);
        ck_assert(i % per == 0 || who[i] > who[i - 1]);
    }
}

/* Where the first rank of @host sits, in hosts. */
static int seat_of(int host, int per)
{
    int least = n;

    for (int r = 0; r < n; r++) {
        if (facts[r].host == 100 + (uint64_t)host && newrank[r] < least) {
            least = newrank[r];
        }
    }
    return least / per;
}

START_TEST(a_healthy_job_keeps_its_order)
{
    job(8, 2);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_STAY);
    ck_assert_int_eq(plan.hosts, 8);
    ck_assert_int_eq(plan.degraded, 0);
}
END_TEST

/* D in a light seat in place of 2D: as fast as before, by the planner's model of NCCL. */
START_TEST(who_has_lost_half_sits_light)
{
    double healthy;

    job(8, 2);
    planned(NULL);
    healthy = plan.best_us;
    host_has(3, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert_int_eq(plan.degraded, 1);
    is_an_order(2);
    ck_assert(seat_of(3, 2) == 0 || seat_of(3, 2) == 7);
    ck_assert(plan.best_us < healthy * 1.001);
    ck_assert(plan.now_us > healthy * 1.5);
}
END_TEST

START_TEST(and_two_of_them)
{
    job(8, 1);
    host_has(2, 4);
    host_has(5, 6);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    is_an_order(1);
    ck_assert_int_eq(plan.degraded, 2);
    ck_assert(seat_of(2, 1) == 0 || seat_of(2, 1) == 7);
    ck_assert(seat_of(5, 1) == 0 || seat_of(5, 1) == 7);
}
END_TEST

START_TEST(what_is_planned_is_kept)
{
    int now[RANKS];

    job(8, 2);
    host_has(3, 4);
    planned(NULL);
    memcpy(now, newrank, sizeof(now));
    ck_assert_int_eq(planned(now), PLACE_PLAN_STAY);
    host_has(3, 8);
    host_has(6, 4);
    ck_assert_int_eq(planned(now), PLACE_PLAN_OTHER);
    is_an_order(2);
    ck_assert(seat_of(6, 2) == 0 || seat_of(6, 2) == 7);
}
END_TEST

START_TEST(when_all_is_well_again)
{
    int now[RANKS];

    job(8, 2);
    host_has(3, 4);
    planned(NULL);
    memcpy(now, newrank, sizeof(now));
    host_has(3, 8);
    ck_assert_int_eq(planned(now), PLACE_PLAN_OWN);
}
END_TEST

/* It sits light already: nothing is to be gained. */
START_TEST(where_it_sits_well)
{
    job(8, 2);
    host_has(0, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_STAY);
    ck_assert_int_eq(plan.degraded, 1);
}
END_TEST

/* All have lost the same: a share is of what the best host would have, and no order helps. */
START_TEST(where_all_have_lost)
{
    job(8, 2);
    for (int h = 0; h < 8; h++) {
        host_has(h, 6);
    }
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_STAY);
    ck_assert_int_eq(plan.degraded, 8);
}
END_TEST

/* One that has other NICs than the others from the start is as degraded as one that lost some. */
START_TEST(slower_hosts)
{
    job(8, 1);
    facts[4].mbps = 25000;
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert_int_eq(plan.degraded, 1);
    ck_assert(seat_of(4, 1) == 0 || seat_of(4, 1) == 7);
}
END_TEST

/* The worst that a rank of the host knows counts. */
START_TEST(one_rank_has_noticed)
{
    job(8, 2);
    facts[7].usable = 4;
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert(seat_of(3, 2) == 0 || seat_of(3, 2) == 7);
    facts[6].usable = 4;
    facts[7].usable = 8;
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert(seat_of(3, 2) == 0 || seat_of(3, 2) == 7);
}
END_TEST

/* Ranks in turn over the hosts. */
START_TEST(ranks_that_are_spread)
{
    job(4, 2);
    for (int r = 0; r < n; r++) {
        facts[r].host = 100 + (uint64_t)(r % 4);
    }
    host_has(1, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    is_an_order(2);
    ck_assert(seat_of(1, 2) == 0 || seat_of(1, 2) == 3);
}
END_TEST

/* What no connection is at home on is no loss, and stands in for what is lost. */
START_TEST(nics_that_nobody_uses)
{
    job(8, 1);
    for (int r = 0; r < n; r++) {
        facts[r].used = 4;
    }
    host_has(3, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_STAY);
    ck_assert_int_eq(plan.degraded, 0);
    host_has(3, 2);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert(seat_of(3, 1) == 0 || seat_of(3, 1) == 7);
}
END_TEST

/* Ranks of a host share its NICs: it uses no more than it has. */
START_TEST(nics_that_all_use)
{
    job(8, 2);
    for (int r = 0; r < n; r++) {
        facts[r].used = 8;
    }
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_STAY);
    ck_assert_int_eq(plan.degraded, 0);
    host_has(3, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert_int_eq(plan.degraded, 1);
}
END_TEST

/* Few hosts with a GPU each: a ring has less to carry than a tree, unless it is none. */
START_TEST(rings_or_trees)
{
    double own;

    job(4, 1);
    host_has(1, 4);
    planned(NULL);
    own = plan.own_us;
    no_ring = true;
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_OTHER);
    ck_assert(plan.own_us > 1.2 * own && plan.own_us > 1.5 * plan.best_us);
}
END_TEST

START_TEST(no_plan_and_why)
{
    job(4, 2);
    host_has(1, 4);
    facts[5].nics = facts[5].usable = facts[5].used = 0;
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_UNKNOWN);
    job(4, 2);
    host_has(1, 0);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_UNKNOWN);
    job(4, 2);
    facts[7].host = 100;
    host_has(1, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_UNEVEN);
    job(1, 8);
    host_has(0, 4);
    ck_assert_int_eq(planned(NULL), PLACE_PLAN_FEW);
    ck_assert_int_eq(plan.hosts, 1);
    for (int v = 0; v < PLACE_PLAN_VERDICTS; v++) {
        ck_assert_str_ne(place_plan_name((enum place_plan_verdict)v), "?");
    }
    ck_assert_str_eq(place_plan_name(PLACE_PLAN_VERDICTS), "?");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_healthy_job_keeps_its_order);
    tcase_add_test(t, who_has_lost_half_sits_light);
    tcase_add_test(t, and_two_of_them);
    tcase_add_test(t, what_is_planned_is_kept);
    tcase_add_test(t, when_all_is_well_again);
    tcase_add_test(t, where_it_sits_well);
    tcase_add_test(t, where_all_have_lost);
    tcase_add_test(t, slower_hosts);
    tcase_add_test(t, one_rank_has_noticed);
    tcase_add_test(t, ranks_that_are_spread);
    tcase_add_test(t, nics_that_nobody_uses);
    tcase_add_test(t, nics_that_all_use);
    tcase_add_test(t, rings_or_trees);
    tcase_add_test(t, no_plan_and_why);
}

int main(void)
{
    return suite_run("place_plan", 60, NULL, NULL, add);
}
