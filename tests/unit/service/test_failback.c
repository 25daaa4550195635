/* The exchange in which a path returns (P23, P24): OPEN, OPEN_OK, OPEN_UP lost, repeated, late, and
 * what fails meanwhile. */
#include "service/r2_reconnect.h"
#include "tests/unit/failback_rig.h"
#include "core/r2_registry.h"

static int drop_type, drop_left; /* records of this type that are lost from now on */
static unsigned dropped;
static union fo_body caught; /* the last of them */

static int lose(struct rig *r, int from, int type, union fo_body *body)
{
    if (type != drop_type || drop_left == 0) {
        return 1;
    }
    caught = *body;
    drop_left--;
    dropped++;
    return 0;
}

static void lose_records(int type, int n)
{
    drop_type = type;
    drop_left = n;
    dropped = 0;
    rig->filter = lose;
}

/* Path 0 is lost at @host and settled; its NIC comes back. */
static void lose_path(int host)
{
    rig_fault(rig, host ? "h1:n0 down" : "h0:n0 down");
    wait_settled(0);
    rig_fault(rig, host ? "h1:n0 up" : "h0:n0 up");
}

START_TEST(returns_as_the_next_incarnation)
{
    struct ibv_qp *old[2];
    uint32_t qpn[2], psn[2];

    start(2, NULL);
    messages(4);
    for (int i = 0; i < 2; i++) {
        old[i] = comm(i)->conn.path[0].qp;
        qpn[i] = old[i]->qp_num;
        psn[i] = comm(i)->conn.path[0].psn;
    }
    lose_path(_i);
    messages(4);
    ck_assert_uint_ge(wait_up(0, 2), 50 * RIG_MS);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(inc(i, 0), 2);
        ck_assert_uint_ne(comm(i)->conn.path[0].qp->qp_num, qpn[i]);
        ck_assert_uint_ne(comm(i)->conn.path[0].psn, psn[i]);
        ck_assert(
            comm(i)->ret->path[0].has_old); /* in ERR until no packet of it can be under way */
    }
    carries(0);
    rig_run(rig, 150 * RIG_MS);
    ck_assert(!comm(0)->ret->path[0].has_old && !comm(1)->ret->path[0].has_old);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_OPEN), 1);
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_OPEN_OK), 1);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_OPEN_UP), 1);
    stop();
}
END_TEST

static const int exchange[] = {FO_MSG_OPEN, FO_MSG_OPEN_OK, FO_MSG_OPEN_UP};

START_TEST(a_lost_record_is_said_again)
{
    start(2, NULL);
    lose_records(exchange[_i], 3);
    lose_path(0);
    ck_assert_uint_le(wait_up(0, 2), RIG_S);
    ck_assert_uint_eq(dropped, 3);
    ck_assert_uint_eq(inc(0, 0), 2);
    carries(0);
    stop();
}
END_TEST

/* What never arrives ends the attempt at both ends; the next one takes the next number. Meanwhile
 * the others carry. */
START_TEST(a_record_lost_for_ever_ends_the_attempt)
{
    start(2, NULL);
    lose_records(exchange[_i], -1);
    lose_path(0);
    for (int i = 0; i < 70; i++) {
        messages(1);
        rig_run(rig, 100 * RIG_MS);
    }
    ck_assert_uint_gt(dropped, 3);
    ck_assert(!is_up(0, 0));
    rig->filter = NULL;
    wait_up(0, 3);
    ck_assert_uint_eq(inc(0, 0), inc(1, 0));
    carries(0);
    stop();
}
END_TEST

/* Everything that was said about earlier incarnations reaches both ends once more. */
static void say_all_again(void)
{
    unsigned n = rig->sent_count;

    for (unsigned i = 0; i < n; i++) {
        struct rig_sent *m = &rig->sent[i];

        if (m->type >= FO_MSG_DOWN && m->type != FO_MSG_PROBE && m->type != drop_type) {
            rig_inject(rig, !m->from, (enum fo_type)m->type, &m->body);
        }
    }
    rig_run(rig, 5 * RIG_MS);
}

START_TEST(late_copies_change_nothing)
{
    start(2, NULL);
    for (uint32_t n = 2; n < 5; n++) {
        lose_path((int)n & 1);
        wait_up(0, n);
        messages(4);
        say_all_again();
        ck_assert(is_up(0, 0) && is_up(1, 0));
        ck_assert_uint_eq(inc(0, 0), n);
        ck_assert_uint_eq(inc(1, 0), n);
        messages(4);
    }
    rig_run(rig, RIG_S);
    say_all_again();
    carries(0);
    ck_assert_uint_eq(comm(0)->fo.switches, 3);
    ck_assert_uint_eq(comm(1)->fo.switches, 3);
    stop();
}
END_TEST

/* Copies in the middle of an exchange, and of one that was given up, while the next is under way.
 */
static int r_gave_up(void)
{
    return inc(1, 0) == 2 && comm(1)->fo.path[0].state == FO_FENCED;
}

START_TEST(copies_of_an_attempt_given_up_change_nothing)
{
    start(2, NULL);
    lose_records(FO_MSG_OPEN_OK, -1);
    lose_path(0);
    for (int i = 0; i < 150 && !r_gave_up(); i++) {
        say_all_again();
        rig_run(rig, 50 * RIG_MS);
    }
    ck_assert(r_gave_up());
    rig->filter = NULL;
    drop_type = 0;
    for (int i = 0; i < 100 && !(is_up(0, 0) && is_up(1, 0)); i++) {
        say_all_again();
        rig_run(rig, 50 * RIG_MS);
    }
    wait_up(0, 3);
    carries(0);
    stop();
}
END_TEST

START_TEST(an_end_that_cannot_build_says_so)
{
    uint64_t took;

    start(2, NULL);
    rig_fault(rig, "h0:n0 down");
    wait_settled(0);
    rig_fault(rig, _i ? "h1:n0 mr-fail 1" : "h0:n0 mr-fail 1");
    rig_fault(rig, "h0:n0 up");
    took = wait_up(0, 3);
    ck_assert_uint_eq(inc(0, 0), 3);
    ck_assert_uint_le(took, RIG_S); /* nobody waited for an answer that could not come */
    carries(0);
    stop();
}
END_TEST

/* --- faults while an incarnation is being opened --- */

static const char *fault_now, *fault_end;
static int fault_at;

static int break_at(struct rig *r, int from, int type, union fo_body *body)
{
    if (type == fault_at && fault_now) {
        rig_fault(r, fault_now);
        fault_now = NULL;
    }
    return 1;
}

static const struct {
    int at;
    const char *now, *end;
    uint32_t inc; /* that returns in the end; 0: the third */
} broken[] = {
    {FO_MSG_OPEN, "h0:n0 down", "h0:n0 up"},
    {FO_MSG_OPEN, "h1:n0 down", "h1:n0 up"},
    {FO_MSG_OPEN, "h0:n0 qp-error", NULL, 2},
    {FO_MSG_OPEN, "h1:n0 qp-error", NULL},
    {FO_MSG_OPEN_OK, "h0:n0 down", "h0:n0 up"},
    {FO_MSG_OPEN_OK, "h1:n0 down", "h1:n0 up"},
    {FO_MSG_OPEN_OK, "h0:n0 qp-error", NULL},
    {FO_MSG_OPEN_OK, "h1:n0 qp-error", NULL},
    {FO_MSG_OPEN_UP, "h0:n0 down", "h0:n0 up"},
    {FO_MSG_OPEN_UP, "h1:n0 down", "h1:n0 up"},
    {FO_MSG_OPEN_UP, "h0:n0 qp-error", NULL},
    {FO_MSG_OPEN_UP, "h1:n0 qp-error", NULL},
    {FO_MSG_OPEN_OK, "*:n0 down", "*:n0 up"},
    {FO_MSG_OPEN_UP, "*:n0 blackhole", "*:n0 restore"},
    {FO_MSG_OPEN, "*:n0 blackhole", "*:n0 restore"},
    {FO_MSG_OPEN_OK, "h0:n0 hang", "h0:n0 unhang"},
};

START_TEST(a_fault_at_each_step_costs_one_incarnation)
{
    uint32_t last;

    start(2, NULL);
    fault_at = broken[_i].at;
    fault_now = broken[_i].now;
    fault_end = broken[_i].end;
    rig->filter = break_at;
    lose_path(0);
    for (int i = 0; i < 20; i++) {
        messages(1);
        rig_run(rig, 20 * RIG_MS);
    }
    ck_assert_ptr_null(fault_now);
    last = inc(1, 0);
    if (fault_end) {
        rig_fault(rig, fault_end);
    }
    wait_up(0, broken[_i].inc ? broken[_i].inc : 3);
    ck_assert_uint_le(inc(1, 0), last + 2);
    ck_assert_uint_eq(inc(0, 0), inc(1, 0));
    carries(0);
    stop();
}
END_TEST

/* --- close while an incarnation is being opened --- */

static int block_at,
    block_side; /* the worker of NIC 0 at @block_side stands still from this record on */

static int block(struct rig *r, int from, int type, union fo_body *body)
{
    if (type == block_at) {
        r->side[block_side].worker_armed |= 1;
    }
    return 1;
}

static void unblock(void)
{
    for (int i = 0; i < 2; i++) {
        rig_enter(&rig->side[i]);
        rig->side[i].worker_armed &= ~1u;
        while (r2_inst_worker_step(rig->side[i].inst, 0)) {
        }
        rig_kick(&rig->side[i]);
    }
}

static const struct {
    enum r2_ret_state s, r;
    int drop, block_at, block_side;
} stops[] = {
    {R2_RET_NONE, R2_RET_R_BUILD, 0, -1, 1},
    {R2_RET_NONE, R2_RET_R_SENT, FO_MSG_OPEN, 0, 0},
    {R2_RET_S_BUILD, R2_RET_R_SENT, 0, FO_MSG_OPEN, 0},
    {R2_RET_S_SENT, R2_RET_R_SENT, FO_MSG_OPEN_OK, 0, 0},
    {R2_RET_S_SENT, R2_RET_R_JOIN, 0, FO_MSG_OPEN_OK, 1},
    {R2_RET_S_SENT, R2_RET_NONE, FO_MSG_OPEN_UP, 0, 0},
};
#define STOPS ((int)(sizeof(stops) / sizeof(stops[0])))
static int stop_now;

static int stopped(struct rig *r)
{
    return comm(0)->ret->path[0].state == stops[stop_now].s &&
           comm(1)->ret->path[0].state == stops[stop_now].r && inc(1, 0) == 2;
}

/* The exchange stands still in the states of @n. */
static void stop_exchange(int n)
{
    stop_now = n;
    block_at = stops[n].block_at;
    block_side = stops[n].block_side;
    if (stops[n].drop) {
        lose_records(stops[n].drop, -1);
    } else {
        rig->filter = block;
    }
    rig_fault(rig, "h0:n0 down");
    wait_settled(0);
    rig_run(rig, 10 * RIG_MS);
    if (block_at < 0) {
        rig->side[block_side].worker_armed |= 1;
    }
    rig_fault(rig, "h0:n0 up");
    ck_assert_msg(rig_until(rig, stopped, RIG_S), "S %d R %d, incarnation %u",
                  comm(0)->ret->path[0].state, comm(1)->ret->path[0].state, inc(1, 0));
}

/* One end closes, later the other one; or both at once. Nothing stays behind, nothing is touched
 * that is gone. */
START_TEST(close_in_each_state)
{
    int n = _i % STOPS, first = _i / STOPS % 2, both = _i / STOPS / 2;

    start(2, NULL);
    messages(2);
    stop_exchange(n);
    stop();
    rig_close(rig, first);
    rig_run(rig, both ? 0 : 30 * RIG_MS);
    rig_close(rig, !first);
    rig_run(rig, 10 * RIG_MS);
    unblock();
    rig_run(rig, 200 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, 0), 0);
    ck_assert_int_eq(rig_comms(rig, 1), 0);
    ck_assert_uint_eq(
        rig->side[0].inst->reconnect.builds[0] + rig->side[1].inst->reconnect.builds[0], 0);
}
END_TEST

/* Words of the exchange that come while the queue pairs are being destroyed. */
START_TEST(words_that_come_while_it_is_destroyed_begin_nothing)
{
    start(2, NULL);
    messages(2);
    stop_exchange(3); /* OPEN_OK is caught */
    stop();
    rig->side[1].worker_armed |= 1;
    rig_close(rig, 1);
    rig_run(rig, 30 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, 1), 1); /* its paths are on their way */
    for (int i = 0; i < 3; i++) {
        rig_inject(rig, 1, FO_MSG_OPEN_OK, &caught);
        rig_run(rig, RIG_MS);
    }
    unblock();
    rig_inject(rig, 1, FO_MSG_OPEN_OK, &caught);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, 1), 0);
}
END_TEST

/* The words of one end's abort, and a killed exchange, leave the other with an error, not with a
 * path half open. */
START_TEST(abort_in_each_state)
{
    start(2, NULL);
    messages(2);
    stop_exchange(_i % STOPS);
    ck_assert_int_ge(rig_irecv1(rig, in[0], sizeof(in[0]), 0, r_mr), 0);
    if (_i / STOPS) {
        rig_send_wait(rig, out[0], sizeof(out[0]), 0, s_mr);
    }
    rig_close(rig, _i / STOPS);
    rig_run(rig, 30 * RIG_MS);
    unblock();
    rig_run(rig, 200 * RIG_MS);
    ck_assert_int_eq(rig->side[!(_i / STOPS)].status, R2_ERR_PEER);
    ck_assert_int_eq(rig_comms(rig, _i / STOPS), 0);
}
END_TEST

/* A NIC that fails while the last step is under way: the incarnation ends as it begins, and is not
 * announced. */
START_TEST(an_incarnation_over_a_nic_that_failed_meanwhile_ends_at_once)
{
    start(2, NULL);
    fault_at = _i ? FO_MSG_OPEN_UP : FO_MSG_OPEN_OK;
    fault_now = _i ? "h0:n0 down" : "h1:n0 down";
    rig->filter = break_at;
    lose_path(0);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_ptr_null(fault_now);
    ck_assert_uint_eq(inc(0, 0), 2);
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_OPEN_UP), (unsigned)_i);
    ck_assert_int_ne(comm(0)->fo.path[0].why.fault, IB_FAULT_SILENT); /* nobody had to ask */
    ck_assert_int_ne(comm(1)->fo.path[0].why.fault, IB_FAULT_SILENT);
    stop();
}
END_TEST

/* The sender cannot build, and its word about that is lost: the next OPEN is answered with it. */
START_TEST(the_word_of_a_failed_build_is_said_again)
{
    start(2, NULL);
    rig_fault(rig, "h0:n0 down");
    wait_settled(0);
    lose_records(FO_MSG_DOWN, 2);
    rig_fault(rig, "h0:n0 mr-fail 1");
    rig_fault(rig, "h0:n0 up");
    ck_assert_uint_le(wait_up(0, 3), RIG_S);
    ck_assert_uint_eq(dropped, 2);
    carries(0);
    stop();
}
END_TEST

static int lose_up_and_down(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_OPEN_UP && !(type == FO_MSG_DOWN && from == 1);
}

/* The receiver had it up and it is over there by now; of its words only FENCED arrives. */
START_TEST(fenced_alone_ends_what_is_being_opened)
{
    start(2, NULL);
    rig->filter = lose_up_and_down;
    lose_path(0);
    stop_now = 5;
    ck_assert(rig_until(rig, stopped, RIG_S));
    ck_assert(is_up(1, 0));
    rig_enter(&rig->side[1]);
    fo_fault(&comm(1)->fo, 0, &(struct ib_fault_info){.fault = IB_FAULT_ADMIN});
    rig_run(rig, 30 * RIG_MS);
    want_path = 0;
    ck_assert(settled(rig));
    rig->filter = NULL;
    wait_up(0, 3);
    carries(0);
    stop();
}
END_TEST

/* Whatever makes the service thread look at the connection, the hold time is what the pair has to
 * answer for. */
START_TEST(looks_do_not_shorten_the_hold)
{
    start(2, NULL);
    lose_path(0);
    for (int i = 0; i < 45; i++) {
        rig_run(rig, RIG_MS);
        rig_enter(&rig->side[1]);
        r2_comm_kick(comm(1));
    }
    ck_assert_uint_eq(inc(1, 0), 1);
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

/* A NIC that could not flush when the connection was made can after its return: it gets flushed
 * memory from then on. */
START_TEST(a_flush_lane_comes_with_the_path)
{
    create(2, (const char *[]){"NCCL_R2_FLUSH=always", NULL});
    fault_at = FO_MSG_CONF;
    fault_now = "h1:n0 mr-fail 1"; /* the next registration there is the lane's */
    rig->filter = break_at;
    join();
    ck_assert_ptr_null(fault_now);
    ck_assert_uint_eq(comm(1)->flush.lane->lacks, 1);
    messages(4);
    ck_assert_uint_eq(carried(1, 0), 0);
    lose_path(0);
    wait_up(0, 2);
    ck_assert_uint_eq(comm(1)->flush.lane->lacks, 0);
    carries(0);
    stop();
}
END_TEST

/* One old incarnation is kept at most: the next but one waits until no packet of it can be under
 * way. */
START_TEST(one_old_incarnation_is_kept_at_most)
{
    uint64_t second;

    start(2, (const char *[]){"NCCL_R2_T_PACKET=2000", NULL});
    lose_path(0);
    wait_up(0, 2);
    second = rig_now(rig);
    lose_path(1);
    rig_run(rig, 1500 * RIG_MS);
    ck_assert_uint_eq(inc(0, 0), 2); /* neither end has begun */
    ck_assert_uint_eq(inc(1, 0), 2);
    wait_up(0, 3);
    ck_assert_uint_ge(rig_now(rig) - second, 1900 * RIG_MS);
    carries(0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, returns_as_the_next_incarnation, 0, 2);
    tcase_add_loop_test(t, a_lost_record_is_said_again, 0, 3);
    tcase_add_loop_test(t, a_record_lost_for_ever_ends_the_attempt, 0, 3);
    tcase_add_test(t, late_copies_change_nothing);
    tcase_add_test(t, copies_of_an_attempt_given_up_change_nothing);
    tcase_add_loop_test(t, an_end_that_cannot_build_says_so, 0, 2);
    tcase_add_loop_test(t, a_fault_at_each_step_costs_one_incarnation, 0,
                        (int)(sizeof(broken) / sizeof(broken[0])));
    tcase_add_loop_test(t, close_in_each_state, 0, 4 * STOPS);
    tcase_add_test(t, words_that_come_while_it_is_destroyed_begin_nothing);
    tcase_add_loop_test(t, abort_in_each_state, 0, 2 * STOPS);
    tcase_add_loop_test(t, an_incarnation_over_a_nic_that_failed_meanwhile_ends_at_once, 0, 2);
    tcase_add_test(t, the_word_of_a_failed_build_is_said_again);
    tcase_add_test(t, fenced_alone_ends_what_is_being_opened);
    tcase_add_test(t, looks_do_not_shorten_the_hold);
    tcase_add_test(t, a_flush_lane_comes_with_the_path);
    tcase_add_test(t, one_old_incarnation_is_kept_at_most);
}

int main(void)
{
    return run_suite("fail-back: exchange", add);
}
