/* Control messages over NICs: what incarnations how long, who is asked when nobody answers
 * (docs/control.md). */
#include "tests/unit/inband_rig.h"

#include <errno.h>

#include "plugin/probe/health/r2_pair_int.h"

static const char *const on[] = {"NCCL_R2_INBAND=on", "NCCL_R2_GIVE_UP=100000",
                                 "NCCL_R2_BALANCE=off", NULL};

#define MORE 16

/* More connections to the same process. */
static struct {
    struct r2_listen *listen;
    struct r2_comm *tx, *rx;
    struct ib_mr *mr;
} more[MORE];

static void more_connect(int i)
{
    uint8_t handle[R2_NET_HANDLE_SIZE];

    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_listen(inst(1), 0, handle, &more[i].listen), R2_OK);
    for (int n = 0; n < 100000 && !(more[i].tx && more[i].rx); n++) {
        if (!more[i].tx) {
            rig_enter(&rig->side[0]);
            ck_assert_int_eq(r2_net_connect(inst(0), 0, handle, &more[i].tx), R2_OK);
        }
        if (!more[i].rx) {
            rig_enter(&rig->side[1]);
            ck_assert_int_eq(r2_net_accept(more[i].listen, &more[i].rx), R2_OK);
        }
        rig_turn(rig, 10 * RIG_US);
    }
    ck_assert(more[i].tx && more[i].rx);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_reg(more[i].tx, out, sizeof(out), IB_PTR_HOST, 0, -1, &more[i].mr),
                     R2_OK);
}

/* Receivers are slow, so that all there is to say, for seconds, are words that need no answer:
 * nothing goes over NICs, unless the channel stands still. */
START_TEST(slow_receivers)
{
    struct r2_req *req;

    memset(more, 0, sizeof(more));
    begin(3, on);
    for (int i = 0; i < MORE; i++) {
        more_connect(i);
    }
    rig_run(rig, RIG_S);
    channel_hook();
    channel[0].silent = channel[1].silent = _i;
    for (int t = 0; t < 8000; t++) {
        rig_enter(&rig->side[0]);
        for (int i = 0; i < MORE; i++) {
            if (t < 61 * i) {
                continue; /* not all at once */
            }
            ck_assert_int_eq(r2_net_isend(more[i].tx, out[i], 1000, 0, more[i].mr, &req), R2_OK);
            ck_assert_ptr_null(req);
        }
        rig_turn(rig, RIG_MS);
    }
    ck_assert_uint_gt(rig_count(rig, 0, FO_MSG_CTS_REQUEST), 8 * MORE);
    ck_assert_int_eq(inst(0)->inband.sent > 0, _i);
    ck_assert_int_eq(comm(0)->peer->channel.inband_logged, _i);
    for (int i = 0; i < MORE; i++) {
        rig_enter(&rig->side[0]);
        ck_assert_int_eq(r2_net_dereg(more[i].tx, more[i].mr), R2_OK);
        r2_net_close(more[i].tx);
        rig_enter(&rig->side[1]);
        r2_net_close(more[i].rx);
        r2_net_close_listen(more[i].listen);
    }
    stop();
}
END_TEST

static unsigned over_nics;

static void note_over_nics(enum r2_log_level level, const char *file, int line, const char *msg)
{
    over_nics += strstr(msg, "control messages go over") != NULL;
}

/* Said of each peer where many are cut off together: of the first. */
START_TEST(many_peers_without_a_channel)
{
    union fo_body body = {0};
    uint8_t record[FO_MAX_RECORD];
    struct r2_peer *peer;
    size_t len;

    begin(3, on);
    rig_run(rig, RIG_S);
    r2_log_flush();
    r2_log_many_first(4);
    over_nics = 0;
    r2_log_sink_set(note_over_nics);
    peer = comm(0)->peer;
    body.delivery_query.dst = comm(0)->fo.peer;
    body.delivery_query.src = comm(0)->id;
    len = fo_pack(FO_MSG_DELIVERY_QUERY, &body, record, sizeof(record));
    ck_assert_uint_gt(len, 0);
    for (int i = 0; i < 10; i++) { /* one, again and again, stands for many */
        rig_enter(&rig->side[0]);
        peer->channel.lost = 1;
        peer->channel.inband_logged = 0;
        r2_inband_send(inst(0), peer, record, len);
        ck_assert(peer->channel.inband_logged);
        peer->channel.lost = 0;
    }
    r2_log_flush();
    ck_assert_uint_eq(over_nics, 4);
}
END_TEST

/* --- a pair's jobs --- */

/* Completions of the messages over NIC 1 of process 0 show when the queue pairs of its NIC 0 are in
 * error, or destroyed, and that is not known there yet. */
static int shows_late;
static int (*true_get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ev);

static int get_async_event_shows(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    const struct r2_pair *p = pair(0, 0);

    if (p->build.state == R2_PAIR_DESTROY && p->job.busy &&
        (shows_late ? p->inband.qp == NULL : !p->inband.up)) {
        show_completions();
    }
    return true_get_async_event(ctx, ev);
}

static void send_announcement(uint32_t inc)
{
    union fo_body b = {.probe = {.nic = 0,
                                 .peer_nic = 0,
                                 .inc = inc,
                                 .flags = FO_PROBE_REQUEST,
                                 .addr.port.mtu = IBV_MTU_1024}};
    uint8_t msg[512];
    size_t len = fo_pack(FO_MSG_PROBE, &b, msg, sizeof(msg));

    ck_assert_uint_gt(len, 0);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(ib_inband_send(&pair(1, 1)->inband, &inst(1)->inband.pool[1], msg, len, 0), 0);
}

/* The peer announces another queue pair while ours is taken down: what it says is heard within the
 * end of that job. */
START_TEST(announced_while_it_is_taken_down)
{
    begin(2, on);
    shows_late = _i;
    late_cq.poll_cq = inst(0)->nics.nic[1].ctx->ops.poll_cq;
    late_cq.cq = inst(0)->inband.pool[1].cq;
    inst(0)->nics.nic[1].ctx->ops.poll_cq = poll_cq_late;
    true_get_async_event = inst(0)->v.get_async_event;
    inst(0)->v.get_async_event = get_async_event_shows;
    send_announcement(pair(1, 0)->inc + 1000);
    rig_run(rig, 100 * RIG_US);
    rig_enter(&rig->side[0]);
    r2_pair_rebuild(pair(0, 0));
    rig_run(rig, 10 * RIG_MS);
    ck_assert_ptr_null(late_cq.cq);
    ck_assert_uint_eq(inst(0)->inband.received, 1);
    ck_assert_str_eq(rig->last_warn[0], "");
    ck_assert(rig_until(rig, all_pairs_up, 5 * RIG_S));
    stop();
}
END_TEST

static struct ibv_srq *(*true_create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
static unsigned looked;

/* Of a pair that has no queue pair: its job was back before that of the one that opens the pool has
 * ended. */
static struct ibv_srq *create_srq_looks(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct r2_pair other = {.inst = inst(0)};

    while (inst(0)->nics.nic[other.nic].pd != pd) {
        other.nic++;
    }
    looked++;
    r2_inband_built(&other);
    ck_assert_uint_eq(inst(0)->inband.tried >> other.nic & 1, 0);
    ck_assert_uint_eq(inst(0)->inband.open >> other.nic & 1, 0);
    return true_create_srq(pd, attr);
}

START_TEST(pool_that_is_being_opened)
{
    race_create(2, on);
    looked = 0;
    true_create_srq = inst(0)->v.create_srq;
    inst(0)->v.create_srq = create_srq_looks;
    rig_connect(rig, 0, 0);
    race_register();
    ck_assert(rig_until(rig, all_pairs_up, RIG_S));
    ck_assert_uint_eq(looked, 2);
    ck_assert_uint_eq(inst(0)->inband.open, 3);
    stop();
}
END_TEST

/* Numbers are used again at once: a job that is out has made one with a number whose last messages
 * are still there. They are those of the old one's peer. */
START_TEST(number_of_a_queue_pair_that_is_being_made)
{
    struct r2_pair *fresh = calloc(1, sizeof(*fresh));
    uint8_t msg[64];
    size_t len = fo_pack(FO_MSG_BYE_OK, &(union fo_body){.bye_ok = {.dst = 99999, .src = 99999}},
                         msg, sizeof(msg));

    begin(2, on);
    ck_assert_ptr_nonnull(fresh);
    fresh->inst = inst(0);
    fresh->build.state = R2_PAIR_BUILD;
    fresh->job.busy = 1;
    fresh->inband.qpn = pair(0, 0)->inband.qpn;
    fresh->next = inst(0)->index.pairs;
    inst(0)->index.pairs = fresh;
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(ib_inband_send(&pair(1, 0)->inband, &inst(1)->inband.pool[0], msg, len, 0), 0);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(inst(0)->inband.received, 1);
    inst(0)->index.pairs = fresh->next;
    free(fresh);
    stop();
}
END_TEST

static int (*true_modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static enum ibv_qp_state refused_state;

/* Of those for messages over NIC 0. */
static int modify_qp_refuses(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int first = qp->context == inst(0)->nics.nic[0].ctx || qp->context == inst(1)->nics.nic[0].ctx;

    return qp->srq && first && attr->qp_state == refused_state ? EINVAL
                                                               : true_modify_qp(qp, attr, mask);
}

/* ... and the next one may have it. */
START_TEST(number_of_a_queue_pair_that_could_not_be_made)
{
    race_create(2, on);
    true_modify_qp = inst(0)->v.modify_qp;
    inst(0)->v.modify_qp = modify_qp_refuses;
    refused_state = IBV_QPS_INIT;
    rig_connect(rig, 0, 0);
    race_register();
    messages(4, 1000);
    rig_run(rig, RIG_S);
    ck_assert(r2_pair_ready(pair(0, 0)) && pair(0, 0)->inband.qp == NULL);
    ck_assert(pair(0, 1)->inband.up);
    ck_assert_uint_eq(pair(0, 0)->inband.qpn, 0);
    ck_assert_uint_eq(pair(0, 0)->carried.qpn, 0);
    stop();
}
END_TEST

/* A queue pair for messages that one end cannot connect: its pair is not made anew for ever, though
 * its probe answers every time. */
START_TEST(never_comes_to_stand)
{
    uint32_t before;

    begin(3, on);
    true_modify_qp = inst(_i)->v.modify_qp;
    inst(_i)->v.modify_qp = modify_qp_refuses;
    refused_state = IBV_QPS_RTR;
    rig_enter(&rig->side[0]);
    r2_pair_rebuild(pair(0, 0));
    rig_run(rig, RIG_S);
    ck_assert(r2_pair_ready(pair(0, 0)) && !pair(_i, 0)->inband.up);
    rig_oob_cut(rig, 1);
    before = inst(0)->probing.inc + inst(1)->probing.inc;
    for (int i = 0; i < 3000; i++) {
        rig_enter(&rig->side[i & 1]);
        r2_peer_emit(inst(i & 1), comm(i & 1)->peer, FO_MSG_BYE_OK,
                     &(union fo_body){.bye_ok = {.dst = 77777, .src = 77777}});
        rig_kick(&rig->side[i & 1]);
        rig_run(rig, 10 * RIG_MS);
    }
    ck_assert_uint_ge(inst(0)->probing.inc + inst(1)->probing.inc, before + 8);
    ck_assert_uint_le(inst(0)->probing.inc + inst(1)->probing.inc, before + 60);
    inst(_i)->v.modify_qp = true_modify_qp;
    for (int i = 0; i < 2500 && !all_pairs_up(rig); i++) { /* and is when it can be: MEND_MAX_NS */
        rig_enter(&rig->side[i & 1]);
        r2_peer_emit(inst(i & 1), comm(i & 1)->peer, FO_MSG_BYE_OK,
                     &(union fo_body){.bye_ok = {.dst = 77777, .src = 77777}});
        rig_kick(&rig->side[i & 1]);
        rig_run(rig, 10 * RIG_MS);
    }
    ck_assert(all_pairs_up(rig));
    stop();
}
END_TEST

/* A message has come when its queue pair is taken down, and nobody has looked yet: it is heard, and
 * its buffer is there for the next one. */
START_TEST(buffers_of_messages_that_nobody_has_looked_at)
{
    struct fab_counters sum;
    uint8_t msg[64];
    size_t len = fo_pack(FO_MSG_BYE_OK, &(union fo_body){.bye_ok = {.dst = 99999, .src = 99999}},
                         msg, sizeof(msg));

    begin(2, on);
    for (int i = 0; i < IB_INBAND_RECVS + 8; i++) {
        uint64_t unknown = inst(1)->refused.unknown_records;

        rig->side[1].still = 1;
        rig_enter(&rig->side[0]);
        ck_assert_int_eq(ib_inband_send(&pair(0, 0)->inband, &inst(0)->inband.pool[0], msg, len, 0),
                         0);
        rig_run(rig, 100 * RIG_US);
        rig_enter(&rig->side[1]);
        r2_pair_rebuild(pair(1, 0));
        rig_run(rig, RIG_MS);
        rig->side[1].still = 0;
        rig_kick(&rig->side[1]);
        rig_run(rig, 2 * RIG_MS);
        ck_assert(rig_until(rig, all_pairs_up, RIG_S));
        ck_assert_uint_eq(inst(1)->refused.unknown_records, unknown + 1);
    }
    fab_inproc_totals(rig->f, &sum);
    ck_assert_uint_eq(sum.rnr_naks, 0);
    stop();
}
END_TEST

/* Two peers take nothing: what they keep busy is half of the buffers, and each of the others has
 * one. */
START_TEST(peers_that_take_nothing)
{
    struct ib_inband_pool *pool;
    struct ib_inband_qp *q;
    uint8_t msg[64];
    size_t len = fo_pack(FO_MSG_BYE_OK, &(union fo_body){.bye_ok = {.dst = 99999, .src = 99999}},
                         msg, sizeof(msg));

    begin(2, on);
    pool = &inst(0)->inband.pool[0];
    q = &pair(0, 0)->inband;
    rig_enter(&rig->side[0]);
    for (int i = 0; i < IB_INBAND_QP_SENDS; i++) {
        ck_assert_int_eq(ib_inband_send(q, pool, msg, len, 0), 0);
    }
    ck_assert_int_eq(ib_inband_send(q, pool, msg, len, 0), EAGAIN);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(q->out, 0);
    for (int i = 0; i < 2 * IB_INBAND_QP_SENDS; i++) {
        pool->owner[i] = 0xfffff0 + (unsigned)i % 2;
    }
    for (int n = 1; n <= 20; n++) {
        rig_enter(&rig->side[0]);
        ck_assert_int_eq(ib_inband_send(q, pool, msg, len, 0), 0);
        ck_assert_int_eq(ib_inband_send(q, pool, msg, len, 0), EAGAIN);
        rig_run(rig, 10 * RIG_MS);
        ck_assert_uint_eq(inst(1)->inband.received, IB_INBAND_QP_SENDS + (unsigned)n);
    }
    memset(pool->owner, 0, sizeof(pool->owner));
    stop();
}
END_TEST

/* A way takes nothing: its queue pair says so by at most one time-out a second, and is found to be
 * broken. */
START_TEST(way_that_takes_nothing)
{
    struct fab_counters sum;
    uint8_t msg[64];
    size_t len = fo_pack(FO_MSG_BYE_OK, &(union fo_body){.bye_ok = {.dst = 99999, .src = 99999}},
                         msg, sizeof(msg));
    uint64_t before;
    int s;

    begin(2, on);
    rig_run(rig, RIG_S);
    fab_inproc_totals(rig->f, &sum);
    before = sum.timeouts;
    fire("h1:n0 blackhole");
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(ib_inband_send(&pair(0, 0)->inband, &inst(0)->inband.pool[0], msg, len, 0), 0);
    for (s = 0; s < 10 && pair(0, 0)->inband.up; s++) {
        rig_run(rig, RIG_S);
        fab_inproc_totals(rig->f, &sum);
        ck_assert_uint_le(sum.timeouts - before, (unsigned)s + 1);
    }
    ck_assert_int_ge(s, 2);
    ck_assert_int_le(s, 4);
    fire("h1:n0 clear");
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, many_peers_without_a_channel);
    tcase_add_test(t, way_that_takes_nothing);
    tcase_add_test(t, peers_that_take_nothing);
    tcase_add_test(t, buffers_of_messages_that_nobody_has_looked_at);
    tcase_add_loop_test(t, never_comes_to_stand, 0, 2);
    tcase_add_test(t, number_of_a_queue_pair_that_could_not_be_made);
    tcase_add_test(t, pool_that_is_being_opened);
    tcase_add_test(t, number_of_a_queue_pair_that_is_being_made);
    tcase_add_loop_test(t, announced_while_it_is_taken_down, 0, 2);
    tcase_add_loop_test(t, slow_receivers, 0, 2);
}

int main(void)
{
    return run_suite("control messages over NICs, incarnations", add);
}
