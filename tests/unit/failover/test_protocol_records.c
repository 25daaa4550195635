/* Records that come late, twice, to nobody, or with numbers that cannot be: none of them may do
 * anything (P8, P9, P25, P26). */
#include "tests/unit/protocol_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static int settled(struct rig *r)
{
    return rig_count(r, 0, FO_MSG_SETTLED) > 0;
}

/* One path is lost and settled, with parts under way. */
static void lose_path(void)
{
    rig->side[1].asleep = 1;
    ck_assert_int_ge(rig_irecv1(rig, &in[count % 256], 8, 0, r_mr), 0);
    out[count % 256] = count;
    rig_send_wait(rig, &out[count % 256], 8, 0, s_mr);
    rig_fault(rig, "h0:n0 down");
    ck_assert(rig_until(rig, settled, 3 * RIG_S));
    rig->side[1].asleep = 0;
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_eq(in[count % 256], count);
    count++;
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
}

/* Everything that was said once is said again, to whom it was said, in order or backwards. */
static void say_all_again(int backwards)
{
    unsigned n = rig->sent_count;

    for (unsigned i = 0; i < n; i++) {
        struct rig_sent *m = &rig->sent[backwards ? n - 1 - i : i];

        if (m->type >= FO_MSG_REP) { /* a channel keeps order: REQ cannot outlive its connection */
            rig_inject(rig, !m->from, (enum fo_type)m->type, &m->body);
        }
    }
    rig_run(rig, 5 * RIG_MS);
}

START_TEST(late_copies_of_everything_change_nothing)
{
    uint64_t sack;

    start(3, NULL);
    messages(5);
    lose_path();
    messages(300);
    sack = rig->side[0].comm->tx->sack;
    say_all_again(0);
    say_all_again(1);
    rig_run(rig, 3 * RIG_S);
    say_all_again(0);
    ck_assert_uint_eq(rig->side[0].comm->tx->sack, sack);
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[1].comm->fo.switches, 1);
    messages(300);
    ck_assert_uint_eq(rig->side[1].comm->rx->count.bad_arrivals, 0);
    stop();
}
END_TEST

static void both_close(void)
{
    rig_close(rig, 0);
    rig_close(rig, 1);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, 0), 0);
    ck_assert_int_eq(rig_comms(rig, 1), 0);
}

/* Old words about a connection that is gone reach its successor's processes. */
START_TEST(late_copies_after_close_leave_the_next_connection_alone)
{
    unsigned n;

    start(3, NULL);
    messages(5);
    lose_path();
    stop();
    both_close();
    n = rig->sent_count;
    ck_assert_uint_gt(rig_count(rig, 0, FO_MSG_BYE), 0);
    ck_assert_uint_gt(rig_count(rig, 1, FO_MSG_BYE), 0);
    r2_net_close_listen(rig->listen);
    rig->listen = NULL;
    rig_fault(rig, "h0:n0 up");
    rig_run(rig, RIG_S);
    rig_connect(rig, 1, 1);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    messages(5);
    rig->sent_count = n; /* only those of the old one */
    say_all_again(0);
    say_all_again(1);
    messages(5);
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 0);
    ck_assert_uint_eq(rig->side[1].comm->fo.switches, 0);
    stop();
}
END_TEST

/* S asks about a connection that R does not know: GONE; BYE gets its BYE_OK; CONF gets REFUSE. */
START_TEST(words_to_nobody_are_answered)
{
    union fo_body b;

    start(2, NULL);
    memset(&b, 0, sizeof(b));
    b.down = (struct fo_down){.dst = 9999, .src = 1, .inc = 1};
    rig_inject(rig, 1, FO_MSG_DOWN, &b);
    b.fenced = (struct fo_fenced){.dst = 9999, .src = 1, .inc = 1};
    rig_inject(rig, 0, FO_MSG_FENCED, &b);
    rig_inject(rig, 1, FO_MSG_BYE, &b);
    memset(&b, 0, sizeof(b));
    b.conf = (struct fo_conf){.dst = 9999, .src = 12345, .npaths = 1};
    b.conf.path[0].addr.port.mtu = IBV_MTU_1024;
    rig_inject(rig, 1, FO_MSG_CONF, &b);
    b.bye_ok = (struct fo_bye_ok){.dst = 9999, .src = 1};
    rig_inject(rig, 1, FO_MSG_BYE_OK, &b); /* nothing to say to these */
    rig_inject(rig, 1, FO_MSG_GONE, &b);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_GONE), 1);
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_GONE), 1);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_BYE_OK), 1);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_REFUSE), 1);
    messages(3);
    stop();
}
END_TEST

/* P8: full compare of incarnations, and of who speaks. */
START_TEST(words_about_other_incarnations_and_paths_change_nothing)
{
    struct r2_comm *s, *d;
    union fo_body b;

    start(2, NULL);
    messages(2);
    s = rig->side[0].comm;
    d = rig->side[1].comm;
    for (uint32_t inc = 0; inc < 70; inc++) { /* 65 has the low bits of 1 */
        for (uint8_t p = 0; p < IB_MAX_PATHS; p++) {
            if (inc == 1 && p < 2) {
                continue;
            }
            memset(&b, 0, sizeof(b));
            b.down = (struct fo_down){
                .dst = d->id, .src = s->id, .inc = inc, .path = p, .flags = FO_FLAG_WANTED};
            rig_inject(rig, 1, FO_MSG_DOWN, &b);
            b.settled = (struct fo_settled){.dst = d->id, .src = s->id, .inc = inc, .path = p};
            rig_inject(rig, 1, FO_MSG_SETTLED, &b);
            memset(&b, 0, sizeof(b));
            b.fenced =
                (struct fo_fenced){.dst = s->id, .src = d->id, .inc = inc, .path = p, .acked = 1};
            rig_inject(rig, 0, FO_MSG_FENCED, &b);
        }
    }
    b.fenced =
        (struct fo_fenced){.dst = s->id, .src = d->id + 1, .inc = 1}; /* of another connection */
    rig_inject(rig, 0, FO_MSG_FENCED, &b);
    rig_inject(rig, 0, FO_MSG_BYE, &b);
    rig_run(rig, 2 * RIG_MS);
    ck_assert_uint_eq(s->fo.switches + d->fo.switches, 0);
    ck_assert_int_eq(s->fo.bye.peer, FO_BYE_NONE);
    messages(3);
    stop();
}
END_TEST

/* P8: an acknowledgement beyond what S has matched is counted and not taken. */
START_TEST(a_ledger_that_cannot_be_is_not_taken)
{
    struct r2_comm *s, *d;
    union fo_body b;

    start(3, NULL);
    rig->hostile = 1;
    messages(3);
    s = rig->side[0].comm;
    d = rig->side[1].comm;
    memset(&b, 0, sizeof(b));
    b.fenced = (struct fo_fenced){.dst = s->id,
                                  .src = d->id,
                                  .inc = 1,
                                  .path = 2,
                                  .acked = UINT64_MAX,
                                  .base = UINT64_MAX - 3,
                                  .n = R2_LEDGER_WINDOW};
    memset(b.fenced.mask, 0xff, sizeof(b.fenced.mask));
    rig_inject(rig, 0, FO_MSG_FENCED, &b);
    rig_run(rig, 50 * RIG_MS);
    ck_assert_uint_eq(s->tx->count.bad_ack, 1);
    ck_assert_uint_eq(s->tx->sack, 3);
    ck_assert_uint_eq(s->fo.switches, 1);
    messages(300);
    stop();
}
END_TEST

/* R's first FENCED is lost again and again, S's SETTLED too: repetition brings them through, once.
 */
static int lose_first(struct rig *r, int from, int type, union fo_body *body)
{
    static int seen[2][FO_MSG_GONE + 1];

    return (type != FO_MSG_DOWN && type != FO_MSG_FENCED && type != FO_MSG_SETTLED) ||
           ++seen[from][type] % 4 == 0;
}

START_TEST(lost_words_are_repeated)
{
    start(3, (const char *[]){"NCCL_R2_FAILBACK=never",
                              NULL}); /* it would ask for ever whether the path is back */
    messages(2);
    rig->filter = lose_first;
    lose_path();
    messages(20);
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_eq(rig->side[1].comm->fo.path[0].settled, 1);
    ck_assert_uint_eq(rig->side[0].comm->fo.path[0].settled, 1);
    rig->sent_count = 0;
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_eq(rig->sent_count, 0); /* all is answered: silence */
    stop();
}
END_TEST

/* The channel is out while a path dies; what is unanswered is said at once when it is back. */
START_TEST(channel_out_during_a_failure)
{
    uint64_t back;

    start(3, NULL);
    messages(2);
    rig_oob_cut(rig, 1);
    rig_run(rig, RIG_MS);
    ck_assert_int_ge(rig_irecv1(rig, &in[200], 8, 0, r_mr), 0);
    rig->side[1].asleep = 1;
    rig_send_wait(rig, &out[200], 8, 0, s_mr);
    rig_fault(rig, "h0:n0 down");
    rig->side[1].asleep = 0;
    rig_run(rig, RIG_S);
    ck_assert(!rig_all_done(rig)); /* the part is lost, and R cannot be asked */
    rig_oob_cut(rig, 0);
    back = rig_now(rig);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_lt(rig_now(rig) - back, 2 * RIG_MS);
    messages(5);
    stop();
}
END_TEST

/* Bytes that are no message, every prefix of one, and records whose counts lie. */
START_TEST(malformed_messages_are_dropped_and_counted)
{
    static const struct {
        uint8_t type, at, value;
    } lie[] = {
        {FO_MSG_REQ, 4 + 9, FO_MAX_NICS + 1}, /* nnics */
        {FO_MSG_REQ, 4 + 8, 7},               /* dev >= nnics */
        {FO_MSG_REQ, 4 + 10, FO_MAX_QPS + 1},
        {FO_MSG_FAILBACK, 4 + 12, IB_MAX_PATHS}, /* path */
        {FO_MSG_RATES, 4 + 8, IB_MAX_PATHS + 1}, /* npaths */
        {FO_MSG_RATES, 4 + 8, 0},
        {FO_MSG_REP, 4 + 9, IB_MAX_PATHS + 1}, /* npaths */
        {FO_MSG_REP, 4 + 9, 0},
        {FO_MSG_CONF, 4 + 8, IB_MAX_PATHS + 1},
        {FO_MSG_CONF, 4 + 8, 0},
        {FO_MSG_CONF, 4 + 9, FO_MAX_NICS},   /* s_nic */
        {FO_MSG_CONF, 4 + 10, FO_MAX_NICS},  /* r_nic */
        {FO_MSG_DOWN, 4 + 12, IB_MAX_PATHS}, /* path */
        {FO_MSG_SETTLED, 4 + 12, IB_MAX_PATHS},
        {FO_MSG_FENCED, 4 + 12, IB_MAX_PATHS},
        {FO_MSG_FENCED, 4 + 15, 2}, /* n = 512 + .. */
        {FO_MSG_NIC_DOWN, 4 + 0, FO_MAX_NICS},
    };
    uint8_t msg[FO_MAX_RECORD];
    uint64_t expect = 0;
    union fo_body b;
    size_t n;

    start(2, NULL);
    messages(1);
    for (unsigned i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
        memset(&b, 0, sizeof(b));
        b.req.nnics = 2;
        b.req.qps = 1;
        if (lie[i].type == FO_MSG_REP) {
            b.rep.npaths = 1;
            b.rep.rq_depth = 64;
        } else if (lie[i].type == FO_MSG_CONF) {
            memset(&b, 0, sizeof(b));
            b.conf.npaths = 1;
        } else if (lie[i].type != FO_MSG_REQ) {
            memset(&b, 0, sizeof(b));
            b.failback.inc = 1; /* of the others the same field */
        }
        n = fo_pack((enum fo_type)lie[i].type, &b, msg, sizeof(msg));
        ck_assert_uint_gt(n, lie[i].at);
        msg[lie[i].at] = lie[i].value;
        rig_inject_bytes(rig, 1, msg, n);
        rig_run(rig, 20 * RIG_US);
        ck_assert_msg(rig->side[1].inst->refused.bad_messages == ++expect, "lie %u was believed",
                      i);
    }
    memset(&b, 0, sizeof(b));
    n = fo_pack(FO_MSG_DOWN, &b, msg, sizeof(msg));
    for (size_t k = 1; k < n; k++) {
        rig_inject_bytes(rig, 1, msg, k);
        rig_run(rig, 20 * RIG_US);
        ck_assert_uint_eq(rig->side[1].inst->refused.bad_messages, ++expect);
    }
    messages(3);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("protocol: records");
    TCase *t = tcase_create("records");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, late_copies_of_everything_change_nothing);
    tcase_add_test(t, late_copies_after_close_leave_the_next_connection_alone);
    tcase_add_test(t, words_to_nobody_are_answered);
    tcase_add_test(t, words_about_other_incarnations_and_paths_change_nothing);
    tcase_add_test(t, a_ledger_that_cannot_be_is_not_taken);
    tcase_add_test(t, lost_words_are_repeated);
    tcase_add_test(t, channel_out_during_a_failure);
    tcase_add_test(t, malformed_messages_are_dropped_and_counted);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
