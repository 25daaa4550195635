#include <check.h>
#include <stdlib.h>

#include "failover/fo_incarnation.h"
#include "control/fo_proto.h"
#include "ib_transport/ib_wire.h"
#include "ib_transport/r2_plan.h"

static void check_cut(const struct r2_stripe *c, uint32_t size, uint32_t max)
{
    uint32_t off = 0;

    ck_assert_int_ge(c->nparts, 1);
    ck_assert_int_le(c->nparts, R2_MAX_PARTS);
    for (int k = 0; k < c->nparts; k++) {
        ck_assert_uint_eq(c->off[k], off);
        ck_assert_uint_eq(c->off[k] % R2_STRIPE_ALIGN, 0);
        ck_assert_uint_le(c->len[k], max);
        ck_assert(c->len[k] > 0 || (size == 0 && c->nparts == 1));
        off += c->len[k];
    }
    ck_assert_uint_eq(off, size);
}

START_TEST(every_cut_covers_the_message)
{
    struct r2_stripe c;

    srandom(7);
    for (int i = 0; i < 20000; i++) {
        struct r2_plan plan = {.n = (uint8_t)(1 + random() % 8)};
        uint32_t size = (uint32_t)(random() % (i % 2 ? 300000 : 2000)), eligible = 0;

        for (int p = 0; p < plan.n; p++) {
            plan.path[p] = (uint8_t)p;
            plan.weight[p] = (uint32_t)(1 + random() % 100);
            eligible |= (uint32_t)(random() % 3 != 0) << p;
        }
        eligible |= 1u << (random() % plan.n);
        r2_plan_stripe(&plan, eligible, size, 4096, 1u << 30, &c);
        check_cut(&c, size, 1u << 30);
        for (int k = 0; k < c.nparts && plan.n > 1; k++) {
            ck_assert(eligible & (1u << c.path[k]));
        }
        ck_assert(size >= 4096 || c.nparts == 1);
    }
}
END_TEST

START_TEST(large_parts_are_cut_to_the_port_limit)
{
    struct r2_plan plan = {.n = 1, .path = {3}, .weight = {1}};
    struct r2_stripe c;

    r2_plan_stripe(&plan, ~0u, 100u << 20, 65536, 8u << 20, &c);
    check_cut(&c, 100u << 20, 8u << 20);
    ck_assert_int_eq(c.nparts, 13);
    ck_assert_int_eq(c.path[12], 3);
    r2_plan_stripe(&plan, ~0u, 1u << 30, 65536, 1u << 30, &c);
    ck_assert_int_eq(c.nparts, 1);
}
END_TEST

START_TEST(small_messages_rotate_by_weight)
{
    struct r2_plan plan = {.n = 3, .path = {0, 1, 2}, .weight = {1, 2, 5}};
    int count[3] = {0};
    struct r2_stripe c;

    for (int i = 0; i < 800; i++) {
        r2_plan_stripe(&plan, 7, 100, 65536, 1u << 30, &c);
        count[c.path[0]]++;
    }
    ck_assert_int_eq(count[0], 100);
    ck_assert_int_eq(count[1], 200);
    ck_assert_int_eq(count[2], 500);
}
END_TEST

START_TEST(weights_decide_the_shares)
{
    struct r2_plan plan = {.n = 2, .path = {0, 1}, .weight = {1, 3}};
    struct r2_stripe c;

    r2_plan_stripe(&plan, 3, 1 << 20, 65536, 1u << 30, &c);
    ck_assert_int_eq(c.nparts, 2);
    ck_assert_uint_eq(c.len[0], 1 << 18);
    ck_assert_uint_eq(c.len[1], 3 << 18);
}
END_TEST

/* Only paths outside the plan take the buffer: still one part at least, of everything; who posts
 * finds a path. */
START_TEST(nothing_of_the_plan_is_eligible)
{
    struct r2_plan plan = {.n = 2, .path = {0, 1}, .weight = {1, 3}};
    struct r2_stripe c;

    plan.whole = (uint8_t)(_i & 1);
    for (uint32_t size = 0; size <= 1 << 20; size = size ? 2 * size : 1) {
        r2_plan_stripe(&plan, 4, size, 65536, 1u << 30, &c);
        check_cut(&c, size, 1u << 30);
    }
}
END_TEST

START_TEST(immediate_round_trip)
{
    for (uint32_t i = 0; i < 5000; i++) {
        uint64_t seq = i * 7919u;
        struct ib_imm m = ib_imm_unpack(ib_imm_pack(seq, i % 16, 1 + i % 16, IB_IMM_DATA, i));

        ck_assert_uint_eq(m.seq, seq & 0xffff);
        ck_assert_uint_eq(m.k, i % 16);
        ck_assert_uint_eq(m.nparts, 1 + i % 16);
        ck_assert_uint_eq(m.inc, i & 63);
    }
}
END_TEST

START_TEST(a_torn_cts_is_not_taken)
{
    struct ib_cts a = {.seq = 5, .addr = 0x1234, .size = 100, .tag = 7, .rkey = {1, 2}, .n = 1},
                  b = a, zero = {0};

    a.check = ib_cts_check(&a);
    ck_assert(ib_cts_valid(&a, 5));
    ck_assert(!ib_cts_valid(&a, 6));
    ck_assert(!ib_cts_valid(&zero, 0));
    b.addr = 0x9999;
    b.check = ib_cts_check(&b);
    for (size_t cutpoint = 8; cutpoint < 64; cutpoint += 8) { /* the first bytes of b over a */
        struct ib_cts t = a;

        memcpy(&t, &b, cutpoint);
        ck_assert_int_eq(ib_cts_valid(&t, 5), cutpoint < 16);
    }
}
END_TEST

/* A ring slot: what stood there, and the entry that comes 256 receives later, as NCCL's buffers
 * make them. */
static void two_of_a_slot(unsigned i, struct ib_cts *was, struct ib_cts *is)
{
    *was = (struct ib_cts){.seq = i,
                           .addr = 0x7f0000000000ull + i % 8 * 0x80000ull,
                           .size = i % 3 ? 0x20000 : i * 8,
                           .tag = i % 5,
                           .rkey = {0x1000 + i % 2 * 0x100, 0x2000, 0x3000 + i % 4},
                           .acked = i - 7 * (i % 2),
                           .n = 1 + i % 2};
    *is = *was;
    is->seq += R2_LEDGER_WINDOW;
    is->acked += R2_LEDGER_WINDOW - i % 7;
    is->addr += (i % 4) * 0x1000ull;
    is->size += i % 2 * 64;
    is->rkey[0] += i % 3 * 0x100;
    is->rkey[1] += i % 5 * 3007 << 8; /* alone in the high half of a word, as keys of mlx5 go */
    is->rkey[7] += i % 7 * 748 << 8;
    is->check = ib_cts_check(is);
    was->check = ib_cts_check(was);
}

/* Any words of one over the other, as long as the mixture has the seq that is expected: as few of
 * these pass as by chance, one of 32768. */
START_TEST(a_mixture_of_two_cts_passes_by_chance_alone)
{
    unsigned passed = 0, mixtures = 0;

    for (unsigned i = 0; i < 4096; i++) {
        struct ib_cts was, is, t;

        two_of_a_slot(i, &was, &is);
        for (unsigned words = 1; words < 256; words += 2) {
            for (size_t w = 0; w < 8; w++) {
                memcpy((uint8_t *)&t + 8 * w, (uint8_t *)(words >> w & 1 ? &is : &was) + 8 * w, 8);
            }
            if (memcmp(&t, &is, sizeof(t)) != 0) {
                mixtures++;
                passed += (unsigned)ib_cts_valid(&t, is.seq);
            }
        }
    }
    ck_assert_uint_gt(mixtures, 300000);
    ck_assert_uint_le(passed, 2 * (mixtures / 32768 + 1));
}
END_TEST

/* Each bit of an entry counts. */
START_TEST(a_cts_with_another_bit_is_not_taken)
{
    unsigned passed = 0;

    for (unsigned i = 0; i < 512; i++) {
        struct ib_cts was, is;

        two_of_a_slot(i, &was, &is);
        for (unsigned bit = 0; bit < 8 * sizeof(is); bit++) {
            struct ib_cts t = is;

            ((uint8_t *)&t)[bit / 8] ^= (uint8_t)(1u << bit % 8);
            passed += (unsigned)ib_cts_valid(&t, is.seq);
        }
    }
    ck_assert_uint_le(passed, 2 * (512 * 512 / 32768));
}
END_TEST

START_TEST(incarnations_only_go_one_way)
{
    for (int from = 0; from < FO_STATE_COUNT; from++) {
        for (int to = 0; to < FO_STATE_COUNT; to++) {
            enum fo_state s = (enum fo_state)from;
            int moved = fo_incarnation_move(&s, (enum fo_state)to);

            ck_assert_int_eq(moved, s != (enum fo_state)from);
            ck_assert(!moved || to > from);
        }
    }
}
END_TEST

static union fo_body in, out;

static int round_trip(enum fo_type type)
{
    uint8_t buf[FO_MAX_RECORD];
    const char *why = NULL;
    size_t n = fo_pack(type, &in, buf, sizeof(buf));
    struct r2_reader r = {.p = buf, .end = buf + n};

    memset(&out, 0xee, sizeof(out));
    ck_assert_uint_gt(n, 0);
    for (size_t cutlen = 1; cutlen < n; cutlen++) { /* every truncation is refused */
        struct r2_reader t = {.p = buf, .end = buf + cutlen};

        ck_assert_int_eq(fo_unpack(&t, &out, &why), -1);
    }
    ck_assert_int_eq(fo_unpack(&r, &out, &why), type);
    return fo_unpack(&r, &out, &why) == 0;
}

START_TEST(records_round_trip)
{
    memset(&in, 0, sizeof(in));
    in.fenced = (struct fo_fenced){.dst = 9,
                                   .src = 8,
                                   .inc = 7,
                                   .path = 6,
                                   .flags = 5,
                                   .n = 256,
                                   .acked = 1ull << 40,
                                   .base = 77};
    in.fenced.mask[255] = 0xabcd;
    ck_assert(round_trip(FO_MSG_FENCED));
    ck_assert_uint_eq(out.fenced.acked, 1ull << 40);
    ck_assert_uint_eq(out.fenced.mask[255], 0xabcd);

    memset(&in, 0, sizeof(in));
    in.req.nnics = IB_MAX_NICS;
    in.req.dev = 3;
    in.req.qps = 128;
    in.req.nic[31].rail = -2;
    ck_assert(round_trip(FO_MSG_REQ));
    ck_assert_int_eq(out.req.nic[31].rail, -2);
    ck_assert_int_eq(out.req.qps, 128);

    memset(&in, 0, sizeof(in));
    in.failback = (struct fo_failback){.dst = 1, .src = 2, .inc = 3, .path = IB_MAX_PATHS - 1};
    for (int type = FO_MSG_FAILBACK; type <= FO_MSG_FAILBACK_OK; type++) {
        ck_assert(round_trip((enum fo_type)type));
        ck_assert(out.failback.dst == 1 && out.failback.src == 2 && out.failback.inc == 3 &&
                  out.failback.path == IB_MAX_PATHS - 1);
    }

    memset(&in, 0, sizeof(in));
    in.open = (struct fo_open){.dst = 1, .src = 2, .inc = 3, .path = 4};
    in.open.addr.port = (struct ib_addr){.link_layer = IBV_LINK_LAYER_INFINIBAND,
                                         .mtu = IBV_MTU_2048,
                                         .gid_index = 7,
                                         .lmc = 7,
                                         .lid = 0xbeef};
    memset(in.open.addr.port.gid, 0x5a, sizeof(in.open.addr.port.gid));
    memset(in.open.addr.port.second, 0xa5, sizeof(in.open.addr.port.second));
    for (int type = FO_MSG_OPEN; type <= FO_MSG_OPEN_OK; type++) {
        ck_assert(round_trip((enum fo_type)type));
        ck_assert(out.open.dst == 1 && out.open.src == 2 && out.open.inc == 3 &&
                  out.open.path == 4);
        ck_assert_uint_eq(out.open.addr.port.lid, 0xbeef);
        ck_assert_uint_eq(out.open.addr.port.lmc, 7);
        ck_assert_uint_eq(out.open.addr.port.mtu, IBV_MTU_2048);
        ck_assert_uint_eq(out.open.addr.port.link_layer, IBV_LINK_LAYER_INFINIBAND);
        ck_assert_int_eq(
            memcmp(out.open.addr.port.gid, in.open.addr.port.gid, sizeof(in.open.addr.port.gid)),
            0);
        ck_assert_mem_eq(out.open.addr.port.second, in.open.addr.port.second,
                         sizeof(in.open.addr.port.second));
    }

    memset(&in, 0, sizeof(in));
    in.down = (struct fo_down){
        .dst = 1, .src = 2, .inc = 3, .path = 4, .reason = 5, .flags = 6, .wc_status = 12};
    in.down.live = (struct r2_parts){.base = 1ull << 40, .n = R2_LEDGER_WINDOW};
    in.down.live.mask[R2_LEDGER_WINDOW - 1] = 0xabcd;
    ck_assert(round_trip(FO_MSG_DOWN));
    ck_assert_uint_eq(out.down.wc_status, 12);
    ck_assert_uint_eq(r2_parts_of(&out.down.live, (1ull << 40) + R2_LEDGER_WINDOW - 1), 0xabcd);
    ck_assert_uint_eq(r2_parts_of(&out.down.live, (1ull << 40) + R2_LEDGER_WINDOW), 0);
    ck_assert_uint_eq(r2_parts_of(&out.down.live, (1ull << 40) - 1), 0);

    memset(&in, 0, sizeof(in));
    in.settled =
        (struct fo_settled){.dst = 1, .src = 2, .inc = 3, .path = 4, .flags = FO_FLAG_SOFT};
    in.settled.live = (struct r2_parts){.base = 9, .n = 2, .mask = {1, 0x8000}};
    ck_assert(round_trip(FO_MSG_SETTLED));
    ck_assert_uint_eq(out.settled.flags, FO_FLAG_SOFT);
    ck_assert_uint_eq(r2_parts_of(&out.settled.live, 9), 1);
    ck_assert_uint_eq(r2_parts_of(&out.settled.live, 10), 0x8000);
    ck_assert_uint_eq(r2_parts_of(&out.settled.live, 11), 0);
}
END_TEST

START_TEST(bad_records_are_refused)
{
    uint8_t buf[FO_MAX_RECORD];
    const char *why;
    size_t n;

    memset(&in, 0, sizeof(in));
    in.fenced.n = 3;
    n = fo_pack(FO_MSG_FENCED, &in, buf, sizeof(buf));
    buf[4 + 12] = 8; /* path */
    ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
    buf[4 + 12] = 7;
    buf[4 + 14] = 0xff; /* n, beyond the record */
    ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
    for (int settled = 0; settled < 2; settled++) {
        enum fo_type type = settled ? FO_MSG_SETTLED : FO_MSG_DOWN;
        struct r2_parts *live = settled ? &in.settled.live : &in.down.live;
        size_t at = 4 + 14 + 2 * (size_t)!settled; /* of n */

        memset(&in, 0, sizeof(in));
        live->n = R2_LEDGER_WINDOW + 1;
        n = fo_pack(type, &in, buf, sizeof(buf));
        ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
        *live = (struct r2_parts){.base = UINT64_MAX - 255, .n = 3};
        n = fo_pack(type, &in, buf, sizeof(buf));
        ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
        live->base--;
        n = fo_pack(type, &in, buf, sizeof(buf));
        ck_assert_uint_eq(n, at + 2 + 8 + 3 * 2);
        ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why),
                         (int)type);
        buf[at] = 2; /* n, short of the record, beyond it, beyond the window */
        ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
        buf[at] = 4;
        ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
        buf[at] = 1;
        buf[at + 1] = 1;
        ck_assert_int_eq(fo_unpack(&(struct r2_reader){.p = buf, .end = buf + n}, &out, &why), -1);
    }
    srandom(3);
    for (int i = 0; i < 100000; i++) { /* noise never gets past the ranges */
        struct r2_reader r = {.p = buf, .end = buf + random() % 200};
        int type;

        for (int j = 0; j < 200; j++) {
            buf[j] = (uint8_t)random();
        }
        buf[0] = (uint8_t)(random() % (FO_MSG_END + 2));
        buf[1] = FO_PROTO_VERSION;
        buf[3] = 0;
        while ((type = fo_unpack(&r, &out, &why)) > 0) {
            ck_assert(type != FO_MSG_DOWN || out.down.path < IB_MAX_PATHS);
            ck_assert(type != FO_MSG_FENCED || out.fenced.n <= 256);
            ck_assert(type != FO_MSG_DOWN || out.down.live.n <= 256);
            ck_assert(type != FO_MSG_SETTLED || out.settled.live.n <= 256);
            ck_assert(type != FO_MSG_NIC_DOWN || out.nic_down.nic < FO_MAX_NICS);
            ck_assert(type != FO_MSG_LOCATE ||
                      (out.locate.peer_nic < FO_MAX_NICS && out.locate.end.aux < PROBE_OUTCOMES));
            ck_assert(type != FO_MSG_REPORT_OK || probe_subject_valid(&out.report_ok.subject));
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan, wire, records");
    TCase *t = tcase_create("pure");
    SRunner *r;
    int failed;

    tcase_add_test(t, every_cut_covers_the_message);
    tcase_add_test(t, large_parts_are_cut_to_the_port_limit);
    tcase_add_test(t, small_messages_rotate_by_weight);
    tcase_add_test(t, weights_decide_the_shares);
    tcase_add_loop_test(t, nothing_of_the_plan_is_eligible, 0, 2);
    tcase_add_test(t, immediate_round_trip);
    tcase_add_test(t, a_torn_cts_is_not_taken);
    tcase_add_test(t, a_mixture_of_two_cts_passes_by_chance_alone);
    tcase_add_test(t, a_cts_with_another_bit_is_not_taken);
    tcase_add_test(t, incarnations_only_go_one_way);
    tcase_add_test(t, records_round_trip);
    tcase_add_test(t, bad_records_are_refused);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
