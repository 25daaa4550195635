/* Probe queue pairs: how two ends come to have one, and that what happens to it alone is never held
 * against the NICs under it. The silences: test_watch.c. */
#include "tests/unit/watch_rig.h"

#include <errno.h>

/* What a peer may claim without harm: incarnations, paths and messages that are not there, parts
 * that no message has. */
START_TEST(claims_that_cannot_be_move_nothing)
{
    union fo_body b;
    struct r2_comm *c;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, 100);
    c = rig->side[1].comm;
    for (int i = 0; i < 60; i++) {
        memset(&b, 0, sizeof(b));
        b.delivery_query = (struct fo_delivery_query){
            .dst = c->id, .src = c->fo.peer, .inc = 1, .path = 0, .mask = 0xffff};
        switch (i % 6) {
        case 0:
            b.delivery_query.seq = 3; /* acknowledged */
            break;
        case 1:
            b.delivery_query.seq = 5; /* no receive is posted for it */
            break;
        case 2:
            b.delivery_query.seq = UINT64_MAX;
            break;
        case 3:
            b.delivery_query.path = 7;
            break;
        case 4:
            b.delivery_query.inc = 2;
            b.delivery_query.seq = 4;
            break;
        default:
            b.delivery_query.mask = 0;
            b.delivery_query.seq = 4;
        }
        rig_inject(rig, 1, FO_MSG_DELIVERY_QUERY, &b);
        b.delivery_query.dst = rig->side[0].comm->id; /* to a sender */
        b.delivery_query.src = c->id;
        rig_inject(rig, 0, FO_MSG_DELIVERY_QUERY, &b);
        rig_run(rig, 20 * RIG_MS);
    }
    nothing_moved();
    send_post(0, 100);
    finish(1, 100, RIG_S);
    stop();
}
END_TEST

static void claim_again(void *arg)
{
    rig_inject(rig, 1, FO_MSG_DELIVERY_QUERY, arg);
}

static int claim_twice(struct rig *r, int from, int type, union fo_body *body)
{
    static union fo_body kept;

    if (type == FO_MSG_DELIVERY_QUERY && r->filter_count++ == 0) {
        kept = *body;
        rig_inject(r, 1, FO_MSG_DELIVERY_QUERY, body);
        fab_inproc_at(r->f, rig_now(r) + 12 * RIG_MS, claim_again, &kept);
    }
    return 1;
}

/* A claim that comes again before S could have said it again is one claim. */
START_TEST(repeated_claim_is_one_claim)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig->filter = claim_twice;
    message_held_up(1, 55 * RIG_MS);
    ck_assert_int_eq(rig->filter_count, 1);
    nothing_moved();
    stop();
}
END_TEST

/* One claim, or claims of another message each time, are no proof; R was only slow. */
START_TEST(slow_delivery_is_no_fault)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    driver.held = driver_hook(1, 0)->cq;
    for (int i = 0; i < 5; i++) {
        recv_post(0, 100);
        send_post(0, 100);
        rig_run(rig, 50 * RIG_MS); /* one DELIVERY_QUERY, at most two */
        driver.held = NULL;
        finish(1, 100, 20 * RIG_MS);
        driver.held = rig->side[1].comm->conn.path[0].cq;
        ck_assert_uint_ge(rig_count(rig, 0, FO_MSG_DELIVERY_QUERY), (unsigned)i + 1);
    }
    driver.held = NULL;
    nothing_moved();
    stop();
}
END_TEST

/* --- how a pair comes to stand --- */

static struct {
    unsigned first, loss_pct, random;
    struct rig_sent kept[64];
    unsigned nkept;
} channel;

static int lossy(struct rig *r, int from, int type, union fo_body *body)
{
    if (type != FO_MSG_PROBE) {
        return 1;
    }
    r->filter_count++;
    if (channel.nkept < 64) {
        channel.kept[channel.nkept++] =
            (struct rig_sent){.from = from, .type = type, .body = *body};
    }
    channel.random = channel.random * 1103515245 + 12345;
    return (unsigned)r->filter_count > channel.first &&
           (channel.random >> 16) % 100 >= channel.loss_pct;
}

/* The @first announcements are lost, and @loss_pct of those that follow. */
static void connect_through(unsigned first, unsigned loss_pct)
{
    memset(&channel, 0, sizeof(channel));
    channel.first = first;
    channel.loss_pct = loss_pct;
    channel.random = first + 31 * loss_pct;
    rig = rig_create(2, 0, (const char *[]){QUIET_RC, NULL});
    rig->filter = lossy;
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

START_TEST(announcements_get_lost)
{
    connect_through(_i % 10, _i / 10 * 25);
    ck_assert_msg(rig_until(rig, probes_stand, 120 * RIG_S), "first %u, then %u %%", channel.first,
                  channel.loss_pct);
    messages(2, 100);
    stop();
}
END_TEST

static const struct ib_nic *peer_nic_of(int side, int nic)
{
    return &rig->side[!side].inst->nics.nic[pair_of(side, nic)->peer_nic];
}

/* Each end knows the other's NIC by node GUID, port and name; 25 % of the announcements are lost.
 */
START_TEST(ends_know_each_others_nics)
{
    connect_through(3, 25);
    ck_assert(rig_until(rig, probes_stand, 120 * RIG_S));
    ck_assert_int_ge(rig->filter_count, 3);
    for (int s = 0; s < 2; s++) {
        for (int nic = 0; nic < 2; nic++) {
            const struct r2_pair *pair = pair_of(s, nic);
            const struct ib_nic *want = peer_nic_of(s, nic);

            ck_assert_uint_ne(want->guid, 0);
            ck_assert_uint_eq(pair->far.guid, want->guid);
            ck_assert_uint_ne(pair->far.guid, rig->side[s].inst->nics.nic[nic].guid);
            ck_assert_uint_eq(pair->far.port, want->port);
            ck_assert_str_eq(pair->far.name, want->name);
        }
    }
    stop();
}
END_TEST

static void again(const struct rig_sent *m)
{
    rig_inject(rig, !m->from, (enum fo_type)m->type, &m->body);
}

/* All announcements ever made come again, in either order, also those of queue pairs that are gone.
 */
START_TEST(announcements_come_late_and_twice)
{
    uint32_t inc[2];

    connect_through(0, 0);
    wait_probes();
    for (int round = 0; round < 4; round++) {
        unsigned n = channel.nkept;

        for (int s = 0; s < 2; s++) {
            inc[s] = pair_of(s, 0)->inc;
        }
        for (unsigned i = 0; i < n; i++) {
            again(&channel.kept[round & 1 ? i : n - 1 - i]);
        }
        rig_run(rig, RIG_MS);
        for (int s = 0; s < 2; s++) {
            ck_assert_msg(pair_of(s, 0)->inc == inc[s] && r2_pair_ready(pair_of(s, 0)),
                          "round %d: a late word took the pair of side %d down", round, s);
        }
        if (round == 1) {
            probe_break(1, 0); /* the rounds after it have words of queue pairs that are gone */
            message_held_up(0, 60 * RIG_MS);
            message_held_up(0, 60 * RIG_MS);
            wait_probes();
            ck_assert_uint_ne(pair_of(1, 0)->inc, inc[1]);
        }
    }
    nothing_moved();
    stop();
}
END_TEST

/* @side hears of another queue pair than the one it is connected to. */
static void another_incarnation(int side, uint32_t ahead)
{
    struct rig_sent m = {.from = !side, .type = FO_MSG_PROBE};

    for (unsigned i = 0; i < channel.nkept; i++) {
        if (channel.kept[i].from == !side && channel.kept[i].body.probe.nic == 0) {
            m = channel.kept[i];
        }
    }
    ck_assert_uint_ne(m.body.probe.inc, 0);
    m.body.probe.inc = pair_of(!side, 0)->inc + ahead;
    m.body.probe.for_inc = 0;
    again(&m);
}

/* One end builds anew, or both at the same time. */
START_TEST(ends_build_anew)
{
    uint32_t inc[2];

    connect_through(0, 0);
    wait_probes();
    for (int round = 0; round < 10; round++) {
        for (int s = 0; s < 2; s++) {
            inc[s] = pair_of(s, 0)->inc;
            if (_i & (1 << s)) {
                another_incarnation(s, 1);
            }
        }
        rig_run(rig, 100 * RIG_US);
        ck_assert_msg(rig_until(rig, probes_stand, RIG_S), "round %d", round);
        for (int s = 0; s < 2; s++) {
            ck_assert(!(_i & (1 << s)) || pair_of(s, 0)->inc != inc[s]);
        }
    }
    nothing_moved();
    messages(2, 100);
    stop();
}
END_TEST

static struct {
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    unsigned fails, failed;
} refuse;

static int modify_refused(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (attr->qp_state == IBV_QPS_RTR && refuse.failed < refuse.fails) {
        refuse.failed++;
        return ETIMEDOUT;
    }
    return refuse.modify_qp(qp, attr, mask);
}

static struct ibv_qp *create_refused(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (refuse.failed < refuse.fails) {
        refuse.failed++;
        errno = ENOMEM;
        return NULL;
    }
    return refuse.create_qp(pd, attr);
}

static void refuse_from_now(int side, int create, unsigned fails)
{
    struct ib_verbs *v = &rig->side[side].inst->v;

    refuse.fails = fails;
    refuse.failed = 0;
    refuse.modify_qp = v->modify_qp;
    refuse.create_qp = v->create_qp;
    if (create) {
        v->create_qp = create_refused;
    } else {
        v->modify_qp = modify_refused;
    }
}

/* One end cannot connect, or make, its queue pair the first times, or for ever. */
START_TEST(one_end_fails_to_build)
{
    int side = _i & 1, create = (_i >> 1) & 1, for_ever = _i >> 2;

    connect_through(create ? 0 : UINT32_MAX, 0);
    if (create) {
        wait_probes();
        probe_break(!side, 0); /* found with the next question; then both ends need a new one */
    }
    refuse_from_now(side, create, for_ever ? UINT32_MAX : 2);
    channel.first = 0;
    message_held_up(0, 50 * RIG_MS);
    message_held_up(1, 50 * RIG_MS);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_ge(refuse.failed, 1);
    if (for_ever) {
        rig_run(rig, 100 * RIG_S);
        ck_assert_uint_ge(refuse.failed, 2);
        ck_assert_msg(refuse.failed < 100, "%u attempts in 100 s", refuse.failed);
        messages(2, 100);
    } else {
        ck_assert_msg(rig_until(rig, probes_stand, 30 * RIG_S), "%u failures and no probe since",
                      refuse.failed);
        ck_assert_uint_eq(refuse.failed, 2);
    }
    nothing_moved();
    stop();
}
END_TEST

/* --- what happens to a probe queue pair is no fault of the NICs --- */

/* It breaks, at one end; then somebody asks, twice: the second time from a new one. And it still
 * finds what is there.
 */
START_TEST(probe_breaks_alone)
{
    int broken = _i & 1, asks = _i >> 1;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, BIG);
    probe_break(broken, 0);
    for (int i = 0; i < 4; i++) {
        message_held_up(asks, 50 * RIG_MS);
        nothing_moved();
    }
    rig_run(rig, 2 * RIG_S);
    message_held_up(asks, 50 * RIG_MS);
    nothing_moved();
    wait_probes();
    fire("h1:n0 blackhole");
    recv_post(0, BIG);
    rig_run(rig, 300 * RIG_MS);
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    stop();
}
END_TEST

static int lose_words(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_PROBE || r->filter_count++ >= 6;
}

/* There is no verdict without the word of the peer's process: it is asked again when the word gets
 * lost. */
START_TEST(word_gets_lost)
{
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    rig->filter = lose_words;
    fire("h1:n0 blackhole");
    send_post(0, 100);
    took = finish(1, 100, RIG_S);
    ck_assert_int_gt(rig->filter_count, 6);
    found_as(0, IB_FAULT_SILENT);
    ck_assert_msg(took < 250 * RIG_MS, "%.3f ms", (double)took / 1e6);
    stop();
}
END_TEST

/* R has said that its end is in order when it finds that it is not: its NIC flushes slowly. */
START_TEST(word_that_is_taken_back)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, BIG);
    rig->filter = flush_is_slow;
    driver_hook(1, 0);
    driver.late = pair_of(1, 0)->qp.cq;
    probe_break(1, 0);
    message_held_up(0, 100 * RIG_MS);
    ck_assert_ptr_null(driver.late);
    no_pair_moved();
    stop();
}
END_TEST

/* What is asked when that is found is asked again at once, not with the next look. */
START_TEST(question_outlives_its_queue_pair)
{
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_T_SUSPECT=200", NULL});
    wait_probes();
    messages(4, 100);
    probe_break(_i, 0);
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    fire("h1:n0 blackhole");
    send_post(0, 100);
    took = finish(1, 100, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    ck_assert_msg(took < 350 * RIG_MS, "%.3f ms", (double)took / 1e6);
    stop();
}
END_TEST

/* The first probes got no answer because the link was away for a second when nobody used it. That
 * is no evidence against it later. */
START_TEST(old_failure_is_no_evidence)
{
    connect_through(UINT32_MAX, 0);
    fire("h0:n0 blackhole");
    channel.first = 0;
    rig_run(rig, 2 * RIG_S);
    fire("h0:n0 up");
    rig_run(rig, RIG_S);
    ck_assert_int_eq(pair_of(0, 0)->build.state, R2_PAIR_DEAD);
    ck_assert_int_eq(pair_of(1, 0)->build.state, R2_PAIR_DEAD);
    for (int i = 0; i < 4; i++) {
        message_held_up(_i, 50 * RIG_MS);
        nothing_moved();
    }
    wait_probes();
    stop();
}
END_TEST

/* A late word of the time before the peer was connected does not make it unconnected. */
START_TEST(late_word_of_before_it_was_connected)
{
    connect_through(0, 0);
    wait_probes();
    for (unsigned i = 0; i < channel.nkept; i++) {
        if (channel.kept[i].body.probe.for_inc == 0) {
            again(&channel.kept[i]);
        }
    }
    rig_run(rig, 7 * RIG_US); /* there, and no answer to a question about it back */
    ck_assert(r2_pair_ready(pair_of(0, 0)));
    ck_assert(r2_pair_ready(pair_of(1, 0)));
    stop();
}
END_TEST

/* The peer's process is gone, its channel, too, before its host says so: that is no NIC's fault,
 * and there would be nobody to settle with. */
START_TEST(no_verdict_while_the_peer_cannot_be_told)
{
    struct r2_inst *inst;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_T_STUCK=100", "NCCL_IB_TIMEOUT=14",
                              "NCCL_R2_GIVE_UP=5000", NULL});
    wait_probes();
    messages(4, 100);
    fire("h0:n0 retry7-forever");
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    inst = process_stop(1);
    fire("h1:n0 hang");
    fire("h1:n1 hang");
    rig_oob_cut(rig, 1);
    send_post(0, 100);
    rig_run(rig, RIG_S);
    nothing_moved();
    fire("h1:n1 unhang");
    process_go(1, inst);
    rig_oob_cut(rig, 0); /* it was not gone after all, and one of its NICs is */
    finish(1, 100, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    stop();
}
END_TEST

/* An end that does not watch serves the one that does. */
START_TEST(watchdog_off_at_one_end)
{
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, _i ? "1:NCCL_R2_WATCHDOG=off" : "0:NCCL_R2_WATCHDOG=off",
                              NULL});
    rig_run(rig, 100 * RIG_MS);
    ck_assert(pair_of(_i ? 0 : 1, 0) && r2_pair_ready(pair_of(_i ? 0 : 1, 0)));
    fire("h0:n0 blackhole");
    recv_post(0, 100);
    took = rig_now(rig);
    if (_i == 0) {
        rig_run(rig, 200 * RIG_MS); /* R finds that its CTS does not arrive */
    }
    ck_assert(rig_until(rig, path_0_is_down, 300 * RIG_MS) || _i);
    took = rig_now(rig) - took;
    ck_assert(_i || took < 300 * RIG_MS);
    if (_i) { /* nobody watches CTS; S had none and nothing to post */
        ck_assert(!path_is_down(rig, 0));
    } else {
        send_post(0, 100);
        finish(1, 100, RIG_S);
        found_as(0, IB_FAULT_SILENT);
    }
    if (_i) {
        rig->side[1].tail = rig->side[1].head;
    }
    stop();
}
END_TEST

static TCase *new_case(Suite *s, const char *name)
{
    TCase *t = tcase_create(name);

    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return t;
}

static void add_pairs(Suite *s)
{
    TCase *t = new_case(s, "pairs");

    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, claims_that_cannot_be_move_nothing);
    tcase_add_test(t, slow_delivery_is_no_fault);
    tcase_add_test(t, repeated_claim_is_one_claim);
    tcase_add_loop_test(t, announcements_get_lost, 0, 30);
    tcase_add_test(t, ends_know_each_others_nics);
    tcase_add_test(t, announcements_come_late_and_twice);
    tcase_add_loop_test(t, ends_build_anew, 1, 4);
    tcase_add_loop_test(t, one_end_fails_to_build, 0, 8);
    tcase_add_loop_test(t, probe_breaks_alone, 0, 4);
    tcase_add_test(t, word_gets_lost);
    tcase_add_test(t, word_that_is_taken_back);
    tcase_add_loop_test(t, question_outlives_its_queue_pair, 0, 2);
    tcase_add_loop_test(t, old_failure_is_no_evidence, 0, 2);
    tcase_add_test(t, late_word_of_before_it_was_connected);
    tcase_add_test(t, no_verdict_while_the_peer_cannot_be_told);
    tcase_add_loop_test(t, watchdog_off_at_one_end, 0, 2);
}

int main(void)
{
    Suite *s = suite_create("probe queue pairs");
    SRunner *r;
    int failed;

    add_pairs(s);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
