/*
 * The stand-in's kernels without NCCL: which function a batch names, which works it has, and
 * collectives of several ranks in one process, whose connections are memory.
 */
#include <stdlib.h>

#include "tests/nccl/unit/kernel_rig.h"

#define RANKS_MAX 3
#define ELTS_MAX  9000
#define COPIES    64

/* --- functions --- */

START_TEST(numbers_name_functions)
{
    const struct kernel_function *f;
    int tail = NCCL_RELEASE >= 223 ? 3 : 2; /* the last algorithm of a reduce-scatter */

    rig_table_make(_i); /* a sentinel behind the rows is no harm */
    ck_assert_int_eq(kernel_function_get(0)->func, FUNC_SENDRECV);
    for (int op = 0; op < OPS; op++) {
        for (int type = 0; type < TYPES; type++) {
            for (int proto = 0; proto < PROTOS; proto++) {
                f = kernel_function_get(
                    (unsigned)rig_row(FUNC_ALLREDUCE, op, type, ALGO_RING, proto));
                ck_assert(f->func == FUNC_ALLREDUCE && f->op == op && f->type == type &&
                          f->algo == ALGO_RING && f->proto == proto);
                f = kernel_function_get((unsigned)rig_row(FUNC_REDUCE, op, type, 0, proto));
                ck_assert(f->func == FUNC_REDUCE && f->op == op && f->type == type &&
                          f->algo == ALGO_RING && f->proto == proto);
                f = kernel_function_get(
                    (unsigned)rig_row(FUNC_REDUCESCATTER, op, type, tail, proto));
                ck_assert(f->func == FUNC_REDUCESCATTER && f->op == op && f->type == type &&
                          f->algo == (tail == 3 ? ALGO_PAT : ALGO_NVLS) && f->proto == proto);
            }
        }
    }
    f = kernel_function_get((unsigned)rig_row(FUNC_BROADCAST, 0, 0, 0, PROTO_LL128));
    ck_assert(f->func == FUNC_BROADCAST && f->algo == ALGO_RING && f->proto == PROTO_LL128);
    f = kernel_function_get((unsigned)rig_row(FUNC_ALLGATHER, 0, 0, 1, PROTO_LL));
    ck_assert(f->func == FUNC_ALLGATHER && f->algo == ALGO_COLLNET_DIRECT && f->proto == PROTO_LL);
}
END_TEST

START_TEST(another_table_is_refused)
{
    rig_table_make(_i ? 2 : -1);
    kernel_function_get(0);
}
END_TEST

START_TEST(a_number_of_no_function_is_refused)
{
    rig_table_make(0);
    kernel_function_get(0x7fff);
}
END_TEST

/* --- batches: works are copies of a rank to itself, one byte each --- */

static struct {
    char from[COPIES], to[COPIES];
    struct {
        struct kernel_args head;
        struct work_batch batches[16];
        struct work_p2p works[24];
    } args __attribute__((aligned(16)));
    struct work_p2p fifo[16] __attribute__((aligned(1024))); /* 1 KiB: round within 768 bytes */
    struct {
        struct kernel_comm comm __attribute__((aligned(16)));
        struct dev_channel channels[CHANNELS_MAX];
    } comm;
    uint32_t consumed[CHANNELS_MAX];
} copies;
_Static_assert(offsetof(__typeof__(copies.comm), channels) == CHANNELS_AT, "channels");

static void comm_begin(struct kernel_comm *c, int rank, int ranks)
{
    static volatile uint32_t abort_flag;

    c->rank = rank;
    c->ranks = ranks;
    c->abort_flag = &abort_flag;
    for (int i = 0; i < PROTOS; i++) {
        c->buff_sizes[i] = RIG_BUFFER;
    }
#if NCCL_RELEASE >= 227
    c->work_started = calloc(CHANNELS_MAX, sizeof(*c->work_started));
    c->work_completed = calloc(CHANNELS_MAX, sizeof(*c->work_completed));
#elif NCCL_RELEASE == 226
    c->work_started = calloc(CHANNELS_MAX, sizeof(uint64_t));
    c->work_completed = calloc(CHANNELS_MAX, sizeof(uint64_t));
#endif
}

static struct work_p2p copy_of(int i)
{
    return (struct work_p2p){.send_addr = &copies.from[i],
                             .recv_addr = &copies.to[i],
                             .send_bytes = 1,
                             .recv_bytes = 1,
                             .p2p_channels = 1,
                             .send_channels = 1,
                             .recv_channels = 1};
}

static void copies_begin(uint64_t channels, int storage)
{
    rig_table_make(0);
    comm_begin(&copies.comm.comm, 0, 1);
#if NCCL_RELEASE < 227
    copies.comm.comm.work_consumed = copies.consumed;
#endif
    copies.args.head = (struct kernel_args){.comm = &copies.comm.comm,
                                            .channel_mask = channels,
                                            .storage = (uint8_t)storage,
                                            .work_mask = 511,
                                            .work_buf = copies.fifo};
    for (int i = 0; i < COPIES; i++) {
        copies.from[i] = (char)(i + 1);
    }
}

/* @wanted: a bit for each copy that must have been made, and no other. */
static void copies_check(uint64_t wanted)
{
    for (int i = 0; i < COPIES; i++) {
        ck_assert_msg(copies.to[i] == (wanted >> i & 1 ? i + 1 : 0), "copy %d: %d", i,
                      copies.to[i]);
    }
}

static uint32_t args_offset(int work)
{
    return (uint32_t)((char *)&copies.args.works[work] - (char *)&copies.args);
}

/* Two blocks; the first has a batch that another extends and one more behind both. */
START_TEST(batches_are_extended_and_followed)
{
    copies_begin(1ull << 3 | 1ull << 40, STORE_ARGS);
    for (int i = 0; i < 24; i++) {
        copies.args.works[i] = copy_of(i);
        copies.args.works[i].channel_base = 0;
    }
    copies.args.batches[0] = (struct work_batch){.next_jump = 2,
                                                 .next_extends = 1,
                                                 .work_type = WORK_P2P,
                                                 .offset_base = args_offset(0),
                                                 .offset_bits = 0x5}; /* 0 and 2 */
    copies.args.batches[2] = (struct work_batch){.next_jump = 3,
                                                 .work_type = WORK_P2P,
                                                 .offset_base = args_offset(4),
                                                 .offset_bits = 0x8}; /* 7 */
    copies.args.batches[5] = (struct work_batch){
        .work_type = WORK_P2P, .offset_base = args_offset(10), .offset_bits = 0x3}; /* 10, 11 */
    copies.args.batches[1] = (struct work_batch){
        .work_type = WORK_P2P, .offset_base = args_offset(20), .offset_bits = 0x1}; /* 20 */
    rig_kernel_run("ncclDevKernel_Generic", 2, &copies.args);
    copies_check(1ull << 0 | 1ull << 2 | 1ull << 7 | 1ull << 10 | 1ull << 11 | 1ull << 20);
#if NCCL_RELEASE >= 226
    ck_assert_uint_eq(copies.comm.channels[3].work_counter, 5);
    ck_assert_uint_eq(copies.comm.channels[40].work_counter, 1);
#endif
}
END_TEST

/* The FIFO is round, by 16 bytes, and in some releases the kernel says how far it has read. */
START_TEST(works_in_the_fifo_wrap)
{
    struct work_p2p w[2] = {copy_of(1), copy_of(2)};
    uint32_t base = 4096 + 512 - 32; /* the first work's last 16 bytes lie at the begin */

    copies_begin(1, STORE_FIFO);
    for (size_t i = 0; i < sizeof(w); i++) {
        ((char *)copies.fifo)[(base + i) % 512] = ((char *)w)[i];
    }
    copies.args.batches[0] =
        (struct work_batch){.work_type = WORK_P2P, .offset_base = base, .offset_bits = 0x3};
    rig_kernel_run("ncclDevKernel_Generic", 1, &copies.args);
    copies_check(1ull << 1 | 1ull << 2);
    ck_assert_uint_eq(copies.consumed[0], NCCL_RELEASE < 227 ? base + 2 * sizeof(w[0]) : 0);
}
END_TEST

/* A transfer over several channels is cut at 4 KiB; before 2.28 channels count by reversed bits. */
START_TEST(a_transfer_is_cut_between_channels)
{
    static char from[20000], to[20000];
    static const int part[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
    int channel = _i;
    size_t begin = (size_t)part[NCCL_RELEASE < 228][channel] * 8192, end = begin + 8192;

    copies_begin(1ull << channel, STORE_ARGS);
    memset(from, 1, sizeof(from));
    copies.args.works[0] = (struct work_p2p){.send_addr = from,
                                             .recv_addr = to,
                                             .send_bytes = sizeof(from),
                                             .recv_bytes = sizeof(from),
                                             .p2p_channels = 4,
                                             .send_channels = 4,
                                             .recv_channels = 4};
    copies.args.batches[0] =
        (struct work_batch){.work_type = WORK_P2P, .offset_base = args_offset(0), .offset_bits = 1};
    rig_kernel_run("ncclDevKernel_Generic", 1, &copies.args);
    for (size_t i = 0; i < sizeof(to); i++) {
        ck_assert_msg(to[i] == (i >= begin && i < end), "byte %zu", i);
    }
}
END_TEST

START_TEST(another_kernel_is_refused)
{
    copies_begin(1, STORE_ARGS);
    rig_kernel_run(_i ? "ncclDevKernel_Generic" : "somebodys_kernel", 2, &copies.args);
}
END_TEST

/* --- collectives --- */

static struct rank {
    struct {
        struct kernel_comm comm __attribute__((aligned(16)));
        struct dev_channel channels[1];
    } c;
    struct dev_peer peers[RANKS_MAX];
    struct dev_peer *peer[RANKS_MAX];
    int users[RANKS_MAX];
    float in[ELTS_MAX], out[RANKS_MAX * ELTS_MAX];
    struct {
        struct kernel_args head;
        struct work_batch batch;
        struct work_coll work;
    } args __attribute__((aligned(16)));
} rank[RANKS_MAX];
static struct rig_conn conns[RANKS_MAX][RANKS_MAX]; /* from, to */

static const struct collective {
    const char *name;
    int func, algo, nth; /* nth: the algorithm's place among those of the collective */
    int root;
} collectives[] = {
    {"all-reduce, ring", FUNC_ALLREDUCE, ALGO_RING, ALGO_RING, 0},
    {"all-reduce, tree", FUNC_ALLREDUCE, ALGO_TREE, ALGO_TREE, 0},
    {"all-gather", FUNC_ALLGATHER, ALGO_RING, 0, 0},
    {"reduce-scatter", FUNC_REDUCESCATTER, ALGO_RING, 0, 0},
    {"broadcast", FUNC_BROADCAST, ALGO_RING, 0, 1},
    {"reduce", FUNC_REDUCE, ALGO_RING, 0, 1},
};
#define COLLECTIVES ((int)(sizeof(collectives) / sizeof(collectives[0])))
static const size_t counts[] = {1, 1023, ELTS_MAX};

static bool moves_bytes(const struct collective *c)
{
    return c->func == FUNC_ALLGATHER || c->func == FUNC_BROADCAST;
}

static void rank_begin(int r, int ranks, const struct collective *c, int proto, size_t n)
{
    static const size_t grain[PROTOS] = {16, 1920, 512};
    struct rank *k = &rank[r];
    struct dev_channel *ch = &k->c.channels[0];

    comm_begin(&k->c.comm, r, ranks);
    ch->peers = k->peer;
    ch->ring.prev = (r + ranks - 1) % ranks;
    ch->ring.next = (r + 1) % ranks;
    ch->ring.user_ranks = k->users;
    ch->ring.index = r;
    /* rank 0 above all others */
    ch->tree.up = r == 0 ? -1 : 0;
    for (int i = 0; i < TREE_ARITY; i++) {
        ch->tree.down[i] = r == 0 && i + 1 < ranks ? i + 1 : -1;
    }
    for (int i = 0; i < ranks; i++) {
        k->users[i] = (r + i) % ranks;
        k->peer[i] = &k->peers[i];
        rig_conn_info(&k->peers[i].send[0], &conns[r][i], false);
        rig_conn_info(&k->peers[i].recv[0], &conns[i][r], false);
    }
    for (size_t i = 0; i < n; i++) {
        k->in[i] = (float)((size_t)(r + 1) * 1000 + i % 997);
    }
    k->args.head = (struct kernel_args){.comm = &k->c.comm, .channel_mask = 1};
    k->args.batch = (struct work_batch){
        .work_type = WORK_COLL,
        .func_id = (unsigned)rig_row(c->func, OP_SUM, T_F32, c->nth, proto) & 0x7fff,
        .offset_base = (uint32_t)((char *)&k->args.work - (char *)&k->args),
        .offset_bits = 1};
    k->args.work = (struct work_coll){.root = (uint32_t)c->root,
                                      .sendbuff = (char *)k->in,
                                      .recvbuff = (char *)k->out,
                                      .count_lo = moves_bytes(c) ? n * sizeof(float) : n,
                                      .grains_lo = RIG_BUFFER / STEPS / 2 / grain[proto]};
    if (c->func == FUNC_REDUCESCATTER) {
        k->args.work.count_lo = n / (size_t)ranks; /* of each rank's own part */
    }
}

static void *rank_main(void *arg)
{
    rig_kernel_run("ncclDevKernel_Generic", 1, &((struct rank *)arg)->args);
    return NULL;
}

/* What rank @r must have at @i. */
static float wanted(const struct collective *c, int r, int ranks, size_t n, size_t i)
{
    size_t from = c->func == FUNC_REDUCESCATTER ? (size_t)r * (n / (size_t)ranks) + i : i;
    float sum = 0;

    if (c->func == FUNC_ALLGATHER) {
        return rank[i / n].in[i % n];
    }
    if (c->func == FUNC_BROADCAST) {
        return rank[c->root].in[i];
    }
    for (int k = 0; k < ranks; k++) {
        sum += rank[k].in[from]; /* whole numbers: any order gives the same */
    }
    return sum;
}

static void collective_check(const struct collective *c, int ranks, int proto, size_t n)
{
    for (int r = 0; r < ranks; r++) {
        size_t have = c->func == FUNC_ALLGATHER       ? n * (size_t)ranks
                      : c->func == FUNC_REDUCESCATTER ? n / (size_t)ranks
                                                      : n;

        for (size_t i = 0; (c->func != FUNC_REDUCE || r == c->root) && i < have; i++) {
            ck_assert_msg(rank[r].out[i] == wanted(c, r, ranks, n, i),
                          "%s of %zu, protocol %d, %d ranks: rank %d has %g at %zu, not %g",
                          c->name, n, proto, ranks, r, (double)rank[r].out[i], i,
                          (double)wanted(c, r, ranks, n, i));
        }
    }
}

/* Twice, so that the second begins where the first left its steps. */
static void collective_run(const struct collective *c, int ranks, int proto, size_t n)
{
    pthread_t t[RANKS_MAX];

    memset(conns, 0, sizeof(conns));
    memset(rank, 0, sizeof(rank));
    for (int r = 0; r < ranks; r++) {
        rank_begin(r, ranks, c, proto, n);
    }
    for (int twice = 0; twice < 2; twice++) {
        for (int r = 0; r < ranks; r++) {
            memset(rank[r].out, 0, sizeof(rank[r].out));
            ck_assert_int_eq(pthread_create(&t[r], NULL, rank_main, &rank[r]), 0);
        }
        for (int r = 0; r < ranks; r++) {
            pthread_join(t[r], NULL);
        }
        collective_check(c, ranks, proto, n);
    }
}

START_TEST(collectives_of_ranks_in_memory)
{
    const struct collective *c = &collectives[_i / PROTOS];
    int proto = _i % PROTOS;

    rig_table_make(0);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            collective_run(c, ranks, proto, counts[i]);
        }
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, numbers_name_functions, 0, 2);
    tcase_add_loop_exit_test(t, another_table_is_refused, RIG_DIED, 0, 2);
    tcase_add_exit_test(t, a_number_of_no_function_is_refused, RIG_DIED);
    tcase_add_test(t, batches_are_extended_and_followed);
    tcase_add_test(t, works_in_the_fifo_wrap);
    tcase_add_loop_test(t, a_transfer_is_cut_between_channels, 0, 3);
    tcase_add_loop_exit_test(t, another_kernel_is_refused, RIG_DIED, 0, 2);
    tcase_add_loop_test(t, collectives_of_ranks_in_memory, 0, COLLECTIVES * PROTOS);
}

int main(void)
{
    return suite_run("stand-in: kernels", 500, NULL, NULL, add);
}
