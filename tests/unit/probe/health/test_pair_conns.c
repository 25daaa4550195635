/* A NIC pair and the connections over it: one verdict for those that it concerns, a new probe for
 * those that come later.
 */
#include "tests/unit/watch_rig.h"

struct ends {
    struct r2_comm *comm[2];
};

/* The rig's connection is put aside, and a second one made beside it. */
static struct ends second_connection(void)
{
    struct ends first = {{rig->side[0].comm, rig->side[1].comm}};

    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig->side[0].comm = rig->side[1].comm = NULL;
    rig_enter(&rig->side[1]);
    r2_net_close_listen(rig->listen);
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    return first;
}

static void close_ends(const struct ends *e)
{
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_net_close(e->comm[s]);
    }
}

/* It failed under one connection; the link is whole again when the next one is made. */
START_TEST(pair_is_made_anew_for_a_later_connection)
{
    struct ends first;
    struct r2_pair *pair;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_FAILBACK=never", NULL});
    wait_probes();
    messages(4, 100);
    pair = pair_of(0, 0);
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    fire(_i ? "h0:n0 blackhole" : "h1:n0 blackhole-rx");
    send_post(0, 100);
    finish(1, 100, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    rig_run(rig, RIG_S);
    fire(_i ? "h0:n0 up" : "h1:n0 up");
    rig_run(rig, RIG_S);
    first = second_connection();
    ck_assert_ptr_eq(pair_of(0, 0), pair);
    wait_probes();
    for (int i = 0; i < 4; i++) {
        message_held_up(i & 1, 50 * RIG_MS);
    }
    nothing_moved();
    fire("h0:n0 blackhole");
    recv_post(0, BIG);
    rig_run(rig, 200 * RIG_MS);
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    close_ends(&first);
    stop();
}
END_TEST

/* One verdict moves every connection over the pair, idle ones too; those of other pairs stay. */
START_TEST(one_verdict_for_all_connections)
{
    struct ends first;

    start(3, (const char *[]){QUIET_RC, NULL});
    messages(4, 100);
    first = second_connection();
    wait_probes();
    messages(4, 100);
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    fire("h1:n0 blackhole");
    send_post(0, 100);
    finish(1, 100, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    rig_run(rig, 10 * RIG_MS);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(first.comm[s]->conn.up, 6);
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 6);
    }
    close_ends(&first);
    stop();
}
END_TEST

/* ... but for one that the peer has closed (P25) ... */
START_TEST(verdict_spares_what_is_closed)
{
    struct ends first;

    start(2, (const char *[]){QUIET_RC, NULL});
    messages(4, 100);
    first = second_connection();
    wait_probes();
    messages(4, 100);
    rig_run(rig, 200 * RIG_MS);
    rig_enter(&rig->side[!_i]);
    r2_net_close(first.comm[!_i]);
    rig_run(rig, 200 * RIG_MS);
    ck_assert_int_ne(first.comm[_i]->fo.bye.peer, FO_BYE_NONE);
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    fire("h1:n0 blackhole");
    send_post(0, 100);
    finish(1, 100, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(first.comm[_i]->fo.switches, 0);
    rig_enter(&rig->side[_i]);
    r2_net_close(first.comm[_i]);
    stop();
}
END_TEST

/* ... and one that has no other path. */
START_TEST(verdict_spares_the_last_path)
{
    struct ends first;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_FAILBACK=never", NULL});
    messages(4, 100);
    fire("h0:n1 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].comm->conn.up, 1);
    fire("h0:n1 up");
    rig_run(rig, RIG_S);
    first = second_connection();
    wait_probes();
    messages(4, 100);
    fire("h0:n0 retry7-forever");
    recv_post(0, 100);
    rig_run(rig, RIG_MS);
    fire("h1:n0 blackhole");
    send_post(0, 100);
    finish(1, 100, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    rig_run(rig, RIG_S);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(first.comm[s]->conn.up, 1);
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 2);
    }
    close_ends(&first);
    stop();
}
END_TEST

static void swap_ends(struct ends *e)
{
    for (int s = 0; s < 2; s++) {
        struct r2_comm *c = rig->side[s].comm;

        rig->side[s].comm = e->comm[s];
        e->comm[s] = c;
    }
}

static int sends_done(struct rig *r)
{
    return r->side[0].head == r->side[0].tail;
}

/* What an incarnation that ended left undone is in no queue: it gives the next question no more
 * time. */
START_TEST(ended_incarnation_has_nothing_in_the_queues)
{
    struct ends other;
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_FAILBACK=never", NULL});
    other = second_connection();
    wait_probes();
    swap_ends(&other);
    for (int k = 0; k < 16; k++) {
        recv_post(k, BIG);
    }
    swap_ends(&other);
    recv_post(31, 100); /* on the second one: its CTS is there before anything fails */
    swap_ends(&other);
    rig_run(rig, 200 * RIG_MS); /* R has nothing unconfirmed: S will be the one to ask */
    fire("h0:n0 hang");         /* a soft fence: no work request comes out */
    for (int k = 0; k < 16; k++) {
        send_post(k, BIG);
    }
    rig_enter(&rig->side[0]);
    fo_fault(&rig->side[0].comm->fo, 0, &(struct ib_fault_info){.fault = IB_FAULT_ADMIN});
    ck_assert(rig_until(rig, sends_done, 100 * RIG_MS));
    found_as(0, IB_FAULT_ADMIN);
    swap_ends(&other);
    send_post(31, 100);
    took = finish(0, 0, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    ck_assert_int_eq(memcmp(in[31], out[31], 100), 0);
    ck_assert_int_eq(fault_at(0, 0), IB_FAULT_SILENT);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    close_ends(&other);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pairs and connections");
    TCase *t = tcase_create("conns");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_loop_test(t, pair_is_made_anew_for_a_later_connection, 0, 2);
    tcase_add_test(t, one_verdict_for_all_connections);
    tcase_add_loop_test(t, verdict_spares_what_is_closed, 0, 2);
    tcase_add_test(t, verdict_spares_the_last_path);
    tcase_add_test(t, ended_incarnation_has_nothing_in_the_queues);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
