/* Times of sends: whole instances over the fabric, in virtual time, so that what the fabric takes
 * is what must be counted. */
#include "tests/unit/report_rig.h"

#include "telemetry/r2_latency.h"

static struct r2_hist times[R2_SEND_SIZES];

/* What the connection has counted so far. */
static const struct r2_hist *large(void)
{
    r2_latency_read(comm(0), times);
    return &times[R2_SEND_LARGE];
}

static uint64_t of_nic(int nic)
{
    struct r2_hist h[R2_SEND_SIZES];

    r2_latency_read_nic(rig->side[0].inst, nic, h);
    return r2_hist_count(&h[R2_SEND_SMALL]) + r2_hist_count(&h[R2_SEND_LARGE]);
}

/* @n messages, each of them timed. */
static void timed(int n)
{
    for (int i = 0; i < n; i++) {
        comm(0)->timed.left = 1;
        messages(1);
    }
}

START_TEST(some_of_all_sends_are_timed)
{
    uint64_t since, longest = 0, n, mean;

    begin(1, NULL);
    for (int i = 0; i < 2000; i++) {
        since = rig_now(rig);
        messages(1);
        longest = rig_now(rig) - since > longest ? rig_now(rig) - since : longest;
    }
    n = r2_hist_count(large());
    ck_assert_uint_ge(n, 2000 / (R2_LATENCY_EVERY + R2_LATENCY_EVERY / 2));
    ck_assert_uint_le(n, 1 + 2000 / (R2_LATENCY_EVERY / 2));
    mean = large()->sum_ns / n;
    ck_assert_uint_gt(mean, 0);
    ck_assert_uint_le(mean, longest);
    ck_assert_uint_le(r2_hist_begin(r2_hist_bucket(r2_hist_quantile(large(), 1000))), longest);
    ck_assert_uint_eq(r2_hist_count(&times[R2_SEND_SMALL]), 0);
    ck_assert_uint_eq(of_nic(0), n);
    end();
}
END_TEST

/* As r2_stat has it: of the connection the quantiles, of the NIC all counts, of a receiver none. */
START_TEST(they_are_in_the_statistics)
{
    const struct r2_stat_view *v;
    const struct r2_stat_times *t;

    begin(1, NULL);
    timed(20);
    v = look(0);
    t = &v->conn[0].sends[R2_SEND_LARGE];
    ck_assert_uint_eq(t->samples, 20);
    ck_assert_uint_eq(t->sum_ns, large()->sum_ns);
    ck_assert_uint_eq(t->p50_ns, r2_hist_quantile(large(), 500));
    ck_assert_uint_eq(t->p99_ns, r2_hist_quantile(large(), 990));
    ck_assert_uint_eq(t->p999_ns, r2_hist_quantile(large(), 999));
    ck_assert_uint_eq(v->conn[0].sends[R2_SEND_SMALL].samples, 0);
    ck_assert_int_eq(memcmp(&v->nic[0].sends[R2_SEND_LARGE], large(), sizeof(*large())), 0);
    v = look(1);
    ck_assert_uint_eq(v->conn[0].sends[R2_SEND_LARGE].samples, 0);
    ck_assert_uint_eq(r2_hist_count(&v->nic[0].sends[R2_SEND_LARGE]), 0);
    end();
}
END_TEST

static void of_size(size_t size)
{
    comm(0)->timed.left = 1;
    ck_assert_int_ge(rig_irecv1(rig, in, sizeof(in[0]), 0, r_mr), 0);
    rig_send_wait(rig, out, size, 0, s_mr);
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
}

START_TEST(small_and_large_ones_apart)
{
    begin(1, NULL);
    of_size(0);
    of_size(R2_SEND_SMALL_MAX);
    ck_assert_uint_eq(r2_hist_count(large()), 0);
    ck_assert_uint_eq(r2_hist_count(&times[R2_SEND_SMALL]), 2);
    of_size(R2_SEND_SMALL_MAX + 1);
    ck_assert_uint_eq(r2_hist_count(large()), 1);
    ck_assert_uint_eq(r2_hist_count(&times[R2_SEND_SMALL]), 2);
    end();
}
END_TEST

START_TEST(a_delay_of_the_fabric_is_counted)
{
    uint64_t before, after, had;

    begin(1, NULL);
    timed(10);
    had = large()->sum_ns;
    before = had / 10;
    ck_assert_uint_lt(before, RIG_MS);
    rig_fault(rig, "h0:n0 delay 5ms");
    timed(10);
    after = (large()->sum_ns - had) / 10;
    ck_assert_uint_ge(after, before + 5 * RIG_MS);
    ck_assert_uint_le(after, before + 6 * RIG_MS);
    ck_assert_uint_eq(r2_hist_count(large()), 20);
    end();
}
END_TEST

/* Cut over two NICs, of which one is late: that one has the times. */
START_TEST(the_nic_of_the_last_part_has_it)
{
    char fault[32];

    begin(2, NULL);
    snprintf(fault, sizeof(fault), "h0:n%d delay 5ms", _i);
    rig_fault(rig, fault);
    timed(10);
    ck_assert_uint_ge(large()->sum_ns, 50 * RIG_MS);
    ck_assert_uint_eq(of_nic(_i), 10);
    ck_assert_uint_eq(of_nic(!_i), 0);
    end();
}
END_TEST

/* That the receiving process does not look for a while is no time of the NICs. */
START_TEST(the_peers_process_does_not_count)
{
    begin(1, NULL);
    comm(0)->timed.left = 1;
    begin_message();
    rig->side[1].asleep = 1;
    for (int i = 0; i < 1000 && r2_hist_count(large()) == 0; i++) {
        rig_run(rig, RIG_MS / 100);
    }
    ck_assert_uint_eq(r2_hist_count(large()), 1);
    ck_assert_uint_eq(rig->side[0].tail - rig->side[0].head, 1); /* it is not done */
    rig->side[1].asleep = 0;
    end_message();
    ck_assert_uint_eq(r2_hist_count(large()), 1);
    ck_assert_uint_lt(large()->sum_ns, 5 * RIG_MS);
    end();
}
END_TEST

/* That its own process tests late does. */
START_TEST(a_late_test_counts)
{
    begin(1, NULL);
    comm(0)->timed.left = 1;
    begin_message();
    rig->side[0].asleep = 1;
    rig_run(rig, 50 * RIG_MS);
    rig->side[0].asleep = 0;
    end_message();
    ck_assert_uint_eq(r2_hist_count(large()), 1);
    ck_assert_uint_ge(large()->sum_ns, 50 * RIG_MS);
    end();
}
END_TEST

/* A failure under it: the time until it was through over another NIC, at the NIC that failed. */
START_TEST(what_was_posted_again_counts_with_all_its_time)
{
    uint64_t since;

    begin(2, NULL);
    timed(2);
    since = large()->sum_ns;
    ck_assert_uint_lt(since, 2 * RIG_MS);
    rig_fault(rig, "h0:n1 blackhole");
    comm(0)->timed.left = 1;
    begin_message();
    end_message();
    ck_assert_uint_gt(comm(0)->tx->count.retransmitted_parts, 0);
    ck_assert_uint_eq(r2_hist_count(large()), 3);
    ck_assert_uint_ge(large()->sum_ns - since, 15 * RIG_MS); /* what the watchdog waits for */
    ck_assert_uint_ge(of_nic(1), 1);
    ck_assert_uint_eq(of_nic(0) + of_nic(1), 3);
    end();
}
END_TEST

/* The one before is out still: it stays the one that is timed. */
START_TEST(one_at_a_time)
{
    begin(1, NULL);
    rig_fault(rig, "h0:n0 delay 5ms");
    ck_assert_int_ge(rig_irecv1(rig, in[0], sizeof(in[0]), 0, r_mr), 0);
    ck_assert_int_ge(rig_irecv1(rig, in[1], sizeof(in[1]), 0, r_mr), 0);
    comm(0)->timed.left = 1;
    rig_send_wait(rig, out[0], sizeof(out[0]), 0, s_mr);
    rig_run(rig, 3 * RIG_MS);
    comm(0)->timed.left = 1;
    rig_isend(rig, out[1], sizeof(out[1]), 0, s_mr);
    ck_assert_uint_eq(rig->side[0].tail - rig->side[0].head, 2);
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
    ck_assert_uint_eq(r2_hist_count(large()), 1);
    ck_assert_uint_ge(large()->sum_ns, 5 * RIG_MS);
    timed(1);
    ck_assert_uint_eq(r2_hist_count(large()), 2);
    end();
}
END_TEST

START_TEST(none_is_timed_without_statistics)
{
    static const char *const off[] = {"NCCL_R2_STATS=off", NULL};

    start(1, off);
    ck_assert_ptr_null(comm(0)->timed.sample);
    timed(3);
    ck_assert_uint_gt(comm(0)->timed.left, 1000000);
    ck_assert_uint_eq(of_nic(0), 0);
    stop();
    teardown();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, some_of_all_sends_are_timed);
    tcase_add_test(t, they_are_in_the_statistics);
    tcase_add_test(t, small_and_large_ones_apart);
    tcase_add_test(t, a_delay_of_the_fabric_is_counted);
    tcase_add_loop_test(t, the_nic_of_the_last_part_has_it, 0, 2);
    tcase_add_test(t, the_peers_process_does_not_count);
    tcase_add_test(t, a_late_test_counts);
    tcase_add_test(t, what_was_posted_again_counts_with_all_its_time);
    tcase_add_test(t, one_at_a_time);
    tcase_add_test(t, none_is_timed_without_statistics);
}

int main(void)
{
    return run_suite("latency", add);
}
