/* A queue pair that has lost its last packet stands still until RC's time-out, 4.3 s by NCCL's
 * default, over NICs that are good: after a glitch of some ms, or under loss (docs/health.md, "The
 * last packet"). */
#include "tests/unit/watch_rig.h"

static const struct {
    int nics;
    const char *fault;
    unsigned ms;
} glitch[] = {
    {1, "h0:n0 blackhole", 20},    {1, "h0:n0 blackhole", 40},    {1, "h0:n0 blackhole", 80},
    {2, "h0:n0 blackhole", 20},    {2, "h0:n0 blackhole", 40},    {2, "h0:n0 blackhole", 80},
    {1, "h1:n0 blackhole-tx", 40}, {1, "h1:n0 blackhole-rx", 40}, {2, "h1:n0 blackhole-tx", 40},
    {2, "h1:n0 blackhole-rx", 40}, {1, "h0:n0 blackhole-tx", 40}, {2, "h0:n0 blackhole-tx", 40},
};
#define GLITCHES (int)(sizeof(glitch) / sizeof(glitch[0]))

static int all_up(struct rig *r)
{
    return r->side[0].comm->conn.up == 3 && r->side[1].comm->conn.up == 3;
}

/* With @n messages under way as it begins. */
static void glitch_passes(int row, int n)
{
    char up[16];
    uint64_t took;

    start(glitch[row].nics, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rate_known();
    snprintf(up, sizeof(up), "%.5s up", glitch[row].fault);
    for (int k = 0; k < n; k++) {
        recv_post(k, BIG);
    }
    rig_run(rig, RIG_MS); /* the CTS are there */
    if (n == 1) {
        fire(glitch[row].fault);
    }
    for (int k = 0; k < n; k++) {
        send_post(k, BIG);
    }
    if (n > 1) {
        rig_run(rig, 2 * RIG_US);
        fire(glitch[row].fault);
    }
    rig_run(rig, glitch[row].ms * RIG_MS);
    fire(up);
    took = finish(n, BIG, 10 * RIG_S) + glitch[row].ms * RIG_MS;
    ck_assert_msg(took < 150 * RIG_MS, "%s for %u ms, %d NICs: %.3f ms", glitch[row].fault,
                  glitch[row].ms, glitch[row].nics, (double)took / 1e6);
    messages(8, BIG);
    stop();
}

START_TEST(a_glitch_costs_its_own_time)
{
    glitch_passes(_i / 2, _i % 2 ? 1 : 16);
}
END_TEST

/* About 1 % of the packets: no message waits for RC's time-out of 4.3 s. Where it is the only NIC
 * pair some wait for the back-off of what happens again and again (docs/health.md). */
START_TEST(loss_costs_no_time_out)
{
    static const char *const loss[] = {"h0:n0 loss 1%", "h0:n0 loss 1.03%", "h0:n0 loss 0.97%",
                                       "h0:n0 loss 1.06%"};
    uint64_t longest = 0;

    start(1 + _i % 2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rate_known();
    fire(loss[_i / 2]);
    for (int k = 0; k < 2000; k++) {
        uint64_t took;

        recv_post(0, BIG);
        send_post(0, BIG);
        took = finish(1, BIG, 20 * RIG_S);
        longest = took > longest ? took : longest;
    }
    ck_assert_msg(longest < (_i % 2 ? 150 : 1000) * RIG_MS, "%.3f ms", (double)longest / 1e6);
    ck_assert_uint_gt(rig->side[0].comm->fo.switches, 0);
    stop();
}
END_TEST

/*
 * R's queue pair for control writes stands still, and data goes on arriving over it, with a CTS
 * that S has to ask for each time: what arrives says nothing of what R writes.
 */
START_TEST(control_writes_stand_still_under_traffic)
{
    uint64_t from;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rate_known();
    driver.stuck = driver_hook(1, 0)->qp;
    from = rig_now(rig);
    for (int k = 0; k < 20; k++) {
        recv_post(0, BIG);
        send_post(0, BIG);
        finish(1, BIG, RIG_S);
    }
    ck_assert_uint_ge(driver.fired, 1);
    ck_assert_msg(rig_now(rig) - from < 300 * RIG_MS, "20 messages in %.3f ms",
                  (double)(rig_now(rig) - from) / 1e6);
    ck_assert_msg(rig_until(rig, all_up, 5 * RIG_S), "the path does not return");
    ck_assert_uint_eq(rig->side[1].comm->conn.path[0].inc, 2);
    no_pair_moved();
    stop();
}
END_TEST

/* 16 messages are under way as the NIC loses everything for 20 ms. */
static void burst_into_glitch(void)
{
    for (int k = 0; k < 16; k++) {
        recv_post(k, BIG);
    }
    rig_run(rig, RIG_MS);
    for (int k = 0; k < 16; k++) {
        send_post(k, BIG);
    }
    rig_run(rig, 2 * RIG_US);
    fire("h0:n0 blackhole");
    rig_run(rig, 20 * RIG_MS);
    fire("h0:n0 up");
}

/* The incarnation is replaced over the same NICs, at once, and nothing else is. */
START_TEST(the_path_is_back_at_once)
{
    uint32_t inc;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rate_known();
    inc = rig->side[0].comm->conn.path[0].inc;
    burst_into_glitch();
    finish(16, BIG, RIG_S);
    rig_run(rig, 10 * RIG_MS); /* not the hold time of a pair that failed */
    for (int s = 0; s < 2; s++) {
        const struct r2_comm *c = rig->side[s].comm;

        ck_assert_uint_eq(c->conn.up, 3);
        ck_assert_uint_eq(c->conn.path[0].inc, inc + 1);
        ck_assert_uint_eq(c->conn.path[1].inc, inc);
        ck_assert(r2_pair_ready(pair_of(s, 0)));
    }
    no_pair_moved();
    messages(8, BIG);
    stop();
}
END_TEST

/* Who loses its last packets again and again carries less while the other NIC can: the path has to
 * answer for the hold time. */
START_TEST(again_and_again_is_a_failure)
{
    start(2, (const char *[]){QUIET_RC, "NCCL_R2_WAYS=1", NULL});
    wait_probes();
    rate_known();
    for (int i = 0; i < 2; i++) {
        burst_into_glitch();
        finish(16, BIG, RIG_S);
        rig_run(rig, 100 * RIG_MS);
        ck_assert_uint_eq(rig->side[0].comm->conn.up, i ? 2 : 3);
    }
    ck_assert(rig_until(rig, all_up, 4 * RIG_S));
    stop();
}
END_TEST

/* Where the path may not return, or the connection would have too few, RC is waited for. */
START_TEST(not_where_nothing_could_take_over)
{
    static const char *const option[] = {"NCCL_R2_FAILBACK=never", "NCCL_R2_FAILOVER=off",
                                         "NCCL_R2_MIN_NICS=2"};
    int nics = _i == 2 ? 2 : 1;
    uint64_t took;

    start(nics, (const char *[]){QUIET_RC, option[_i], NULL});
    if (_i != 1) {
        wait_probes(); /* with failover off there are none */
    }
    rate_known();
    burst_into_glitch();
    took = finish(16, BIG, 10 * RIG_S);
    ck_assert_msg(took > 4 * RIG_S, "%s: %.3f ms", option[_i], (double)took / 1e6);
    nothing_moved();
    stop();
}
END_TEST

/* The only NIC delivers late from now on: each answer is one to a probe of long ago, and what was
 * posted behind that is still on its way. */
START_TEST(late_is_not_lost)
{
    start(1, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    rate_known();
    fire("h0:n0 delay 800ms");
    for (int k = 0; k < 12; k++) {
        recv_post(0, BIG);
        send_post(0, BIG);
        finish(1, BIG, 30 * RIG_S);
        rig_run(rig, (unsigned)k * 100 * RIG_MS);
    }
    nothing_moved();
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("watchdog: tail");
    TCase *t = tcase_create("tail");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_glitch_costs_its_own_time, 0, 2 * GLITCHES);
    tcase_add_loop_test(t, loss_costs_no_time_out, 0, 8);
    tcase_add_test(t, control_writes_stand_still_under_traffic);
    tcase_add_test(t, the_path_is_back_at_once);
    tcase_add_test(t, late_is_not_lost);
    tcase_add_test(t, again_and_again_is_a_failure);
    tcase_add_loop_test(t, not_where_nothing_could_take_over, 0, 3);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
