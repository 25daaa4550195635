/* Which place the path of last resort has, and when it carries. */
#include "tests/unit/suite.h"

#include <string.h>

#include "core/r2_inst.h"
#include "ib_transport/ib_flush.h"
#include "service/r2_setup.h"

static uint8_t s_out[IB_MAX_PATHS], r_out[IB_MAX_PATHS];

/* @n NICs of rails 0, 1, ..., and one of last resort behind them where @last says so. */
static int host(struct fo_nic *nic, int n, int last)
{
    memset(nic, 0, IB_MAX_NICS * sizeof(*nic));
    for (int i = 0; i < n + last; i++) {
        nic[i].rail = (int16_t)(i < n ? i : IB_LAST_RAIL);
        nic[i].usable = 1;
    }
    return n + last;
}

static int paths(int n, int s_last, int r_last, int any)
{
    struct fo_nic s[IB_MAX_NICS], r[IB_MAX_NICS];
    int s_n = host(s, n, s_last), r_n = host(r, n, r_last);

    return r2_setup_paths(s, s_n, 1 % n, r, r_n, 1 % n, any, s_out, r_out);
}

/* i: NICs of a host but one */
START_TEST(it_is_the_last)
{
    int n = _i + 1, want = n < IB_MAX_PATHS ? n + 1 : IB_MAX_PATHS;

    ck_assert_int_eq(paths(n, 1, 1, 0), want);
    ck_assert_uint_eq(s_out[0], 1 % n);
    for (int p = 0; p < want; p++) {
        ck_assert_int_eq(s_out[p] == n, p == want - 1);
        ck_assert_int_eq(r_out[p] == n, p == want - 1);
    }
}
END_TEST

/* i: the sender's host has none, the receiver's has none, neither has */
START_TEST(both_need_one)
{
    ck_assert_int_eq(paths(3, _i == 1, _i == 0, 0), 3);
    for (int p = 0; p < 3; p++) {
        ck_assert(s_out[p] < 3 && r_out[p] < 3);
    }
}
END_TEST

/* Where every NIC reaches every other, that one still reaches its like alone. */
START_TEST(it_crosses_no_rail)
{
    int n = paths(2, 1, 1, 1);

    ck_assert_int_eq(n, 5);
    for (int p = 0; p < n; p++) {
        ck_assert_int_eq(s_out[p] == 2, r_out[p] == 2);
    }
    ck_assert_uint_eq(s_out[4], 2);
}
END_TEST

/* One that listens on IPv6 reaches its like alone. */
START_TEST(families_do_not_mix)
{
    struct fo_nic s[IB_MAX_NICS], r[IB_MAX_NICS];
    int n = host(s, 2, 1);

    host(r, 2, 1);
    r[2].rail = IB_LAST_RAIL_IP6;
    ck_assert_int_eq(r2_setup_paths(s, n, 0, r, n, 0, 0, s_out, r_out), 2);
    s[2].rail = IB_LAST_RAIL_IP6;
    ck_assert_int_eq(r2_setup_paths(s, n, 0, r, n, 0, 0, s_out, r_out), 3);
    ck_assert(s_out[2] == 2 && r_out[2] == 2);
    ck_assert_int_eq(r2_setup_paths(s, n, 0, r, n, 0, 1, s_out, r_out), 5);
    ck_assert(s_out[4] == 2 && r_out[4] == 2);
}
END_TEST

/* RDMA NICs of last resort: each to its like, between the others and TCP; no place is taken from
 * the others for them. i: other NICs; crossrail */
START_TEST(over_rdma_before_tcp)
{
    struct fo_nic nic[IB_MAX_NICS];

    for (int any = 0; any < 2; any++) {
        int n = host(nic, _i, 1), got, regular = any ? _i * _i : _i;

        for (int i = 0; i < 2; i++) { /* in front, as numbers may be */
            memmove(&nic[1], nic, (size_t)n++ * sizeof(*nic));
            nic[0] = (struct fo_nic){.rail = (int16_t)(IB_LAST_RAIL_RDMA + i), .usable = 1};
        }
        regular = regular < IB_MAX_PATHS ? regular : IB_MAX_PATHS;
        got = r2_setup_paths(nic, n, 2, nic, n, 2, any, s_out, r_out);
        ck_assert_int_eq(got, regular + 3 < IB_MAX_PATHS ? regular + 3 : IB_MAX_PATHS);
        for (int p = 0; p < got; p++) {
            bool tcp = s_out[p] == n - 1;

            ck_assert_int_eq(tcp, p == got - 1);
            ck_assert_int_eq(s_out[p] < 2, p >= regular && !tcp);
            ck_assert(s_out[p] == r_out[p] || (any && s_out[p] >= 2 && r_out[p] >= 2));
        }
    }
}
END_TEST

/* A host without an RDMA NIC. i: the sender's, the receiver's; the other has none like it; one of
 * the other family */
START_TEST(a_host_has_no_other)
{
    struct fo_nic s[IB_MAX_NICS], r[IB_MAX_NICS];
    int s_n = host(s, _i == 1 ? 3 : 0, 1), r_n = host(r, _i == 1 ? 0 : 3, _i != 2);
    int s_dev = _i == 1 ? 1 : 0, r_dev = _i == 1 ? 0 : 1;

    r[3].rail = _i == 3 ? IB_LAST_RAIL_IP6 : r[3].rail;
    for (int any = 0; any < 2; any++) {
        ck_assert_int_eq(r2_setup_paths(s, s_n, s_dev, r, r_n, r_dev, any, s_out, r_out), _i < 2);
        ck_assert(_i >= 2 || (s_out[0] == s_n - 1 && r_out[0] == r_n - 1));
    }
}
END_TEST

/* up, drained, last: what new work takes */
START_TEST(it_carries_where_it_is_alone)
{
    static const uint32_t row[][4] = {
        {0x7, 0x4, 0x4, 0x3}, /* all are up */
        {0x6, 0x4, 0x4, 0x2}, /* one is left */
        {0x4, 0x4, 0x4, 0x4}, /* none is */
        {0x6, 0x6, 0x4, 0x2}, /* the one that is left is drained: sooner than TCP */
        {0x3, 0x2, 0x0, 0x1}, /* there is none of last resort */
        {0x3, 0x3, 0x0, 0x3}, {0xf, 0xc, 0xc, 0x3}, /* there are two: none carries yet */
        {0xc, 0xc, 0xc, 0x4},                       /* ... the first alone */
        {0x8, 0xc, 0xc, 0x8},                       /* ... the other one is left */
    };
    struct ib_conn l = {.up = row[_i][0], .drained = row[_i][1], .last = row[_i][2]};

    ck_assert_uint_eq(ib_conn_usable(&l), row[_i][3]);
}
END_TEST

/* NCCL decides by the NIC that it was shown whether memory is a GPU's, and a connection may have
 * none of that NIC's paths. i: of last resort or not; the host's other NIC reaches GPUs or not */
START_TEST(it_flushes_where_another_nic_reaches_gpus)
{
    static struct r2_config cfg;
    static struct ib_nics nics;
    static struct ib_conn l;

    nics.count = 2;
    nics.nic[0].ptr_support = _i & 2 ? IB_PTR_HOST : IB_PTR_HOST | IB_PTR_CUDA;
    nics.nic[1].ptr_support = IB_PTR_HOST;
    nics.nic[1].last = !(_i & 1);
    l.cfg = &cfg;
    l.nics = &nics;
    l.npaths = 1;
    l.path[0].nic = 1;
    ck_assert_int_eq(ib_flush_wanted(&l), _i == 0);
}
END_TEST

/* i: of last resort or not */
START_TEST(its_gid_is_shown_without_the_secret)
{
    struct ib_nic nic = {.last = _i == 0};
    uint8_t gid[16], out[16];

    for (int i = 0; i < 16; i++) {
        gid[i] = (uint8_t)(i + 1);
    }
    ib_nic_gid_show(&nic, gid, out);
    for (int i = 0; i < 16; i++) {
        ck_assert_uint_eq(out[i], nic.last && i >= 2 && i < 12 ? 0 : gid[i]);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, it_is_the_last, 0, 9);
    tcase_add_loop_test(t, both_need_one, 0, 3);
    tcase_add_test(t, it_crosses_no_rail);
    tcase_add_test(t, families_do_not_mix);
    tcase_add_loop_test(t, over_rdma_before_tcp, 1, 6);
    tcase_add_loop_test(t, a_host_has_no_other, 0, 4);
    tcase_add_loop_test(t, it_flushes_where_another_nic_reaches_gpus, 0, 4);
    tcase_add_loop_test(t, its_gid_is_shown_without_the_secret, 0, 2);
    tcase_add_loop_test(t, it_carries_where_it_is_alone, 0, 9);
}

int main(void)
{
    return suite_run("last_paths", 60, NULL, NULL, add);
}
