/* Adaptive routing: parts whose bytes go before what tells of them (P32, P33), in health and where
 * a failure comes between the two. */
#include "tests/unit/race_rig.h"
#include "plugin/probe/health/r2_load.h"

#define ON  "NCCL_IB_ADAPTIVE_ROUTING=1"
#define OFF "NCCL_IB_ADAPTIVE_ROUTING=0"

static struct ib_path *path(int side, int p)
{
    return &comm(side)->conn.path[p];
}

/* What one message costs on path 0. */
struct cost {
    uint64_t s_wrs, s_cqes, r_cqes, records;
};

static struct cost cost_now(void)
{
    return (struct cost){path(0, 0)->count.wrs, path(0, 0)->count.cqes, path(1, 0)->count.cqes,
                         path(1, 0)->nrecords};
}

static struct cost cost_of(size_t size)
{
    struct cost from = cost_now(), to;

    messages(1, size);
    rig_run(rig, RIG_MS);
    to = cost_now();
    return (struct cost){to.s_wrs - from.s_wrs, to.s_cqes - from.s_cqes, to.r_cqes - from.r_cqes,
                         to.records - from.records};
}

/* --- in health --- */

/* The threshold, both ends' consent, and the cost: one more work request, no more completions. */
START_TEST(parts_above_the_threshold_are_two_writes)
{
    static const struct {
        const char *option[2];
        size_t above; /* 0: none */
    } row[] = {{{ON}, 8192},
               {{ON, "NCCL_IB_AR_THRESHOLD=100"}, 100},
               {{ON, "NCCL_IB_AR_THRESHOLD=0"}, 1},
               {{"NCCL_IB_ADAPTIVE_ROUTING=0", "NCCL_IB_AR_THRESHOLD=100"}, 0},
               {{"NCCL_IB_AR_THRESHOLD=100"}, 0}, /* by default not on RoCE */
               {{"0:" ON, "NCCL_IB_AR_THRESHOLD=100"}, 0},
               {{"1:" ON, "NCCL_IB_AR_THRESHOLD=100"}, 0}};
    static const size_t size[] = {0, 1, 2, 100, 101, 8191, 8192, 8193, 50000, BIG};
    size_t above = row[_i].above == 1 ? 0 : row[_i].above;

    start(1, (const char *[]){row[_i].option[0], row[_i].option[1], NULL});
    messages(4, 1000);
    for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        struct cost c = cost_of(size[i]);
        unsigned two = row[_i].above && size[i] > above;

        ck_assert_msg(c.s_wrs == 1 + two && c.records == two && c.s_cqes == 1,
                      "%zu bytes: %llu WRs, %llu records, %llu CQEs", size[i],
                      (unsigned long long)c.s_wrs, (unsigned long long)c.records,
                      (unsigned long long)c.s_cqes);
    }
    ck_assert_uint_eq(path(0, 0)->nrecords, path(1, 0)->nrecords);
    stop();
}
END_TEST

static int (*true_query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

static int query_port_ib(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int rc = true_query_port(ctx, port, attr);

    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    return rc;
}

/* On InfiniBand it is on where nothing is said, and off where that is said. */
START_TEST(on_by_default_on_infiniband)
{
    race_create(1, (const char *[]){
                       _i ? "NCCL_IB_ADAPTIVE_ROUTING=0" : "NCCL_IB_ADAPTIVE_ROUTING=-1", NULL});
    true_query_port = rig->side[0].inst->v.query_port;
    for (int i = 0; i < 2; i++) {
        rig->side[i].inst->v.query_port = query_port_ib;
    }
    rig_connect(rig, 0, 0);
    race_register();
    messages(4, 8193);
    ck_assert_uint_eq(path(1, 0)->nrecords, _i ? 0 : 4);
    ck_assert_uint_eq(path(0, 0)->nrecords, _i ? 0 : 4);
}
END_TEST

static struct ibv_qp *(*true_create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

static struct ibv_qp *create_qp_plain(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (attr->cap.max_inline_data) {
        errno = EINVAL;
        return NULL;
    }
    return true_create_qp(pd, attr);
}

/* More records than the ring has slots, inline and from memory, beside parts that need none and in
 * groups of parts. */
START_TEST(records_go_round_the_ring)
{
    race_create(2, (const char *[]){ON, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=32768",
                                    "NCCL_R2_RQ_DEPTH=256", NULL});
    true_create_qp = rig->side[0].inst->v.create_qp;
    for (int i = 0; _i && i < 2; i++) {
        rig->side[i].inst->v.create_qp = create_qp_plain;
    }
    rig_connect(rig, 0, 0);
    race_register();
    ck_assert_uint_eq(path(0, 0)->cap.max_inline, _i ? 0 : 64);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < SLOTS; i++) {
            recv_post(i, i % 3 ? 20000 + (size_t)(100 * i + round) : (size_t)(8190 + i));
        }
        send_burst(SLOTS);
        finish(SLOTS, RIG_S);
        for (int i = 0; i < SLOTS; i++) {
            memset(in[i], POISON, BIG);
        }
    }
    for (int p = 0; p < 2; p++) {
        ck_assert_uint_gt(path(1, p)->nrecords, 2 * IB_RECORDS);
        ck_assert_uint_eq(path(0, p)->nrecords, path(1, p)->nrecords);
    }
    ck_assert_uint_eq(comm(0)->fo.switches, 0);
    stop();
}
END_TEST

/* S's completions stay away: its send queue fills up with pairs, the last of which finds one slot.
 */
START_TEST(the_send_queue_takes_pairs_to_its_last_slot)
{
    start(1, (const char *[]){ON, "NCCL_R2_RQ_DEPTH=32", NULL});
    messages(4, 1000);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(path(0, 0)->sq.used, 0);
    hold_completions(0, 0);
    for (int i = 0; i < 40; i++) {
        recv_post(i, i ? 9000 : 1000);
    }
    send_burst(40);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(path(0, 0)->cap.sq_depth, 64);
    ck_assert_uint_eq(path(0, 0)->sq.used, 65);
    ck_assert_uint_eq(acked(), 4 + 33);
    show_completions();
    finish(40, 10 * RIG_MS);
    ck_assert_uint_eq(path(0, 0)->sq.used, 0);
    ck_assert_uint_eq(comm(0)->fo.switches, 0);
    stop();
}
END_TEST

/* A part is one piece of work for its NIC, however many work requests it is: what says how long the
 * first one may take. */
START_TEST(what_is_in_front_is_a_part)
{
    struct r2_nic_load *load;

    start(1, (const char *[]){_i ? ON : OFF, NULL});
    load = &rig->side[0].inst->watch.load[0];
    messages(4, 1000);
    hold_completions(0, 0);
    recv_burst(4, 40000);
    send_burst(4);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(path(0, 0)->sq.used, _i ? 8 : 4);
    ck_assert_uint_eq(load->queued, 160000);
    ck_assert_uint_eq(load->front, 40000);
    show_completions();
    finish(4, 10 * RIG_MS);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(load->queued, 0);
    ck_assert_uint_eq(path(0, 0)->sq.bulk, 0);
    stop();
}
END_TEST

/* A group is partly delivered; what has come has its own size, less than there is room for. */
START_TEST(groups_have_the_sizes_that_were_sent)
{
    void *data[4];
    size_t room[4];
    int tags[4], r, s[4];

    start(2, (const char *[]){ON, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=4096",
                              "NCCL_IB_AR_THRESHOLD=1000", NULL});
    messages(4, 9000);
    for (int i = 0; i < 4; i++) {
        data[i] = in[i];
        room[i] = BIG;
        tags[i] = 10 + i;
    }
    r = rig_irecv(rig, 4, data, room, tags, r_mr);
    ck_assert_int_ge(r, 0);
    for (int i = 3; i >= 0; i--) { /* slot i gets message i of the others' count */
        fill(out[i], 100 + (uint64_t)i, 5000u * (unsigned)i + 1);
        s[i] = rig_send_wait(rig, out[i], 5000u * (unsigned)i + 1, 10 + i, s_mr);
        if (i == 2) {
            fire("h0:n1 down");
        }
    }
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    for (int i = 0; i < 4; i++) {
        size_t size = 5000u * (unsigned)i + 1;

        ck_assert_uint_eq(rig_size(rig, 1, r, i), size);
        ck_assert_uint_eq(rig_size(rig, 0, s[i], 0), size);
        for (size_t k = 0; k < BIG; k++) {
            ck_assert_uint_eq(in[i][k], k < size ? byte_of(100 + (uint64_t)i, k) : POISON);
        }
    }
    ck_assert_uint_eq(comm(1)->rx->count.bad_arrivals + comm(1)->rx->count.duplicates, 0);
    ck_assert_uint_gt(path(1, 0)->nrecords, 4);
}
END_TEST

/* --- paths that differ --- */

static int query_port_two_sorts(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    const char *name = rig->side[0].inst->v.get_device_name(ctx->device);

    return (name[strlen(name) - 1] & 1 ? query_port_ib : true_query_port)(ctx, port, attr);
}

/*
 * One NIC is InfiniBand, the other one RoCE, or InfiniBand at one end alone: each posting is what
 * its path says, also that of a part which was the other sort before.
 */
START_TEST(each_path_for_itself)
{
    static const struct {
        int two_sorts[2]; /* by end */
        const char *fault;
    } row[] = {{{1, 1}, "h0:n0 down"},
               {{1, 1}, "h1:n1 qp-error"},
               {{1, 0}, "h0:n1 down"},
               {{0, 1}, "h0:n1 down"}};
    int both = row[_i].two_sorts[0] && row[_i].two_sorts[1];

    race_create(2, (const char *[]){
                       "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=4096", "NCCL_IB_AR_THRESHOLD=1000",
                       "NCCL_IB_HCA=fab" /* named: else the other sort is no backup */, NULL});
    true_query_port = rig->side[0].inst->v.query_port;
    for (int i = 0; i < 2; i++) {
        rig->side[i].inst->v.query_port =
            row[_i].two_sorts[i] ? query_port_two_sorts : true_query_port;
    }
    rig_connect(rig, 0, 0);
    race_register();
    messages(6, 20000);
    ck_assert_uint_eq(path(1, 0)->nrecords, 0);
    ck_assert_uint_eq(path(1, 1)->nrecords, both ? 6 : 0);
    recv_burst(8, 50000);
    fire("h0:n0 delay 2ms");
    fire("h0:n1 delay 2ms");
    send_burst(8);
    fire(row[_i].fault);
    finish(8, RIG_S);
    ck_assert_uint_gt(retransmitted(), 0);
    ck_assert_uint_eq(path(1, 0)->nrecords, 0);
    ck_assert_int_eq(path(1, 1)->nrecords > 6, _i == 0); /* what was single before, as two */
    nothing_twice();
    stop();
}
END_TEST

/* --- a failure between the two --- */

/* What the driver of S's NIC 0 does to the next list of two. */
static struct {
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    enum { BOTH, LOSE_RECORD, REFUSE_RECORD, REFUSE_BOTH, OTHER_IMM, OTHER_BYTES, TOO_LONG } what;
    unsigned fired;
} driver;

static int post_send_odd(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct ibv_send_wr first = *wr, second;
    struct ib_record r = {0};
    struct ibv_sge sge;
    int rc;

    if (wr->next == NULL || driver.what == BOTH) {
        return driver.post_send(qp, wr, bad);
    }
    second = *wr->next;
    driver.fired++;
    if (driver.what == REFUSE_BOTH) {
        *bad = wr;
        return EIO;
    }
    if (driver.what == LOSE_RECORD || driver.what == REFUSE_RECORD) {
        first.next = NULL;
        *bad = wr->next;
        rc = driver.post_send(qp, &first, bad);
        ck_assert_int_eq(rc, 0);
        return driver.what == REFUSE_RECORD ? EIO : 0;
    }
    memcpy(&r, (void *)(uintptr_t)second.sg_list->addr, sizeof(r));
    r.imm ^= driver.what == OTHER_IMM ? 1u << 16 : 0; /* of the next message */
    r.bytes = driver.what == TOO_LONG ? BIG + 1 : r.bytes;
    sge = (struct ibv_sge){.addr = (uintptr_t)&r,
                           .length = driver.what == OTHER_BYTES ? 4 : sizeof(r)};
    second.sg_list = &sge;
    second.send_flags |= IBV_SEND_INLINE;
    first.next = &second;
    driver.what = BOTH;
    return driver.post_send(qp, &first, bad);
}

static void driver_odd(int what)
{
    struct ibv_context_ops *ops = &rig->side[0].inst->nics.nic[0].ctx->ops;

    if (ops->post_send != post_send_odd) {
        driver.post_send = ops->post_send;
    }
    driver.what = what;
    driver.fired = 0;
    ops->post_send = post_send_odd;
}

/* All bytes are in R's memory and nothing tells of them: the ledger does not have the part, and it
 * is sent again, whole. */
START_TEST(bytes_landed_and_their_record_lost)
{
    start(2, (const char *[]){ON, NULL});
    messages(4, 9000);
    recv_burst(1, 40000);
    driver_odd(LOSE_RECORD);
    send_burst(1);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(driver.fired, 1);
    ck_assert_uint_eq(slot[0].landed, 40000);
    slot_is_right(0);
    ck_assert_uint_eq(acked(), 4); /* and is not taken for a message */
    driver.what = BOTH;
    fire(_i ? "h1:n0 down" : "h0:n0 down");
    finish(1, RIG_S);
    ck_assert_uint_eq(slot[0].landed, 80000);
    ck_assert_uint_eq(retransmitted(), 1);
    ck_assert_uint_eq(path(1, 1)->nrecords, 1);
    stop();
}
END_TEST

/*
 * The driver takes the data and refuses the record, or, as far as S knows, may have taken it. The
 * data is slow, the word that the path is down slower: a copy that S sent elsewhere before that
 * would be done, and its slot used again, when the first one lands.
 */
START_TEST(record_refused_behind_slow_data)
{
    start(2, (const char *[]){ON, NULL});
    messages(4, 9000);
    recv_burst(1, 20000);
    fire("h0:n0 delay 2ms");
    channel_hook();
    channel[0].late_ns = 10 * RIG_MS;
    driver_odd(_i ? REFUSE_BOTH : REFUSE_RECORD);
    send_burst(1);
    ck_assert_uint_eq(driver.fired, 1);
    driver.what = BOTH;
    ck_assert(!is_up(0, 0));
    ck_assert_uint_eq(path_at(0, 0)->why.fault, IB_FAULT_CALL);
    ck_assert_uint_eq(r2_parts_of(&path_at(0, 0)->live, 4), 1); /* and S says so (P35) */
    rig_run(rig, 9 * RIG_MS);
    ck_assert(!rig_done(rig, 1, slot[0].r_op)); /* it waits for R's fence */
    ck_assert_uint_eq(slot[0].landed, _i ? 0 : 20000);
    finish(1, RIG_S);
    ck_assert_uint_eq(retransmitted(), 1);
    messages(4, 9000);
    rig_run(rig, 20 * RIG_MS);
    nothing_twice();
    stop();
}
END_TEST

/* The same with somebody else's slot behind it: what RACE_WITHOUT=pair-live shows. */
START_TEST(slot_used_again_behind_slow_data)
{
    start(2, (const char *[]){ON, NULL});
    messages(4, 9000);
    recv_burst(1, 20000);
    fire("h0:n0 delay 2ms");
    channel_hook();
    channel[0].late_ns = 10 * RIG_MS;
    driver_odd(REFUSE_RECORD);
    send_burst(1);
    ck_assert_uint_eq(driver.fired, 1);
    driver.what = BOTH;
    rig_until(rig, rig_all_done, RIG_MS);
    if (rig_done(rig, 1, slot[0].r_op)) { /* without the rule */
        recv_post(0, 20000);
        rig_run(rig, 30 * RIG_MS);
        ck_assert_msg(slot[0].landed == 0, "%llu bytes of the message before",
                      (unsigned long long)slot[0].landed);
        send_post(0);
    }
    finish(1, RIG_S);
    stop();
}
END_TEST

/* A record that is not the part's, too short, or of more bytes than there is room for: the path
 * goes, the message comes whole. */
START_TEST(records_that_cannot_be)
{
    static const int what[] = {OTHER_IMM, OTHER_BYTES, TOO_LONG};

    start(2, (const char *[]){ON, NULL});
    rig->hostile = 1;
    messages(4, 9000);
    recv_burst(3, 20000);
    driver_odd(what[_i]);
    send_burst(3);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_eq(driver.fired, 1);
    ck_assert_uint_eq(path_at(1, 0)->why.fault, IB_FAULT_DATA);
    ck_assert_uint_eq(comm(1)->rx->count.bad_arrivals, 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(rig_size(rig, 1, slot[i].r_op, 0), 20000);
        slot_is_right(i);
    }
    ck_assert_uint_eq(ghost_writes, 0);
}
END_TEST

/* A path that returns has a ring of its own and counts from 0, while the other one goes on
 * counting. */
START_TEST(the_next_incarnation_counts_from_the_start)
{
    uint32_t other;

    start(2, (const char *[]){ON, "NCCL_R2_T_RETURN=10", "NCCL_R2_T_PACKET=5", "NCCL_R2_SPREAD=on",
                              "NCCL_R2_CUT_MIN=4096", NULL});
    messages(5, 20000);
    ck_assert_uint_eq(path(1, 0)->nrecords, 5);
    fire("h0:n0 qp-error");
    messages(3, 20000);
    other = path(1, 1)->nrecords;
    ck_assert_uint_ge(other, 6);
    wait_returned(0, 2);
    ck_assert_uint_eq(path(0, 0)->nrecords + path(1, 0)->nrecords, 0);
    messages(4, 20000);
    ck_assert_uint_eq(path(1, 0)->nrecords, 4);
    ck_assert_uint_eq(path(1, 1)->nrecords, other + 4);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, parts_above_the_threshold_are_two_writes, 0, 7);
    tcase_add_loop_test(t, on_by_default_on_infiniband, 0, 2);
    tcase_add_loop_test(t, records_go_round_the_ring, 0, 2);
    tcase_add_test(t, the_send_queue_takes_pairs_to_its_last_slot);
    tcase_add_loop_test(t, what_is_in_front_is_a_part, 0, 2);
    tcase_add_test(t, groups_have_the_sizes_that_were_sent);
    tcase_add_loop_test(t, each_path_for_itself, 0, 4);
    tcase_add_loop_test(t, bytes_landed_and_their_record_lost, 0, 2);
    tcase_add_loop_test(t, record_refused_behind_slow_data, 0, 2);
    tcase_add_test(t, slot_used_again_behind_slow_data);
    tcase_add_loop_test(t, records_that_cannot_be, 0, 3);
    tcase_add_test(t, the_next_incarnation_counts_from_the_start);
}

int main(void)
{
    return run_suite("races: adaptive routing", add);
}
