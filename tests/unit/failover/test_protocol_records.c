/* Records that come late, twice, to nobody, or with numbers that cannot be: none of them may do
 * anything (P8, P9, P25, P26). */
#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_log.h"

static struct rig *rig;
static uint64_t out[256], in[256];
static struct ib_mr *s_mr, *r_mr;
static uint64_t count;

static void teardown(void)
{
    rig_destroy(rig);
    rig = NULL;
}

static void start(int nics, const char *const *options)
{
    rig = rig_create(nics, 0, options);
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    count = 0;
}

static void stop(void)
{
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

/* @n messages go through, and nothing else happens. */
static void messages(int n)
{
    for (int i = 0; i < n; i++, count++) {
        in[count % 256] = ~0ull;
        out[count % 256] = count;
        ck_assert_int_ge(rig_irecv1(rig, &in[count % 256], 8, 0, r_mr), 0);
        rig_send_wait(rig, &out[count % 256], 8, 0, s_mr);
        ck_assert(rig_until(rig, rig_all_done, 10 * RIG_S));
        ck_assert_uint_eq(in[count % 256], count);
    }
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
}

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

/* --- numbers out of range --- */

static enum {
    BAD_REP_NIC,
    BAD_REP_PATHS,
    BAD_REP_DEPTH,
    BAD_CONF_PATHS,
    BAD_CONF_ADDR,
    BAD_READY
} bad;

static int spoil(struct rig *r, int from, int type, union fo_body *b)
{
    if (bad == BAD_REP_NIC && type == FO_MSG_REP) {
        b->rep.path[b->rep.npaths - 1].s_nic = FO_MAX_NICS - 1;
    } else if (bad == BAD_REP_DEPTH && type == FO_MSG_REP) {
        b->rep.rq_depth = 257;
    } else if (bad == BAD_REP_PATHS && type == FO_MSG_REP) {
        b->rep.path[0].ok = b->rep.path[1].ok = 0;
    } else if (bad == BAD_CONF_PATHS && type == FO_MSG_CONF) {
        b->conf.npaths = IB_MAX_PATHS;
        for (int i = 0; i < IB_MAX_PATHS; i++) {
            b->conf.path[i].addr.port.mtu = IBV_MTU_1024;
        }
    } else if (bad == BAD_CONF_ADDR && type == FO_MSG_CONF) {
        b->conf.path[0].addr.port.gid[15] ^= 0x55;
    } else if (bad == BAD_READY && type == FO_MSG_READY) {
        b->ready.up = 0xff;
    } else {
        return 1;
    }
    r->filter_count++;
    return 1;
}

/* Once, however many connections there are; and the job goes on. */
START_TEST(a_policy_that_differs_is_said)
{
    rig = rig_create(
        2, 0, (const char *[]){_i ? "0:NCCL_R2_FAILBACK=never" : "NCCL_R2_FAILBACK=never", NULL});
    rig_connect(rig, 0, 0);
    r2_log_flush();
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(strstr(rig->last_warn[s], "policy at the other end differs") != NULL, _i);
        rig->last_warn[s][0] = '\0';
    }
    rig_connect(rig, 1, 1);
    r2_log_flush();
    for (int s = 0; s < 2; s++) {
        ck_assert_str_eq(rig->last_warn[s], "");
    }
}
END_TEST

START_TEST(set_up_with_impossible_numbers_fails_with_a_reason)
{
    static const struct {
        int what;
        const char *says;
    } row[] = {{BAD_REP_NIC, "a NIC that is not here"},
               {BAD_REP_DEPTH, "NCCL_R2_CONNECT"},
               {BAD_REP_PATHS, "no path could be built"},
               {BAD_CONF_PATHS, "NCCL_R2_CONNECT"}};

    bad = row[_i].what;
    rig = rig_create(2, 0, (const char *[]){"NCCL_R2_CONNECT=500", NULL});
    rig->filter = spoil;
    ck_assert_int_eq(rig_connect_fails(rig, 0, 0), R2_ERR_COMM);
    ck_assert_int_gt(rig->filter_count, 0);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], row[_i].says) ||
                      strstr(rig->last_warn[1], row[_i].says),
                  "%s / %s", rig->last_warn[0], rig->last_warn[1]);
}
END_TEST

/* What only concerns one path costs that path; bits beyond the paths mean nothing. */
START_TEST(set_up_goes_on_without_what_is_wrong)
{
    bad = _i ? BAD_READY : BAD_CONF_ADDR;
    rig = rig_create(2, 0, NULL);
    rig->filter = spoil;
    rig_connect(rig, 0, 0);
    ck_assert_int_gt(rig->filter_count, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    count = 0;
    messages(5);
    ck_assert_uint_eq(rig->side[0].comm->conn.up & ~3u, 0);
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

/* --- one end of a set-up fails --- */

static int lose_ready(struct rig *r, int from, int type, union fo_body *b)
{
    return type != FO_MSG_READY;
}

static int receiver_failed(struct rig *r)
{
    return r->side[1].status != R2_OK;
}

/* R stands, READY never comes through, S runs out of time: R must not wait for data for ever. */
START_TEST(receiver_learns_that_the_sender_gave_up)
{
    enum r2_status st = R2_OK;
    int done = 0;

    rig = rig_create(2, 0, (const char *[]){"0:NCCL_R2_CONNECT=300", "NCCL_IB_TIMEOUT=20", NULL});
    rig->filter = lose_ready;
    rig_connect_begin(rig, 0, 0);
    for (uint64_t end = rig_now(rig) + RIG_S; st == R2_OK && rig_now(rig) < end;) {
        st = rig_connect_turn(rig, 0, &done);
    }
    ck_assert_int_eq(st, R2_ERR_COMM);
    ck_assert_ptr_nonnull(rig->side[1].comm);
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    rig_irecv1(rig, in, 8, 0, r_mr);
    ck_assert(rig_until(rig, receiver_failed, RIG_S));
    ck_assert_int_eq(rig->side[1].status, R2_ERR_PEER);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/* The channel is lost from before READY until after S's time is over, so that S's REFUSE is lost
 * with it: it is said once. R has its receive open by then, as NCCL's proxy has. */
static int lose_the_channel(struct rig *r, int from, int type, union fo_body *b)
{
    return type != FO_MSG_READY && type != FO_MSG_REFUSE;
}

START_TEST(receiver_learns_that_the_sender_gave_up_when_the_word_is_lost)
{
    enum r2_status st = R2_OK;
    int done = 0, op = -1;

    rig = rig_create(2, 0,
                     (const char *[]){"0:NCCL_R2_CONNECT=300", "NCCL_R2_GIVE_UP=2000",
                                      "NCCL_IB_TIMEOUT=20", NULL});
    rig->filter = lose_the_channel;
    rig_connect_begin(rig, 0, 0);
    for (uint64_t end = rig_now(rig) + RIG_S; st == R2_OK && rig_now(rig) < end;) {
        st = rig_connect_turn(rig, 0, &done);
        if (rig->side[1].comm && op < 0) {
            r_mr = rig_reg(rig, 1, in, sizeof(in));
            op = rig_irecv1(rig, in, 8, 0, r_mr);
        }
    }
    ck_assert_int_eq(st, R2_ERR_COMM); /* S's NCCL has the error, its connection is gone */
    ck_assert_ptr_nonnull(rig->side[1].comm);
    ck_assert_int_ge(op, 0);
    rig->filter = NULL; /* the channel is back, and stays */
    rig_oob_cut(rig, 1);
    rig_run(rig, 100 * RIG_MS);
    rig_oob_cut(rig, 0);
    ck_assert_int_eq(rig_comms(rig, 0), 0);
    ck_assert_msg(rig_until(rig, receiver_failed, 600 * RIG_S),
                  "R waits for ever: %d REFUSE, %d DOWN, R status %d after %llu s",
                  rig_count(rig, 0, FO_MSG_REFUSE), rig_count(rig, 1, FO_MSG_DOWN),
                  rig->side[1].status, (unsigned long long)(rig_now(rig) / RIG_S));
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/*
 * ncclCommAbort during init: S's NCCL never calls connect again (its proxy has no other handle of
 * the attempt). R's NCCL closes what it has. 0: the attempt stands by then; 1: its time is over,
 * since READY was lost.
 */
START_TEST(given_up_in_the_middle_of_init)
{
    rig = rig_create(2, 0,
                     (const char *[]){"0:NCCL_R2_CONNECT=300", "NCCL_R2_LINGER=1000",
                                      "NCCL_IB_TIMEOUT=20", NULL});
    rig->filter = _i ? lose_the_channel : NULL;
    rig_connect_begin(rig, 0, 0);
    while (rig->side[1].comm == NULL) {
        rig_enter(&rig->side[1]);
        ck_assert_int_eq(r2_net_accept(rig->listen, &rig->side[1].comm), R2_OK);
        rig_run(rig, RIG_MS);
    }
    rig_run(rig, RIG_S);
    rig->filter = NULL;
    rig_close(rig, 1);
    rig_run(rig, 600 * RIG_S);
    ck_assert_msg(rig_comms(rig, 1) == 0 && rig_comms(rig, 0) == 0,
                  "600 s after: R has %d connections, BYE said %u times; S has %d",
                  rig_comms(rig, 1), rig_count(rig, 1, FO_MSG_BYE), rig_comms(rig, 0));
}
END_TEST

static int no_listener_any_more(struct rig *r, int from, int type, union fo_body *b)
{
    if (type == FO_MSG_REQ && r->filter_count++ == 0) {
        r2_net_close_listen(r->listen);
        r->listen = NULL;
    }
    return 1;
}

START_TEST(connect_to_a_closed_listener)
{
    rig = rig_create(2, 0, NULL);
    rig->filter = no_listener_any_more;
    ck_assert_int_eq(rig_connect_fails(rig, 0, 0), R2_ERR_COMM);
    ck_assert_uint_lt(rig_now(rig), RIG_S);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[0], "nobody listens"));
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
    tcase_add_loop_test(t, a_policy_that_differs_is_said, 0, 2);
    tcase_add_loop_test(t, set_up_with_impossible_numbers_fails_with_a_reason, 0, 4);
    tcase_add_loop_test(t, set_up_goes_on_without_what_is_wrong, 0, 2);
    tcase_add_test(t, malformed_messages_are_dropped_and_counted);
    tcase_add_test(t, receiver_learns_that_the_sender_gave_up);
    tcase_add_test(t, receiver_learns_that_the_sender_gave_up_when_the_word_is_lost);
    tcase_add_loop_test(t, given_up_in_the_middle_of_init, 0, 2);
    tcase_add_test(t, connect_to_a_closed_listener);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
