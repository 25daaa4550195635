/* Moves of a connection's close, of a fence, of a TCP channel, of a NIC pair's parts, of cross
 * pairs, of a NIC's test of a GPU, and of what is judged slow, which no run makes: refused, and
 * said. The legal ones are all there is. */
#include "tests/unit/suite.h"

#include <string.h>

#include "plugin/balance/balance_slow.h"
#include "plugin/base/r2_log.h"
#include "plugin/bounce/r2_reach.h"
#include "plugin/ib_transport/ib_fence.h"
#include "plugin/ib_transport/ib_fence_proof.h"
#include "plugin/oob/tcp/oob_tcp.h"
#include "plugin/probe/health/r2_cross.h"
#include "plugin/probe/health/r2_pair_int.h"
#include "plugin/service/r2_close.h"
#include "plugin/telemetry/r2_band.h"

static int warns;
static char last[256];

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    if (level == R2_LOG_WARN) {
        warns++;
        strncpy(last, msg, sizeof(last) - 1);
    }
}

static void setup(void)
{
    r2_log_sink_set(sink);
}

START_TEST(a_close_goes_one_way)
{
    static const char legal[R2_CLOSE_COUNT][R2_CLOSE_COUNT + 1] = {
        [R2_CLOSE_OPEN] = ".xx", [R2_CLOSE_BYE] = "..x", [R2_CLOSE_DESTROY] = "..."};
    static struct r2_comm c = {.label = "send 7"};
    int refused = 0;

    for (int from = 0; from < R2_CLOSE_COUNT; from++) {
        for (int to = 0; to < R2_CLOSE_COUNT; to++) {
            int may = legal[from][to] == 'x';

            atomic_store(&c.state.close, from);
            r2_close_move(&c, (enum r2_close)to);
            ck_assert_int_eq(atomic_load(&c.state.close), may ? to : from);
            refused += !may;
        }
    }
    r2_log_flush();
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : send 7 close cannot go from destroyed to destroyed");
    ck_assert_str_eq(r2_close_name(R2_CLOSE_COUNT), "?");
}
END_TEST

/* A fence that is refused leaves its path, and what its job reads, as they were. */
START_TEST(a_fence_begins_once)
{
    static const enum ib_fence_stage begun[] = {IB_FENCE_ERROR, IB_FENCE_SOFT, IB_FENCE_HARD};
    static struct ib_path path;

    for (int i = 0; i < 3; i++) {
        struct ib_fence f = {.path = &path, .stage = begun[i], .erred_at = 7};

        path = (struct ib_path){.index = 3, .open = 1, .marker.posted = IB_MARK_BOTH};
        ib_fence_begin(&f, NULL, 9, 1);
        ck_assert_int_eq(f.stage, begun[i]);
        ck_assert_uint_eq(path.marker.posted, IB_MARK_BOTH);
        ck_assert_uint_eq(f.erred_at, 7);
        ck_assert_int_eq(f.job.urgent, 0);
        ib_fence_without(&f);
        ck_assert_int_eq(f.stage, IB_FENCE_HARD);
        ck_assert_int_eq(path.open, begun[i] == IB_FENCE_HARD);
    }
    r2_log_flush();
    ck_assert_int_eq(warns, 4);
    ck_assert_str_eq(last, "NET/R2 : fence of path 3 cannot go from hard to hard");
}
END_TEST

/* A state is left for good; nobody is up who has not proved who he is. */
START_TEST(a_channel_goes_one_way)
{
    static const char legal[CHAN_STATES][CHAN_STATES + 1] = {
        [CHAN_CONNECTING] = ".x..xx", [CHAN_HELLO] = "..x.xx", [CHAN_AUTH] = "...xxx",
        [CHAN_UP] = "....xx",         [CHAN_DRAIN] = "....xx", [CHAN_DEAD] = "......"};
    static struct tcp_peer peer = {.str = "127.0.0.1:7"};
    struct tcp_chan c = {.peer = &peer};
    int refused = 0;

    for (int from = 0; from < CHAN_STATES; from++) {
        for (int to = 0; to < CHAN_STATES; to++) {
            int may = legal[from][to] == 'x';

            c.state = (enum chan_state)from;
            oob_chan_move(&c, (enum chan_state)to);
            ck_assert_int_eq((int)c.state, may ? to : from);
            refused += !may;
        }
    }
    r2_log_flush();
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : a channel to 127.0.0.1:7 cannot go from dead to dead");
    c.peer = NULL;
    oob_chan_move(&c, CHAN_UP);
    r2_log_flush();
    ck_assert_ptr_nonnull(strstr(last, "a stranger"));
}
END_TEST

/* A probe counts before its time runs, and its time runs before the way is called good; the one
 * that a pair is greeted with may begin anew. */
START_TEST(a_probe_becomes_evidence_step_by_step)
{
    static const char legal[R2_PROBE_STATES][R2_PROBE_STATES + 1] = {[R2_PROBE_IDLE] = "=xx..",
                                                                     [R2_PROBE_OUT] = "x=x..",
                                                                     [R2_PROBE_COUNTS] = "x.=x.",
                                                                     [R2_PROBE_TIMED] = "x.x=x",
                                                                     [R2_PROBE_GOOD] = "x.x.="};
    struct r2_pair pair = {.nic = 1, .peer_nic = 2};
    int refused = 0;

    for (int from = 0; from < R2_PROBE_STATES; from++) {
        for (int to = 0; to < R2_PROBE_STATES; to++) {
            pair.probe.state = (enum r2_probe_state)from;
            r2_pair_probe_move(&pair, (enum r2_probe_state)to);
            ck_assert_int_eq((int)pair.probe.state, legal[from][to] == '.' ? from : to);
            refused += legal[from][to] == '.';
        }
    }
    r2_log_flush();
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : probe over NIC pair 1-2 cannot go from good to timed");
}
END_TEST

START_TEST(a_probation_asks_what_it_has_tried)
{
    static const char legal[R2_PROBATION_STATES][R2_PROBATION_STATES + 1] = {
        [R2_PROBATION_REST] = "=x.", [R2_PROBATION_TRY] = "x=x", [R2_PROBATION_PROBED] = "xx="};
    struct r2_pair pair = {.nic = 1, .peer_nic = 2};
    int refused = 0;

    for (int from = 0; from < R2_PROBATION_STATES; from++) {
        for (int to = 0; to < R2_PROBATION_STATES; to++) {
            pair.probation.state = (enum r2_probation_state)from;
            r2_probation_move(&pair, (enum r2_probation_state)to);
            ck_assert_int_eq((int)pair.probation.state, legal[from][to] == '.' ? from : to);
            refused += legal[from][to] == '.';
        }
    }
    r2_log_flush();
    ck_assert_int_eq(refused, 1);
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : probation of NIC pair 1-2 cannot go from rest to probed");
}
END_TEST

START_TEST(others_cross_where_the_first_pair_has)
{
    static const char legal[R2_CROSS_STATES][R2_CROSS_STATES + 1] = {
        [R2_CROSS_NONE] = ".x.", [R2_CROSS_FIRST] = "..x", [R2_CROSS_ALL] = "..."};
    static struct r2_peer peer = {.host = "host7"};
    int refused = 0;

    for (int from = 0; from < R2_CROSS_STATES; from++) {
        for (int to = 0; to < R2_CROSS_STATES; to++) {
            peer.crossed = (uint8_t)from;
            r2_cross_move(&peer, (enum r2_cross_state)to);
            ck_assert_int_eq(peer.crossed, legal[from][to] == 'x' ? to : from);
            refused += legal[from][to] != 'x';
        }
    }
    r2_log_flush();
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : cross pairs to host7 cannot go from all to all");
}
END_TEST

START_TEST(what_is_known_of_a_gpu_stays_known)
{
    static const char legal[R2_REACH_RESULTS][R2_REACH_RESULTS + 1] = {[R2_REACH_UNKNOWN] = "=xxx",
                                                                       [R2_REACH_UNTESTED] = ".=..",
                                                                       [R2_REACH_YES] = "..=.",
                                                                       [R2_REACH_NO] = "...="};
    int refused = 0;

    for (int from = 0; from < R2_REACH_RESULTS; from++) {
        for (int to = 0; to < R2_REACH_RESULTS; to++) {
            uint8_t result = (uint8_t)from;

            r2_reach_result_move(&result, (enum r2_reach_result)to, "mlx5_0");
            ck_assert_int_eq(result, legal[from][to] == '.' ? from : to);
            refused += legal[from][to] == '.';
        }
    }
    r2_log_flush();
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : NIC mlx5_0 and memory of a GPU cannot go from does not reach "
                           "to reaches");
}
END_TEST

START_TEST(a_test_of_a_gpu_asks_before_it_writes)
{
    static const char legal[R2_REACH_STEPS][R2_REACH_STEPS + 1] = {[R2_REACH_IDLE] = "=x..",
                                                                   [R2_REACH_ASK] = "x=xx",
                                                                   [R2_REACH_WRITE] = "x.=x",
                                                                   [R2_REACH_READ] = "x..="};
    int refused = 0;

    for (int from = 0; from < R2_REACH_STEPS; from++) {
        for (int to = 0; to < R2_REACH_STEPS; to++) {
            uint8_t step = (uint8_t)from;

            r2_reach_step_move(&step, (enum r2_reach_step)to, "mlx5_0");
            ck_assert_int_eq(step, legal[from][to] == '.' ? from : to);
            refused += legal[from][to] == '.';
        }
    }
    r2_log_flush();
    ck_assert_int_eq(warns, refused);
    ck_assert_str_eq(last, "NET/R2 : the test of NIC mlx5_0 and memory of a GPU cannot go from "
                           "reading to writing");
}
END_TEST

/* What a move clears is as it was when the move is refused. */
START_TEST(slow_is_suspected_before_it_is_believed)
{
    static const char legal[BALANCE_SLOW_STATES][BALANCE_SLOW_STATES + 1] = {
        [BALANCE_SLOW_NO] = ".x.", [BALANCE_SLOW_SUSPECT] = "x.x", [BALANCE_SLOW_YES] = "x.."};

    for (int from = 0; from < BALANCE_SLOW_STATES; from++) {
        for (int to = 0; to < BALANCE_SLOW_STATES; to++) {
            struct balance_slow s = {
                .state = (enum balance_slow_state)from, .good = 2, .bad = 3, .rest = 4};
            int may = legal[from][to] == 'x';

            ck_assert_int_eq(balance_slow_move(&s, (enum balance_slow_state)to, 5), may);
            ck_assert_int_eq((int)s.state, may ? to : from);
            ck_assert_uint_eq(s.rest, may ? 5 : 4);
            ck_assert_uint_eq(s.good, may ? 0 : 2);
            ck_assert_uint_eq(s.bad, may ? 0 : 3);
        }
    }
}
END_TEST

START_TEST(a_band_is_learnt_before_it_is_left)
{
    static const char legal[R2_BAND_STATES][R2_BAND_STATES + 1] = {[R2_BAND_LEARNS] = ".x..",
                                                                   [R2_BAND_INSIDE] = "..xx",
                                                                   [R2_BAND_ABOVE] = "xx.x",
                                                                   [R2_BAND_BELOW] = "xxx."};

    for (int from = 0; from < R2_BAND_STATES; from++) {
        for (int to = 0; to < R2_BAND_STATES; to++) {
            struct r2_band b = {.state = (uint8_t)from, .since = 1, .row = 2};
            bool may = legal[from][to] == 'x';

            ck_assert_int_eq(r2_band_move(&b, (enum r2_band_state)to, 9), may);
            ck_assert_int_eq(b.state, may ? to : from);
            ck_assert_uint_eq(b.since, may ? 9 : 1);
            ck_assert_uint_eq(b.row, may ? 0 : 2);
        }
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, others_cross_where_the_first_pair_has);
    tcase_add_test(t, what_is_known_of_a_gpu_stays_known);
    tcase_add_test(t, a_test_of_a_gpu_asks_before_it_writes);
    tcase_add_test(t, slow_is_suspected_before_it_is_believed);
    tcase_add_test(t, a_band_is_learnt_before_it_is_left);
    tcase_add_test(t, a_probe_becomes_evidence_step_by_step);
    tcase_add_test(t, a_probation_asks_what_it_has_tried);
    tcase_add_test(t, a_close_goes_one_way);
    tcase_add_test(t, a_fence_begins_once);
    tcase_add_test(t, a_channel_goes_one_way);
}

int main(void)
{
    return suite_run("moves", 60, setup, NULL, add);
}
