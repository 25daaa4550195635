/* Races of ends: close and abort in the middle of a settlement, the numbers of incarnations, what
 * their drivers refuse, peers of other versions (P8, P23-P27). test_race_setup.c has beginnings. */
#include "tests/unit/race_rig.h"

#include "plugin/control/fo_proto.h"

/* --- close and abort while an incarnation is being settled --- */

static const int word[] = {FO_MSG_DOWN, FO_MSG_FENCED, FO_MSG_SETTLED};
static int leavers, abort_them; /* bit per side; their registrations go first */

static void close_them(void *arg)
{
    for (int s = 0; s < 2; s++) {
        if ((leavers >> s) & 1) {
            rig_close(rig, s);
        }
    }
}

static void leave(void *arg)
{
    for (int s = 0; s < 2 && abort_them; s++) {
        if ((leavers >> s) & 1) {
            rig_dereg(rig, s, s ? r_mr : s_mr);
            slots_taken_away |= s;
            rig->side[s].asleep = 1; /* it does not test what it took away */
        }
    }
    if (abort_them) { /* NCCL takes its time between the two, and the settlement goes on */
        ck_assert_uint_ne(fab_inproc_at(rig->f, rig_now(rig) + 100 * RIG_US, close_them, NULL), 0);
    } else {
        close_them(NULL);
    }
}

static void leave_soon(void)
{
    ck_assert_uint_ne(fab_inproc_at(rig->f, rig_now(rig) + 1, leave, NULL), 0);
}

/* Nothing is left of the connection at either end within @limit. */
static void nothing_left(uint64_t limit)
{
    uint64_t end = rig_now(rig) + limit;

    for (int s = 0; s < 2; s++) {
        rig_close(rig, s);
    }
    while (rig_comms(rig, 0) + rig_comms(rig, 1) > 0 && rig_now(rig) < end) {
        rig_run(rig, RIG_MS);
    }
    ck_assert_int_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
    ck_assert_uint_eq(ghost_writes, 0);
}

/* NCCL's orderly end: everything is reported at the end that closes; at S some of it may not be
 * known yet. */
START_TEST(closed_while_settling)
{
    start(2, NULL);
    messages(4, 1000);
    leavers = _i / 3 + 1; /* S, R, both */
    abort_them = 0;
    recv_burst(4, 3000);
    if (leavers == 2) { /* R has it all, S does not know, and only the channel can tell it */
        rig->side[0].asleep = 1;
        fire("h1:* blackhole-tx");
    }
    send_burst(4);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(acked(), 8);
    ck_assert_int_eq(sends_done(rig), leavers != 2);
    rig->side[0].asleep = 0;
    when_said(word[_i % 3], word[_i % 3] == FO_MSG_FENCED, leave_soon, NULL);
    give_up_path(0, 0);
    ck_assert(rig_until(rig, sends_done, RIG_S));
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(at_record.fired, 0);
    ck_assert(rig->side[0].comm == NULL || rig->side[1].comm == NULL);
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, 3000);
        slot_is_right(i);
    }
    rig->filter = NULL;
    nothing_left(3 * RIG_S);
}
END_TEST

/* With messages lost under way and open: who stays gets an error at once, and no byte reaches
 * memory that was taken away. */
START_TEST(aborted_while_settling)
{
    uint64_t since;

    start(2, NULL);
    messages(4, 1000);
    leavers = _i / 3 + 1;
    abort_them = 1;
    recv_burst(8, 3000);
    fire("h0:n0 blackhole-tx");
    send_burst(8);
    rig_run(rig, 100 * RIG_US);
    rig->side[1].asleep = 1; /* nothing of the retransmission is reported before the end leaves */
    when_said(word[_i % 3], word[_i % 3] == FO_MSG_FENCED, leave_soon, NULL);
    since = rig_now(rig);
    give_up_path(0, 0);
    rig_run(rig, 200 * RIG_US);
    ck_assert_uint_gt(at_record.fired, 0);
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(rig->side[s].comm == NULL, (leavers >> s) & 1);
    }
    rig->side[1].asleep = 0;
    for (int i = 0; i < 8;
         i++) { /* NCCL tests what it has; more receives than were sent: R cannot be done */
        if (rig->side[1].comm && rig->side[1].status == R2_OK) {
            rig_irecv1(rig, in[SLOTS - 1 - i], 100, 0, r_mr);
        }
    }
    if (leavers != 3) {
        int stays = leavers == 1;

        ck_assert(rig_until(rig, somebody_failed, RIG_S));
        ck_assert_uint_lt(rig_now(rig) - since, 500 * RIG_MS);
        ck_assert_int_eq(rig->side[stays].status, R2_ERR_PEER);
        ck_assert_int_eq(rig->side[!stays].status, R2_OK);
        rig_dereg(rig, stays, stays ? r_mr : s_mr);
    }
    rig->filter = NULL;
    nothing_left(3 * RIG_S);
}
END_TEST

/* --- incarnations --- */

#define QUICK "NCCL_R2_T_RETURN=1", "NCCL_R2_T_PACKET=3", "NCCL_R2_T_PROBE=5"

static void one_incarnation(void)
{
    uint32_t was = inc(0, 0);

    rig_run(rig, 30 * RIG_MS); /* long enough for the pair not to be damped */
    recv_burst(4, 3000);
    if (was % 3 == 0) {
        rig->side[1].asleep = 1;
    }
    send_burst(4);
    give_up_path((int)(was & 1), 0);
    rig_run(rig, 50 * RIG_US);
    rig->side[1].asleep = 0;
    finish(4, RIG_S);
    wait_returned(0, was + 1);
    ck_assert_uint_eq(inc(0, 0), was + 1);
}

/* Six bits of an incarnation's number travel in each part: they turn from 63 to 0, with messages
 * under way.
 */
START_TEST(incarnation_wraps_in_the_immediate)
{
    uint64_t bytes;

    start(2, (const char *[]){QUICK, NULL});
    messages(4, 1000);
    while (inc(0, 0) < 132) {
        one_incarnation();
    }
    bytes = comm(0)->conn.path[0].count.bytes;
    messages(4, 1000);
    ck_assert_uint_gt(comm(0)->conn.path[0].count.bytes, bytes); /* it does carry them */
    ck_assert_uint_ge(comm(0)->fo.switches, 131);
    stop();
}
END_TEST

/* Incarnations are compared by their distance: no number on the way is special, nor is the last one
 * there is. */
START_TEST(incarnation_numbers_change_their_sign)
{
    uint32_t first = _i ? UINT32_MAX - 4 : 0x7ffffffd;

    start(2, (const char *[]){QUICK, NULL});
    messages(4, 1000);
    give_up_path(0, 0);
    wait_settled(0);
    comm(0)->conn.path[0].inc = comm(1)->conn.path[0].inc = first;
    wait_returned(0, first + 1);
    for (int i = 0; i < 3; i++) {
        one_incarnation();
    }
    ck_assert_uint_eq(inc(0, 0), first + 4);
    stop();
}
END_TEST

/* Every word about an incarnation comes again, up to 60 ms later, when one or two other
 * incarnations have been; and each time messages are under way. */
START_TEST(late_words_of_old_incarnations)
{
    start(2, (const char *[]){QUICK, NULL});
    messages(4, 1000);
    channel_hook();
    for (int s = 0; s < 2; s++) {
        channel[s].late_ns = 10 * RIG_US;
        channel[s].spread_ns = 60 * RIG_MS;
        channel[s].copies = 2;
        channel[s].first_at_once = 1;
    }
    while (inc(0, 0) < 60) {
        one_incarnation();
        recv_burst(8, 3000);
        send_burst(8);
        finish(8, RIG_S);
    }
    ck_assert_uint_gt(channel[0].doubled, 100);
    ck_assert_uint_gt(channel[1].doubled, 100);
    stop();
}
END_TEST

static void silence_sender(void)
{
    channel[0].silent = 1;
}

/* The NIC pair is good again before S has said SETTLED: nothing returns, since S may not have taken
 * up the ledger. */
START_TEST(no_return_before_the_word_that_it_is_settled)
{
    start(2, (const char *[]){QUICK, NULL});
    messages(4, 1000);
    recv_burst(4, 3000);
    send_burst(4);
    finish(4, RIG_S);
    when_said(FO_MSG_SETTLED, 0, silence_sender, NULL);
    give_up_path(0, 0);
    rig_run(rig, RIG_S);
    ck_assert_uint_gt(channel[0].lost, 0);
    ck_assert_int_eq(path_at(0, 0)->state, FO_FENCED);
    ck_assert_int_eq(path_at(1, 0)->state, FO_FENCED);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_OPEN), 0);
    ck_assert_uint_eq(inc(1, 0), 1);
    messages(4, 3000);
    channel[0].silent = 0;
    wait_returned(0, 2);
    one_incarnation();
    stop();
}
END_TEST

/* --- what a driver refuses --- */

static struct {
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    const struct ibv_qp *broken[64]; /* were in ERR */
    unsigned n, asked;
} driver; /* of both hosts */

static int modify_qp_once(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    for (unsigned i = 0; i < driver.n; i++) {
        if (driver.broken[i] == qp && attr->qp_state != IBV_QPS_ERR) {
            driver.asked++;
            return EINVAL;
        }
    }
    if (attr->qp_state == IBV_QPS_ERR) {
        ck_assert_uint_lt(driver.n, 64);
        driver.broken[driver.n++] = qp;
    }
    return driver.modify_qp(qp, attr, mask);
}

static int destroy_qp_forgets(struct ibv_qp *qp)
{
    for (unsigned i = 0; i < driver.n; i++) {
        if (driver.broken[i] == qp) {
            driver.broken[i] = NULL;
        }
    }
    return driver.destroy_qp(qp);
}

/* A queue pair that was in error cannot be used again: an incarnation that returns never asks for
 * it. */
START_TEST(queue_pair_cannot_be_used_again)
{
    uint32_t qpn[2];

    start(2, (const char *[]){QUICK, NULL});
    messages(4, 1000);
    memset(&driver, 0, sizeof(driver));
    for (int s = 0; s < 2; s++) {
        struct ib_verbs *v = &rig->side[s].inst->v;

        driver.modify_qp = v->modify_qp;
        driver.destroy_qp = v->destroy_qp;
        v->modify_qp = modify_qp_once;
        v->destroy_qp = destroy_qp_forgets;
        qpn[s] = comm(s)->conn.path[0].qp->qp_num;
    }
    recv_burst(4, 3000);
    fire(_i ? "h1:n0 qp-error" : "h0:n0 qp-error");
    send_burst(4);
    finish(4, RIG_S);
    wait_returned(0, 2);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_ne(comm(s)->conn.path[0].qp->qp_num, qpn[s]);
    }
    one_incarnation();
    ck_assert_uint_ge(driver.n, 4);
    ck_assert_uint_eq(driver.asked, 0);
    stop();
}
END_TEST

/* --- versions --- */

/* A newer peer: records of types and of versions that we do not know, in the middle of a
 * settlement, are passed over.
 */
START_TEST(records_of_another_version_are_passed_over)
{
    uint8_t msg[64 + FO_MAX_RECORD] = {200, 1, 4, 0, 1, 2, 3, 4, /* a type of the future */
                                       200, 9, 0, 0};
    union fo_body b;
    size_t n = 12, k;

    start(3, NULL);
    messages(4, 1000);
    recv_burst(4, 3000);
    fire("h0:n0 blackhole-tx");
    send_burst(4);
    memset(&b, 0, sizeof(b));
    b.down = (struct fo_down){.dst = comm(1)->id, .src = comm(0)->id, .inc = 1, .path = 1};
    k = fo_pack(FO_MSG_DOWN, &b, msg + n, FO_MAX_RECORD);
    msg[n + 1]++; /* DOWN of path 1, in another version */
    n += k;
    b.down.path = 0; /* and one that counts behind it */
    n += fo_pack(FO_MSG_DOWN, &b, msg + n, FO_MAX_RECORD);
    rig_inject_bytes(rig, 1, msg, n);
    finish(4, 20 * RIG_MS);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].inst->refused.bad_messages, 0);
        ck_assert_uint_eq(comm(s)->conn.up, 6); /* path 1 stands */
        ck_assert_uint_eq(comm(s)->fo.switches, 1);
    }
    stop();
}
END_TEST

static unsigned foreign;

static int speak_another_version(struct rig *r, int from, int type, union fo_body *body)
{
    uint8_t msg[FO_MAX_RECORD];
    size_t n;

    if (from == 0) {
        return 1;
    }
    n = fo_pack((enum fo_type)type, body, msg, sizeof(msg));
    msg[1]++;
    rig_inject_bytes(r, 0, msg, n);
    foreign++;
    return 0;
}

static void says_both_versions(int theirs)
{
    char text[64];

    snprintf(text, sizeof(text), "speaks version %d, this process version %d", theirs,
             FO_PROTO_VERSION);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], text) != NULL, "%s", rig->last_warn[0]);
}

/* A receiver whose records are all of another version: connect ends with an error that says so. */
START_TEST(peer_of_another_version)
{
    race_create(2, (const char *[]){"NCCL_R2_CONNECT=500", NULL});
    foreign = 0;
    rig->filter = speak_another_version;
    ck_assert_int_eq(rig_connect_fails(rig, 0, 0), R2_ERR_COMM);
    ck_assert_uint_gt(foreign, 0);
    ck_assert_uint_lt(rig_now(rig), 400 * RIG_MS); /* told, not waited for */
    says_both_versions(FO_PROTO_VERSION + 1);
}
END_TEST

/* A handle of another version, the one before or the next, is refused before anything is sent. */
START_TEST(handle_of_another_version)
{
    struct r2_comm *none = NULL;

    race_create(2, NULL);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_listen(rig->side[1].inst, 0, rig->handle, &rig->listen), R2_OK);
    rig->handle[4] = (uint8_t)(rig->handle[4] + (_i ? 1 : -1));
    rig_enter(&rig->side[0]);
    ck_assert_int_ne(r2_net_connect(rig->side[0].inst, 0, rig->handle, &none), R2_OK);
    ck_assert_ptr_null(none);
    says_both_versions(FO_PROTO_VERSION + (_i ? 1 : -1));
    ck_assert_uint_eq(rig->sent_count, 0);
}
END_TEST

/*
 * The last path comes back again and again, since its NIC pair answers, and nothing gets through
 * any of its incarnations: the time without a path goes on, and the connection ends after
 * NCCL_R2_GIVE_UP, as without any return.
 */
static unsigned spoiled;
static void spoil(void)
{
    spoiled++;
    fire("h1:n0 qp-error");
}

static int sender_gave_up(struct rig *r)
{
    if (at_record.fired) {
        at_record.fired = 0; /* the next incarnation, too */
        when_said(FO_MSG_OPEN_UP, -1, spoil, NULL);
    }
    return r->side[0].status != R2_OK;
}

START_TEST(incarnations_without_progress_end)
{
    uint64_t since;

    spoiled = 0;
    start(1, (const char *[]){"NCCL_R2_T_RETURN=20", "NCCL_R2_T_PACKET=10", "NCCL_R2_GIVE_UP=3000",
                              NULL});
    messages(4, 1000);
    rig_run(rig, 100 * RIG_MS);
    fire("*:* rate 20MB/s");
    recv_post(0, 3000);
    send_post(0);
    fire("h1:n0 qp-error");
    since = rig_now(rig);
    when_said(FO_MSG_OPEN_UP, -1, spoil, NULL);
    ck_assert_msg(rig_until(rig, sender_gave_up, 20 * RIG_S), "%u incarnations, and no end",
                  spoiled);
    ck_assert_uint_ge(spoiled, 3);
    ck_assert_uint_ge(rig_now(rig) - since, 2900 * RIG_MS);
    ck_assert_uint_lt(rig_now(rig) - since, 6 * RIG_S);
    ck_assert_msg(strstr(comm(0)->fo.why, "no path left for 3000 ms") != NULL, "%s",
                  comm(0)->fo.why);
}
END_TEST

/* A queue pair of either end goes to ERR when OPEN_OK or OPEN_UP is said, while a path returns: the
 * event comes before the path is up, and only once (as race_setup/qp_error_during_set_up). */
START_TEST(qp_error_during_return)
{
    uint64_t took;

    start(3, (const char *[]){"NCCL_IB_TIMEOUT=20", "NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100",
                              NULL});
    messages(4, 1000);
    fire("h0:n0 down");
    wait_settled(0);
    when_said(_i < 2 ? FO_MSG_OPEN_OK : FO_MSG_OPEN_UP, -1, NULL,
              _i & 1 ? "h1:n0 qp-error" : "h0:n0 qp-error");
    fire("h0:n0 up");
    for (int i = 0; i < 1000 && !at_record.fired; i++) {
        rig_run(rig, RIG_MS);
    }
    ck_assert_uint_gt(at_record.fired, 0);
    rig_run(rig, 5 * RIG_MS);
    took = eight_messages(100 * RIG_S);
    ck_assert_msg(took < 10 * RIG_MS, "%.3f ms", (double)took / 1e6);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, closed_while_settling, 0, 9);
    tcase_add_loop_test(t, aborted_while_settling, 0, 9);
    tcase_add_test(t, incarnation_wraps_in_the_immediate);
    tcase_add_loop_test(t, incarnation_numbers_change_their_sign, 0, 2);
    tcase_add_test(t, incarnations_without_progress_end);
    tcase_add_loop_test(t, qp_error_during_return, 0, 4);
    tcase_add_test(t, late_words_of_old_incarnations);
    tcase_add_test(t, no_return_before_the_word_that_it_is_settled);
    tcase_add_loop_test(t, queue_pair_cannot_be_used_again, 0, 2);
    tcase_add_test(t, records_of_another_version_are_passed_over);
    tcase_add_test(t, peer_of_another_version);
    tcase_add_loop_test(t, handle_of_another_version, 0, 2);
}

int main(void)
{
    return run_suite("races: incarnations", add);
}
