/*
 * What the stand-in's kernels put on a connection, byte by byte: LL's lines, LL128's order, which
 * is compared with a warp that does what NCCL's does, and the slices of Simple.
 */
#include "tests/nccl/unit/kernel_rig.h"

#define LL_STEP    (RIG_BUFFER / STEPS / 16) /* lines */
#define LL128_STEP (RIG_BUFFER / STEPS)      /* bytes */

static struct rig_conn conn;
static struct conn_info sender, receiver;
static struct kernel_comm comm;
static struct dev_peer peer;
static struct dev_peer *peers[] = {&peer};
static struct dev_channel channel;
static struct block block;
static volatile uint32_t aborted;

/* Both ends of one connection at @step, as a kernel of @proto has them that moves bytes. */
static void ends_begin(struct prims *out, struct prims *in, int proto, uint64_t step, bool fifo,
                       void *from, void *to, int slices)
{
    static const int zero[] = {0};
    static struct kernel_function f;
    struct prims_plan plan = {.f = &f, .slices = slices, .slice_steps = slices};

    f = (struct kernel_function){FUNC_ALLGATHER, OP_SUM, T_I8, ALGO_RING, proto};
    for (int i = 0; i < PROTOS; i++) {
        comm.buff_sizes[i] = RIG_BUFFER;
    }
    comm.abort_flag = &aborted;
    channel.peers = peers;
    block = (struct block){.comm = &comm, .channel = &channel};
    conn.head = conn.tail = step;
    rig_conn_info(&sender, &conn, fifo);
    rig_conn_info(&receiver, &conn, false);
    sender.step = receiver.step = step;
    peer.send[0] = sender;
    peer.recv[0] = receiver;
    plan.send_peers = zero;
    plan.send_most = 1;
    plan.in = from;
    prims_begin(out, &block, &plan);
    plan.send_most = 0;
    plan.recv_peers = zero;
    plan.recv_most = 1;
    plan.out = to;
    prims_begin(in, &block, &plan);
}

static void fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(i * 7 + i / 251);
    }
}

/* 20 bytes: two whole lines and a half, whose rest is zero. */
START_TEST(ll_has_a_flag_in_each_half_of_a_line)
{
    uint8_t from[20], to[20] = {0};
    uint32_t step = 11, line[4], data;
    struct prims out, in;

    fill(from, sizeof(from));
    ends_begin(&out, &in, PROTO_LL, step, true, from, to, 2);
    prims_ll(&out, PRIM_SEND | PRIM_IN, 0, 0, sizeof(from));
    for (size_t i = 0; i < 3; i++) {
        memcpy(line, conn.buffs[PROTO_LL] + (step % STEPS * LL_STEP + i) * 16, 16);
        ck_assert_uint_eq(line[1], step + 1);
        ck_assert_uint_eq(line[3], step + 1);
        memcpy(&data, from + i * 8, 4);
        ck_assert_uint_eq(line[0], data);
        data = 0;
        memcpy(&data, from + i * 8 + 4, i < 2 ? 4 : 0);
        ck_assert_uint_eq(line[2], data);
    }
    ck_assert_int_eq(conn.fifo[step % STEPS].size, 3 * 16);
    ck_assert_uint_eq(conn.tail, step); /* LL has none */
    prims_ll(&in, PRIM_RECV | PRIM_OUT, 0, 0, sizeof(to));
    ck_assert_mem_eq(from, to, sizeof(to));
    ck_assert_uint_eq(conn.head, step + 1);
    prims_end(&out);
    prims_end(&in);
    ck_assert_uint_eq(peer.send[0].step, step + 1);
    ck_assert_uint_eq(peer.recv[0].step, step + 1);
}
END_TEST

/* Before the flags begin again every line of a step is written, and the proxy is told so. */
START_TEST(ll_writes_whole_steps_before_flags_wrap)
{
    uint64_t steps[] = {LL_CLEAN_MASK, LL_CLEAN_MASK | 7, LL_CLEAN_MASK - 1};
    uint64_t step = steps[_i];
    bool cleans = _i < 2;
    uint8_t from[8] = {1}, to[8];
    uint32_t line[4];
    struct prims out, in;

    ends_begin(&out, &in, PROTO_LL, step, true, from, to, 2);
    prims_ll(&out, PRIM_SEND | PRIM_IN, 0, 0, sizeof(from));
    ck_assert_int_eq(conn.fifo[step % STEPS].size, cleans ? LL_STEP * 16 : 16);
    memcpy(line, conn.buffs[PROTO_LL] + ((step % STEPS + 1) * LL_STEP - 1) * 16, 16);
    ck_assert_uint_eq(line[1], cleans ? (uint32_t)(step + 1) : 0);
    ck_assert_uint_eq(line[3], cleans ? (uint32_t)(step + 1) : 0);
}
END_TEST

/*
 * A warp of NCCL: 32 threads load four packs of 16 bytes each, but the last of every eight, which
 * carries the flag, two; it hands half of each on; all write four packs side by side.
 */
static void warp_write(const uint64_t *data, uint64_t flag, uint64_t *wire)
{
    for (int t = 0; t < 32; t++) {
        uint64_t v[8] = {0};
        bool carries = t % 8 == 7;

        for (int g = 0; g < 4; g++) {
            int pack = g * 32 - 4 * (g / 2) + t - (g % 2) * (t / 8);

            if (!carries || g % 2 == 0) {
                memcpy(&v[2 * g], &data[2 * pack], 16);
            }
        }
        for (int g = 1; carries && g < 4; g += 2) {
            v[2 * g] = v[2 * g - 1];
        }
        for (int g = 0; g < 4; g++) {
            wire[64 * g + 2 * t] = v[2 * g];
            wire[64 * g + 2 * t + 1] = carries ? flag : v[2 * g + 1];
        }
    }
}

START_TEST(ll128_has_the_order_of_a_warp)
{
    enum { SLICE = 240 * 8, N = 2 * SLICE + 500 };
    static uint8_t from[3 * SLICE], to[N];
    uint64_t step = 21, wire[256];
    struct prims out, in;

    fill(from, N); /* the rest of the last slice is zero */
    ends_begin(&out, &in, PROTO_LL128, step, true, from, to, 2);
    prims_ll128(&out, PRIM_SEND | PRIM_IN, 0, 0, N);
    for (size_t s = 0; s < 3; s++) {
        warp_write((const void *)(from + s * SLICE), step + 1, wire);
        ck_assert_mem_eq(conn.buffs[PROTO_LL128] + step % STEPS * LL128_STEP + s * 2048, wire,
                         sizeof(wire));
    }
    ck_assert_int_eq(conn.fifo[step % STEPS].size, 3 * 2048); /* always whole slices */
    ck_assert_uint_eq(conn.tail, step + 1);
    prims_ll128(&in, PRIM_RECV | PRIM_OUT, 0, 0, N);
    ck_assert_mem_eq(from, to, N);
    ck_assert_uint_eq(conn.head, step + 1);
}
END_TEST

/* How a chunk of Simple is cut: by 16 bytes, and no slice below a 32nd of its steps. */
static const struct {
    size_t n;
    int slices;
    size_t sizes[2];
} cuts[] = {
    {0, 2, {0, 0}},           {1, 2, {1, 0}}, {512, 2, {512, 0}}, {513, 2, {512, 1}},
    {2000, 2, {1008, 992}},   {0, 1, {0}},    {8000, 1, {8000}},  {20000, 2, {10000, 10000}},
    {10001, 2, {5008, 4993}},
};

START_TEST(simple_is_cut_in_slices)
{
    static uint8_t from[RIG_BUFFER], to[RIG_BUFFER];
    uint64_t step = 12, s;
    size_t at = 0;
    struct prims out, in;

    fill(from, sizeof(from));
    ends_begin(&out, &in, PROTO_SIMPLE, step, true, from, to, cuts[_i].slices);
    prims_simple(&out, PRIM_SEND | PRIM_IN, 0, 0, (ssize_t)cuts[_i].n);
    ck_assert_uint_eq(conn.tail, step + (uint64_t)(cuts[_i].slices * cuts[_i].slices));
    for (int i = 0; i < cuts[_i].slices; i++) {
        s = step + (uint64_t)(i * cuts[_i].slices);
        ck_assert_int_eq(conn.fifo[s % STEPS].size, cuts[_i].sizes[i]);
        ck_assert_mem_eq(conn.buffs[PROTO_SIMPLE] + s % STEPS * (RIG_BUFFER / STEPS), from + at,
                         cuts[_i].sizes[i]);
        at += cuts[_i].sizes[i];
    }
    ck_assert_uint_eq(at, cuts[_i].n);
    prims_simple(&in, PRIM_RECV | PRIM_OUT, 0, 0, (ssize_t)cuts[_i].n);
    ck_assert_uint_eq(conn.head, conn.tail);
    ck_assert_mem_eq(from, to, cuts[_i].n);
}
END_TEST

/* A kernel that begins in the middle of a chunk goes on with the next whole one. */
START_TEST(simple_begins_with_a_whole_chunk)
{
    uint8_t from[16] = {1}, to[16];
    struct prims out, in;

    ends_begin(&out, &in, PROTO_SIMPLE, 13, false, from, to, 2);
    ck_assert_uint_eq(conn.head, 16); /* credits of the steps that are skipped */
    prims_simple(&out, PRIM_SEND | PRIM_IN, 0, 0, 16);
    ck_assert_uint_eq(conn.tail, 20);
}
END_TEST

/* A proxy that lends its buffers begins with a head of -8, and says where each step's data goes. */
START_TEST(simple_takes_lent_buffers)
{
    uint8_t from[64], to[64] = {0};
    struct prims out, in;

    fill(from, sizeof(from));
    ends_begin(&out, &in, PROTO_SIMPLE, 0, true, from, to, 1);
    conn.head = (uint64_t)-STEPS + 1; /* room for one step */
    out.send[0].seen = conn.head;
    conn.fifo[0].mode = FIFO_OFFSET;
    conn.fifo[0].offset = 4096;
    prims_simple(&out, PRIM_SEND | PRIM_IN, 0, 0, 64);
    ck_assert_uint_eq(conn.tail, 1);
    ck_assert_mem_eq(conn.buffs[PROTO_SIMPLE] + 4096, from, 64);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, ll_has_a_flag_in_each_half_of_a_line);
    tcase_add_loop_test(t, ll_writes_whole_steps_before_flags_wrap, 0, 3);
    tcase_add_test(t, ll128_has_the_order_of_a_warp);
    tcase_add_loop_test(t, simple_is_cut_in_slices, 0, (int)(sizeof(cuts) / sizeof(cuts[0])));
    tcase_add_test(t, simple_begins_with_a_whole_chunk);
    tcase_add_test(t, simple_takes_lent_buffers);
}

int main(void)
{
    return suite_run("stand-in: lines and slices", 300, NULL, NULL, add);
}
