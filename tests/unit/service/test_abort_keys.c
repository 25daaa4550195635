/*
 * An abort, and who comes next in that process (P27): the next registration has the keys of the
 * one that was taken away, and here the same address, too. What the connection had under way must
 * neither write that memory nor send it, whatever the peer and the channel do.
 */
#include "tests/unit/race_rig.h"

#include <errno.h>

#include "tests/fabric/verbs/fab_ibv_priv.h"

#define LEN    20000
#define N      4
#define TENANT 0x5a

static uint32_t old_key;

static uint8_t *mem(int side)
{
    return side ? in[0] : out[0];
}

static struct ib_mr_stats stats(int side)
{
    struct ib_mr_stats s;

    ib_mr_cache_stats(rig->side[side].inst->mem.mrs, &s);
    return s;
}

/* Who comes next: the same memory with other contents. Returns its key on NIC 0. */
static uint32_t tenant_comes(int side)
{
    struct ib_mr *mr;

    memset(mem(side), TENANT, sizeof(in));
    rig_enter(&rig->side[side]);
    mr = ib_mr_get(rig->side[side].inst->mem.mrs, mem(side), sizeof(in), IB_PTR_HOST, 0, -1, 3);
    ck_assert_ptr_nonnull(mr);
    return ib_mr_rkey(mr, 0);
}

static size_t bytes_of_tenant(int side)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof(in); i++) {
        n += mem(side)[i] == TENANT;
    }
    return n;
}

static void all_paths(const char *what)
{
    char text[40];

    snprintf(text, sizeof(text), "h0:* %s", what);
    fire(text);
}

/*
 * @side is stopped (SIGSTOP), or its channel is lost: of the abort it hears nothing. Its NICs go
 * on.
 */
static void deaf(int side, int stopped)
{
    if (stopped) {
        rig->side[side].still = rig->side[side].asleep = 1;
    } else {
        rig_oob_cut(rig, 1);
    }
}

static void hears(int side, int stopped)
{
    if (stopped) {
        rig->side[side].still = rig->side[side].asleep = 0;
        rig_kick(&rig->side[side]);
    } else {
        rig_oob_cut(rig, 0);
    }
}

/* Messages are posted and do not get through; RC repeats them. */
static void under_way(void)
{
    start(2, NULL);
    recv_burst(N, LEN);
    all_paths("blackhole");
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(slot[0].landed, 0);
}

/* NCCL aborts end @side, and goes on. */
static void abort_end(int side)
{
    struct ib_mr *mr = side ? r_mr : s_mr;

    old_key = ib_mr_rkey(mr, 0);
    slots_taken_away = side;
    rig_dereg(rig, side, mr);
}

/*
 * The sender's NIC repeats what it was given long before, and the receiver's process has other
 * plans with that memory.
 */
START_TEST(late_packets)
{
    under_way();
    deaf(0, _i);
    abort_end(1);
    ck_assert_uint_eq(tenant_comes(1), old_key);
    rig_close(rig, 1);
    all_paths("up");
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
    ck_assert_uint_eq(stats(1).kept, 0);
    hears(0, _i);
    ck_assert(rig_until(rig, sends_done, RIG_MS) == 0); /* none of them is done, ... */
    rig_run(rig, RIG_S);
    ck_assert_int_ne(rig->side[0].status, R2_OK); /* ... and it says so */
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
}
END_TEST

/*
 * The sender has read the CTS, and posts when the buffer behind it is another's. Also where the
 * library flushes by itself, and the device takes packets for some time after it has answered.
 */
START_TEST(late_sender)
{
    race_nic = (struct fab_nic_cfg){.linger_ns = _i ? 5 * RIG_MS : 0};
    start(2, NULL);
    if (_i) {
        fire("h1:* provider ionic");
    }
    recv_burst(N, LEN);
    rig->side[0].asleep = 1;
    rig_oob_cut(rig, 1);
    abort_end(1);
    ck_assert_uint_eq(tenant_comes(1), old_key);
    rig_close(rig, 1);
    rig->side[0].asleep = 0;
    send_burst(N);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
    race_nic = (struct fab_nic_cfg){0};
    rig_oob_cut(rig, 0);
    rig_run(rig, RIG_S);
    ck_assert_int_ne(rig->side[0].status, R2_OK);
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
}
END_TEST

/*
 * The sender aborts while its NIC repeats: what it would read now is not the message, and the
 * receiver could not tell.
 */
START_TEST(new_memory_is_not_sent)
{
    under_way();
    deaf(1, _i);
    abort_end(0);
    ck_assert_uint_eq(tenant_comes(0), old_key);
    rig_close(rig, 0);
    all_paths("up");
    rig_run(rig, 300 * RIG_MS);
    hears(1, _i);
    rig_run(rig, RIG_S);
    for (int i = 0; i < N; i++) {
        ck_assert_ptr_null(memchr(in[i], TENANT, LEN));
    }
    ck_assert_uint_eq(comm(1)->rx->ledger.rdone, 0);
    ck_assert_int_ne(rig->side[1].status, R2_OK);
}
END_TEST

static int all_in_error(const struct r2_comm *c)
{
    int n = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        n += fab_ibv_qp(c->conn.path[p].qp)->state == IBV_QPS_ERR;
    }
    return n == c->conn.npaths;
}

/*
 * Closed with requests outstanding and every handle left: nobody waits, and nothing is left to
 * the answer to BYE, which does not come.
 */
START_TEST(closed_under_requests)
{
    struct r2_comm *c;
    uint64_t from;

    under_way();
    deaf(!_i, 0);
    c = comm(_i);
    from = rig_now(rig);
    slots_taken_away = _i;
    rig_close(rig, _i);
    ck_assert_uint_eq(rig_now(rig), from);
    rig_run(rig, 100 * RIG_US);
    ck_assert_int_eq(rig_comms(rig, _i), 1);
    ck_assert(all_in_error(c));
    all_paths("up");
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_eq(slot[0].landed, 0);
    rig_oob_cut(rig, 0);
    rig_run(rig, RIG_S);
}
END_TEST

/*
 * Nothing is outstanding: nothing goes to ERR, nobody waits, and what the peer still has to say
 * is heard.
 */
START_TEST(released_in_order)
{
    uint64_t from;

    start(2, NULL);
    messages(3, LEN);
    from = rig_now(rig);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    ck_assert_uint_eq(rig_now(rig), from);
    rig_run(rig, RIG_MS);
    for (int side = 0; side < 2; side++) {
        ck_assert_uint_eq(comm(side)->conn.up, 3);
        ck_assert_uint_eq(stats(side).kept + (uint64_t)stats(side).live, 0);
        rig_close(rig, side);
    }
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
}
END_TEST

/* --- devices that do not let go --- */

static void stays(int side, uint64_t kept)
{
    ck_assert_uint_eq(stats(side).kept, kept);
    ck_assert_int_eq(stats(side).live, (int)kept);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[side], "stay registered"));
    ck_assert_uint_ne(tenant_comes(side), old_key); /* nobody else has its keys */
}

static uint8_t other[2][2 * LEN] __attribute__((aligned(4096)));
static struct ib_mr *other_mr[2];

/* One more message, in buffers of their own. */
static void other_message(void)
{
    for (int side = 0; side < 2; side++) {
        other_mr[side] = rig_reg(rig, side, other[side], LEN);
    }
    ck_assert_int_ge(rig_irecv1(rig, other[1], LEN, 0, other_mr[1]), 0);
    rig_send_wait(rig, other[0], LEN, 0, other_mr[0]);
}

/*
 * The driver has not come back from another call: NCCL has its thread again after T_dead, and the
 * next buffer does not keep it for that long.
 */
START_TEST(a_worker_that_is_stuck)
{
    const uint64_t dead = 300 * RIG_MS, fence = 20 * RIG_MS;
    uint64_t from;

    start(2, (const char *[]){"NCCL_R2_T_DEAD=300", NULL});
    recv_burst(N, LEN);
    all_paths("blackhole-tx");
    send_burst(N);
    other_message();
    rig->side[_i].worker_armed |= 1; /* device 0: its jobs wait */
    from = rig_now(rig);
    abort_end(_i);
    ck_assert_uint_ge(rig_now(rig) - from, dead);
    ck_assert_uint_lt(rig_now(rig) - from, dead + 10 * RIG_MS);
    ck_assert_uint_eq(rig->side[_i].inst->jobs.unhalted, 1); /* device 1 was not in the way */
    ck_assert_ptr_nonnull(strstr(rig->last_warn[_i], "NIC fab0"));
    from = rig_now(rig);
    rig_dereg(rig, _i, other_mr[_i]);
    ck_assert_uint_ge(rig_now(rig) - from, fence);
    ck_assert_uint_lt(rig_now(rig) - from, fence + RIG_MS);
    stays(_i, 2);
    from = rig_now(rig);
    rig_close(rig, _i);
    ck_assert_uint_eq(rig_now(rig), from);
    rig->side[_i].worker_armed &= ~1u;
    rig_enter(&rig->side[_i]);
    while (r2_inst_worker_step(rig->side[_i].inst, 0)) {
    }
    rig_kick(&rig->side[_i]);
    all_paths("up");
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(stats(_i).kept, 2); /* for good */
}
END_TEST

static int (*real_modify)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static unsigned refused;

static int modify_refuses(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (attr->qp_state == IBV_QPS_ERR) {
        refused++;
        return ETIMEDOUT;
    }
    return real_modify(qp, attr, mask);
}

/*
 * The driver comes back with an error each time, as where the firmware does not answer: ten
 * T_fence.
 */
START_TEST(a_driver_that_refuses)
{
    struct ib_verbs *v;
    uint64_t from;

    under_way();
    v = &rig->side[_i].inst->v;
    real_modify = v->modify_qp;
    v->modify_qp = modify_refuses;
    refused = 0;
    from = rig_now(rig);
    abort_end(_i);
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_ge(rig_now(rig) - from, 200 * RIG_MS);
    ck_assert_uint_lt(rig_now(rig) - from, 210 * RIG_MS);
    stays(_i, 1);
    v->modify_qp = real_modify;
    rig_close(rig, _i);
    all_paths("up");
    rig_run(rig, RIG_S);
}
END_TEST

static void hang_ends(void *arg)
{
    fire("h1:n0 unhang");
}

static int modify_then_hangs(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int rc = real_modify(qp, attr, mask);

    if (attr->qp_state == IBV_QPS_ERR && rc == 0 && !refused) {
        refused++;
        fire("h1:n0 hang");
        fab_inproc_at(rig->f, rig_now(rig) + 60 * RIG_MS, hang_ends, NULL);
    }
    return rc;
}

/*
 * R's device says ERR, hangs with arrivals in hand, and is back long after T_pcie. Its library has
 * flushed them at once.
 */
START_TEST(a_device_that_hangs_after_its_answer)
{
    struct ib_verbs *v;

    race_nic = (struct fab_nic_cfg){.linger_ns = 100 * RIG_MS};
    start(1, NULL);
    fire("h1:* provider ionic");
    recv_burst(N, LEN);
    fire("h0:n0 delay 3ms");
    send_burst(N);
    deaf(0, 1);
    v = &rig->side[1].inst->v;
    real_modify = v->modify_qp;
    v->modify_qp = modify_then_hangs;
    refused = 0;
    rig_run(rig, 2900 * RIG_US);
    abort_end(1);
    ck_assert_uint_eq(refused, 1);
    ck_assert_uint_eq(tenant_comes(1), old_key);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_gt(counters(1, 0)->lingered, 0); /* it had them in hand */
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
    v->modify_qp = real_modify;
    race_nic = (struct fab_nic_cfg){0};
    hears(0, 1);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
}
END_TEST

/* R's device is taken away with writes on their way over PCIe, which land within T_pcie. */
START_TEST(a_device_that_is_taken_away)
{
    uint64_t from;

    race_create_on(
        &(struct fab_inproc_opts){.on_memory_write = wrote,
                                  .dma_ns = 15 * RIG_MS,
                                  .nic = {.dead_dma_ns = 18 * RIG_MS, .dead_dma_blind = true}},
        1, NULL);
    rig_connect(rig, 0, 0);
    race_register();
    recv_burst(N, LEN);
    rig_run(rig, 20 * RIG_MS);
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    fire("h1:n0 remove");
    rig_run(rig, 100 * RIG_US);
    from = rig_now(rig);
    abort_end(1);
    ck_assert_uint_ge(rig_now(rig) - from, 18 * RIG_MS);
    ck_assert_uint_le(rig_now(rig) - from, 30 * RIG_MS);
    ck_assert_uint_eq(stats(1).kept, 0);
    memset(mem(1), TENANT, sizeof(in));
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_eq(bytes_of_tenant(1), sizeof(in));
    rig_close(rig, 1);
}
END_TEST

/*
 * From a device that is dead no registration is taken anyway. Its driver says so at once, or is
 * stuck: then it is waited for no longer than T_fence, since FATAL may be said of one that goes on.
 */
START_TEST(a_device_that_is_dead)
{
    uint64_t from;

    int side = _i / 2, stuck = _i % 2;

    under_way();
    rig->side[side].worker_armed |= (uint32_t)stuck;
    fire(side ? "h1:n0 fatal" : "h0:n0 fatal");
    rig_run(rig, RIG_MS);
    ck_assert_int_eq(ib_nic_state_get(&rig->side[side].inst->nics.nic[0]), IB_NIC_FATAL);
    from = rig_now(rig);
    abort_end(side);
    ck_assert_uint_lt(rig_now(rig) - from, stuck ? 21 * RIG_MS : RIG_MS);
    ck_assert_uint_eq(stats(side).kept, stuck);
    rig->side[side].worker_armed &= ~1u;
    rig_close(rig, side);
    all_paths("up");
    rig_run(rig, RIG_S);
}
END_TEST

/* --- what the peer makes of it --- */

static unsigned ended, blamed;

/* A verdict has its suspect: "R2-N01 host=h0 nic=fab1 ... blame=nic". */
static void note_blame(enum r2_log_level level, const char *file, int line, const char *msg)
{
    ended += strstr(msg, "transport retries exceeded") != NULL;
    blamed += strstr(msg, "blame=") && !strstr(msg, "blame=process");
}

/*
 * The peer learns of the abort by its NICs alone, whose queue pairs get no answer any more: NICs
 * and what is between answer otherwise.
 */
START_TEST(no_nic_is_blamed)
{
    start(2, NULL);
    recv_burst(N, LEN);
    rig_oob_cut(rig, 1);
    rig->side[0].asleep = 1;
    abort_end(1);
    rig_close(rig, 1);
    rig->side[0].asleep = 0;
    send_burst(N);
    ended = blamed = 0;
    r2_log_sink_set(note_blame);
    rig_run(rig, 5 * RIG_S);
    ck_assert_uint_gt(ended, 0);
    ck_assert_uint_eq(blamed, 0);
    rig_oob_cut(rig, 0);
    rig_run(rig, RIG_S);
    ck_assert_int_ne(rig->side[0].status, R2_OK);
}
END_TEST

/* The peer hears of it when it begins: NCCL may be kept in here for long before it closes. */
START_TEST(told_before_the_close)
{
    under_way();
    abort_end(_i);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_ne(rig->side[!_i].status, R2_OK);
    ck_assert_uint_eq(comm(!_i)->fo.switches, 0);
    ck_assert_uint_gt(rig_count(rig, _i, FO_MSG_BYE), 0);
    ck_assert_uint_eq(rig_count(rig, _i, FO_MSG_DOWN), 0);
    rig_close(rig, _i);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, _i), 0);
    all_paths("up");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, late_packets, 0, 2);
    tcase_add_loop_test(t, late_sender, 0, 2);
    tcase_add_loop_test(t, new_memory_is_not_sent, 0, 2);
    tcase_add_loop_test(t, closed_under_requests, 0, 2);
    tcase_add_test(t, released_in_order);
    tcase_add_loop_test(t, a_worker_that_is_stuck, 0, 2);
    tcase_add_loop_test(t, a_driver_that_refuses, 0, 2);
    tcase_add_test(t, a_device_that_hangs_after_its_answer);
    tcase_add_test(t, a_device_that_is_taken_away);
    tcase_add_loop_test(t, a_device_that_is_dead, 0, 4);
    tcase_add_loop_test(t, told_before_the_close, 0, 2);
    tcase_add_test(t, no_nic_is_blamed);
}

int main(void)
{
    return run_suite("abort: keys that are used again", add);
}
