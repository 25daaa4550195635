/* Directed scenarios of soft fences and holds (P18, P19): when a message that is complete may be
 * reported done. */
#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct rig *rig;
static uint64_t out[4], in[4];
static struct ib_mr *s_mr, *r_mr;

static void setup(void)
{
    rig = rig_create(2, 0, (const char *[]){"NCCL_R2_T_DEAD=1000", "NCCL_R2_T_PACKET=500", NULL});
    rig_connect(rig, 0, 0);
    memset(in, 0xff, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static void teardown(void)
{
    if (rig->side[0].comm) {
        rig_dereg(rig, 0, s_mr);
        rig_dereg(rig, 1, r_mr);
    }
    rig_destroy(rig);
    rig = NULL;
}

/* A message that is posted once @fault has happened: its CTS came before. */
static void begin_after(const char *fault)
{
    out[0] = 100;
    ck_assert_int_ge(rig_irecv1(rig, &in[0], 8, 0, r_mr), 0);
    rig_run(rig, 10 * RIG_US);
    rig_fault(rig, fault);
    ck_assert_int_ge(rig_isend(rig, &out[0], 8, 0, s_mr), 0);
}

static void down(int side, int p)
{
    rig_enter(&rig->side[side]);
    fo_fault(&rig->side[side].comm->fo, p, &(struct ib_fault_info){.fault = IB_FAULT_ADMIN});
}

static int complete(struct rig *r)
{
    return r->side[1].comm->rx->ledger.acked == 1;
}

static int r_is_soft(struct rig *r)
{
    return r->side[1].comm->fo.path[0].soft;
}

static int received(struct rig *r)
{
    return r->side[1].head == r->side[1].tail;
}

/* A message under way on path 0, whose NICs @nics hang; R fences softly; S hears of it @late ns
 * afterwards. Returns when S heard. */
static uint64_t soft_at_r(const char *nics, uint64_t late)
{
    begin_after(nics);
    rig_oob_cut(rig, 1);
    rig_run(rig, RIG_MS);
    down(1, 0);
    ck_assert(rig_until(rig, r_is_soft, 100 * RIG_MS));
    rig_run(rig, late);
    rig_oob_cut(rig, 0);
    return rig_now(rig);
}

/* Neither end can fence: time alone, and it counts from when S stopped (P18 c). */
START_TEST(both_soft_the_time_counts_from_the_senders_stop)
{
    uint64_t told = soft_at_r("*:n0 hang", 900 * RIG_MS);

    ck_assert(rig_until(rig, complete, 100 * RIG_MS)); /* retransmitted over the other path ... */
    ck_assert(!received(rig));                         /* ... and held */
    ck_assert(rig_until(rig, received, 2 * RIG_S));
    ck_assert_uint_ge(rig_now(rig) - told, RIG_S);
    ck_assert_uint_le(rig_now(rig) - told, 1100 * RIG_MS);
    ck_assert_uint_eq(in[0], 100);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
}
END_TEST

/* S fences hard: T_packet from its word on (P18 b), whatever an older word says that comes after
 * it. */
START_TEST(hard_at_the_sender_ends_the_hold_after_t_packet)
{
    uint64_t told = soft_at_r("h1:n0 hang", 700 * RIG_MS);
    union fo_body old;

    rig->side[1].inst->cfg.t_dead_ms = 200; /* the way of time alone would be the shorter one */
    ck_assert(rig_until(rig, complete, 100 * RIG_MS));
    memset(&old, 0, sizeof(old));
    old.settled = (struct fo_settled){.dst = rig->side[1].comm->id,
                                      .src = rig->side[0].comm->id,
                                      .inc = 1,
                                      .flags = FO_FLAG_SOFT};
    rig_inject(rig, 1, FO_MSG_SETTLED, &old);
    ck_assert(rig_until(rig, received, 2 * RIG_S));
    ck_assert_uint_ge(rig_now(rig) - told, 500 * RIG_MS);
    ck_assert_uint_le(rig_now(rig) - told, 600 * RIG_MS);
    ck_assert_uint_eq(in[0], 100);
}
END_TEST

/* Over a device of last resort R's fence is soft where a copy to memory of a GPU does not end: that
 * S has stopped says nothing of it, and time alone ends the hold, in place of proof (P18 c). */
START_TEST(last_resort_is_held_until_t_dead)
{
    uint64_t told;

    rig->side[1].inst->nics.nic[0].last = true;
    told = soft_at_r("h1:n0 hang", 700 * RIG_MS);
    ck_assert(rig_until(rig, complete, 100 * RIG_MS));
    ck_assert(rig_until(rig, received, 2 * RIG_S));
    ck_assert_uint_ge(rig_now(rig) - told, RIG_S);
    ck_assert_uint_le(rig_now(rig) - told, 1100 * RIG_MS);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[1], "a copy to memory of a GPU did not end"));
    ck_assert_uint_eq(in[0], 100);
}
END_TEST

/* The NIC answers again: the hard fence comes after all, and with it the done (P18 a). */
START_TEST(hard_after_all_ends_the_hold)
{
    uint64_t back;

    soft_at_r("h1:n0 hang", 0);
    ck_assert(rig_until(rig, complete, 100 * RIG_MS));
    ck_assert(!rig_all_done(rig));
    rig_fault(rig, "h1:n0 unhang");
    back = rig_now(rig);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_le(rig_now(rig) - back, 150 * RIG_MS);
    ck_assert_uint_eq(in[0], 100);
}
END_TEST

/* What R posts before S is known to have stopped is held with the rest; what it posts afterwards is
 * not. */
START_TEST(receives_posted_meanwhile_are_held)
{
    rig_fault(rig, "h1:n0 hang");
    rig_oob_cut(rig, 1);
    rig_run(rig, RIG_MS);
    down(1, 0);
    ck_assert(rig_until(rig, r_is_soft, 100 * RIG_MS));
    ck_assert_int_ge(rig_irecv1(rig, &in[0], 8, 0, r_mr), 0);
    ck_assert_uint_eq(rig->side[1].comm->rx->msg[0].quarantined_by, 1);
    rig_oob_cut(rig, 0);
    rig_run(rig, 50 * RIG_MS);
    ck_assert_int_ge(rig_irecv1(rig, &in[1], 8, 0, r_mr), 0);
    ck_assert_uint_eq(rig->side[1].comm->rx->msg[1].quarantined_by, 0);
    out[0] = 100;
    out[1] = 101;
    rig_send_wait(rig, &out[0], 8, 0, s_mr);
    rig_send_wait(rig, &out[1], 8, 0, s_mr);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert(in[0] == 100 && in[1] == 101 && in[2] == UINT64_MAX);
}
END_TEST

/* S cannot fence, R can: R's hard fence gives S its buffers back at once (P19). */
START_TEST(soft_at_the_sender_is_released_by_the_receivers_hard_fence)
{
    uint64_t since;

    begin_after("h0:n0 hang");
    since = rig_now(rig);
    down(0, 0);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->fo.path[0].soft, 1);
    ck_assert_uint_le(rig_now(rig) - since, 50 * RIG_MS);
    ck_assert(in[0] == 100 && in[1] == UINT64_MAX);
}
END_TEST

/* A fence that stays soft asks its device ever more rarely. */
START_TEST(soft_fence_does_not_keep_the_device_busy)
{
    uint64_t reaped;
    int device = 0;

    begin_after("h0:n0 fatal");
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->fo.path[0].soft, 1);
    reaped = ib_workers_reaped(rig->side[0].inst->jobs.workers, device);
    rig_run(rig, 20 * RIG_S);
    ck_assert_uint_le(ib_workers_reaped(rig->side[0].inst->jobs.workers, device) - reaped, 30);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("protocol: holds");
    TCase *t = tcase_create("holds");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, both_soft_the_time_counts_from_the_senders_stop);
    tcase_add_test(t, hard_at_the_sender_ends_the_hold_after_t_packet);
    tcase_add_test(t, last_resort_is_held_until_t_dead);
    tcase_add_test(t, hard_after_all_ends_the_hold);
    tcase_add_test(t, receives_posted_meanwhile_are_held);
    tcase_add_test(t, soft_at_the_sender_is_released_by_the_receivers_hard_fence);
    tcase_add_test(t, soft_fence_does_not_keep_the_device_busy);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
