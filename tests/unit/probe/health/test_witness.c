/* Both ways of a probe are silent, or the NIC is: data queue pairs on other ways tell which
 * (docs/health.md, "Ways"). */
#include "tests/unit/suite.h"
#include "tests/unit/ways_rig.h"

#include "plugin/probe/health/r2_watch.h"
#include "tests/unit/second_conn.h"

/* Bit per spine that the probes of NIC 0's pair take. */
static unsigned probe_spines(void)
{
    unsigned bits = 0;

    for (int l = 0; l < PROBE_QP_LANES; l++) {
        bits |= 1u << fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[l].qp));
    }
    return bits;
}

static void swallow(unsigned spines)
{
    for (int k = 0; k < SPINES; k++) {
        if (spines >> k & 1) {
            spine(k, "blackhole");
        }
    }
}

/* The ways that the first probe took are not taken by what begins now. */
static int knows_lost(int s)
{
    const struct r2_pair *pair = pair_of(s, 0);
    uint64_t clock = rig->side[s].inst->watch.clock;

    return probe_ways_avoids(&pair->ways.known, 1, clock) &&
           probe_ways_avoids(&pair->ways.known, 5, clock);
}

static unsigned second_spine(void)
{
    return 1u << fab_inproc_way(rig->f, fab_ibv_qp(second[0]->conn.path[0].qp));
}

/* The second connection, whose first path takes another way than the probe's two. */
static void two_at_rest(void)
{
    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    second_connect();
    wait_probes();
    rate_known();
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_eq(probe_spines() & second_spine(), 0);
}

/* Packets that these spines swallowed. */
static uint64_t swallowed(unsigned spines)
{
    uint64_t n = 0;

    for (int k = 0; k < SPINES; k++) {
        n += spines >> k & 1 ? dropped(k) : 0;
    }
    return n;
}

/*
 * Both ways of the probe are silent, and that of the data: a connection at rest, over another way,
 * tells that the NICs live.
 */
START_TEST(a_connection_at_rest_is_a_witness)
{
    unsigned silent;
    uint64_t took, wrs;

    two_at_rest();
    silent = probe_spines();
    ck_assert_uint_ne(silent >> spine_of(0, 0) & 1, 0);
    ck_assert_uint_eq(second[0]->conn.awake, 0);
    wrs = second[0]->conn.path[0].count.wrs + second[1]->conn.path[0].count.wrs;
    swallow(silent);
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert_uint_gt(swallowed(silent), 0);
    ck_assert_uint_gt(second[0]->conn.path[0].count.wrs + second[1]->conn.path[0].count.wrs, wrs);
    rig_run(rig, 2 * RIG_S);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 3);
        ck_assert_uint_eq(pair_of(s, 0)->probe.silent_at, 0);
        ck_assert(r2_pair_ready(pair_of(s, 0)));
        ck_assert_uint_eq(second[s]->conn.path[0].inc, 1);
        ck_assert_uint_eq(second[s]->conn.path[0].sq.used, 0);
    }
    ck_assert(knows_lost(0) || knows_lost(1));
    no_pair_moved();
    second_close();
    stop();
}
END_TEST

/* The NIC is silent: the witness is, too, and the pair is given up as soon as without one. */
START_TEST(a_silent_nic_has_no_witness)
{
    char err[128];
    uint64_t took;

    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    if (_i) {
        second_connect();
    }
    wait_probes();
    rate_known();
    rig_run(rig, 2 * RIG_S);
    ck_assert_msg(fab_inproc_fault(rig->f, "h1:n0 blackhole", err, sizeof(err)) == 0, "%s", err);
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert(pair_of(0, 0)->probe.silent_at || pair_of(1, 0)->probe.silent_at);
    ck_assert_uint_eq(rig->side[0].comm->conn.up & 1, 0);
    if (_i) {
        ck_assert_uint_eq(second[0]->conn.up & 1, 0);
        second_close();
    }
    stop();
}
END_TEST

/* Messages over the second connection: one after the other where pump() is called. */
static struct {
    struct ib_mr *mr[2];
    struct r2_req *req[2];
    size_t size;
    unsigned n;
} stream;

static void stream_start(void)
{
    void *data = in[1];
    size_t size = stream.size;
    int tag = 0;

    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_irecv(second[1], 1, &data, &size, &tag, &stream.mr[1], &stream.req[1]),
                     R2_OK);
    ck_assert_ptr_nonnull(stream.req[1]);
    stream.req[0] = NULL;
}

static void stream_open(size_t size)
{
    memset(&stream, 0, sizeof(stream));
    stream.size = size;
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        ck_assert_int_eq(
            r2_net_reg(second[s], s ? in[1] : out[1], size, IB_PTR_HOST, 0, -1, &stream.mr[s]),
            R2_OK);
    }
    stream_start();
}

static void stream_send(void)
{
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_isend(second[0], out[1], stream.size, 0, stream.mr[0], &stream.req[0]),
                     R2_OK);
}

static int pump(struct rig *r)
{
    int done[2] = {0, 0};

    (void)r;
    if (stream.req[0] == NULL) {
        stream_send();
        return 0;
    }
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        if (stream.req[s]) {
            ck_assert_int_eq(r2_net_test(stream.req[s], &done[s], NULL), R2_OK);
            stream.req[s] = done[s] ? NULL : stream.req[s];
        }
    }
    if (!stream.req[0] && !stream.req[1]) {
        stream.n++;
        stream_start();
    }
    return 0;
}

static int pump_until_done(struct rig *r)
{
    pump(r);
    return rig_all_done(r);
}

/* A message over the second connection, which nobody takes the completion of. */
static void second_message(void)
{
    stream_open(4096);
    rig_run(rig, RIG_MS);
    stream_send();
    ck_assert_ptr_nonnull(stream.req[0]);
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(second[0]->conn.path[0].sq.used, 0);
}

/*
 * What had crossed before the witness was asked is no answer, though its completion is taken later,
 * nor is a completion in error, where RC gives up at once; nor what came over a way that was asked
 * for an earlier probe, and is the probe's own now.
 */
START_TEST(what_is_no_answer)
{
    static const char *const rc[][2] = {{"NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7"},
                                        {"NCCL_IB_TIMEOUT=8", "NCCL_IB_RETRY_CNT=1"},
                                        {"NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7"}};
    char err[128];
    uint64_t wrs;

    fabric(2, FAB_HASH_PORTS, (const char *[]){rc[_i][0], rc[_i][1], "NCCL_R2_T_PACKET=100", NULL});
    join(_i == 2 ? 3 : 0);
    second_connect();
    wait_probes();
    rate_known();
    if (_i != 1) {
        second_message();
    }
    if (_i == 2) {
        ck_assert_uint_eq(second[0]->conn.path[0].way, pair_of(0, 0)->qp.lane[1].way);
        second[0]->watch->witness[0] = 1;
        rig_run(rig, 500 * RIG_MS);
    }
    wrs = second[0]->conn.path[0].count.wrs;
    ck_assert_msg(fab_inproc_fault(rig->f, "h1:n0 blackhole", err, sizeof(err)) == 0, "%s", err);
    rig_enter(&rig->side[0]);
    r2_watch_probe(pair_of(0, 0));
    rig_run(rig, 60 * RIG_MS);
    ck_assert_int_eq(second[0]->conn.path[0].count.wrs != wrs, _i != 2); /* whether it was asked */
    ck_assert_uint_ne(pair_of(0, 0)->probe.silent_at, 0);
    ck_assert_uint_eq(second[0]->conn.up & 1, 0);
    rig_run(rig, RIG_S);
    second_close();
    stop();
}
END_TEST

/* The probe is answered after all: what the witness has completed is taken, though nobody calls. */
START_TEST(a_witness_is_looked_after)
{
    char err[128];

    two_at_rest();
    ck_assert_msg(fab_inproc_fault(rig->f, "h1:n0 delay 26ms", err, sizeof(err)) == 0, "%s", err);
    rig_enter(&rig->side[0]);
    r2_watch_probe(pair_of(0, 0));
    rig_run(rig, 24 * RIG_MS);
    ck_assert_uint_eq(second[0]->conn.path[0].sq.used, 1);
    rig_run(rig, 200 * RIG_MS);
    ck_assert_uint_eq(second[0]->conn.path[0].sq.used, 0);
    ck_assert(!r2_pair_is_probing(pair_of(0, 0)));
    ck_assert_uint_eq(pair_of(0, 0)->ways.known.way[0].lost_at, 0);
    nothing_moved();
    second_close();
    stop();
}
END_TEST

/* All spines but one are silent from the start: the probe takes the way of the witness, which no
 * queue pair of its own has been answered over. */
START_TEST(only_the_way_of_the_witness_is_left)
{
    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    second_connect();
    ck_assert_uint_eq(pair_of(0, 0)->probe.last_ok, 0);
    ck_assert_uint_ne(1u << spine_of(0, 0), second_spine());
    swallow(0xff & ~second_spine());
    burst(4);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_gt(swallowed(0xff & ~second_spine()), 0);
    for (int s = 0; s < 2; s++) { /* at once */
        ck_assert_uint_eq(pair_of(s, 0)->qp.lane[0].way, second[0]->conn.path[0].way);
        ck_assert_uint_ne(pair_of(s, 0)->probe.last_ok, 0);
    }
    for (int i = 0; i < 4; i++) {
        burst(4);
        rig_run(rig, 500 * RIG_MS);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 3);
        ck_assert_uint_eq(pair_of(s, 0)->probe.silent_at, 0);
    }
    no_pair_moved();
    second_close();
    stop();
}
END_TEST

/*
 * The second connection is busy: by what its ends move nothing could be broken but the way between
 * them, and that would have T_stuck. Its own messages tell that it is the probe's ways.
 */
START_TEST(a_busy_connection_is_a_witness)
{
    unsigned silent, n;
    uint64_t from;

    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    second_connect();
    wait_probes();
    rate_known();
    stream_open(BIG);
    rig_until(rig, pump, 2 * RIG_S);
    n = stream.n;
    ck_assert_uint_gt(n, 100);
    silent = probe_spines();
    ck_assert_uint_eq(silent & second_spine(), 0);
    swallow(silent);
    from = rig_now(rig);
    recv_post(0, BIG);
    send_post(0, BIG);
    ck_assert(rig_until(rig, pump_until_done, 10 * RIG_S));
    ck_assert_msg(rig_now(rig) - from < 500 * RIG_MS, "%.3f ms",
                  (double)(rig_now(rig) - from) / 1e6);
    ck_assert_uint_gt(stream.n, n);
    ck_assert_uint_gt(swallowed(silent), 0);
    ck_assert_uint_eq(pair_of(0, 0)->probe.silent_at, 0);
    no_pair_moved();
    second_close();
    stop();
}
END_TEST

/* The peer's process has not said yet that its end of the probe is in order: nobody is asked, no
 * way is blamed, and nothing is made anew meanwhile. */
START_TEST(the_peers_word_is_waited_for)
{
    unsigned silent;
    uint32_t inc;
    uint64_t wrs;

    two_at_rest();
    silent = probe_spines();
    swallow(silent);
    wrs = second[0]->conn.path[0].count.wrs;
    inc = pair_of(0, 0)->inc;
    rig->side[1].still = rig->side[1].asleep = 1;
    rig_enter(&rig->side[0]);
    r2_watch_probe(pair_of(0, 0));
    rig_run(rig, 500 * RIG_MS);
    ck_assert_uint_gt(swallowed(silent), 0);
    ck_assert_uint_eq(second[0]->conn.path[0].count.wrs, wrs);
    ck_assert_uint_eq(pair_of(0, 0)->inc, inc);
    ck_assert_uint_eq(pair_of(0, 0)->ways.known.way[0].lost_at, 0);
    rig->side[1].still = rig->side[1].asleep = 0;
    rig_kick(&rig->side[1]);
    rig_run(rig, 500 * RIG_MS);
    ck_assert_uint_ne(pair_of(0, 0)->inc, inc);
    ck_assert_uint_eq(pair_of(0, 0)->probe.silent_at, 0);
    no_pair_moved();
    second_close();
    stop();
}
END_TEST

/* A connection at rest whose only path it is would lose that to RC, for an outage that it need not
 * notice. */
START_TEST(the_last_path_at_rest_is_not_asked)
{
    char err[128];
    uint64_t wrs[2];

    fabric(1, FAB_HASH_PORTS, (const char *[]){"NCCL_IB_TIMEOUT=8", "NCCL_IB_RETRY_CNT=1", NULL});
    join(0);
    second_connect();
    wait_probes();
    rate_known();
    rig_run(rig, 2 * RIG_S);
    for (int s = 0; s < 2; s++) {
        wrs[s] = second[s]->conn.path[0].count.wrs;
    }
    ck_assert_msg(fab_inproc_fault(rig->f, "h1:n0 blackhole", err, sizeof(err)) == 0, "%s", err);
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_watch_probe(pair_of(s, 0));
    }
    rig_run(rig, 200 * RIG_MS);
    ck_assert(pair_of(0, 0)->probe.silent_at || pair_of(1, 0)->probe.silent_at);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(second[s]->conn.path[0].count.wrs, wrs[s]);
        ck_assert_uint_eq(second[s]->conn.path[0].inc, 1);
        ck_assert_uint_eq(second[s]->conn.up, 1);
    }
    ck_assert_msg(fab_inproc_fault(rig->f, "h1:n0 up", err, sizeof(err)) == 0, "%s", err);
    second_close();
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_connection_at_rest_is_a_witness);
    tcase_add_loop_test(t, a_silent_nic_has_no_witness, 0, 2);
    tcase_add_loop_test(t, what_is_no_answer, 0, 3);
    tcase_add_test(t, a_witness_is_looked_after);
    tcase_add_test(t, only_the_way_of_the_witness_is_left);
    tcase_add_test(t, a_busy_connection_is_a_witness);
    tcase_add_test(t, the_peers_word_is_waited_for);
    tcase_add_test(t, the_last_path_at_rest_is_not_asked);
}

int main(void)
{
    return suite_run("witness", 60, NULL, teardown, add);
}
