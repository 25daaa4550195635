/* How many questions about single connections are asked, and answered, in a tick of the watch. */
#include "tests/unit/suite.h"

#include "plugin/probe/health/r2_questions.h"
#include "tests/unit/watch_rig.h"

#define PEERS 6

static unsigned ask(struct r2_comm *c)
{
    unsigned n = 0;

    while (r2_questions_may_ask(c)) {
        n++;
    }
    return n;
}

START_TEST(a_tick_has_so_many)
{
    struct r2_inst *inst = calloc(1, sizeof(*inst));
    struct r2_peer *peer = calloc(PEERS, sizeof(*peer));
    struct r2_comm *c = calloc(PEERS, sizeof(*c));

    for (int i = 0; i < PEERS; i++) {
        c[i].inst = inst;
        c[i].peer = &peer[i];
    }
    for (inst->watch.tick = 1; inst->watch.tick < 4; inst->watch.tick++) {
        unsigned all = 0, n;

        for (int i = 0; i < PEERS; i++) {
            n = ask(&c[i]);
            all += n;
            ck_assert_uint_eq(n, all < R2_QUESTIONS_ASKED ? R2_QUESTIONS_PEER
                                 : i * R2_QUESTIONS_PEER < R2_QUESTIONS_ASKED
                                     ? R2_QUESTIONS_ASKED - (unsigned)i * R2_QUESTIONS_PEER
                                     : 0);
        }
        ck_assert_uint_eq(all, R2_QUESTIONS_ASKED);
        for (n = 0; r2_questions_may_answer(&c[1]); n++) {
        }
        ck_assert_uint_eq(n, R2_QUESTIONS_ANSWER);
        ck_assert(r2_questions_may_answer(&c[2])); /* another's process has its own */
    }
    free(c);
    free(peer);
    free(inst);
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
    b.want.dst = rig->side[1].comm->id;
    b.want.src = rig->side[0].comm->id;
    b.want.seq = 4;
    rx = rig->side[1].comm->rx;
    ck_assert_uint_eq(rx->cts_rewritten, 0);
    for (int i = 0; i < 1000; i++) {
        rig_inject(rig, 1, FO_MSG_WANT, &b);
    }
    rig_run(rig, RIG_MS); /* a tick may end in it */
    ck_assert_uint_ge(rx->cts_rewritten, R2_QUESTIONS_ANSWER);
    ck_assert_uint_le(rx->cts_rewritten, 2 * R2_QUESTIONS_ANSWER);
    rig_run(rig, 20 * RIG_MS);
    rig_inject(rig, 1, FO_MSG_WANT, &b);
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(rx->cts_rewritten % R2_QUESTIONS_ANSWER, 0);
    send_post(0, 100);
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
    tcase_add_test(t, a_tick_has_so_many);
    tcase_add_test(t, a_flood_is_passed_over);
}

int main(void)
{
    return suite_run("questions", 60, NULL, end, add);
}
