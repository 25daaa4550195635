/* NCCL_R2_GIVE_UP: where no path carries a connection that has work, it ends then, whatever its
 * NICs, RC, the other end and the channel do; and no connection ends whose peer is slow or stopped.
 */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"
#include "plugin/base/r2_log.h"
#include "plugin/probe/diagnosis/r2_verdict.h"
#include "plugin/service/r2_peer.h"

#define GIVE_UP (5 * RIG_S)
#define DEFAULT (60 * RIG_S)
#define SEEN                                                                                       \
    (RIG_S +                                                                                       \
     RIG_MS * 200) /* after it: the watch looks once a second at least, and R's end is told */
#define OPTIONS QUIET_RC, "NCCL_R2_GIVE_UP=5000"

static enum r2_status ended(int side)
{
    return rig->side[side].comm->fo.error;
}

/* What R has S need not wait for. */
static int both_ended(struct rig *r)
{
    return (ended(0) != R2_OK || r->side[0].head == r->side[0].tail) && ended(1) != R2_OK;
}

static int s_ended(struct rig *r)
{
    return ended(0) != R2_OK;
}

/* Both ends, at GIVE_UP and not before; R perhaps as much as @more later. */
static void ends_in_time(uint64_t since, uint64_t more)
{
    ck_assert_msg(rig_until(rig, both_ended, GIVE_UP + SEEN + more), "after %.1f s S %s, R %s",
                  (double)(rig_now(rig) - since) / 1e9, ended(0) ? "has ended" : "goes on",
                  ended(1) ? "has ended" : "goes on");
    ck_assert_uint_ge(rig_now(rig) - since, GIVE_UP);
    ck_assert_uint_le(rig_now(rig) - since, GIVE_UP + SEEN + more);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

static void retry_for_ever(void)
{
    fire("*:* retry7-forever");
}

static const char *const all_silent[] = {"h1:* blackhole", "h0:* blackhole", "*:* blackhole",
                                         "h1:* hang",      "h0:* hang",      "*:* hang"};
#define SILENT ((int)(sizeof(all_silent) / sizeof(all_silent[0])))

/* All NICs at once, work under way; one NIC, or four. With NCCL's defaults RC says nothing for half
 * a minute. */
START_TEST(all_nics_silent)
{
    uint64_t since;

    start(_i < SILENT ? 4 : 1, (const char *[]){OPTIONS, NULL});
    wait_probes();
    messages(4, BIG);
    retry_for_ever();
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    fire(all_silent[_i % SILENT]);
    since = rig_now(rig);
    send_post(0, BIG);
    ck_assert(rig_until(rig, s_ended, GIVE_UP + SEEN));
    /* a driver that hangs fences nothing, so R is not told that S has stopped: it has no path, from
     * then on */
    ends_in_time(since, strstr(all_silent[_i % SILENT], "hang") ? GIVE_UP : 0);
}
END_TEST

/*
 * R's NIC has taken the message; the acknowledgement gets nowhere. S asks for it again and again,
 * and every word of R's is a new write that says nothing of those before it. One path, or the last
 * of two.
 */
START_TEST(an_acknowledgement_that_gets_nowhere)
{
    start(1 + _i, (const char *[]){OPTIONS, NULL});
    wait_probes();
    messages(4, BIG);
    if (_i) {
        fire("h0:n1 down");
        rig_run(rig, 100 * RIG_MS);
    }
    retry_for_ever();
    rig->side[1].asleep = 1;
    recv_post(0, BIG);
    rig_run(rig, 10 * RIG_MS);
    send_post(0, BIG);
    rig_run(rig, 5 * RIG_MS); /* less than S's patience: nobody has asked R */
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].sq.used, 0);
    ck_assert_uint_eq(rig->side[0].comm->tx->sack, 4);
    fire("h1:n0 blackhole");
    ends_in_time(rig_now(rig), 0);
    ck_assert_uint_gt(rig_count(rig, 0, FO_MSG_DELIVERY_QUERY), 2);
}
END_TEST

static int lost_all(struct rig *r, int from, int type, union fo_body *body)
{
    return 0;
}

/* The channel is silent, too: no word can end a connection that waits for the other end. */
START_TEST(the_channel_is_silent_too)
{
    uint64_t since;

    start(2, (const char *[]){OPTIONS, NULL});
    wait_probes();
    messages(4, BIG);
    retry_for_ever();
    rig->side[1].asleep = _i;
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    if (_i) { /* S waits for nothing but R's word */
        send_post(0, BIG);
        rig_run(rig, 5 * RIG_MS);
        ck_assert_uint_eq(rig->side[0].comm->tx->sack, 4);
        ck_assert_uint_eq(
            rig->side[0].comm->conn.path[0].sq.used + rig->side[0].comm->conn.path[1].sq.used, 0);
    }
    rig_oob_cut(rig, 1);
    rig->filter = lost_all;
    fire("h1:* blackhole");
    since = rig_now(rig);
    if (!_i) {
        send_post(0, BIG);
    }
    rig_run(rig, GIVE_UP + SEEN);
    ck_assert_msg(ended(0) == R2_ERR_COMM, "S goes on %.1f s after",
                  (double)(rig_now(rig) - since) / 1e9);
    rig->filter = NULL;
    rig_oob_cut(rig, 0);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

static int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static unsigned swallowed;

/* What is posted on a path's queue pair gets nowhere; what is in ERR is flushed. */
static int post_send_data_lost(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    for (int s = 0; s < 2; s++) {
        struct r2_comm *c = rig->side[s].comm;

        for (int p = 0; c && p < c->conn.npaths; p++) {
            if (c->conn.path[p].qp == qp && qp->state != IBV_QPS_ERR) {
                swallowed++;
                return 0;
            }
        }
    }
    return post_send(qp, wr, bad);
}

/* From here on nothing that is posted on data queue pairs over NICs @from to @end gets anywhere. */
static void swallow(int from, int end)
{
    swallowed = 0;
    for (int s = 0; s < 2; s++) {
        for (int n = from; n < end; n++) {
            struct ibv_context_ops *ops = &rig->side[s].inst->nics.nic[n].ctx->ops;

            post_send = ops->post_send;
            ops->post_send = post_send_data_lost;
        }
    }
}

/* NIC pairs answer for a moment, again and again, and no data gets through. Work under way at S, at
 * R. */
START_TEST(incarnations_that_flap)
{
    uint64_t since;
    uint32_t first;

    start(2, (const char *[]){OPTIONS, "NCCL_R2_T_RETURN=100", NULL});
    wait_probes();
    messages(4, BIG);
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    swallow(0, 2);
    if (!_i) {
        send_post(0, BIG);
    }
    fire("*:* down");
    since = rig_now(rig);
    first = rig->side[1].comm->conn.path[0].inc;
    while (!both_ended(rig) && rig_now(rig) - since < 3 * GIVE_UP) {
        rig_run(rig, 50 * RIG_MS);
        fire("*:* up");
        rig_run(rig, 350 * RIG_MS);
        fire("*:* down");
    }
    ck_assert_uint_gt(rig->side[1].comm->conn.path[0].inc, first + 4);
    ck_assert_uint_gt(swallowed, 4);
    ck_assert_uint_ge(rig_now(rig) - since, GIVE_UP);
    ck_assert_msg(rig_now(rig) - since <= GIVE_UP + SEEN, "after %.1f s S %d, R %d",
                  (double)(rig_now(rig) - since) / 1e9, ended(0), ended(1));
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/*
 * All NIC pairs answer, their probes have no bytes, and no data queue pair carries any: an MTU that
 * a switch does not have. One path goes after the other, and while one is made anew others are up:
 * there is no moment without a path, and none that is silent for long, until their pairs have to
 * answer for longer and longer. Row: log2 of the NICs; by default, or soon.
 */
START_TEST(incarnations_in_vain)
{
    int nics = 1 << _i % 4, soon = _i / 4;
    uint64_t limit = soon ? GIVE_UP : DEFAULT, since;
    char found[R2_VERDICT_FOUND];
    uint32_t first;

    start(nics, (const char *[]){QUIET_RC, soon ? "NCCL_R2_GIVE_UP=5000" : NULL, NULL});
    wait_probes();
    messages(4, BIG);
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    swallow(0, nics);
    first = rig->side[1].comm->conn.path[0].inc;
    since = rig_now(rig);
    send_post(0, BIG);
    ends_in_time(since, limit - GIVE_UP);
    ck_assert_uint_ge(rig_now(rig) - since, limit);
    r2_log_flush();
    for (int s = 0; s < 2; s++) {
        r2_verdict_found(rig->side[s].comm, found);
        /* soon, one of two may have gone just then */
        ck_assert_msg(strstr(rig->last_warn[s], "no path has carried anything for") ||
                          (nics <= 1 + soon && strstr(rig->last_warn[s], "the last path, NIC")),
                      "%s", rig->last_warn[s]);
        ck_assert_msg(strncmp(found, "R2-F", 4) == 0, "side %d: '%s'", s, found);
    }
    ck_assert_uint_gt(swallowed, 4);
    ck_assert_uint_gt(rig->side[1].comm->conn.path[0].inc, first + 2);
}
END_TEST

/* The path that has work. */
static unsigned busy_path(void)
{
    const struct ib_conn *l = &rig->side[0].comm->conn;
    unsigned p = 0;

    while ((int)p < l->npaths - 1 && !(ib_conn_up(l, (int)p) && l->path[p].sq.used)) {
        p++;
    }
    return p;
}

/* Nobody watches, and RC ends the incarnation that has the work, each time, while others stand. */
START_TEST(incarnations_in_vain_that_break)
{
    char text[40];
    uint64_t since;

    start(8, (const char *[]){OPTIONS, "NCCL_R2_T_RETURN=100", "NCCL_R2_WATCHDOG=off", NULL});
    messages(4, BIG);
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    swallow(0, 8);
    since = rig_now(rig);
    send_post(0, BIG);
    while (!both_ended(rig) && rig_now(rig) - since < 3 * GIVE_UP) {
        snprintf(text, sizeof(text), "h0:n%u qp-error", busy_path());
        fire(text);
        rig_run(rig, 400 * RIG_MS);
        ck_assert(ended(0) != R2_OK || rig->side[0].comm->conn.up != 0);
    }
    ck_assert_uint_gt(swallowed, 4);
    ends_in_time(since, 0);
}
END_TEST

/* --- no end --- */

/* The same over one of two NIC pairs: its incarnations end in vain for three times as long, and
 * what they lose goes over the other one. */
START_TEST(one_pair_in_vain_ends_nothing)
{
    uint64_t since;
    uint32_t first;

    start(2, (const char *[]){OPTIONS, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128", NULL});
    wait_probes();
    messages(4, BIG);
    swallow(_i, _i + 1);
    first = rig->side[1].comm->conn.path[_i].inc;
    for (since = rig_now(rig); rig_now(rig) - since < 3 * GIVE_UP;) {
        recv_post(0, BIG);
        send_post(0, BIG);
        finish(1, BIG, RIG_S);
        rig_run(rig, 20 * RIG_MS);
    }
    ck_assert_uint_gt(swallowed, 4);
    ck_assert_uint_gt(rig->side[1].comm->conn.path[_i].inc, first + 2);
    ck_assert(ended(0) == R2_OK && ended(1) == R2_OK);
    stop();
}
END_TEST

/* The path that R writes its CTS on. */
static unsigned cts_path(void)
{
    const struct ib_conn *l = &rig->side[1].comm->conn;
    unsigned p = 0;

    for (uint32_t m = l->up; m; m &= m - 1) {
        unsigned k = (unsigned)__builtin_ctz(m);

        p = ib_conn_up(l, (int)p) && l->path[p].count.wrs >= l->path[k].count.wrs ? p : k;
    }
    return p;
}

/*
 * R's paths have carried control writes alone, most of them unsignaled. It loses one of them with a
 * write, and GIVE_UP and more later the next one: that one has carried something, and the third
 * does.
 */
START_TEST(control_writes_alone_are_not_in_vain)
{
    const struct ib_conn *l;
    char text[40];

    start(3, (const char *[]){"NCCL_IB_TIMEOUT=14", "NCCL_IB_RETRY_CNT=1", "NCCL_R2_GIVE_UP=5000",
                              "NCCL_R2_WATCHDOG=off", "NCCL_R2_FAILBACK=never", NULL});
    l = &rig->side[1].comm->conn;
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    for (int lost = 1; lost <= 2; lost++) {
        unsigned p = cts_path();

        ck_assert_uint_gt(l->path[p].count.wrs, 0);
        ck_assert_uint_gt(l->path[p].count.cqes, 0);
        snprintf(text, sizeof(text), "h1:n%d blackhole", l->path[p].nic);
        fire(text);
        recv_post(lost, BIG);
        rig_run(rig, GIVE_UP + RIG_S);
        ck_assert(!ib_conn_up(l, (int)p));
        ck_assert_int_eq(rig->side[1].comm->fo.path[p].why.fault, IB_FAULT_WC);
    }
    ck_assert(ended(0) == R2_OK && ended(1) == R2_OK);
    for (int i = 0; i < 3; i++) {
        send_post(i, BIG);
    }
    finish(3, BIG, RIG_S);
    stop();
}
END_TEST

/* The other end's process is stopped for four times as long; its NICs answer. Work under way at S,
 * at R, acknowledged. */
START_TEST(a_stopped_peer_ends_nothing)
{
    struct r2_inst *inst;
    int side = _i & 1;

    start(1 + (_i >> 1), (const char *[]){OPTIONS, NULL});
    wait_probes();
    messages(4, BIG);
    if (side) {
        recv_post(0, BIG);
        rig_run(rig, 200 * RIG_MS);
    }
    inst = process_stop(side);
    if (side) {
        send_post(0, BIG);
    } else {
        recv_post(0, BIG);
    }
    rig_run(rig, 4 * GIVE_UP);
    ck_assert_int_eq(ended(!side), R2_OK);
    process_go(side, inst);
    if (!side) {
        send_post(0, BIG);
    }
    finish(1, BIG, 2 * RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/* Nothing under way, or a receiver that posts nothing, or a sender that sends nothing, over NICs
 * that say nothing: nobody waits for the fabric. */
START_TEST(who_waits_for_a_program_waits_on)
{
    start(2, (const char *[]){OPTIONS, NULL});
    wait_probes();
    messages(4, BIG);
    if (_i == 1) {
        ck_assert_int_eq(rig_isend(rig, out[0], BIG, 0, s_mr), -1); /* no receive */
    } else if (_i == 2) {
        recv_post(0, BIG);
    }
    rig_run(rig, 4 * GIVE_UP);
    ck_assert(ended(0) == R2_OK && ended(1) == R2_OK);
    if (_i != 2) {
        recv_post(0, BIG);
    }
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/*
 * The only path was away for a moment while messages waited, and all is well since, for longer than
 * GIVE_UP: a second in which nothing moves is not the rest of that time.
 */
START_TEST(a_time_without_a_path_is_over_with_the_first_message)
{
    start(1, (const char *[]){OPTIONS, NULL});
    wait_probes();
    messages(4, BIG);
    recv_post(0, BIG);
    fire("h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    fire("h0:n0 up");
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    for (uint64_t from = rig_now(rig); rig_now(rig) - from < 2 * GIVE_UP;) {
        messages(4, BIG);
        rig_run(rig, 100 * RIG_MS);
    }
    recv_post(0, BIG);
    fire(_i ? "h1:* hang" : "h0:* hang");
    rig_run(rig, GIVE_UP / 2 + RIG_S / 4);
    ck_assert_int_eq(ended(0) | ended(1), R2_OK);
    fire(_i ? "h1:* unhang" : "h0:* unhang");
    send_post(0, BIG);
    finish(1, BIG, 20 * RIG_S);
    stop();
}
END_TEST

/* RC repairs a lost last packet after four seconds: longer than GIVE_UP, over NICs that answer. */
START_TEST(a_lost_last_packet_ends_nothing)
{
    start(1, (const char *[]){QUIET_RC, "NCCL_R2_GIVE_UP=1500", NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, 100);
    rig_run(rig, 200 * RIG_MS);
    fire("h0:n0 blackhole-tx");
    send_post(0, 100);
    rig_run(rig, RIG_MS);
    fire("h0:n0 restore");
    finish(1, 100, 6 * RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/*
 * A host loses power: its NICs are silent, its kernel refuses nobody, the channel is gone for good.
 * R has receives open and nothing under way, as every rank behind a dead one in a ring; or S's NCCL
 * wants to send and finds no receive. One NIC, two; with the channel over NICs, and without.
 */
START_TEST(a_host_without_power)
{
    int here = _i >> 2, dead = !here;
    uint64_t since;

    start(1 + (_i & 1),
          (const char *[]){OPTIONS, _i & 2 ? "NCCL_R2_INBAND=on" : "NCCL_R2_INBAND=off", NULL});
    wait_probes();
    messages(4, BIG);
    if (here == 1) {
        recv_post(0, BIG);
    }
    rig_run(rig, 200 * RIG_MS);
    fire(dead ? "h1:* blackhole" : "h0:* blackhole");
    rig->filter = lost_all;
    rig_oob_cut(rig, 1);
    rig->side[dead].asleep = 1;
    for (since = rig_now(rig); ended(here) == R2_OK && rig_now(rig) - since < 120 * GIVE_UP;) {
        if (here == 0) {
            ck_assert_int_lt(rig_isend(rig, out[0], BIG, 0, s_mr), 0);
        }
        rig_run(rig, 10 * RIG_MS);
    }
    ck_assert_msg(ended(here) != R2_OK,
                  "it waits for a dead host for %.0f s, NCCL_R2_GIVE_UP is %.0f s",
                  (double)(rig_now(rig) - since) / 1e9, (double)GIVE_UP / 1e9);
    ck_assert_uint_ge(rig_now(rig) - since, GIVE_UP / 2);
    rig->filter = NULL;
    rig_oob_cut(rig, 0);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/* A firewall of the management network rejects for two seconds (iptables REJECT: ECONNREFUSED); all
 * NICs carry, both processes are well, and could say so over the NICs. */
START_TEST(a_firewall_that_rejects)
{
    start(2, (const char *[]){OPTIONS, "NCCL_R2_INBAND=on", NULL});
    wait_probes();
    messages(4, BIG);
    rig_oob_cut(rig, 1);
    for (int i = 0; i < 20; i++) { /* each redial of either end */
        for (int side = 0; side < 2; side++) {
            rig_enter(&rig->side[side]);
            r2_peer_channel_down(rig->side[side].inst, rig->side[side].comm->peer->oob, 1);
            rig_kick(&rig->side[side]);
        }
        if (ended(0) == R2_OK && ended(1) == R2_OK) {
            messages(20, BIG); /* data goes through all the time */
        }
        rig_run(rig, 100 * RIG_MS);
    }
    rig_oob_cut(rig, 0);
    ck_assert_msg(ended(0) == R2_OK && ended(1) == R2_OK, "a healthy connection was ended: %s",
                  rig->side[0].comm->fo.why);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_firewall_that_rejects);
    tcase_add_loop_test(t, a_host_without_power, 0, 8);
    tcase_add_loop_test(t, all_nics_silent, 0, 2 * SILENT);
    tcase_add_loop_test(t, an_acknowledgement_that_gets_nowhere, 0, 2);
    tcase_add_loop_test(t, the_channel_is_silent_too, 0, 2);
    tcase_add_loop_test(t, incarnations_that_flap, 0, 2);
    tcase_add_loop_test(t, incarnations_in_vain, 0, 8);
    tcase_add_test(t, incarnations_in_vain_that_break);
    tcase_add_test(t, control_writes_alone_are_not_in_vain);
    tcase_add_loop_test(t, one_pair_in_vain_ends_nothing, 0, 2);
    tcase_add_loop_test(t, a_stopped_peer_ends_nothing, 0, 4);
    tcase_add_loop_test(t, who_waits_for_a_program_waits_on, 0, 3);
    tcase_add_loop_test(t, a_time_without_a_path_is_over_with_the_first_message, 0, 2);
    tcase_add_test(t, a_lost_last_packet_ends_nothing);
}

int main(void)
{
    return suite_run("give up", 60, NULL, teardown, add);
}
