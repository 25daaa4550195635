/* Events for NCCL's profiler: what is begun and ended of a message, when, below which parent. */
#include "tests/unit/race_rig.h"

#include "plugin/telemetry/r2_prof.h"

#define ON      "NCCL_R2_PROFILER_EVENTS=1"
#define EVENTS  64
#define PARENTS 64

struct seen {
    struct r2_prof_desc desc;
    int parent, open;
};

/* The profiler; and what NCCL calls the steps: pointers into steps[]. */
static struct {
    struct seen ev[EVENTS];
    unsigned n, ends;
    int keeps_none;
} prof;
static char steps[PARENTS];

static void listen_to(void *arg, void **event, void *parent, const struct r2_prof_desc *desc)
{
    struct seen *e;

    /* foreign code: no gate is held meanwhile */
    ck_assert_ptr_eq(arg, steps);
    ck_assert_int_eq(atomic_load(&comm(0)->gate.in) | atomic_load(&comm(0)->gate.word), 0);
    ck_assert_int_eq(atomic_load(&comm(1)->gate.in) | atomic_load(&comm(1)->gate.word), 0);
    if (desc == NULL) {
        e = *event;
        ck_assert(e >= prof.ev && e < prof.ev + prof.n && e->open);
        e->open = 0;
        prof.ends++;
        return;
    }
    ck_assert_ptr_null(*event);
    ck_assert((char *)parent >= steps && (char *)parent < steps + PARENTS);
    ck_assert_uint_lt(prof.n, EVENTS);
    e = &prof.ev[prof.n++];
    *e = (struct seen){.desc = *desc, .parent = (int)((char *)parent - steps), .open = 1};
    *event = prof.keeps_none ? NULL : e;
}

static void profiled(int nics, const char *const *options)
{
    memset(&prof, 0, sizeof(prof));
    r2_prof_set(listen_to, steps);
    start(nics, options);
}

static struct r2_req *req_of(int side, int op)
{
    return rig->side[side].op[op % RIG_MAX_OPS].req;
}

static void begin(int side, int op, int step)
{
    void *parent = &steps[step];

    ck_assert_ptr_nonnull(req_of(side, op));
    rig_enter(&rig->side[side]);
    r2_prof_begin(req_of(side, op), &parent);
}

static unsigned open_of(int step)
{
    unsigned n = 0;

    for (unsigned i = 0; i < prof.n; i++) {
        n += prof.ev[i].parent == step && prof.ev[i].open;
    }
    return n;
}

/* Events below @step, over NIC @nic (-1: any). */
static unsigned count_of(int step, int nic)
{
    unsigned n = 0;

    for (unsigned i = 0; i < prof.n; i++) {
        n += prof.ev[i].parent == step && (nic < 0 || prof.ev[i].desc.device == nic);
    }
    return n;
}

static uint64_t bytes_of(int step)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < prof.n; i++) {
        n += prof.ev[i].parent == step ? prof.ev[i].desc.bytes : 0;
    }
    return n;
}

/* --- in health --- */

/* One event per part, from its work request to the completion of that; of a receive one, from the
 * call to the end. */
START_TEST(tells_what_is_on_its_way)
{
    const struct ib_path *p;

    profiled(2, (const char *[]){ON, NULL});
    p = &comm(0)->conn.path[0];
    recv_post(0, 5000);
    begin(1, slot[0].r_op, 1);
    ck_assert_uint_eq(prof.n, 1);
    ck_assert_uint_eq(prof.ev[0].desc.bytes, 5000);
    ck_assert_int_eq(prof.ev[0].desc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    ck_assert_uint_eq(prof.ev[0].desc.qp, comm(1)->conn.path[0].qp->qp_num);
    rig_run(rig, 20 * RIG_US);
    send_post(0);
    begin(0, slot[0].s_op, 0);
    ck_assert_uint_eq(prof.n, 2);
    ck_assert_int_eq(prof.ev[1].desc.device, p->nic);
    ck_assert_uint_eq(prof.ev[1].desc.qp, p->qp->qp_num);
    ck_assert_uint_eq(prof.ev[1].desc.wr_id, ib_wr_id(IB_WR_DATA, 0, 0));
    ck_assert_int_eq(prof.ev[1].desc.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    ck_assert_uint_eq(prof.ev[1].desc.bytes, 5000);
    ck_assert_uint_eq(open_of(0) + open_of(1), 2);
    finish(1, RIG_MS);
    ck_assert_uint_eq(prof.n, 2);
    ck_assert_uint_eq(prof.ends, 2);
    stop();
    ck_assert_uint_eq(prof.n, 2);
}
END_TEST

/* The part's event ends with its completion, the request later: an acknowledgement is not on the
 * wire from here. */
START_TEST(a_part_ends_before_its_message)
{
    profiled(1, (const char *[]){ON, NULL});
    recv_burst(1, 5000);
    rig->side[1].asleep = 1;
    send_post(0);
    begin(0, slot[0].s_op, 0);
    rig_run(rig, RIG_MS);
    ck_assert(!rig_done(rig, 0, slot[0].s_op));
    ck_assert_uint_eq(prof.ends, 1);
    rig->side[1].asleep = 0;
    finish(1, RIG_S);
    ck_assert_uint_eq(prof.n, 1);
    stop();
}
END_TEST

/* NCCL tests the oldest request alone: what becomes of the others is told meanwhile. */
START_TEST(the_others_are_looked_at)
{
    profiled(2, (const char *[]){ON, NULL});
    rig->side[0].oldest_alone = 1;
    recv_burst(3, 5000);
    rig->side[1].asleep = 1;
    for (int i = 0; i < 3; i++) {
        send_post(i);
        begin(0, slot[i].s_op, i);
    }
    rig_run(rig, RIG_MS);
    ck_assert(!rig_done(rig, 0, slot[0].s_op));
    ck_assert_uint_eq(prof.ends, 3);
    rig->side[1].asleep = 0;
    finish(3, RIG_S);
    ck_assert_uint_eq(prof.n, 3);
    rig->side[0].oldest_alone = 0;
    stop();
}
END_TEST

static const char *const silent[][3] = {
    {"NCCL_R2_PROFILER_EVENTS=0", NULL}, {NULL}, {ON, NULL}, {ON, NULL}};

/* Off, off by default, nobody listens, NCCL gives no parent: not a call. */
START_TEST(says_nothing_unasked)
{
    memset(&prof, 0, sizeof(prof));
    r2_prof_set(_i == 2 ? NULL : listen_to, steps);
    start(1, silent[_i]);
    ck_assert_int_eq(comm(0)->prof != NULL, _i == 3);
    recv_burst(1, 5000);
    send_post(0);
    rig_enter(&rig->side[0]);
    if (_i == 3) {
        r2_prof_begin(req_of(0, slot[0].s_op), NULL);
    } else {
        begin(0, slot[0].s_op, 0);
    }
    finish(1, RIG_MS);
    ck_assert_uint_eq(prof.n, 0);
    stop();
}
END_TEST

/* What has no room on its path is not on its way. */
START_TEST(what_waits_is_not_on_its_way)
{
    profiled(1, (const char *[]){ON, "NCCL_R2_RQ_DEPTH=32", NULL});
    recv_burst(20, 100);
    rig->side[1].asleep = 1;
    for (int i = 0; i < 20; i++) {
        send_post(i);
        begin(0, slot[i].s_op, i);
    }
    ck_assert_uint_ne(comm(0)->tx->msg[19].unposted, 0);
    ck_assert_uint_eq(count_of(19, -1), 0);
    rig->side[1].asleep = 0;
    finish(20, RIG_S);
    ck_assert_uint_eq(count_of(19, -1), 1);
    ck_assert_uint_eq(prof.n, 20);
    ck_assert_uint_eq(prof.ends, 20);
    stop();
}
END_TEST

/* A flush has the number of a receive, and nothing to do with it. */
START_TEST(a_flush_is_no_receive)
{
    void *data = in[0];
    int size = 100, done = 0;
    struct r2_req *req;

    profiled(1, (const char *[]){ON, "NCCL_R2_FLUSH=always", NULL});
    messages(R2_LEDGER_WINDOW, 100);
    recv_post(0, 100);
    begin(1, slot[0].r_op, 1);
    ck_assert_uint_eq(open_of(1), 1);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_iflush(comm(1), 1, &data, &size, &r_mr, &req), R2_OK);
    ck_assert_ptr_nonnull(req);
    ck_assert_uint_eq(req->seq % R2_LEDGER_WINDOW, req_of(1, slot[0].r_op)->seq % R2_LEDGER_WINDOW);
    while (!done) {
        ck_assert_int_eq(r2_net_test(req, &done, NULL), R2_OK);
        rig_turn(rig, RIG_US);
        rig_enter(&rig->side[1]);
    }
    ck_assert_uint_eq(open_of(1), 1);
    send_post(0);
    finish(1, RIG_S);
    ck_assert_uint_eq(prof.ends, 1);
    stop();
}
END_TEST

/* A parent belongs to one request: the next one in its slot has none of its own. */
START_TEST(the_next_in_the_slot_is_another)
{
    profiled(2, (const char *[]){ON, NULL});
    recv_burst(1, 5000);
    send_post(0);
    begin(0, slot[0].s_op, 0);
    finish(1, RIG_MS);
    fire("h0:n0 down"); /* to where the first one was not */
    messages(2 * R2_LEDGER_WINDOW, 100);
    ck_assert_uint_eq(prof.n, 1);
    ck_assert_uint_eq(prof.ends, 1);
    stop();
}
END_TEST

/* What the profiler does not keep is not ended. */
START_TEST(not_kept_is_not_ended)
{
    profiled(1, (const char *[]){ON, NULL});
    prof.keeps_none = 1;
    recv_burst(1, 5000);
    send_post(0);
    begin(0, slot[0].s_op, 0);
    finish(1, RIG_MS);
    ck_assert_uint_eq(prof.n, 1);
    ck_assert_uint_eq(prof.ends, 0);
    stop();
}
END_TEST

/* --- parts, groups --- */

/* A message that is cut has an event per part, each over its own NIC. */
START_TEST(each_part_has_its_own)
{
    profiled(4, (const char *[]){ON, "NCCL_R2_SPREAD=1", "NCCL_R2_CUT_MIN=4096", NULL});
    recv_burst(1, 60000);
    send_post(0);
    begin(0, slot[0].s_op, 0);
    ck_assert_uint_eq(count_of(0, -1), comm(0)->tx->msg[0].nparts);
    ck_assert_uint_eq(count_of(0, -1), 4);
    for (int nic = 0; nic < 4; nic++) {
        ck_assert_uint_eq(count_of(0, nic), 1);
    }
    ck_assert_uint_eq(bytes_of(0), 60000);
    finish(1, RIG_MS);
    ck_assert_uint_eq(prof.ends, 4);
    stop();
}
END_TEST

/* A group: one event for each buffer that NCCL has a parent for. */
START_TEST(a_group_has_one_for_each_buffer)
{
    void *data[3] = {in[0], in[1], in[2]}, *parent[3] = {&steps[10], NULL, &steps[12]};
    size_t sizes[3] = {1000, 2000, 3000};
    int tags[3] = {1, 2, 3}, op;

    profiled(1, (const char *[]){ON, NULL});
    for (int i = 0; i < 3; i++) {
        slot[i].rig = rig;
    }
    op = rig_irecv(rig, 3, data, sizes, tags, r_mr);
    for (int i = 0; i < 3; i++) {
        slot[i].r_op = op;
    }
    rig_enter(&rig->side[1]);
    r2_prof_begin(req_of(1, op), parent);
    ck_assert_uint_eq(prof.n, 2);
    ck_assert_uint_eq(bytes_of(10), 1000);
    ck_assert_uint_eq(bytes_of(12), 3000);
    for (int i = 0; i < 3; i++) {
        rig_send_wait(rig, out[i], sizes[i], tags[i], s_mr);
        ck_assert_uint_eq(prof.ends, 0);
    }
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_eq(prof.n, 2);
    ck_assert_uint_eq(prof.ends, 2);
}
END_TEST

/* --- failures --- */

/* The NIC dies with the part on it: that event ends, the retransmission is another one, on the NIC
 * that took over. */
START_TEST(a_retransmission_is_an_event_of_its_own)
{
    profiled(2, (const char *[]){ON, "NCCL_R2_T_SUSPECT=1000", NULL});
    recv_burst(2, 5000);
    rig_fault(rig, "h0:n0 blackhole");
    for (int i = 0; i < 2; i++) {
        send_post(i);
        begin(0, slot[i].s_op, i);
        ck_assert_uint_eq(count_of(i, 0), 1);
        ck_assert_uint_eq(count_of(i, 1), 0);
    }
    rig->side[0].asleep =
        1; /* the look after it finds the retransmission in the place of the first try */
    hold_completions(0, 1);
    fire("h0:n0 down");
    rig_run(rig, 100 * RIG_MS);
    rig->side[0].asleep = 0;
    rig_run(rig, RIG_MS);
    for (int i = 0; i < 2; i++) {
        ck_assert(comm(0)->tx->msg[i].part[0].wr_out);
        ck_assert_uint_eq(open_of(i), 1);
        ck_assert_uint_eq(count_of(i, -1), 2);
    }
    ck_assert_uint_eq(prof.ends, 2);
    show_completions();
    finish(2, RIG_S);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(count_of(i, 0), 1);
        ck_assert_uint_eq(count_of(i, 1), 1);
        ck_assert_uint_eq(open_of(i), 0);
    }
    ck_assert_uint_eq(prof.ends, 4);
    ck_assert_uint_gt(retransmitted(), 0);
    stop();
}
END_TEST

/* The only NIC returns, with a new incarnation: another event. */
START_TEST(a_new_incarnation_is_another_way)
{
    uint32_t was;

    profiled(1, (const char *[]){ON, NULL});
    was = inc(0, 0);
    recv_burst(1, 5000);
    rig_fault(rig, "h0:n0 blackhole");
    send_post(0);
    begin(0, slot[0].s_op, 0);
    fire("*:n0 qp-error");
    fire("h0:n0 restore");
    finish(1, 60 * RIG_S);
    ck_assert_uint_gt(inc(0, 0), was);
    ck_assert_uint_eq(count_of(0, 0), 2);
    ck_assert_uint_eq(prof.ends, 2);
    stop();
}
END_TEST

/* There is room for so many events of a message; all that were begun end. */
START_TEST(no_more_than_there_is_room_for)
{
    profiled(8, (const char *[]){ON, "NCCL_R2_SPREAD=1", "NCCL_R2_CUT_MIN=4096", NULL});
    recv_burst(1, 60000);
    rig_fault(rig, "h0:* blackhole");
    send_post(0);
    begin(0, slot[0].s_op, 0);
    ck_assert_uint_eq(comm(0)->tx->msg[0].nparts, 8);
    for (int i = 1; i < 8; i++) {
        char text[32];

        snprintf(text, sizeof(text), "h0:n%d down", i);
        fire(text);
    }
    rig_fault(rig, "h0:n0 restore");
    finish(1, 10 * RIG_S);
    ck_assert_uint_gt(retransmitted(), 0);
    ck_assert_uint_eq(count_of(0, -1), R2_PROF_EVENTS);
    ck_assert_uint_eq(prof.ends, R2_PROF_EVENTS);
    stop();
}
END_TEST

/* The connection ends: events end before the error is told. */
START_TEST(an_error_ends_them)
{
    profiled(1, (const char *[]){ON, "NCCL_R2_GIVE_UP=100", NULL});
    rig->side[0].oldest_alone = 1;
    recv_burst(2, 5000);
    rig_fault(rig, "h0:n0 blackhole");
    for (int i = 0; i < 2; i++) {
        begin(1, slot[i].r_op, 1);
        send_post(i);
        begin(0, slot[i].s_op, 0);
    }
    ck_assert_uint_eq(open_of(0) + open_of(1), 4);
    fire("*:n0 fatal");
    ck_assert(rig_until(rig, rig_both_failed, 60 * RIG_S));
    ck_assert_uint_eq(open_of(0) + open_of(1), 0);
    ck_assert_uint_eq(prof.ends, 4);
}
END_TEST

/* The same while the work request is still out. */
START_TEST(an_abort_ends_them)
{
    profiled(1, (const char *[]){ON, NULL});
    recv_burst(1, 5000);
    rig_fault(rig, "h0:n0 blackhole");
    send_post(0);
    begin(0, slot[0].s_op, 0);
    rig->side[0].still = 1; /* nobody takes its completion */
    rig_dereg(rig, 0, s_mr);
    rig_turn(rig, RIG_US);
    ck_assert_int_eq(rig->side[0].status, R2_ERR_ARG);
    ck_assert(comm(0)->tx->msg[0].part[0].wr_out);
    ck_assert_uint_eq(prof.n, 1);
    ck_assert_uint_eq(prof.ends, 1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, tells_what_is_on_its_way);
    tcase_add_test(t, a_part_ends_before_its_message);
    tcase_add_test(t, the_others_are_looked_at);
    tcase_add_loop_test(t, says_nothing_unasked, 0, 4);
    tcase_add_test(t, what_waits_is_not_on_its_way);
    tcase_add_test(t, a_flush_is_no_receive);
    tcase_add_test(t, the_next_in_the_slot_is_another);
    tcase_add_test(t, not_kept_is_not_ended);
    tcase_add_test(t, each_part_has_its_own);
    tcase_add_test(t, a_group_has_one_for_each_buffer);
    tcase_add_test(t, a_retransmission_is_an_event_of_its_own);
    tcase_add_test(t, a_new_incarnation_is_another_way);
    tcase_add_test(t, no_more_than_there_is_room_for);
    tcase_add_test(t, an_error_ends_them);
    tcase_add_test(t, an_abort_ends_them);
}

int main(void)
{
    return run_suite("prof", add);
}
