/* How many questions about single connections are asked, and answered, in a tick of the watch. */
#include "tests/unit/suite.h"

#include "plugin/probe/health/r2_questions.h"
#include "tests/unit/watch_rig.h"

#define MANY 2000

struct crowd {
    struct r2_inst *inst;
    struct r2_peer *peer;
    struct r2_comm *c;
    unsigned n;
    unsigned asked[MANY]; /* the latest tick in which it asked */
};

static void crowd_make(struct crowd *k, unsigned n, unsigned peers)
{
    memset(k, 0, sizeof(*k));
    k->inst = calloc(1, sizeof(*k->inst));
    k->peer = calloc(peers, sizeof(*k->peer));
    k->c = calloc(n, sizeof(*k->c));
    k->n = n;
    for (unsigned i = 0; i < n; i++) {
        k->c[i].inst = k->inst;
        k->c[i].peer = &k->peer[i % peers];
        k->c[i].id = 1000 + i;
    }
}

static void crowd_end(struct crowd *k)
{
    free(k->c);
    free(k->peer);
    free(k->inst);
}

/* All want to ask in every tick, always in the same order: none more often than it may, and none
 * waits for longer than a few times its share. */
START_TEST(each_has_its_turn)
{
    static const struct {
        unsigned n, peers, most;
    } row[] = {{16, 1, 16},   {64, 8, 64},     {17, 1, 16},
               {1000, 1, 16}, {2000, 100, 64}, {2000, 3, 48}};
    unsigned n = row[_i].n, most = row[_i].most, longest = 0, all = 0, ticks = 4000;
    static struct crowd k;

    crowd_make(&k, n, row[_i].peers);
    for (k.inst->watch.tick = 1; k.inst->watch.tick <= ticks; k.inst->watch.tick++) {
        unsigned tick = (unsigned)k.inst->watch.tick, now = 0;

        for (unsigned i = 0; i < n; i++) {
            if (r2_questions_may_ask(&k.c[i])) {
                longest = tick - k.asked[i] > longest ? tick - k.asked[i] : longest;
                k.asked[i] = tick;
                now++;
            }
        }
        ck_assert_uint_le(now, most);
        all += now;
    }
    for (unsigned i = 0; i < n; i++) {
        longest = ticks - k.asked[i] > longest ? ticks - k.asked[i] : longest;
    }
    ck_assert_uint_le(longest, n <= most ? 1 : 8 + 2 * n / most);
    ck_assert_uint_ge(all, ticks * most / 4);
    crowd_end(&k);
}
END_TEST

/* Where the crowd is over one question goes at once again. */
START_TEST(alone_again)
{
    static struct crowd k;

    crowd_make(&k, 1000, 1);
    for (k.inst->watch.tick = 1; k.inst->watch.tick < 100; k.inst->watch.tick++) {
        for (unsigned i = 0; i < k.n; i++) {
            r2_questions_may_ask(&k.c[i]);
        }
    }
    for (; k.inst->watch.tick < 120; k.inst->watch.tick++) {
        r2_questions_may_ask(&k.c[0]);
    }
    for (unsigned i = 0; i < 16; i++) {
        ck_assert(r2_questions_may_ask(&k.c[i]));
    }
    crowd_end(&k);
}
END_TEST

/* What a peer asks a thousand times at once costs no more than some of them; later it is answered
 * again. */
START_TEST(a_flood_is_passed_over)
{
    union fo_body b = {0};
    const struct ib_recv *rx;

    start(2, (const char *[]){QUIET_RC, NULL});
    messages(4, 100);
    recv_post(0, 100);
    rig_run(rig, 10 * RIG_MS);
    b.cts_request.dst = rig->side[1].comm->id;
    b.cts_request.src = rig->side[0].comm->id;
    b.cts_request.seq = 4;
    rx = rig->side[1].comm->rx;
    ck_assert_uint_eq(rx->count.cts_rewritten, 0);
    for (int i = 0; i < 1000; i++) {
        rig_inject(rig, 1, FO_MSG_CTS_REQUEST, &b);
    }
    rig_run(rig, RIG_MS); /* a tick may end in it */
    ck_assert_uint_ge(rx->count.cts_rewritten, R2_QUESTIONS_ANSWER);
    ck_assert_uint_le(rx->count.cts_rewritten, 2 * R2_QUESTIONS_ANSWER);
    rig_run(rig, 20 * RIG_MS);
    rig_inject(rig, 1, FO_MSG_CTS_REQUEST, &b);
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(rx->count.cts_rewritten % R2_QUESTIONS_ANSWER, 0);
    send_post(0, 100);
    finish(1, 100, RIG_S);
    stop();
}
END_TEST

static unsigned asked_type;

static int is_asked(struct rig *r)
{
    return rig_count(r, 0, (int)asked_type) > 0;
}

/* What may not be asked now is asked with the first turn that there is: where it is left out, no
 * back-off passes. DELIVERY_QUERY of what R has not acknowledged, CTS_REQUEST of a CTS that does
 * not come. */
START_TEST(what_is_left_out_is_due_in_the_next_tick)
{
    uint64_t from, took;

    start(2, (const char *[]){QUIET_RC, NULL});
    messages(4, 100);
    asked_type = _i ? FO_MSG_CTS_REQUEST : FO_MSG_DELIVERY_QUERY;
    if (_i == 0) {
        recv_post(0, 100);
        rig->side[1].asleep = rig->side[1].still = 1;
        send_post(0, 100);
    }
    rig->side[0].inst->watch.asked.slots_log2 =
        10; /* one less with each tick in which it wants to */
    from = rig_now(rig);
    while (!is_asked(rig) && rig_now(rig) - from < RIG_S) {
        if (_i) {
            ck_assert_int_lt(rig_isend(rig, out[0], 100, 0, s_mr), 0);
        }
        rig_turn(rig, 100 * RIG_US);
    }
    took = rig_now(rig) - from;
    ck_assert_uint_ge(took, 60 * RIG_MS); /* it was left out */
    ck_assert_uint_le(took, 130 * RIG_MS);
    if (_i) {
        recv_post(0, 100);
        send_post(0, 100);
    }
    rig->side[1].asleep = rig->side[1].still = 0;
    rig_kick(&rig->side[1]);
    finish(1, 100, RIG_S);
    stop();
}
END_TEST

static void end(void)
{
    if (rig) {
        teardown();
    }
}

static void add(TCase *t)
{
    tcase_add_loop_test(t, each_has_its_turn, 0, 6);
    tcase_add_test(t, alone_again);
    tcase_add_test(t, a_flood_is_passed_over);
    tcase_add_loop_test(t, what_is_left_out_is_due_in_the_next_tick, 0, 2);
}

int main(void)
{
    return suite_run("questions", 60, NULL, end, add);
}
