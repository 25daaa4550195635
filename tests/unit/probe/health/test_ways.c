/* Fabrics with several ways between two NICs, of which one swallows or loses packets: the NICs are
 * well, and stay (docs/health.md, "Ways"). */
#include "tests/unit/watch_rig.h"

#include "tests/fabric/inproc/fab_inproc.h"
#include "tests/fabric/verbs/fab_ibv.h"

#define SPINES 8

static void fabric(int nics, enum fab_hash hash, const char *const *options)
{
    struct fab_desc desc;
    char err[128];

    ck_assert_msg(fab_desc_init(&desc, 2, nics, 0, RIG_US, err, sizeof(err)) == 0, "%s", err);
    desc.spines = SPINES;
    desc.hash = hash;
    rig = rig_create_desc(&desc, options);
}

/* One connection, whose first path takes way @first + 1. */
static void join(unsigned first)
{
    rig->side[1].inst->probing.connections = first;
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static const char *const quiet[] = {QUIET_RC, NULL};

static int spine_of(int side, int p)
{
    return fab_inproc_way(rig->f, fab_ibv_qp(rig->side[side].comm->conn.path[p].qp));
}

static void spine(int k, const char *what)
{
    char text[64], err[128];

    snprintf(text, sizeof(text), "rail 0 spine %d %s", k, what);
    ck_assert_msg(fab_inproc_fault(rig->f, text, err, sizeof(err)) == 0, "%s", err);
}

static uint64_t dropped(int k)
{
    return fab_inproc_spine(rig->f, 0, k)->dropped;
}

static uint64_t burst(int n)
{
    for (int k = 0; k < n; k++) {
        recv_post(k, BIG);
    }
    for (int k = 0; k < n; k++) {
        send_post(k, BIG);
    }
    return finish(n, BIG, 10 * RIG_S);
}

static int all_up(struct rig *r)
{
    return r->side[0].comm->conn.up == 3 && r->side[1].comm->conn.up == 3;
}

/* What its queue pairs send takes the same way in both directions, and another one with a
 * connection more. */
START_TEST(both_ends_take_one_way)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < SPINES; i++) {
        fabric(1, FAB_HASH_PORTS, quiet);
        join(i);
        ck_assert_uint_eq(rig->side[0].comm->conn.path[0].way, i + 1);
        ck_assert_uint_eq(rig->side[1].comm->conn.path[0].way, i + 1);
        ck_assert_int_eq(spine_of(0, 0), spine_of(1, 0));
        seen |= 1u << spine_of(0, 0);
        stop();
        if (i + 1 < SPINES) {
            teardown();
        }
    }
    ck_assert_int_ge(__builtin_popcount(seen), 4);
}
END_TEST

START_TEST(one_way_is_the_drivers)
{
    fabric(1, FAB_HASH_PORTS, (const char *[]){"NCCL_R2_WAYS=1", NULL});
    join(3);
    wait_probes();
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].way, 0);
    ck_assert_ptr_null(pair_of(0, 0)->qp.lane[1].qp);
    messages(4, BIG);
    stop();
}
END_TEST

/* Any spine swallows everything, whichever way data takes: no NIC is given up. */
START_TEST(a_silent_way)
{
    int k = _i % SPINES, hit;
    uint64_t took;

    fabric(2, FAB_HASH_PORTS, quiet);
    join((unsigned)(_i / SPINES));
    wait_probes();
    rate_known();
    hit = spine_of(0, 0) == k;
    spine(k, "blackhole");
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert(!hit || dropped(k) > 0);
    rig_until(rig, all_up, 300 * RIG_MS);
    for (int i = 0; i < 20; i++) {
        rig_run(rig, 50 * RIG_MS);
        took = burst(1);
        ck_assert_msg(took < 150 * RIG_MS, "message %d: %.3f ms", i, (double)took / 1e6);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 3);
        ck_assert_int_ne(spine_of(s, 0), k);
        ck_assert_uint_ge(rig->side[s].comm->conn.path[0].inc, 1 + (unsigned)hit);
        ck_assert(hit || rig->side[s].comm->conn.path[0].inc == 1);
        ck_assert(r2_pair_ready(pair_of(s, 0)));
        ck_assert_uint_eq(pair_of(s, 0)->probe.silent_at, 0);
    }
    no_pair_moved();
    stop();
}
END_TEST

/* It does so before there is any connection. */
START_TEST(a_way_that_is_silent_from_the_start)
{
    fabric(2, FAB_HASH_PORTS, quiet);
    spine(_i % SPINES, "blackhole");
    join((unsigned)(_i / SPINES));
    for (int i = 0; i < 20; i++) {
        uint64_t took = burst(i % 2 ? 1 : 8);

        ck_assert_msg(took < 150 * RIG_MS, "burst %d: %.3f ms", i, (double)took / 1e6);
        rig_run(rig, 20 * RIG_MS);
    }
    ck_assert_uint_eq(rig->side[0].comm->conn.up, 3);
    no_pair_moved();
    stop();
}
END_TEST

/* One NIC, so that nothing else can take the traffic. */
START_TEST(the_only_nic)
{
    uint64_t took;
    int k;

    fabric(1, FAB_HASH_PORTS, quiet);
    join((unsigned)_i);
    wait_probes();
    rate_known();
    k = spine_of(0, 0);
    spine(k, "blackhole");
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert_uint_gt(dropped(k), 0);
    ck_assert_uint_ge(rig->side[0].comm->conn.path[0].inc, 2);
    stop();
}
END_TEST

/*
 * The switch hashes queue pair numbers, too: a label decides nothing, a new queue pair does. Both
 * queue pairs of the probe may be hashed into the silent way as well, and nothing tells that from a
 * NIC that is silent: then the pair is back when its next ones answer.
 */
START_TEST(a_switch_that_hashes_queue_pairs)
{
    uint64_t took;

    fabric(2, FAB_HASH_QP, quiet);
    join((unsigned)_i);
    wait_probes();
    rate_known();
    spine(spine_of(0, 0), "blackhole");
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert_msg(rig_until(rig, all_up, 10 * RIG_S), "not all are up");
    messages(8, BIG);
    stop();
}
END_TEST

/* The pair's probe takes other ways when one of its own is silent. */
START_TEST(the_probe_leaves_a_silent_way)
{
    int k;

    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    wait_probes();
    k = fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[_i].qp));
    spine(k, "blackhole");
    for (int i = 0; i < 8; i++) { /* somebody asks */
        rig_enter(&rig->side[0]);
        r2_pair_send_probe(pair_of(0, 0), rig->side[0].inst->watch.clock, 0);
        rig_run(rig, 100 * RIG_MS);
    }
    ck_assert_uint_ge(pair_of(0, 0)->ways.want + pair_of(1, 0)->ways.want, 1);
    ck_assert(probe_ways_avoids(&pair_of(0, 0)->ways.known, (unsigned)(_i ? 5 : 1),
                                rig->side[0].inst->watch.clock) ||
              probe_ways_avoids(&pair_of(1, 0)->ways.known, (unsigned)(_i ? 5 : 1),
                                rig->side[1].inst->watch.clock));
    wait_probes();
    ck_assert_uint_gt(dropped(k), 0);
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        ck_assert_int_ne(fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[i].qp)), k);
    }
    no_pair_moved();
    stop();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("ways");
    TCase *t = tcase_create("ways");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, both_ends_take_one_way);
    tcase_add_test(t, one_way_is_the_drivers);
    tcase_add_loop_test(t, a_silent_way, 0, SPINES * 8);
    tcase_add_loop_test(t, a_way_that_is_silent_from_the_start, 0, SPINES * 8);
    tcase_add_loop_test(t, the_only_nic, 0, 8);
    tcase_add_loop_test(t, a_switch_that_hashes_queue_pairs, 0, 8);
    tcase_add_loop_test(t, the_probe_leaves_a_silent_way, 0, PROBE_QP_LANES);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    int failed;

    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
