/* What the processes of a job tell each other about its NICs (docs/diagnosis.md): two processes,
 * one connection. */
#include "tests/unit/gossip_world.h"

START_TEST(a_word_reaches_the_peer_once)
{
    struct probe_report w = {.subject = {.a = 0x1234, .pa = 1},
                             .blame = PROBE_BLAME_LOCAL_LINK,
                             .confidence = 80,
                             .host = "third",
                             .nic = "n"},
                        again = w;
    unsigned sent;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    ck_assert(tell(0, &w));
    ck_assert(rig_until(rig, told_all, RIG_S));
    ck_assert_ptr_nonnull(probe_gossip_find(inst_of(1)->diagnosis.gossip, &w.subject));
    sent = rig_count(rig, 0, FO_MSG_REPORT) + rig_count(rig, 1, FO_MSG_REPORT);
    ck_assert_uint_eq(sent, 1);
    ck_assert(!tell(1, &again)); /* nothing new */
    rig_run(rig, 5 * RIG_S);
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_REPORT) + rig_count(rig, 1, FO_MSG_REPORT), sent);
    stop();
}
END_TEST

START_TEST(lost_words_are_repeated)
{
    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    rig->filter = lose_first;
    blame(1, 0, 0, PROBE_BLAME_LOCAL_NIC);
    ck_assert(rig_until(rig, told_all, 5 * RIG_S));
    ck_assert(knows(0, 0, 0, PROBE_BLAME_LOCAL_NIC));
    ck_assert_int_ge(rig->filter_count, 5);
    stop();
}
END_TEST

/* The NIC is in order as far as these two can tell: nothing moves, and connections that begin use
 * it once it has answered. */
START_TEST(a_wrong_word_moves_nothing)
{
    unsigned before;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    before = pair_of(0, 0)->probe.answers;
    blame(1, 0, 0, PROBE_BLAME_LOCAL_NIC);
    rig_run(rig, 500 * RIG_MS);
    ck_assert_uint_gt(pair_of(0, 0)->probe.answers, before); /* it was asked */
    ck_assert_uint_eq(rig->side[0].comm->conn.drained, 0);
    messages(3, BIG);
    nothing_moved();
    stop();
}
END_TEST

/* The first message of a new connection does not have to find out what the job knows: its primary
 * is silent, and blamed. */
START_TEST(a_new_connection_avoids_what_is_blamed)
{
    rig = rig_create(2, 0, (const char *[]){FAST, NULL});
    fire("h0:n0 blackhole");
    blame(0, 0, 0, PROBE_BLAME_LOCAL_LINK);
    connect_ends();
    ck_assert_uint_eq(rig->side[0].comm->conn.drained, 1);
    recv_post(0, 100);
    send_post(0, 100);
    ck_assert_uint_lt(finish(1, 100, RIG_S), 5 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].count.bytes, 0);
    rig_run(rig, RIG_S);
    ck_assert(!ib_conn_up(&rig->side[0].comm->conn, 0)); /* asked, and found silent */
    stop();
}
END_TEST

/* The same without anything wrong: it is used as soon as it has answered. */
START_TEST(a_new_connection_returns_to_what_answers)
{
    rig = rig_create(2, 0, (const char *[]){FAST, NULL});
    blame(0, 0, 0, PROBE_BLAME_LOCAL_LINK);
    connect_ends();
    wait_probes();
    rig_run(rig, 200 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].comm->conn.drained, 0);
    messages(3, 100);
    ck_assert_uint_gt(rig->side[0].comm->conn.path[0].count.cqes, 0);
    nothing_moved();
    stop();
}
END_TEST

/* Both ends close, and are away from each other for so long that they forget each other; then
 * another connection begins. */
static void part_and_meet(void)
{
    rig_oob_cut(rig, 1);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_net_close(rig->side[s].comm);
        rig->side[s].comm = NULL;
    }
    r2_net_close_listen(rig->listen);
    rig_run(rig, 60 * RIG_S);
    ck_assert(inst_of(0)->index.peers == NULL && inst_of(1)->index.peers == NULL);
    rig_oob_cut(rig, 0);
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    wait_probes();
}

/* The last connection to a process that was blamed closes before it speaks again: who blamed it has
 * not forgotten. */
START_TEST(a_peer_that_speaks_in_another_connection)
{
    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    rig_enter(&rig->side[0]);
    r2_locate_peer(inst_of(0), rig->side[0].comm->peer, PROBE_TIMEOUT);
    ck_assert(r2_gossip_peer_blamed(inst_of(0), rig->side[0].comm->peer));
    part_and_meet();
    rig_run(rig, RIG_S);
    ck_assert(!r2_gossip_peer_blamed(inst_of(0), rig->side[0].comm->peer));
    stop();
}
END_TEST

/*
 * A connection begins over a NIC that a process has blamed which is gone: nobody else would take
 * that back. What fails next is another failure, and said.
 */
START_TEST(what_a_process_has_said_that_is_gone)
{
    struct probe_report w = {.version = 1,
                             .origin = 99,
                             .blame = PROBE_BLAME_LOCAL_LINK,
                             .confidence = 80,
                             .host = "host1",
                             .nic = "fab0"};

    rig = rig_create(2, 1, (const char *[]){FAST, NULL});
    w.subject = r2_subject_nic(inst_of(1), 0);
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_gossip_heard(inst_of(s), &w, "one that is gone");
    }
    connect_ends();
    wait_probes();
    messages(3, BIG);
    rig_run(rig, RIG_S);
    ck_assert(knows(0, 1, 0, PROBE_BLAME_NONE) && knows(1, 1, 0, PROBE_BLAME_NONE));
    fire("h1:n0 blackhole");
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    ck_assert(rig_until(rig, line_is_there, 10 * RIG_S));
    line_has("R2-L02 host=host1 nic=fab0");
    stop();
}
END_TEST

/* A cable that is back for a moment, at the sender, who found it silent: one answer takes nothing
 * back where incarnations have ended. */
START_TEST(a_cable_that_is_back_for_a_moment)
{
    struct probe_report w = {
        .blame = PROBE_BLAME_LOCAL_LINK, .confidence = 80, .host = "host1", .nic = "fab0"};
    unsigned before;

    rig = rig_create(2, _i, (const char *[]){FAST, "NCCL_R2_T_RETURN=10000", NULL});
    connect_ends();
    wait_probes();
    messages(3, BIG);
    fire("h1:n0 blackhole");
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    rig_run(rig, 5 * RIG_S);
    w.subject = r2_subject_nic(inst_of(1), 0);
    tell(0, &w);
    ck_assert(knows(0, 1, 0, PROBE_BLAME_LOCAL_LINK));
    before = pair_of(0, 0)->probe.answers;
    fire("h1:n0 restore");
    while (pair_of(0, 0)->probe.answers == before) {
        rig_run(rig, 100 * RIG_MS);
    }
    rig_run(rig, 3 * RIG_S);
    ck_assert(!ib_conn_up(&rig->side[0].comm->conn, 0));
    ck_assert(knows(0, 1, 0, PROBE_BLAME_LOCAL_LINK));
    rig_run(rig, 60 * RIG_S);
    ck_assert(ib_conn_up(&rig->side[0].comm->conn, 0));
    ck_assert(knows(0, 1, 0, PROBE_BLAME_NONE) && knows(1, 1, 0, PROBE_BLAME_NONE));
    stop();
}
END_TEST

/* A connection that began while its primary was silent, and blamed or not, gets it back when the
 * cable is mended. */
START_TEST(what_was_blamed_returns)
{
    rig = rig_create(2, 0, (const char *[]){FAST, NULL});
    fire("h1:n0 blackhole");
    if (_i) {
        blame(0, 1, 0, PROBE_BLAME_LOCAL_LINK);
        blame(1, 1, 0, PROBE_BLAME_LOCAL_LINK);
    }
    connect_ends();
    recv_post(0, 100);
    send_post(0, 100);
    finish(1, 100, 5 * RIG_S);
    rig_run(rig, 5 * RIG_S);
    ck_assert(!ib_conn_up(&rig->side[0].comm->conn, 0));
    fire("h1:n0 restore");
    rig_run(rig, 90 * RIG_S);
    ck_assert(ib_conn_up(&rig->side[0].comm->conn, 0) && ib_conn_up(&rig->side[1].comm->conn, 0));
    ck_assert_uint_eq(rig->side[0].comm->conn.drained, 0);
    messages(3, 100);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_word_reaches_the_peer_once);
    tcase_add_test(t, lost_words_are_repeated);
    tcase_add_test(t, a_wrong_word_moves_nothing);
    tcase_add_test(t, a_new_connection_avoids_what_is_blamed);
    tcase_add_test(t, a_new_connection_returns_to_what_answers);
    tcase_add_test(t, a_peer_that_speaks_in_another_connection);
    tcase_add_test(t, what_a_process_has_said_that_is_gone);
    tcase_add_loop_test(t, a_cable_that_is_back_for_a_moment, 0, 2);
    tcase_add_loop_test(t, what_was_blamed_returns, 0, 2);
}

int main(void)
{
    return suite_run("gossip", 120, NULL, teardown, add);
}
