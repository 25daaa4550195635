/* Set-up with numbers that cannot be, policies that differ, and ends that give up or fail in the
 * middle of it: the other end learns it, with a reason. */
#include "tests/unit/protocol_rig.h"

#include <string.h>

#include "plugin/base/r2_log.h"

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

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_policy_that_differs_is_said, 0, 2);
    tcase_add_loop_test(t, set_up_with_impossible_numbers_fails_with_a_reason, 0, 4);
    tcase_add_loop_test(t, set_up_goes_on_without_what_is_wrong, 0, 2);
    tcase_add_test(t, receiver_learns_that_the_sender_gave_up);
    tcase_add_test(t, receiver_learns_that_the_sender_gave_up_when_the_word_is_lost);
    tcase_add_loop_test(t, given_up_in_the_middle_of_init, 0, 2);
    tcase_add_test(t, connect_to_a_closed_listener);
}

int main(void)
{
    return suite_run("protocol_setup", 60, NULL, teardown, add);
}
