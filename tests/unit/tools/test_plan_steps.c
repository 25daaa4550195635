/*
 * The steps of all schedules under any timing: no two of them meet at a place of the data
 * unordered, whatever NIC is late, and nobody waits for what happens between two others. Order is
 * what steps wait for alone; that those of a connection go one behind the other is not counted on.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"
#include "tools/r2_perf/util.c"
#include "tools/schedule/sched.c"
#include "tools/schedule/share.c"
#include "tools/schedule/sim.c"
#include "tools/schedule/spread.c"
#include "tools/schedule/steps.c"

/* Of each op: it begins, its source has sent, its destination has it. */
enum { BEGUN, SENT, THERE, EVENTS };

struct order {
    int events, words;
    uint64_t *after; /* [event]: the events that it comes before */
    int *next, *to, *first, edges;
    bool *is_done;
};

static void edge_add(struct order *o, int from, int to)
{
    o->to[o->edges] = to;
    o->next[o->edges] = o->first[from];
    o->first[from] = o->edges++;
}

static void closure_find(struct order *o, int event)
{
    uint64_t *own = &o->after[(size_t)event * (size_t)o->words];

    if (o->is_done[event]) {
        return;
    }
    o->is_done[event] = true;
    own[event / 64] |= 1ull << event % 64;
    for (int e = o->first[event]; e >= 0; e = o->next[e]) {
        closure_find(o, o->to[e]);
        for (int w = 0; w < o->words; w++) {
            own[w] |= o->after[(size_t)o->to[e] * (size_t)o->words + (size_t)w];
        }
    }
}

/* @without: an edge that is left out; -1: none. */
static void order_find(struct order *o, const struct steps *s, int without)
{
    size_t events = (size_t)s->ops * EVENTS, edges = events + (size_t)s->edges;

    *o = (struct order){.events = (int)events, .words = (int)(events + 63) / 64};
    o->after = util_mem_alloc(events * (size_t)o->words, sizeof(uint64_t));
    o->next = util_mem_alloc(edges, sizeof(int));
    o->to = util_mem_alloc(edges, sizeof(int));
    o->first = util_mem_alloc(events, sizeof(int));
    o->is_done = util_mem_alloc(events, sizeof(bool));
    memset(o->first, 0xff, events * sizeof(int));
    for (int i = 0; i < s->ops; i++) {
        edge_add(o, i * EVENTS + BEGUN, i * EVENTS + SENT);
        edge_add(o, i * EVENTS + SENT, i * EVENTS + THERE);
        for (int e = s->op[i].followers; e != STEPS_NONE; e = s->edge[e].next) {
            int then = s->edge[e].op;

            if (e != without) {
                edge_add(o, i * EVENTS + (s->op[i].dst == s->op[then].src ? THERE : SENT),
                         then * EVENTS + BEGUN);
            }
        }
    }
    for (int i = 0; i < o->events; i++) {
        closure_find(o, i);
    }
}

static void order_free(struct order *o)
{
    free(o->after);
    free(o->next);
    free(o->to);
    free(o->first);
    free(o->is_done);
}

static bool is_before(const struct order *o, int a, int b)
{
    return o->after[(size_t)a * (size_t)o->words + (size_t)b / 64] >> b % 64 & 1;
}

/* Whether @a, which uses a place until its event @end, and @b are apart. */
static bool are_apart(const struct order *o, int a, int a_end, int b, int b_end)
{
    return is_before(o, a * EVENTS + a_end, b * EVENTS + BEGUN) ||
           is_before(o, b * EVENTS + b_end, a * EVENTS + BEGUN);
}

/* Reads end when all is sent, writes when all is there; sums may be added in any order. */
static bool can_meet(const struct order *o, const struct steps *s, int a, int b)
{
    const struct steps_op *x = &s->op[a], *y = &s->op[b];

    if (!steps_moves(x) || !steps_moves(y) || x->chunk != y->chunk) {
        return false;
    }
    if (x->dst == y->src && x->to == y->from && !are_apart(o, a, THERE, b, SENT)) {
        return true;
    }
    if (y->dst == x->src && y->to == x->from && !are_apart(o, a, SENT, b, THERE)) {
        return true;
    }
    return x->dst == y->dst && x->to == y->to && !(x->kind == STEPS_ADD && y->kind == STEPS_ADD) &&
           !are_apart(o, a, THERE, b, THERE);
}

/* Pairs of ops that some timing brings together. */
static int meetings_count(const struct steps *s, int without)
{
    struct order o;
    int found = 0;

    order_find(&o, s, without);
    for (int a = 0; a < s->ops; a++) {
        for (int b = a + 1; b < s->ops; b++) {
            found += can_meet(&o, s, a, b);
        }
    }
    order_free(&o);
    return found;
}

static void shares_make(uint64_t *seed, int kind, int n, double *b)
{
    int one = (int)plan_random(seed, (uint32_t)n);
    bool is_one = kind == PLANNER_R2 || kind == PLANNER_ATTACH || kind == SCHED_SERIAL;

    for (int i = 0; i < n; i++) {
        b[i] = is_one ? (i == one ? 0.5 : 1)
                      : (plan_random(seed, 2) ? 1 : (2 + plan_random(seed, 7)) / 8.0);
    }
}

static void order_make(uint64_t *seed, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        int k = (int)plan_random(seed, (uint32_t)i + 1), swap = order[i];

        order[i] = order[k];
        order[k] = swap;
    }
}

START_TEST(steps_are_right_under_any_timing)
{
    uint64_t seed = 22;

    for (int round = 0; round < plan_rounds(40); round++) {
        int n = 2 + round % 5, order[STEPS_NODES];
        double b[STEPS_NODES];
        struct sched c = {
            .nodes = n, .b = b, .order = order, .pieces = 1 + round % 2, .abreast = round % 3};

        order_make(&seed, n, order);
        for (int kind = 0; kind < SCHED_KINDS; kind++) {
            struct steps *s;
            struct sim_result r;

            shares_make(&seed, kind, n, b);
            s = sched_make(&c, kind);
            ck_assert_ptr_nonnull(s);
            sim_run(s, b, SIM_BYTES, &r);
            ck_assert_msg(r.wrong[0] == '\0', "%s of %d: %s", sched_name(kind), n, r.wrong);
            ck_assert_msg(steps_is_local(s), "%s of %d waits from afar", sched_name(kind), n);
            ck_assert_msg(meetings_count(s, -1) == 0, "%s of %d: steps can meet", sched_name(kind),
                          n);
            steps_close(s);
        }
    }
}
END_TEST

/* As printed: no input of the node outside leaves it before each ring has ended at all nodes. */
START_TEST(second_stage_waits_for_the_first)
{
    double b[4] = {1, 0.5, 1, 1};
    struct sched c = {.nodes = 4, .b = b, .pieces = 2};
    struct steps *s = sched_make(&c, SCHED_SERIAL);
    struct order o;
    int inputs = 0;

    order_find(&o, s, -1);
    for (int i = 0; i < s->ops; i++) {
        const struct steps_op *in = &s->op[i];

        if (in->src != 1 || in->dst == 1 || s->connection[in->connection].channel % 2 == 0) {
            continue;
        }
        inputs++;
        for (int k = 0; k < s->ops; k++) {
            const struct steps_op *hop = &s->op[k];

            if (hop->src != hop->dst && s->connection[hop->connection].channel % 2 == 0) {
                ck_assert(is_before(&o, k * EVENTS + THERE, i * EVENTS + BEGUN));
            }
        }
    }
    ck_assert_int_eq(inputs, 6);
    order_free(&o);
    steps_close(s);
}
END_TEST

/* Where a step waits for one thing only, which is of its own chunk, and does not, others can meet
 * it: of the ring each of its waits. */
START_TEST(step_that_does_not_wait_is_found)
{
    double b[4] = {1, 1, 1, 1};
    struct sched c = {.nodes = 4, .b = b, .pieces = 1};
    struct steps *s = sched_make(&c, PLANNER_RING);

    ck_assert_int_gt(s->edges, 10);
    for (int e = 0; e < s->edges; e++) {
        ck_assert_int_gt(meetings_count(s, e), 0);
    }
    steps_close(s);
}
END_TEST

START_TEST(waiting_from_afar_is_found)
{
    struct steps *s = steps_open(3, 1);
    int chunk = steps_chunk_add(s, 1), a, b;

    a = steps_op_add(s, STEPS_ADD, 0, chunk, 0, 0, 1, 0);
    b = steps_op_add(s, STEPS_COPY, 0, chunk, 2, 0, 0, 0);
    ck_assert(steps_is_local(s));
    steps_after(s, b, a);
    ck_assert(!steps_is_local(s));
    steps_close(s);
}
END_TEST

/* A signal orders, and carries nothing. */
START_TEST(signals_take_no_time)
{
    static const double ones[2] = {1, 1};
    struct steps *s = steps_open(2, 1);
    struct sim_result r;
    int chunk = steps_chunk_add(s, 1), in, told, back;

    in = steps_op_add(s, STEPS_ADD, 0, chunk, 0, 0, 1, 0);
    told = steps_op_add(s, STEPS_SIGNAL, 0, chunk, 1, 0, 0, 0);
    back = steps_op_add(s, STEPS_COPY, 0, chunk, 1, 0, 0, 0);
    steps_after(s, told, in);
    steps_after(s, back, in);
    sim_run(s, ones, SIM_BYTES, &r);
    ck_assert_str_eq(r.wrong, "");
    ck_assert_int_eq(r.transfers, 2);
    ck_assert_double_eq_tol(r.time, 2, 1e-9);
    ck_assert_double_eq_tol(r.sent[1], 1, 1e-9);
    steps_close(s);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, steps_are_right_under_any_timing);
    tcase_add_test(t, step_that_does_not_wait_is_found);
    tcase_add_test(t, second_stage_waits_for_the_first);
    tcase_add_test(t, waiting_from_afar_is_found);
    tcase_add_test(t, signals_take_no_time);
}

int main(void)
{
    return suite_run("plan_steps", plan_limit_s(), NULL, NULL, tests_add);
}
