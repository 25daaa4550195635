/* R2-S01 from counters to the line (docs/diagnosis.md, "A slow way to a host"): what is said, and
 * what nothing is said of. */
#include "tests/unit/slowness_world.h"
#include "tests/unit/suite.h"

static unsigned asked(void)
{
    unsigned n = 0;

    for (int i = 0; i < FLOWS; i++) {
        n += flow[i].asked;
    }
    return n;
}

/* The way becomes slow, and nobody is blamed within a minute; @suspected: it was looked closer. */
static void says_nothing(bool suspected)
{
    flow[SLOW].rate /= 5;
    run(60 * S);
    ck_assert_msg(said == 0, "said: %s", warn);
    ck_assert_msg((asked() > 0) == suspected, "%u questions", asked());
}

/* --- what is said --- */

START_TEST(said_once_and_over)
{
    const char *text;
    double after;
    uint64_t from;

    learn();
    ck_assert_uint_eq(asked(), 0);
    from = now;
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 1);
    ck_assert_msg(strstr(warn, "R2-S01 host=h3 nic=far0 peer=h9:near0 blame=path-or-host since="),
                  "%s", warn);
    ck_assert_msg(strstr(warn, " how=on-the-wire:50.0ms,usual:10.0ms,carries:20.0MB/s,usual:"),
                  "%s", warn);
    ck_assert_msg(strstr(warn, " fate=continues do=check-path-and-host"), "%s", warn);
    ck_assert_int_eq(cause.severity, PROBE_WARNING);
    ck_assert_str_eq(cause.peer_host, "h3");
    ck_assert_str_eq(cause.peer_nic, "far0");
    ck_assert_int_eq(cause.nic, -1);
    ck_assert_uint_eq(cause.n_evidence, 1);
    ck_assert_str_eq(brief,
                     "R2-S01 h3:far0 slow way to a host; job continues; check path and host");
    ck_assert_msg(cause.since_ns >= from - 2 * S && cause.since_ns <= from + 2 * S,
                  "since %.1f s after it", ((double)cause.since_ns - (double)from) / 1e9);
    ck_assert_msg(strstr(warn, " job=the-job"), "%s", warn);
    ck_assert_msg(strstr(info, "R2-S01: what is sent to h3 is on the wire for 50.0 ms"), "%s",
                  info);
    ck_assert_uint_eq(over, 0);
    flow[SLOW].rate = RATE;
    from = now;
    run(30 * S);
    ck_assert_uint_eq(over, 1);
    ck_assert_uint_eq(said, 1);
    ck_assert_int_eq(ended.severity, PROBE_INFO);
    ck_assert_msg(ended.since_ns > cause.since_ns && ended.since_ns <= from,
                  "over, since %.1f s before it", ((double)from - (double)ended.since_ns) / 1e9);
    text = strstr(info, "R2-S01: the way to h3 is as fast as usual again, ");
    ck_assert_msg(text && sscanf(text, "%*[^,], %lf s after it was named", &after) == 1, "%s",
                  info);
    ck_assert_double_le(after, (double)(now - ended.since_ns) / 1e9);
}
END_TEST

/* Questions are asked under suspicion alone, of the one that is suspected, twice a second. */
START_TEST(questions)
{
    unsigned n;

    learn();
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 1);
    n = flow[SLOW].asked;
    ck_assert_msg(n >= 9 && n <= 13, "%u questions in three windows", n);
    ck_assert_uint_eq(flow[SLOW].asked_pair, 0); /* nothing goes over the other */
    ck_assert_uint_eq(asked(), n);
    run(30 * S);
    ck_assert_uint_eq(asked(), n);
}
END_TEST

/* A process that stands still for a moment in each window has not been slow meanwhile. */
START_TEST(what_stands_with_us_does_not_count)
{
    learn();
    flow[SLOW].rate = RATE / 5;
    for (int i = 0; i < 12; i++) {
        run(S);
        turn(500 * MS);
        run(S / 2);
    }
    ck_assert_uint_eq(said, 1);
    ck_assert_msg(strstr(warn, " how=on-the-wire:50.0ms,usual:10.0ms,carries:20.0MB/s,"), "%s",
                  warn);
}
END_TEST

/* ... and what came to an end while it stood did so nobody knows when. */
START_TEST(what_comes_late_does_not_count)
{
    learn();
    flow[SLOW].rate = RATE / 5;
    for (int i = 0; i < 12; i++) {
        run(S);
        flow[SLOW].done += RATE;
        flows_move(500 * MS);
        turn(500 * MS);
        run(S / 2);
    }
    ck_assert_uint_eq(said, 1);
    ck_assert_msg(strstr(warn, ",carries:20.0MB/s,"), "%s", warn);
}
END_TEST

START_TEST(over_two_nics)
{
    flow[SLOW].paths = 2;
    flow[SLOW].comm->conn.touched = 3;
    learn();
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 1);
    ck_assert_uint_eq(flow[SLOW].asked % 2, 0);
    ck_assert_msg(strstr(warn, "R2-S01 host=h3 nic=- peer=h9 "), "%s", warn);
    ck_assert_ptr_null(cause.peer_nic);
}
END_TEST

/* A second connection to the same process, on which something is under way all the time. */
START_TEST(several_connections)
{
    struct r2_comm *c = comm_make(&flow[SLOW], 1);

    c->conn.path[0].sq.used = 1;
    learn();
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 1);
    ck_assert_msg(strstr(warn, ",carries:20.0MB/s,"), "%s", warn);
}
END_TEST

/* A quarter of the time nothing is under way: what it carries is of the rest. */
START_TEST(in_bursts)
{
    learn();
    for (int i = 0; i < 200; i++) {
        bool rests = i % 4 == 3;

        flow[SLOW].rate = rests ? 0 : RATE / 5;
        flow[SLOW].done += rests ? OUT : 0; /* all that was under way */
        flow[SLOW].out = rests ? 0 : OUT;
        run(150 * MS);
    }
    ck_assert_uint_eq(said, 1);
    ck_assert_msg(strstr(warn, ",carries:21.9MB/s,"), "%s", warn);
}
END_TEST

/* A path of last resort that is down makes no way less than whole. */
START_TEST(a_last_resort_is_down)
{
    flow[SLOW].comm->conn.last = 2;
    flow[SLOW].comm->shown.up = 1;
    learn();
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 1);
}
END_TEST

/* Two processes of the host: each is compared with the other hosts. */
START_TEST(several_processes)
{
    snprintf(flow[1].peer.host, sizeof(flow[1].peer.host), "h%d", SLOW);
    learn();
    flow[SLOW].rate = flow[1].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 2);
}
END_TEST

/* The NIC at the far end is full in the first windows of the suspicion: the three that follow
 * decide, each by what has moved in it. */
START_TEST(full_for_a_moment)
{
    uint64_t from;

    learn();
    from = now;
    flow[SLOW].full = true;
    flow[SLOW].rate = RATE / 5;
    while (flow[SLOW].asked == 0) {
        ck_assert_uint_lt(now - from, 10 * S);
        run(TICK);
    }
    run(6 * S);
    flow[SLOW].full = false;
    run(7 * S);
    ck_assert_msg(said == 1, "said %u times, after %u questions", said, flow[SLOW].asked);
}
END_TEST

/* --- what is not --- */

START_TEST(well)
{
    learn();
    run(60 * S);
    ck_assert_uint_eq(said + over + asked() + taken, 0);
}
END_TEST

/* The far end does not answer, its NIC is full, or ours is, or how fast its NIC can be is not
 * known.
 */
START_TEST(a_nic_full_or_unknown)
{
    learn();
    flow[SLOW].mute = _i == 0;
    flow[SLOW].full = _i == 1;
    others = _i == 2 ? 40 * (uint64_t)RATE : 0;
    flow[SLOW].best = _i == 3 ? 0 : flow[SLOW].best;
    says_nothing(true);
}
END_TEST

/* A connection with more NIC pairs than can be asked after. */
START_TEST(too_many_nics)
{
    struct r2_comm *c;

    learn();
    flow[SLOW].comm->conn.npaths = IB_MAX_PATHS;
    flow[SLOW].comm->conn.up = flow[SLOW].comm->shown.up = (1u << IB_MAX_PATHS) - 1;
    flow[SLOW].comm->conn.touched = (1u << IB_MAX_PATHS) - 1;
    for (int p = 2; p < IB_MAX_PATHS; p++) {
        flow[SLOW].comm->conn.path[p].nic = flow[SLOW].comm->conn.path[p].peer_nic = (uint8_t)p;
    }
    c = comm_make(&flow[SLOW], 1);
    c->conn.path[0].nic = c->conn.path[0].peer_nic = NICS - 1;
    says_nothing(false);
    ck_assert_uint_gt(taken, 0); /* it was suspected */
}
END_TEST

/* Less is sent to it, all of it completes at once, and NCCL's thread takes it once in a while: what
 * waits for that thread waits for nobody else. */
START_TEST(nccl_takes_late)
{
    struct flow *f = &flow[SLOW];

    learn();
    f->rate = RATE / 5;
    f->out = 0;
    f->lazy = true;
    for (int i = 0; i < 60; i++) {
        run(S);
        take(f);
    }
    ck_assert_msg(said == 0, "said: %s", warn);
    ck_assert_uint_gt(asked(), 0);
    ck_assert_uint_gt(taken, 0);
}
END_TEST

/* Of a connection that has failed, or whose peer has said good-bye, nothing is taken. */
START_TEST(what_has_ended_is_not_touched)
{
    learn();
    flow[SLOW].comm->fo.error = _i == 0 ? R2_ERR_COMM : R2_OK;
    flow[SLOW].comm->fo.bye.peer = _i == 1;
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_gt(asked(), 0); /* it was suspected */
    ck_assert_uint_eq(taken, 0);
}
END_TEST

/* A connection that is closed is not looked at. */
START_TEST(a_closed_connection)
{
    learn();
    atomic_store(&flow[SLOW].comm->state.close, R2_CLOSE_BYE);
    says_nothing(false);
    ck_assert_uint_eq(taken, 0);
}
END_TEST

/* All of another connection to it, both ways: what comes in is not asked after. */
START_TEST(what_comes_in_is_not_asked_after)
{
    struct r2_comm *c = comm_make(&flow[SLOW], 2);

    c->is_send = 0;
    c->rx = calloc(1, sizeof(*c->rx));
    c->conn.touched = 2;
    learn();
    flow[SLOW].rate = RATE / 5;
    run(30 * S);
    ck_assert_uint_eq(said, 1);
    ck_assert_uint_eq(flow[SLOW].asked_pair, 0);
    free(c->rx);
}
END_TEST

START_TEST(a_verdict_explains_it)
{
    learn();
    inst->diagnosis.verdicts->found.at = now;
    inst->diagnosis.verdicts->found.code = PROBE_CODE_L02;
    flow[SLOW].rate = RATE / 5;
    run(58 * S);
    ck_assert_uint_eq(said + asked(), 0);
    run(20 * S);
    ck_assert_uint_eq(said, 1);
}
END_TEST

/* What is usual over other paths has to be learnt anew; what goes over the last resort is slow by
 * nature. */
START_TEST(other_paths)
{
    learn();
    flow[SLOW].comm->shown.up = _i ? 3 : 1;
    flow[SLOW].comm->conn.last = _i ? 2 : 0;
    flow[SLOW].comm->conn.touched = _i ? 3 : 1;
    run(2 * S);
    flow[SLOW].comm->shown.up = 3;
    says_nothing(false);
}
END_TEST

/* Fewer than three other hosts, however many processes they have. */
START_TEST(few_hosts)
{
    for (int i = 0; i < FLOWS; i++) {
        snprintf(flow[i].peer.host, sizeof(flow[i].peer.host), "h%d", i == SLOW ? SLOW : i / 4);
    }
    learn();
    says_nothing(false);
}
END_TEST

/* Another process of this host, one that has not said yet who it is, what comes in. */
START_TEST(who_is_not_looked_at)
{
    snprintf(flow[SLOW].peer.host, sizeof(flow[SLOW].peer.host), "h9");
    flow[1].peer.host[0] = '\0';
    flow[2].comm->is_send = 0;
    flow[2].comm->rx = calloc(1, sizeof(*flow[2].comm->rx));
    learn();
    says_nothing(false);
    ck_assert_ptr_null(flow[SLOW].peer.slowness);
    ck_assert_ptr_null(flow[1].peer.slowness);
    ck_assert_ptr_null(flow[2].peer.slowness);
    ck_assert_ptr_nonnull(flow[0].peer.slowness);
    free(flow[2].comm->rx);
}
END_TEST

START_TEST(switched_off)
{
    inst->cfg.slow = _i;
    inst->cfg.watchdog = !_i;
    learn();
    says_nothing(false);
    ck_assert_ptr_null(flow[SLOW].peer.slowness);
}
END_TEST

/* --- who goes --- */

/* The last suspect: nobody is asked any more, and what was kept of it is freed. */
START_TEST(a_suspect_goes)
{
    unsigned n;

    learn();
    flow[SLOW].mute = true;
    flow[SLOW].rate = RATE / 5;
    run(4 * S);
    n = asked();
    ck_assert_uint_gt(n, 0);
    flow[SLOW].comm->is_send = 0; /* is not looked at, and has no memory anew */
    flow[SLOW].comm->rx = calloc(1, sizeof(*flow[SLOW].comm->rx));
    r2_slowness_leave(inst, &flow[SLOW].peer);
    ck_assert_ptr_null(flow[SLOW].peer.slowness);
    run(30 * S);
    ck_assert_uint_eq(asked(), n);
    ck_assert_uint_eq(said, 0);
    r2_slowness_leave(inst, &flow[SLOW].peer); /* nothing is left */
    free(flow[SLOW].comm->rx);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, said_once_and_over);
    tcase_add_test(t, questions);
    tcase_add_test(t, what_stands_with_us_does_not_count);
    tcase_add_test(t, what_comes_late_does_not_count);
    tcase_add_test(t, over_two_nics);
    tcase_add_test(t, several_connections);
    tcase_add_test(t, in_bursts);
    tcase_add_test(t, a_last_resort_is_down);
    tcase_add_test(t, several_processes);
    tcase_add_test(t, full_for_a_moment);
    tcase_add_test(t, well);
    tcase_add_loop_test(t, a_nic_full_or_unknown, 0, 4);
    tcase_add_test(t, too_many_nics);
    tcase_add_test(t, nccl_takes_late);
    tcase_add_loop_test(t, what_has_ended_is_not_touched, 0, 2);
    tcase_add_test(t, a_closed_connection);
    tcase_add_test(t, what_comes_in_is_not_asked_after);
    tcase_add_test(t, a_verdict_explains_it);
    tcase_add_loop_test(t, other_paths, 0, 2);
    tcase_add_test(t, few_hosts);
    tcase_add_test(t, who_is_not_looked_at);
    tcase_add_loop_test(t, switched_off, 0, 2);
    tcase_add_test(t, a_suspect_goes);
}

int main(void)
{
    return suite_run("slowness", 120, begin, end, add);
}
