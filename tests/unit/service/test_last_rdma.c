/*
 * RDMA NICs of last resort: those of another kind than the connection's own carry where none of
 * that kind is left, one at a time, and only until one is back. Whole instances over the fabric.
 */
#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <string.h>

#include "service/r2_setup.h"

#define NICS    4 /* of 400, 400, 25 and 25 Gb/s */
#define FAST    50000000000
#define SLOW    3125000000
#define WORDS   64
#define MESSAGE 8
#define BURST   16 /* messages ... */
#define BIG     65536
#define AUTO    "NCCL_R2_LAST_RESORT=auto", NULL

static struct rig *rig;
static uint64_t out[WORDS], in[WORDS], before[NICS];
static uint8_t burst_out[BURST][BIG], burst_in[BURST][BIG];
static struct ib_mr *s_mr, *r_mr, *big_s, *big_r;

static void start(const char *option, const char *another)
{
    struct fab_desc desc;
    char why[200];

    ck_assert_int_eq(fab_desc_init(&desc, 2, NICS, 0, RIG_US, why, sizeof(why)), 0);
    for (int n = 0; n < 2 * NICS; n++) {
        desc.nic[n / NICS][n % NICS].rate = n % NICS < 2 ? FAST : SLOW;
    }
    rig = rig_create_desc(&desc, (const char *[]){"NCCL_R2_T_RETURN=200", "NCCL_IB_TIMEOUT=20",
                                                  option, another, NULL});
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static void stop(void)
{
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig_destroy(rig);
    rig = NULL;
}

static const struct ib_conn *conn(int side)
{
    return &rig->side[side].comm->conn;
}

/* The NICs that carry some messages, a bit each. */
static uint32_t carried(void)
{
    uint32_t nics = 0;

    for (int p = 0; p < conn(0)->npaths; p++) {
        before[p] = conn(0)->path[p].count.bytes;
    }
    for (int i = 0; i < WORDS; i++) {
        out[i]++;
        ck_assert_int_ge(rig_irecv1(rig, &in[i], MESSAGE, 0, r_mr), 0);
        rig_send_wait(rig, &out[i], MESSAGE, 0, s_mr);
        ck_assert(rig_until(rig, rig_all_done, RIG_S));
        ck_assert_uint_eq(in[i], out[i]);
    }
    for (int p = 0; p < conn(0)->npaths; p++) {
        nics |= conn(0)->path[p].count.bytes > before[p] ? 1u << conn(0)->path[p].nic : 0;
    }
    return nics;
}

static void fault(const char *spec, uint64_t settle)
{
    rig_fault(rig, spec);
    rig_run(rig, settle);
}

START_TEST(they_stand_behind_the_others_at_both_ends)
{
    start(AUTO);
    for (int side = 0; side < 2; side++) {
        ck_assert_int_eq(conn(side)->npaths, NICS);
        ck_assert_uint_eq(conn(side)->last, 0xc);
        for (int p = 0; p < NICS; p++) {
            ck_assert_uint_eq(conn(side)->path[p].nic, p);
            ck_assert_uint_eq(conn(side)->path[p].peer_nic, p);
            ck_assert_int_eq(r2_setup_is_last(rig->side[side].inst, 0, p), p >= 2);
            /* to a connection that NCCL gives a slow one, the fast ones are backups */
            ck_assert_int_eq(r2_setup_is_last(rig->side[side].inst, 2, p), 0);
        }
    }
    stop();
}
END_TEST

/* Alone, one after the other, and not once another one is back. Balance would have all carry. */
START_TEST(they_carry_where_no_other_does)
{
    start(AUTO);
    ck_assert_uint_eq(carried(), 1);
    fault("*:n0 down", 400 * RIG_MS);
    ck_assert_uint_eq(carried(), 2);
    fault("*:n1 down", 400 * RIG_MS);
    ck_assert_uint_eq(carried(), 4);
    fault("*:n2 blackhole", 2 * RIG_S);
    ck_assert_uint_eq(carried(), 8);
    fault("*:n1 up", 2 * RIG_S);
    ck_assert_uint_eq(carried(), 2);
    stop();
}
END_TEST

static void burst_begin(void)
{
    for (int i = 0; i < BURST; i++) {
        ck_assert_int_ge(rig_irecv1(rig, burst_in[i], BIG, 0, big_r), 0);
    }
    rig_run(rig, RIG_MS); /* the CTS are there */
    for (int i = 0; i < BURST; i++) {
        rig_send_wait(rig, burst_out[i], BIG, 0, big_s);
    }
}

/* A NIC that loses what is under way for a moment costs that moment, as any other NIC does; RC
 * would repeat its last packet after 4 s. */
START_TEST(a_glitch_costs_its_own_time)
{
    uint64_t began;

    start(AUTO);
    big_s = rig_reg(rig, 0, burst_out, sizeof(burst_out));
    big_r = rig_reg(rig, 1, burst_in, sizeof(burst_in));
    fault("*:n0 down", 400 * RIG_MS);
    fault("*:n1 down", 400 * RIG_MS);
    for (int i = 0; i < 64; i++) { /* then its rate is known */
        burst_begin();
        ck_assert(rig_until(rig, rig_all_done, RIG_S));
        rig_run(rig, i % 16 ? 0 : 20 * RIG_MS);
    }
    ck_assert_uint_eq(carried(), 4);
    burst_begin();
    fault("h0:n2 blackhole", 20 * RIG_MS);
    ck_assert(!rig_all_done(rig));
    fault("h0:n2 up", 0);
    began = rig_now(rig);
    ck_assert(rig_until(rig, rig_all_done, 10 * RIG_S));
    ck_assert_msg(rig_now(rig) - began < 200 * RIG_MS, "%.3f ms",
                  (double)(rig_now(rig) - began) / 1e6);
    rig_dereg(rig, 0, big_s);
    rig_dereg(rig, 1, big_r);
    stop();
}
END_TEST

/* With nobody who has asked for a last resort, a list that says what else carries, all named. */
START_TEST(then_there_are_none)
{
    static const struct {
        const char *option, *another;
        int npaths;
    } cases[] = {
        {"NCCL_R2_LAST_RESORT=off", NULL, 2},
        {"NCCL_R2_LAST_RESORT=auto", "NCCL_R2_BACKUP_NICS=fab0,fab1,fab3", 3},
        {"NCCL_R2_LAST_RESORT=auto", "NCCL_IB_HCA=fab", NICS},
    };

    start(cases[_i].option, cases[_i].another);
    for (int side = 0; side < 2; side++) {
        ck_assert_int_eq(conn(side)->npaths, cases[_i].npaths);
        ck_assert_uint_eq(conn(side)->last, 0);
    }
    stop();
}
END_TEST

/* One end alone has asked for it: that one's slow NICs have no partner. i: which */
START_TEST(both_ends_need_the_option)
{
    start(_i ? "1:NCCL_R2_LAST_RESORT=auto" : "0:NCCL_R2_LAST_RESORT=auto", NULL);
    for (int side = 0; side < 2; side++) {
        ck_assert_int_eq(conn(side)->npaths, 2);
        ck_assert_uint_eq(conn(side)->last, 0);
    }
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, they_stand_behind_the_others_at_both_ends);
    tcase_add_test(t, they_carry_where_no_other_does);
    tcase_add_test(t, a_glitch_costs_its_own_time);
    tcase_add_loop_test(t, then_there_are_none, 0, 3);
    tcase_add_loop_test(t, both_ends_need_the_option, 0, 2);
}

int main(void)
{
    return suite_run("last_rdma", 60, NULL, NULL, add);
}
