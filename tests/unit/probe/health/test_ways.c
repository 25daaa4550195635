/* Fabrics with several ways between two NICs, of which one swallows or loses packets: the NICs are
 * well, and stay (docs/health.md, "Ways"). */
#include "tests/unit/ways_rig.h"

#include "plugin/probe/diagnosis/r2_way_report.h"
#include "plugin/probe/health/r2_load.h"

/* What each end says of ways, and where the one that it says is silent leads. */
static struct {
    unsigned n, way, good;
    unsigned spines; /* bit per spine that a way which was said to be silent takes */
    uint64_t ns;
    char line[2][128];
    unsigned codes; /* R2-F04 */
} said[2];

static int end_of(const struct r2_inst *inst)
{
    return inst == rig->side[1].inst;
}

/* One that is made anew at that moment takes none. */
static unsigned spine_bit(struct ibv_qp *qp)
{
    int way = qp ? fab_inproc_way(rig->f, fab_ibv_qp(qp)) : -1;

    return way < 0 ? 0 : 1u << way;
}

static void on_way(struct r2_pair *pair, unsigned way, unsigned good, uint64_t ns)
{
    int s = end_of(pair->inst);

    said[s].n++;
    said[s].way = way;
    said[s].good = good;
    said[s].ns = ns;
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        const struct r2_pair *far = pair_of(!s, pair->nic);

        if (pair->qp.lane[i].way == way) {
            said[s].spines = spine_bit(pair->qp.lane[i].qp) | spine_bit(far->qp.lane[i].qp);
        }
    }
}

static void on_cause(struct r2_inst *inst, const struct r2_cause *cause)
{
    int s = end_of(inst);

    if (strcmp(cause->code, "R2-F04") != 0) {
        return;
    }
    said[s].codes++;
    for (int i = 0; i < 2 && i < cause->n_evidence; i++) {
        snprintf(said[s].line[i], sizeof(said[s].line[i]), "%s", cause->evidence[i]);
    }
}

static void listen(void)
{
    static const struct r2_subscriber test = {.on_way = on_way, .on_cause = on_cause};

    memset(said, 0, sizeof(said));
    subscribe(&test);
}

/* The end that finds it first; the other one's queue pairs are made anew with it. */
static int one_said(struct rig *r)
{
    (void)r;
    return said[0].n || said[1].n;
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
        for (int s = 0; s < 2; s++) { /* as statistics and the log say */
            ck_assert_uint_eq(rig->side[s].comm->conn.path[0].udp_port,
                              fab_ibv_qp(rig->side[s].comm->conn.path[0].qp)->sport);
        }
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
    listen();
    hit = spine_of(0, 0) == k;
    spine(k, "blackhole");
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert(!hit || dropped(k) > 0);
    rig_until(rig, all_up, 300 * RIG_MS);
    trickle();
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 3);
        ck_assert_int_ne(spine_of(s, 0), k);
        ck_assert_uint_ge(rig->side[s].comm->conn.path[0].inc, 1 + (unsigned)hit);
        ck_assert(hit || rig->side[s].comm->conn.path[0].inc == 1);
        ck_assert(r2_pair_ready(pair_of(s, 0)));
        ck_assert_uint_eq(pair_of(s, 0)->probe.silent_at, 0);
    }
    ck_assert(!hit || rig_until(rig, one_said, 5 * RIG_S));
    for (int s = 0; s < 2; s++) { /* the way is named, and no other */
        ck_assert_uint_le(said[s].n, 1);
        ck_assert(said[s].n == 0 || (said[s].spines >> k & 1));
        ck_assert(said[s].n == 0 || said[s].ns >= 100 * RIG_MS);
        ck_assert_uint_eq(said[s].n, said[s].codes);
    }
    no_pair_moved();
    stop();
}
END_TEST

/* The operator is told what the switches hash, both ways round; a way that loses a packet now and
 * then, or one glitch, is not said to be silent. */
START_TEST(the_flow_is_named)
{
    char flow[R2_WAY_FLOW], want[R2_WAY_FLOW + 32];
    struct ib_addr addr[2];

    fabric(2, FAB_HASH_PORTS, quiet);
    join(2);
    wait_probes();
    rate_known();
    listen();
    spine(spine_of(0, 0), "blackhole");
    burst(16);
    ck_assert(rig_until(rig, one_said, 5 * RIG_S));
    for (int s = 0; s < 2; s++) {
        ib_nic_addr_get(&rig->side[s].inst->nics, 0, &addr[s]);
    }
    for (int s = 0; s < 2; s++) {
        if (said[s].n == 0) {
            continue;
        }
        ck_assert_uint_eq(said[s].way, 3);
        r2_way_flow(flow, NULL, 3, &addr[s], &addr[!s]);
        snprintf(want, sizeof(want), "flow %s does not arrive, or", flow);
        ck_assert_str_eq(said[s].line[0], want);
        ck_assert_ptr_nonnull(strstr(flow, ">"));
        r2_way_flow(flow, NULL, 3, &addr[!s], &addr[s]);
        snprintf(want, sizeof(want), "flow %s back does not", flow);
        ck_assert_str_eq(said[s].line[1], want);
    }
    stop();
}
END_TEST

START_TEST(a_flow_in_words)
{
    static const struct ib_addr v4[2] = {
        {.link_layer = IBV_LINK_LAYER_ETHERNET, .gid = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}},
        {.link_layer = IBV_LINK_LAYER_ETHERNET,
         .gid = {[10] = 0xff, [11] = 0xff, 192, 168, 200, 254}}};
    static const struct ib_addr v6[2] = {{.link_layer = IBV_LINK_LAYER_ETHERNET,
                                          .gid = {0xfd, 0x00, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc,
                                                  0xde, 0xf0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc}},
                                         {.link_layer = IBV_LINK_LAYER_ETHERNET,
                                          .gid = {0xfe, 0x80, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc,
                                                  0xde, 0xf0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc}}};
    static const struct ib_addr ib[2] = {
        {.link_layer = IBV_LINK_LAYER_INFINIBAND, .lid = 0xbff0, .lmc = 2},
        {.link_layer = IBV_LINK_LAYER_INFINIBAND, .lid = 16, .lmc = 1}};
    char flow[R2_WAY_FLOW], want[R2_WAY_FLOW];

    r2_way_flow(flow, NULL, 1, &v4[0], &v4[1]);
    snprintf(want, sizeof(want), "10.0.0.1:%u>192.168.200.254:4791",
             ib_way_udp_port(ib_way_label(NULL, 1, v4[1].gid, v4[0].gid)));
    ck_assert_str_eq(flow, want);
    r2_way_flow(flow, NULL, 8, &v6[0], &v6[1]);
    snprintf(want, sizeof(want),
             "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:%u>"
             "[fe80:1234:5678:9abc:def0:1234:5678:9abc]:4791",
             ib_way_udp_port(ib_way_label(NULL, 8, v6[0].gid, v6[1].gid)));
    ck_assert_str_eq(flow, want); /* whole */
    r2_way_flow(flow, NULL, 4, &ib[0], &ib[1]);
    ck_assert_str_eq(flow, "lid:49139>lid:17");
    r2_way_flow(flow, NULL, 0, &ib[1], &ib[0]);
    ck_assert_str_eq(flow, "lid:16>lid:49136");
}
END_TEST

/* A way of the probe that loses packets, and with them RC's refusals of the gap, has
 * queue pairs that are silent now and then; it is not. */
START_TEST(lossy_is_not_silent)
{
    unsigned made;

    fabric(2, FAB_HASH_PORTS, quiet);
    join(2);
    wait_probes();
    listen();
    made = pair_of(0, 0)->ways.wish.turn;
    spine(fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[_i].qp)), "loss 4%");
    for (int i = 0; i < 4000; i++) {
        rig_enter(&rig->side[0]);
        r2_pair_send_probe(pair_of(0, 0), rig->side[0].inst->watch.clock, 0);
        rig_run(rig, 50 * RIG_MS);
    }
    ck_assert_uint_gt(pair_of(0, 0)->ways.wish.turn, made); /* one was, and was asked again */
    ck_assert_uint_eq(said[0].n + said[1].n, 0);
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

/* RC is quicker than the watchdog: the path ends by an error completion, and not over and over. */
START_TEST(rc_finds_it_first)
{
    static const char *const rc[][2] = {{"NCCL_IB_TIMEOUT=8", "NCCL_IB_RETRY_CNT=7"},
                                        {"NCCL_IB_TIMEOUT=10", "NCCL_IB_RETRY_CNT=3"}};

    fabric(2, FAB_HASH_PORTS, (const char *[]){rc[_i][0], rc[_i][1], "NCCL_R2_T_PACKET=100", NULL});
    join(2);
    wait_probes();
    rate_known();
    spine(spine_of(0, 0), "blackhole");
    burst(4);
    ck_assert_uint_eq(rig->side[0].comm->conn.up & 1, 0);
    ck_assert_msg(strstr(rig->side[0].comm->fo.last_fault, "completion status") ||
                      strstr(rig->side[1].comm->fo.last_fault, "completion status"),
                  "found as %s, %s", rig->side[0].comm->fo.last_fault,
                  rig->side[1].comm->fo.last_fault);
    ck_assert(rig_until(rig, all_up, 5 * RIG_S));
    messages(20, BIG);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(rig->side[0].comm->conn.up, 3);
    stop();
}
END_TEST

/* Every way is slow behind others' traffic, and the probes' are not: what is under way is not begun
 * anew for ever. */
START_TEST(slow_ways_are_not_silent)
{
    static const char *const rate[] = {"4MB/s", "3MB/s", "2MB/s"};
    size_t size = 24 * BIG;
    uint64_t took;

    fabric(2 + _i / 3, FAB_HASH_PORTS, quiet);
    join(2);
    wait_probes();
    rate_known();
    rig_run(rig, RIG_S);
    for (int k = 0; k < SPINES; k++) {
        char text[64], err[128];

        snprintf(text, sizeof(text), "spine %d rate %s", k, rate[_i % 3]);
        ck_assert_msg(fab_inproc_fault(rig->f, text, err, sizeof(err)) == 0, "%s", err);
    }
    recv_post(0, size);
    send_post(0, size);
    took = finish(1, size, 100 * RIG_S);
    ck_assert_msg(took < 4 * RIG_S, "%.3f ms, %llu incarnations ended", (double)took / 1e6,
                  (unsigned long long)rig->side[0].comm->fo.switches);
    ck_assert_uint_le(rig->side[0].comm->fo.switches, 16);
    stop();
}
END_TEST

/* What stands first in a queue is as long as before, however often its tail is probed. */
START_TEST(tail_probes_are_no_messages)
{
    const struct r2_nic_load *load;

    fabric(1, FAB_HASH_PORTS, (const char *[]){QUIET_RC, "NCCL_R2_FAILBACK=never", NULL});
    join(2);
    wait_probes();
    rate_known();
    recv_post(0, BIG);
    rig_run(rig, 5 * RIG_MS);
    driver.held = driver_hook(0, 0)->cq;
    send_post(0, BIG);
    rig_run(rig, 550 * RIG_MS);
    load = &rig->side[0].inst->watch.load[0];
    ck_assert_int_gt(rig->side[0].comm->conn.path[0].sq.used, 3);
    ck_assert_uint_eq(load->front, BIG);
    driver.held = NULL;
    finish(1, BIG, RIG_S);
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
    tcase_add_loop_test(t, rc_finds_it_first, 0, 2);
    tcase_add_loop_test(t, slow_ways_are_not_silent, 0, 6);
    tcase_add_test(t, tail_probes_are_no_messages);
    suite_add_tcase(s, t);
    t = tcase_create("flow");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_flow_is_named);
    tcase_add_loop_test(t, lossy_is_not_silent, 0, PROBE_QP_LANES);
    suite_add_tcase(s, t);
    t = tcase_create("words");
    tcase_add_test(t, a_flow_in_words);
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
