/* Directed scenarios of the data path: windows, wraps, groups, sizes. Rules P1-P9, P13, P21. */
#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct rig *rig;

static void teardown(void)
{
    rig_destroy(rig);
    rig = NULL;
}

static int all_done_within(uint64_t ns)
{
    return rig_until(rig, rig_all_done, ns);
}

/* Streams 8-byte messages, each of which holds its own number. */
struct stream {
    uint64_t out[256], in[256];
    struct ib_mr *s_mr, *r_mr;
    uint64_t posted, sent, checked;
};
static struct stream st;

static void stream_begin(void)
{
    memset(&st, 0, sizeof(st));
    st.s_mr = rig_reg(rig, 0, st.out, sizeof(st.out));
    st.r_mr = rig_reg(rig, 1, st.in, sizeof(st.in));
}

static void stream_end(void)
{
    rig_dereg(rig, 0, st.s_mr);
    rig_dereg(rig, 1, st.r_mr);
}

/* Window of @window; goes on until @upto messages are checked at R, or until @posts are under way.
 */
static void stream_run(uint64_t upto, uint64_t posts, unsigned window)
{
    uint64_t end = rig_now(rig) + 100 * RIG_S;

    while (st.checked < upto && st.sent < posts) {
        if (st.posted < upto && st.posted < posts && st.posted - st.checked < window) {
            st.in[st.posted % 256] = ~0ull;
            if (rig_irecv1(rig, &st.in[st.posted % 256], 8, 0, st.r_mr) >= 0) {
                st.posted++;
            }
        }
        if (st.sent < st.posted && rig->side[0].tail - rig->side[0].head < 256) {
            st.out[st.sent % 256] = st.sent;
            if (rig_isend(rig, &st.out[st.sent % 256], 8, 0, st.s_mr) >= 0) {
                st.sent++;
            }
        }
        rig_turn(rig, 300);
        while (st.checked < rig->side[1].head) {
            ck_assert_uint_eq(st.in[st.checked % 256], st.checked);
            ck_assert_uint_eq(rig_size(rig, 1, (int)(st.checked % RIG_MAX_OPS), 0), 8);
            st.checked++;
        }
        ck_assert_int_eq(rig->side[0].status, R2_OK);
        ck_assert_int_eq(rig->side[1].status, R2_OK);
        ck_assert_msg(rig_now(rig) < end, "stuck: %llu posted, %llu sent, %llu done",
                      (unsigned long long)st.posted, (unsigned long long)st.sent,
                      (unsigned long long)st.checked);
    }
}

/* P8: the 16 bits of the immediate turn from ffff to 0 while the path that carries them dies. */
START_TEST(seq_wraps_16_bits_while_its_path_dies)
{
    rig = rig_create(3, 0, NULL);
    rig_connect(rig, 0, 0);
    stream_begin();
    stream_run(UINT64_MAX, 65530, 32);
    rig_fault(rig, "h0:n0 blackhole-tx");
    stream_run(UINT64_MAX, 65545, 32);
    ck_assert_uint_lt(st.checked, 65536);
    rig_fault(rig, "h0:n0 down");
    stream_run(65536 + 600, UINT64_MAX, 32);
    ck_assert(all_done_within(RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[1].comm->fo.switches, 1);
    ck_assert_uint_gt(rig->side[0].comm->tx->count.retransmitted_parts, 0);
    ck_assert_uint_eq(rig->side[1].comm->rx->count.bad_arrivals, 0);
    ck_assert_uint_eq(rig->side[1].comm->rx->ledger.acked, 65536 + 600);
    stream_end();
}
END_TEST

/* P3: what is retransmitted comes over any of the paths that are left. NCCL, which may have many
 * connections to test, finds it with its first test, not with the 32nd. */
START_TEST(what_is_retransmitted_is_found_at_once)
{
    rig = rig_create(4, 0, NULL);
    rig_connect(rig, 0, 0);
    stream_begin();
    stream_run(200, UINT64_MAX, 8); /* R polls the path that they came over */
    rig_fault(rig, "h0:n0 blackhole-tx");
    stream_run(UINT64_MAX, 208, 8);
    rig->side[1].asleep = rig->side[1].oldest_alone = 1;
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 10 * RIG_MS); /* the watchdog does not ask so soon */
    ck_assert_uint_eq(rig->side[0].comm->tx->count.retransmitted_parts, 8);
    for (int p = 1; p < 4; p++) {
        ck_assert_uint_gt(rig->side[0].comm->conn.path[p].count.bytes_done, 0);
    }
    ck_assert_uint_eq(rig->side[1].head, 200);
    rig->side[1].asleep = 0;
    for (int i = 0; i < 8; i++) {
        rig_turn(rig, 0);
    }
    ck_assert_uint_eq(rig->side[1].head, 208);
    ck_assert(all_done_within(RIG_S));
    stream_end();
}
END_TEST

/* 32 groups of 8: the next one is refused with NULL, at either end, and goes when the oldest is
 * done. */
START_TEST(window_of_256_then_null)
{
    static uint64_t out[264], in[264];
    struct ib_mr *s, *d;

    rig = rig_create(2, 0, NULL);
    rig_connect(rig, 0, 0);
    memset(in, 0xff, sizeof(in));
    s = rig_reg(rig, 0, out, sizeof(out));
    d = rig_reg(rig, 1, in, sizeof(in));
    rig->side[0].asleep = rig->side[1].asleep = 1;
    for (int g = 0; g < 33; g++) {
        void *data[8];
        size_t size[8];
        int tag[8], op;

        for (int i = 0; i < 8; i++) {
            data[i] = &in[g * 8 + i];
            size[i] = 8;
            tag[i] = i;
        }
        op = rig_irecv(rig, 8, data, size, tag, d);
        ck_assert_int_eq(op, g < 32 ? g : -1);
        if (g == 32) {
            ck_assert_int_eq(rig_irecv(rig, 1, data, size, tag, d), -1);
        }
        rig_run(rig, 20 * RIG_US);
    }
    for (int i = 0; i < 256; i++) {
        out[i] = 1000 + (uint64_t)i;
        ck_assert_int_eq(rig_isend(rig, &out[i], 8, i % 8, s), i);
        rig_run(rig, 5 * RIG_US);
    }
    ck_assert_int_eq(rig_isend(rig, &out[256], 8, 0, s), -1);
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    rig->side[0].asleep = rig->side[1].asleep = 0;
    ck_assert(all_done_within(RIG_S));
    for (int i = 0; i < 256; i++) {
        ck_assert_uint_eq(in[i], 1000 + (uint64_t)i);
    }
    ck_assert_int_ge(rig_irecv1(rig, &in[256], 8, 5, d), 0);
    out[256] = 7;
    rig_send_wait(rig, &out[256], 8, 5, s);
    ck_assert(all_done_within(RIG_S));
    ck_assert_uint_eq(in[256], 7);
    rig_dereg(rig, 0, s);
    rig_dereg(rig, 1, d);
}
END_TEST

/* Groups of 7 do not divide the ring of 256: group 36 lies across its end. Tags come in another
 * order in every group.
 */
START_TEST(groups_with_tags_across_the_ring_wrap_with_a_failure_inside)
{
    static uint32_t out[64 * 7], in[64 * 7];
    struct ib_mr *s, *d;
    int faulted = 0;

    rig = rig_create(3, 0, NULL);
    rig_connect(rig, 1, 1);
    memset(in, 0xff, sizeof(in));
    s = rig_reg(rig, 0, out, sizeof(out));
    d = rig_reg(rig, 1, in, sizeof(in));
    for (int g = 0; g < 64; g++) {
        void *data[7];
        size_t size[7];
        int tag[7];

        for (int i = 0; i < 7; i++) {
            data[i] = &in[g * 7 + i];
            size[i] = 4;
            tag[i] = 100 + i;
        }
        while (rig_irecv(rig, 7, data, size, tag, d) < 0) {
            rig_turn(rig, 200);
        }
        for (int i = 0; i < 7; i++) {
            int at = (i * (g % 6 + 1) + g) % 7; /* a permutation: 7 is prime */

            out[g * 7 + at] = (uint32_t)(g * 7 + at);
            rig_send_wait(rig, &out[g * 7 + at], 4, 100 + at, s);
            if (g == 36 && i == 3) {
                ck_assert_uint_lt(rig->side[0].comm->tx->group, 256);
                ck_assert_uint_gt(rig->side[0].comm->tx->cts_seen, 256);
                rig_fault(rig, "h1:n1 down");
                faulted = 1;
            }
        }
        if (g % 5 == 0) {
            ck_assert(all_done_within(2 * RIG_S));
        }
    }
    ck_assert(faulted);
    ck_assert(all_done_within(2 * RIG_S));
    for (int i = 0; i < 64 * 7; i++) {
        ck_assert_uint_eq(in[i], (uint32_t)i);
    }
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[1].comm->rx->count.bad_arrivals, 0);
    rig_dereg(rig, 0, s);
    rig_dereg(rig, 1, d);
}
END_TEST

START_TEST(truncation_is_reported_by_both_ends)
{
    static uint8_t out[4096], in[4096];
    struct ib_mr *s, *d;
    int a, b;

    rig = rig_create(2, 0, (const char *[]){"NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=256", NULL});
    rig_connect(rig, 0, 0);
    memset(out, 0x5a, sizeof(out));
    s = rig_reg(rig, 0, out, sizeof(out));
    d = rig_reg(rig, 1, in, sizeof(in));
    b = rig_irecv1(rig, in, 600, 0, d);
    a = rig_send_wait(rig, out, 1000, 0, s);
    ck_assert(all_done_within(RIG_S));
    ck_assert_uint_eq(rig_size(rig, 0, a, 0), 600);
    ck_assert_uint_eq(rig_size(rig, 1, b, 0), 600);
    for (int i = 0; i < 4096; i++) {
        ck_assert_uint_eq(in[i], i < 600 ? 0x5a : 0);
    }
    b = rig_irecv1(rig, in + 1024, 0, 0, d); /* nothing fits */
    a = rig_send_wait(rig, out, 1000, 0, s);
    ck_assert(all_done_within(RIG_S));
    ck_assert_uint_eq(rig_size(rig, 0, a, 0), 0);
    ck_assert_uint_eq(rig_size(rig, 1, b, 0), 0);
    ck_assert_uint_eq(in[1024], 0);
    rig_dereg(rig, 0, s);
    rig_dereg(rig, 1, d);
}
END_TEST

START_TEST(zero_bytes_alone_and_in_a_group)
{
    static uint8_t out[64] = "x", in[3][64];
    void *data[3] = {in[0], in[1], in[2]};
    size_t size[3] = {0, 64, 64};
    int tag[3] = {9, 8, 7}, a, g;
    struct ib_mr *s, *d;

    rig = rig_create(2, 0, NULL);
    rig_connect(rig, 0, 0);
    s = rig_reg(rig, 0, out, sizeof(out));
    d = rig_reg(rig, 1, in, sizeof(in));
    a = rig_irecv1(rig, in[0], 64, 0, d);
    rig_send_wait(rig, out, 0, 0, s);
    ck_assert(all_done_within(RIG_S));
    ck_assert_uint_eq(rig_size(rig, 1, a, 0), 0);
    g = rig_irecv(rig, 3, data, size, tag, d);
    rig_send_wait(rig, out, 1, 7, s);
    rig_send_wait(rig, out, 0, 9, s);
    rig_send_wait(rig, out, 0, 8, s);
    ck_assert(all_done_within(RIG_S));
    ck_assert_uint_eq(rig_size(rig, 1, g, 0), 0);
    ck_assert_uint_eq(rig_size(rig, 1, g, 1), 0);
    ck_assert_uint_eq(rig_size(rig, 1, g, 2), 1);
    ck_assert_uint_eq(in[2][0], 'x');
    ck_assert_uint_eq(in[0][0] | in[1][0], 0);
    rig_dereg(rig, 0, s);
    rig_dereg(rig, 1, d);
}
END_TEST

/* An address range of 1 GiB over 8 MiB of memory, mapped again and again. */
#define PERIOD ((size_t)8 << 20)
static uint8_t *gigabyte(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    uint8_t *base =
        mmap(NULL, R2_NET_MAX_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)PERIOD), 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    for (size_t off = 0; off < R2_NET_MAX_SIZE; off += PERIOD) {
        ck_assert_ptr_ne(
            mmap(base + off, PERIOD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
            MAP_FAILED);
    }
    close(fd);
    return base;
}

/* The largest message, over two paths, one of which dies below it. */
START_TEST(largest_message)
{
    uint8_t *out = gigabyte("out"), *in = gigabyte("in");
    struct ib_mr *s, *d;
    int a, b;

    rig = rig_create(3, 0, (const char *[]){"NCCL_R2_SPREAD=on", NULL});
    rig_connect(rig, 0, 0);
    s = rig_reg(rig, 0, out, R2_NET_MAX_SIZE);
    d = rig_reg(rig, 1, in, R2_NET_MAX_SIZE);
    for (size_t i = 0; i < PERIOD / 8; i++) {
        ((uint64_t *)out)[i] = i * 0x9e3779b97f4a7c15ull;
    }
    ck_assert_int_eq(rig_isend(rig, out, R2_NET_MAX_SIZE + 1, 0, s), -1);
    ck_assert_int_eq(rig->side[0].status, R2_ERR_ARG);
    ck_assert_int_eq(rig_irecv1(rig, in, R2_NET_MAX_SIZE + 1, 0, d), -1);
    ck_assert_int_eq(rig->side[1].status, R2_ERR_ARG);
    rig->side[0].status = rig->side[1].status = R2_OK;
    b = rig_irecv1(rig, in, R2_NET_MAX_SIZE, 0, d);
    a = rig_send_wait(rig, out, R2_NET_MAX_SIZE, 0, s);
    rig_fault(rig, "h1:n2 down");
    ck_assert(all_done_within(20 * RIG_S));
    ck_assert_uint_eq(rig_size(rig, 0, a, 0), R2_NET_MAX_SIZE);
    ck_assert_uint_eq(rig_size(rig, 1, b, 0), R2_NET_MAX_SIZE);
    ck_assert_int_eq(memcmp(in, out, PERIOD), 0);
    ck_assert_uint_eq(rig->side[0].comm->tx->count.retransmitted_parts, 1);
    rig_dereg(rig, 0, s);
    rig_dereg(rig, 1, d);
    munmap(out, R2_NET_MAX_SIZE);
    munmap(in, R2_NET_MAX_SIZE);
}
END_TEST

/* P2: RECVs run out before the window does; nothing is lost and no RNR appears. R's depth is what
 * counts, whatever S has. */
START_TEST(more_parts_than_receive_slots)
{
    static const char *const s_depth[] = {"0:NCCL_R2_RQ_DEPTH=32", "0:NCCL_R2_RQ_DEPTH=256",
                                          "0:NCCL_R2_RQ_DEPTH=32"};
    static const char *const r_depth[] = {"1:NCCL_R2_RQ_DEPTH=32", "1:NCCL_R2_RQ_DEPTH=32",
                                          "1:NCCL_R2_RQ_DEPTH=200"};
    static uint64_t out[256], in[256];
    struct fab_counters sum;
    struct ib_mr *s, *d;

    rig = rig_create(2, 0, (const char *[]){s_depth[_i], r_depth[_i], NULL});
    rig_connect(rig, 0, 0);
    memset(in, 0xff, sizeof(in));
    s = rig_reg(rig, 0, out, sizeof(out));
    d = rig_reg(rig, 1, in, sizeof(in));
    for (int i = 0; i < 256; i++) {
        out[i] = (uint64_t)i;
        ck_assert_int_eq(rig_irecv1(rig, &in[i], 8, 0, d), i);
        rig_run(rig, 10 * RIG_US);
    }
    rig->side[1].asleep =
        1; /* R takes nothing: S may have no more under way than there are RECVs */
    for (int i = 0; i < 256; i++) {
        ck_assert_int_eq(rig_isend(rig, &out[i], 8, 0, s), i);
    }
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].parts_out,
                      _i == 2 ? 200 - 16 : 16); /* the other 16 are for the oldest message (P2) */
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 10 * RIG_MS);
    rig->side[1].asleep = 0;
    ck_assert(all_done_within(2 * RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[1].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[0].comm->tx->count.retransmitted_parts,
                      0); /* what had landed was in the ledger */
    for (int i = 0; i < 256; i++) {
        ck_assert_uint_eq(in[i], (uint64_t)i);
    }
    fab_inproc_totals(rig->f, &sum);
    ck_assert_uint_eq(sum.rnr_naks, 0);
    rig_dereg(rig, 0, s);
    rig_dereg(rig, 1, d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("protocol: data");
    TCase *t = tcase_create("data");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, seq_wraps_16_bits_while_its_path_dies);
    tcase_add_test(t, what_is_retransmitted_is_found_at_once);
    tcase_add_test(t, window_of_256_then_null);
    tcase_add_test(t, groups_with_tags_across_the_ring_wrap_with_a_failure_inside);
    tcase_add_test(t, truncation_is_reported_by_both_ends);
    tcase_add_test(t, zero_bytes_alone_and_in_a_group);
    tcase_add_test(t, largest_message);
    tcase_add_loop_test(t, more_parts_than_receive_slots, 0, 3);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
