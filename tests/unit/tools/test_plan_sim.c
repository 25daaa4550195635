/* The simulator of r2_plan: how NICs are shared, what it finds wrong with data; and all schedules
 * on it: data right, each NIC carries what the planner says. */
#include <check.h>
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

static const double ones[STEPS_NODES] = {1, 1, 1, 1, 1, 1, 1, 1};
static struct sim_result r;

static void run(struct steps *s, const double *b, enum sim_by by)
{
    sim_run(s, b, by, &r);
    steps_close(s);
}

/* An all_reduce of one chunk among two nodes that is right. */
static int exchange_add(struct steps *s, int chunk)
{
    int in = steps_op_add(s, STEPS_ADD, 0, chunk, 0, 0, 1, 0);
    int out = steps_op_add(s, STEPS_COPY, 0, chunk, 1, 0, 0, 0);

    steps_after(s, out, in);
    return out;
}

START_TEST(two_nodes_exchange)
{
    struct steps *s = steps_open(2, 1);

    exchange_add(s, steps_chunk_add(s, 0.25));
    exchange_add(s, steps_chunk_add(s, 0.75));
    run(s, ones, SIM_BYTES);
    ck_assert_str_eq(r.wrong, "");
    ck_assert_double_eq_tol(r.time, 1.75, 1e-9); /* the first back beside the second's way there */
    ck_assert_double_eq_tol(r.sent[0], 1, 1e-9);
    ck_assert_double_eq_tol(r.received[0], 1, 1e-9);
    ck_assert_int_eq(r.transfers, 4);
}
END_TEST

/* Node 0 sends to 1 and to 2, which takes a quarter of what the others do. */
START_TEST(nics_are_shared_max_min)
{
    double b[3] = {1, 1, 0.25};
    struct steps *s = steps_open(3, 2);

    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 1, 1);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 2, 1);
    run(s, b, SIM_CONNECTIONS);
    ck_assert_double_eq_tol(r.time, 4, 1e-9);
    s = steps_open(3, 2);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 2), 0, 0, 1, 1);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 2, 1);
    steps_op_add(s, STEPS_COPY, 0, 1, 1, 0, 2, 1); /* half of 2's NIC until it is done */
    run(s, ones, SIM_CONNECTIONS);
    /* 1/2 each; at t = 2 both of size 1 are done and 1 of the 2 is left, alone. */
    ck_assert_double_eq_tol(r.time, 3, 1e-9);
    s = steps_open(3, 2);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 2), 0, 0, 1, 1);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 2, 1);
    run(s, ones, SIM_BYTES);
    ck_assert_double_eq_tol(r.time, 3, 1e-9); /* 2/3 and 1/3: they end together */
    ck_assert_int_eq(r.transfers, 2);
}
END_TEST

/* Node 0 has three connections to 2, node 1 one. */
START_TEST(receiver_shares_by_senders_first)
{
    for (int by = SIM_CONNECTIONS; by <= SIM_SENDERS; by++) {
        struct steps *s = steps_open(3, 5);
        int one;

        for (int channel = 0; channel < 3; channel++) {
            steps_op_add(s, STEPS_COPY, channel, steps_chunk_add(s, 1), 0, 0, 2, 1);
        }
        one = steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 1, 0, 2, 2);
        steps_after(s, steps_op_add(s, STEPS_COPY, 0, 3, 2, 2, 1, 3), one);
        run(s, ones, (enum sim_by)by);
        /* Back to 1 when 1's has come: after 4, with a quarter, or after 2, with a half. */
        ck_assert_double_eq_tol(r.time, by == SIM_SENDERS ? 4 : 5, 1e-9);
    }
}
END_TEST

START_TEST(connection_keeps_its_order)
{
    struct steps *s = steps_open(2, 3);
    int a = steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 1, 1), back;

    back = steps_op_add(s, STEPS_COPY, 0, 0, 1, 0, 0, 1);
    steps_after(s, a, back);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 1, 1); /* behind a */
    run(s, ones, SIM_BYTES);
    ck_assert_double_eq_tol(r.time, 3, 1e-9);
}
END_TEST

START_TEST(wrong_data_is_found)
{
    static const double slow[] = {0.5, 1, 1};
    struct steps *s = steps_open(2, 1);
    int op;

    steps_op_add(s, STEPS_ADD, 0, steps_chunk_add(s, 1), 0, 0, 1, 0);
    run(s, ones, SIM_BYTES);
    ck_assert_ptr_nonnull(strstr(r.wrong, "node 0 ends with 1 of 2"));

    s = steps_open(2, 1);
    op = exchange_add(s, steps_chunk_add(s, 1));
    steps_after(s, steps_op_add(s, STEPS_ADD, 0, 0, 1, 0, 0, 0), op);
    run(s, ones, SIM_BYTES);
    ck_assert_ptr_nonnull(strstr(r.wrong, "added twice"));

    s = steps_open(2, 1);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 0, 1, 0);
    run(s, ones, SIM_BYTES);
    ck_assert_ptr_nonnull(strstr(r.wrong, "overwritten"));

    s = steps_open(3, 1); /* 1 gets 2's contribution while it sends */
    op = steps_chunk_add(s, 1);
    steps_op_add(s, STEPS_ADD, 0, op, 1, 0, 0, 0);
    steps_op_add(s, STEPS_ADD, 0, op, 2, 0, 1, 0);
    run(s, slow, SIM_BYTES);
    ck_assert_ptr_nonnull(strstr(r.wrong, "changed while it was sent"));

    s = steps_open(2, 2);
    steps_op_add(s, STEPS_COPY, 0, steps_chunk_add(s, 1), 0, 1, 1, 1);
    run(s, ones, SIM_BYTES);
    ck_assert_ptr_nonnull(strstr(r.wrong, "nothing was there"));

    s = steps_open(2, 1);
    op = exchange_add(s, steps_chunk_add(s, 1));
    steps_after(s, 0, op);
    run(s, ones, SIM_BYTES);
    ck_assert_ptr_nonnull(strstr(r.wrong, "wait for each other"));
}
END_TEST

static void all_right(const struct sched *c, int kind, enum sim_by by)
{
    struct steps *s = sched_make(c, kind);
    double busy = 0, sent = 0, received = 0, load = sched_load(c, kind);

    if (s == NULL) {
        ck_assert_int_eq(kind, SCHED_SERIAL); /* all alike: no form */
        return;
    }
    sim_run(s, c->b, by, &r);
    steps_close(s);
    ck_assert_msg(r.wrong[0] == '\0', "%s: %s", sched_name(kind), r.wrong);
    for (int i = 0; i < c->nodes; i++) {
        double most = r.sent[i] > r.received[i] ? r.sent[i] : r.received[i];

        busy = most / c->b[i] > busy ? most / c->b[i] : busy;
        sent += r.sent[i];
        received += r.received[i];
    }
    ck_assert_double_eq_tol(sent, received, 1e-9);
    ck_assert_msg(r.time >= busy - 1e-6 && r.time >= planner_bound(c->b, c->nodes) - 1e-6,
                  "%s is faster than its NICs", sched_name(kind));
    if (kind != SCHED_SERIAL && fabs(busy - load) > 1e-9) {
        ck_abort_msg("%s of %d: NICs are busy for %.9f, the planner says %.9f", sched_name(kind),
                     c->nodes, busy, load);
    }
}

/* Shares of leaves rotate over members, so a level with more members than blocks per piece would
 * not be even: there are as many. Nodes of a level that is isolated have to be alike for the loads
 * to be those of the planner, which takes the second worst for all. */
START_TEST(schedules_are_right_and_carry_what_the_planner_says)
{
    uint64_t seed = 21;
    int order[STEPS_NODES], serial = 0;
    double b[STEPS_NODES];

    for (int round = 0; round < plan_rounds(60); round++) {
        int n = 2 + (int)plan_random(&seed, 9);
        struct sched c = {
            .nodes = n, .b = b, .order = order, .pieces = 1 + (int)plan_random(&seed, 3)};

        for (int i = 0; i < n; i++) {
            b[i] = plan_random(&seed, 2) ? 1 : (2 + plan_random(&seed, 7)) / 8.0;
            order[i] = i;
        }
        for (int i = n - 1; i > 0; i--) {
            int k = (int)plan_random(&seed, (uint32_t)i + 1), swap = order[i];

            order[i] = order[k];
            order[k] = swap;
        }
        for (int kind = 0; kind < SCHED_KINDS; kind++) {
            if (kind == PLANNER_R2 || kind == PLANNER_ATTACH || kind == SCHED_SERIAL) {
                continue;
            }
            all_right(&c, kind, (enum sim_by)(round % 3));
        }
        for (int i = 0; i < n; i++) {
            b[i] = i == round % n ? 0.5 : 1;
        }
        all_right(&c, PLANNER_R2, (enum sim_by)(round % 3));
        all_right(&c, PLANNER_ATTACH, (enum sim_by)(round % 3));
        all_right(&c, SCHED_SERIAL, (enum sim_by)(round % 3));
        serial++;
    }
    ck_assert_int_eq(serial, plan_rounds(60));
}
END_TEST

static double time_of(int kind, int n, int eighths, int seat, int pieces, enum sim_by by)
{
    double b[STEPS_NODES];
    int order[STEPS_NODES];
    struct sched c = {.nodes = n, .b = b, .order = order, .pieces = pieces};

    for (int i = 0; i < n; i++) {
        b[i] = i == seat ? eighths / 8.0 : 1;
        order[i] = i;
    }
    run(sched_make(&c, kind), b, by);
    ck_assert_str_eq(r.wrong, "");
    return r.time;
}

/* The figures of the analysis for n = 8. */
START_TEST(times_of_eight_nodes)
{
    ck_assert_double_eq_tol(time_of(PLANNER_RING, 8, 7, 0, 8, SIM_BYTES), 2, 1e-6);
    ck_assert_double_eq_tol(time_of(PLANNER_TREE, 8, 7, 0, 8, SIM_BYTES), 2.037, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_TREE, 8, 6, 0, 8, SIM_BYTES), 2.038, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_TREE, 8, 4, 0, 8, SIM_BYTES), 2.052, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_TREE, 8, 4, 3, 8, SIM_BYTES), 4.07, 0.05);
    ck_assert_double_eq_tol(time_of(PLANNER_ATTACH, 8, 7, 0, 8, SIM_BYTES), 1.826, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_R2, 8, 7, 0, 32, SIM_BYTES), 1.891, 0.001);
    /* Connections that share alike lose what the schedule won: slower than the ring. */
    ck_assert_double_gt(time_of(PLANNER_R2, 8, 7, 0, 8, SIM_CONNECTIONS), 2.1);
    ck_assert_double_gt(time_of(PLANNER_ATTACH, 8, 7, 0, 8, SIM_CONNECTIONS), 2.05);
    ck_assert_double_eq_tol(time_of(PLANNER_TREE, 8, 7, 0, 32, SIM_CONNECTIONS), 2.009, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_TREE, 8, 7, 0, 32, SIM_SENDERS), 2.173, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_R2, 8, 7, 0, 32, SIM_SENDERS), 2.147, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_ATTACH, 8, 7, 0, 32, SIM_SENDERS), 2.103, 0.001);
    ck_assert_double_eq_tol(time_of(PLANNER_STARS, 8, 7, 0, 32, SIM_SENDERS), 1.810, 0.001);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, two_nodes_exchange);
    tcase_add_test(t, nics_are_shared_max_min);
    tcase_add_test(t, receiver_shares_by_senders_first);
    tcase_add_test(t, connection_keeps_its_order);
    tcase_add_test(t, wrong_data_is_found);
    tcase_add_test(t, schedules_are_right_and_carry_what_the_planner_says);
    tcase_add_test(t, times_of_eight_nodes);
}

int main(void)
{
    return suite_run("plan_sim", plan_limit_s(), NULL, NULL, tests_add);
}
