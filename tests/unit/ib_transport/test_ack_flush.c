/* NCCL_R2_ACK=flush (P34): a part counts when it has been read back through the NIC that brought
 * it. On host memory, which NCCL_R2_FLUSH=always has treated as a GPU's. */
#include "tests/unit/race_rig.h"

#include "plugin/ib_transport/ib_ack_flush.h"

#define FLUSH "NCCL_R2_FLUSH=always"
#define ACK   "NCCL_R2_ACK=flush"

static struct ib_lane *lane(int i)
{
    return &comm(1)->flush.lane->lane[i];
}

static void nothing_waits(void)
{
    ck_assert_uint_eq(comm(1)->rx->unread, 0);
    for (int i = 0; i < R2_LEDGER_WINDOW; i++) {
        ck_assert_uint_eq(comm(1)->rx->ledger.entry[i].seen, 0);
    }
}

/* Reads of R's lane @i go out, and their completions do not show. */
static void hold_lane(int i)
{
    struct ibv_context_ops *ops = &rig->side[1].inst->nics.nic[lane(i)->nic].ctx->ops;

    late_cq.poll_cq = ops->poll_cq;
    late_cq.cq = lane(i)->cq;
    ops->poll_cq = poll_cq_late;
}

/* Four messages are in R's memory, their completions polled, and no read has come back. */
static void four_unread(const char *ack, const char *more)
{
    start(2, (const char *[]){FLUSH, ack, "NCCL_R2_T_PACKET=50", more, NULL});
    messages(4, 1000);
    recv_burst(4, 5000);
    hold_lane(0);
    send_burst(4);
    rig_run(rig, 200 * RIG_US);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, 5000);
    }
}

/* Neither end is done before the read is back; without the option both are. */
START_TEST(counts_when_it_has_been_read)
{
    four_unread(_i ? ACK : "NCCL_R2_ACK=e2e", NULL);
    if (_i) {
        ck_assert_uint_eq(acked(), 4);
        ck_assert_uint_eq(comm(1)->rx->unread, 4);
        ck_assert(!sends_done(rig) && !rig_done(rig, 1, slot[0].r_op));
    } else {
        ck_assert_uint_eq(acked(), 8);
        ck_assert(rig_all_done(rig));
    }
    show_completions();
    finish(4, RIG_MS);
    ck_assert_uint_eq(retransmitted(), 0);
    ck_assert_uint_eq(comm(1)->flush.lane->reads, _i ? 8 : 0);
    stop();
    nothing_waits();
}
END_TEST

/* The NIC, or its queue pair, dies between completion and read: the ledger does not have what it
 * brought, S sends it again. */
START_TEST(dies_between_completion_and_read)
{
    static const char *const what[] = {"h1:n0 down", "h1:n0 fatal", "h1:n0 remove",
                                       "*:n0 qp-error"};
    int flush = _i % 2;

    four_unread(flush ? ACK : "NCCL_R2_ACK=e2e", NULL);
    fire(what[_i / 2]);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    show_completions();
    finish(4, RIG_S);
    wait_settled(0);
    ck_assert_uint_eq(retransmitted(), flush ? 4 : 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, flush ? 10000 : 5000);
    }
    ck_assert_uint_eq(flush ? comm(1)->flush.lane->ack->dropped : 0, flush ? 4 : 0);
    stop();
    nothing_waits();
}
END_TEST

/* Some of a burst are read, the others not, when the NIC dies: only those are sent again. */
START_TEST(only_what_was_not_read_goes_again)
{
    start(2, (const char *[]){FLUSH, ACK, NULL});
    messages(4, 1000);
    recv_burst(8, 5000);
    for (int i = 0; i < 5; i++) {
        send_post(i);
    }
    wait_acked(9, 10 * RIG_MS);
    hold_lane(0);
    for (int i = 5; i < 8; i++) {
        send_post(i);
    }
    rig_run(rig, 200 * RIG_US);
    ck_assert_uint_eq(comm(1)->rx->unread, 3);
    fire("h1:n0 down");
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    show_completions();
    finish(8, RIG_S);
    ck_assert_uint_eq(retransmitted(), 3);
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(slot[i].landed, i < 5 ? 5000 : 10000);
    }
    stop();
    nothing_waits();
}
END_TEST

/* A lane that breaks is built again and reads what the old one owed; no path is lost. */
START_TEST(a_broken_lane_reads_again)
{
    struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

    four_unread(ACK, NULL);
    ck_assert_int_eq(rig->side[1].inst->v.modify_qp(lane(0)->qp, &err, IBV_QP_STATE), 0);
    show_completions();
    recv_post(4, 3000); /* the next read finds it */
    send_post(4);
    finish(5, RIG_S);
    ck_assert_uint_eq(comm(1)->flush.lane->rebuilt, 1);
    ck_assert_uint_eq(comm(1)->fo.switches, 0);
    ck_assert_uint_eq(retransmitted(), 0);
    stop();
    nothing_waits();
}
END_TEST

static struct ibv_qp *(*true_create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
static unsigned refused;

static struct ibv_qp *create_no_lane(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (attr->cap.max_send_wr == IB_LANE_DEPTH) {
        refused++;
        errno = ENOMEM;
        return NULL;
    }
    return true_create_qp(pd, attr);
}

/* A NIC that carries data and reads no more loses its path: what it brought comes over another one.
 */
START_TEST(a_nic_that_reads_no_more_is_left)
{
    four_unread(ACK, NULL);
    refused = 0;
    true_create_qp = rig->side[1].inst->v.create_qp;
    rig->side[1].inst->v.create_qp = create_no_lane;
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
    ck_assert_uint_gt(refused, 0);
    ck_assert(!is_up(1, 0) || inc(1, 0) > 1);
    ck_assert_uint_eq(retransmitted(), 4);
    rig->side[1].inst->v.create_qp = true_create_qp;
    show_completions();
    finish(4, RIG_S);
    nothing_waits();
}
END_TEST

/* Claimed by S, seen by R, not read yet: no proof against the NIC. */
START_TEST(a_claim_of_what_waits_is_no_proof)
{
    four_unread(ACK, "NCCL_R2_T_SUSPECT=10");
    rig_run(rig, 100 * RIG_MS); /* several claims, and less than a read may take */
    ck_assert_uint_gt(rig_count(rig, 0, FO_MSG_DELIVERY_QUERY), 1);
    ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
    show_completions();
    finish(4, RIG_S);
    ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
    ck_assert_uint_eq(retransmitted(), 0);
    stop();
}
END_TEST

/* Messages in parts over several NICs, groups and adaptive routing beside it, and an end that
 * leaves while something waits. */
START_TEST(parts_over_all_nics)
{
    uint64_t reads, recv_unread;

    start(3, (const char *[]){FLUSH, ACK, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=4096",
                              _i ? "NCCL_IB_ADAPTIVE_ROUTING=1" : "NCCL_IB_ADAPTIVE_ROUTING=0",
                              "NCCL_IB_AR_THRESHOLD=500", NULL});
    messages(8, 30000);
    recv_burst(32, 20000);
    send_burst(32);
    fire("h1:n1 down");
    finish(32, RIG_S);
    for (int p = 0; p < 3; p++) {
        ck_assert_uint_gt(comm(1)->conn.path[p].count.bytes, 0);
    }
    nothing_waits();
    hold_lane(0);
    recv_post(0, 30000);
    send_post(0);
    rig_run(rig, 200 * RIG_US);
    ck_assert_uint_gt(comm(1)->rx->unread, 0);
    reads = comm(1)->flush.lane->reads;
    rig_dereg(rig, 1, r_mr); /* an abort */
    recv_unread = comm(1)->rx->unread;
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(comm(1)->flush.lane->reads, reads); /* of memory that may be gone */
    ck_assert_uint_eq(comm(1)->rx->unread, recv_unread);
    show_completions();
    rig_dereg(rig, 0, s_mr);
}
END_TEST

/* What comes while NCCL does not call R is polled by the service thread. How long its read takes
 * counts from when it can be posted. */
START_TEST(nobody_calls_the_receiver)
{
    start(1,
          (const char *[]){FLUSH, ACK, "0:NCCL_R2_T_SUSPECT=5000", "1:NCCL_R2_T_SUSPECT=10", NULL});
    messages(4, 1000);
    recv_burst(4, 5000);
    rig->side[1].asleep = 1;
    send_burst(4);
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_eq(comm(1)->rx->unread, 4);
    rig->side[1].asleep = 0;
    finish(4, RIG_S);
    ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
    ck_assert_uint_eq(retransmitted(), 0);
    stop();
    nothing_waits();
}
END_TEST

/* A receive without room may be at the end of what is registered: there is nothing to be read. */
START_TEST(zero_bytes_are_not_read)
{
    uint64_t reads;

    start(2, (const char *[]){FLUSH, ACK, NULL});
    messages(4, 1000);
    reads = comm(1)->flush.lane->reads;
    ck_assert_int_ge(rig_irecv1(rig, in + SLOTS, 0, 0, r_mr), 0);
    rig_send_wait(rig, out[0], 0, 0, s_mr);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_eq(comm(1)->flush.lane->rebuilt, 0);
    ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
    ck_assert_uint_eq(comm(1)->flush.lane->reads, reads);
}
END_TEST

static uint64_t now_zero(void *arg)
{
    return 0;
}

/* A sender that knows no limit: no more waits than the list holds. */
START_TEST(more_than_there_is_room_for)
{
    static struct ib_recv rx;
    static struct ib_flush f;
    static struct ib_ack_flush ack;
    static struct ib_conn l;
    static struct ib_path p;
    struct ib_imm imm = {.nparts = 2};
    int wait;

    l.now_ns = now_zero;
    rx = (struct ib_recv){.conn = &l, .flush = &f};
    f.ack = &ack;
    r2_ledger_init(&rx.ledger);
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        rx.msg[i].gpu = 1;
        r2_ledger_post(&rx.ledger, 10);
    }
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        imm.seq = (uint16_t)i;
        ck_assert_int_eq(ib_ack_flush_arrival(&rx, &p, imm, 1, &wait), R2_LEDGER_NEW);
        ck_assert_int_eq(wait, 1);
    }
    imm.k = 1;
    ck_assert_int_eq(ib_ack_flush_arrival(&rx, &p, imm, 1, &wait), R2_LEDGER_WINDOW_ERR);
    ck_assert_uint_eq(rx.unread, R2_LEDGER_WINDOW);
    ck_assert_uint_eq(rx.ledger.entry[R2_LEDGER_WINDOW - 1].seen, 1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, counts_when_it_has_been_read, 0, 2);
    tcase_add_loop_test(t, dies_between_completion_and_read, 0, 8);
    tcase_add_test(t, only_what_was_not_read_goes_again);
    tcase_add_test(t, a_broken_lane_reads_again);
    tcase_add_test(t, a_nic_that_reads_no_more_is_left);
    tcase_add_test(t, a_claim_of_what_waits_is_no_proof);
    tcase_add_loop_test(t, parts_over_all_nics, 0, 2);
    tcase_add_test(t, nobody_calls_the_receiver);
    tcase_add_test(t, zero_bytes_are_not_read);
    tcase_add_test(t, more_than_there_is_room_for);
}

int main(void)
{
    return run_suite("acknowledged when flushed", add);
}
