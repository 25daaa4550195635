/* Moves of a connection's close, of a fence, of a TCP channel, and of a NIC pair's parts, which no
 * run makes: refused, and said. The legal ones are all there is. */
#include "tests/unit/suite.h"

#include <string.h>

#include "plugin/base/r2_log.h"
#include "plugin/ib_transport/ib_fence.h"
#include "plugin/ib_transport/ib_fence_proof.h"
#include "plugin/oob/tcp/oob_tcp.h"
#include "plugin/probe/health/r2_pair_int.h"
#include "plugin/service/r2_close.h"

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

static void add(TCase *t)
{
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
