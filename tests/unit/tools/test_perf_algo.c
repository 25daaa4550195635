/*
 * The ring and pair algorithms of r2_perf as arithmetic: all ranks' lanes are run against each
 * other in memory, with queues for the connections, and the result is compared with the definition
 * of the operation. Also the element types.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/algo.c"
#include "tools/r2_perf/type.c"

#define RANKS 8
#define QUEUE (1 << 14)

/* Elements are sets of ranks: a reduction is the sum, so a contribution that is missing or doubled
 * shows. */
struct queue {
    uint64_t data[QUEUE];
    size_t head, tail;
};

struct world {
    int n, nchannels;
    struct algo_counts counts;
    uint64_t *send[RANKS], *recv[RANKS];
    struct queue q[RANKS][RANKS];
};

/* ck_assert writes a mark each time it passes: too slow per element. */
static void must(bool holds, const char *what)
{
    if (!holds) {
        ck_abort_msg("%s", what);
    }
}

static uint64_t input_get(int rank, size_t i)
{
    return ((uint64_t)(i + 1) << 16) * (uint64_t)(rank + 1);
}

static bool act_ready(const struct world *w, const struct algo_act *act, int from, int rank)
{
    const struct queue *q = &w->q[from][rank];
    return !(act->flags & ALGO_RECV) || q->tail - q->head >= act->n;
}

static void act_run(struct world *w, const struct algo_act *act, int from, int rank, int to)
{
    struct queue *in = &w->q[from][rank], *out = &w->q[rank][to];
    for (size_t i = 0; i < act->n; i++) {
        uint64_t v = act->flags & ALGO_RECV ? in->data[in->head++] : 0;
        if (!(act->flags & ALGO_RECV) || (act->flags & ALGO_REDUCE_IN)) {
            must(act->flags & ALGO_SRC, "an input is read that the chunk does not name");
            must(act->src + i < w->counts.send, "beyond the input");
            v += w->send[rank][act->src + i];
        }
        if (act->flags & ALGO_DST) {
            must(act->dst + i < w->counts.recv, "beyond the output");
            w->recv[rank][act->dst + i] = v;
        }
        if (act->flags & ALGO_SEND) {
            must(out->tail < QUEUE, "the test's queue is too short");
            out->data[out->tail++] = v;
        }
    }
}

/* One rank's lane until it must wait; true when it has moved. */
static bool lane_run(struct world *w, struct algo_lane *lane, uint64_t *at)
{
    bool pair = algo_info_get(lane->op)->pairwise, moved = false;
    int n = w->n, next = (lane->rank + 1) % n, prev = (lane->rank + n - 1) % n;
    int from = pair ? lane->peer : prev, to = pair ? lane->peer : next;
    while (*at < algo_acts_count(lane)) {
        struct algo_act act;
        algo_act_get(lane, *at, &act);
        if (!act_ready(w, &act, from, lane->rank)) {
            break;
        }
        act_run(w, &act, from, lane->rank, to);
        (*at)++;
        moved = true;
    }
    return moved;
}

static size_t lanes_make(struct world *w, enum algo_op op, int root, int channel, size_t chunk,
                         struct algo_lane *lanes)
{
    size_t k = 0;
    for (int r = 0; r < w->n; r++) {
        struct algo_lane l = {.op = op,
                              .rank = r,
                              .nranks = w->n,
                              .root = root,
                              .channel = channel,
                              .nchannels = w->nchannels,
                              .count = w->counts.param,
                              .align = 4,
                              .chunk = chunk};
        for (int p = 0; p < w->n; p++) {
            bool pair = algo_info_get(op)->pairwise;
            bool to = algo_pair_exists(op, r, p, w->n, root),
                 from = algo_pair_exists(op, p, r, w->n, root);
            l.peer = p;
            for (int sending = 0; sending < 2; sending++) {
                l.pair_send = sending;
                algo_lane_cut(&l);
                if (pair ? (sending ? to && p != r : from) : p == 0 && sending == 0) {
                    lanes[k++] = l;
                }
            }
        }
    }
    return k;
}

static uint64_t expected_get(const struct world *w, enum algo_op op, int rank, int root, size_t i)
{
    size_t base = w->counts.param;
    uint64_t sum = 0, shift = op == ALGO_REDUCE_SCATTER ? (uint64_t)rank * base : 0;
    for (int r = 0; r < w->n; r++) {
        sum += input_get(r, i + shift);
    }
    switch (op) {
    case ALGO_BROADCAST:
        return input_get(root, i);
    case ALGO_SENDRECV:
        return input_get((rank + w->n - 1) % w->n, i);
    case ALGO_SCATTER:
        return input_get(root, i + (size_t)rank * base);
    case ALGO_ALL_GATHER:
    case ALGO_GATHER:
        return input_get((int)(i / base), i % base);
    case ALGO_ALLTOALL:
        return input_get((int)(i / base), i % base + (size_t)rank * base);
    default:
        return sum;
    }
}

static void world_check(const struct world *w, enum algo_op op, int root)
{
    for (int r = 0; r < w->n; r++) {
        bool bystander = (op == ALGO_REDUCE || op == ALGO_GATHER) && r != root;
        for (size_t i = 0; i < w->counts.recv; i++) {
            if (w->recv[r][i] != (bystander ? 0 : expected_get(w, op, r, root, i))) {
                ck_abort_msg("%s, %d ranks, rank %d, element %zu", algo_info_get(op)->name, w->n, r,
                             i);
            }
        }
        for (int p = 0; p < w->n; p++) {
            must(w->q[r][p].head == w->q[r][p].tail, "messages are left");
        }
    }
}

static void world_run(struct world *w, enum algo_op op, int root, size_t chunk)
{
    static struct algo_lane lanes[2 * RANKS * RANKS];
    for (int c = 0; c < w->nchannels; c++) {
        uint64_t at[2 * RANKS * RANKS] = {0};
        size_t k = lanes_make(w, op, root, c, chunk, lanes);
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t i = 0; i < k; i++) {
                moved = lane_run(w, &lanes[i], &at[i]) || moved;
            }
        }
        for (size_t i = 0; i < k; i++) {
            must(at[i] == algo_acts_count(&lanes[i]), "a lane waits for ever");
            uint64_t counted = 0;
            for (uint64_t a = 0; a < at[i]; a++) {
                struct algo_act act;
                algo_act_get(&lanes[i], a, &act);
                counted += act.flags & ALGO_RECV ? 1 : 0;
            }
            must(counted == algo_recvs_count(&lanes[i]), "number of receives");
        }
    }
}

static void operation_try(enum algo_op op, int n, size_t count, int nchannels, int root)
{
    static struct world room; /* 8 MiB of queues: not worth clearing each time */
    struct world *w = &room;
    w->n = n;
    w->nchannels = nchannels;
    algo_counts_get(op, count, 4, n, &w->counts);
    for (int r = 0; r < n; r++) {
        w->send[r] = calloc(w->counts.send + 1, sizeof(uint64_t));
        w->recv[r] = calloc(w->counts.recv + 1, sizeof(uint64_t));
        for (size_t i = 0; i < w->counts.send; i++) {
            w->send[r][i] = input_get(r, i);
        }
        for (int p = 0; p < n; p++) {
            w->q[r][p].head = w->q[r][p].tail = 0;
        }
    }
    world_run(w, op, root, 32);
    world_check(w, op, root);
    for (int r = 0; r < n; r++) {
        free(w->send[r]);
        free(w->recv[r]);
    }
}

START_TEST(test_operations)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 32, 63, 64, 100, 257, 1000};
    for (int n = 1; n <= RANKS; n++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            for (int channels = 1; channels <= 3; channels++) {
                operation_try((enum algo_op)_i, n, counts[i], channels, (int)i % n);
            }
        }
    }
}
END_TEST

START_TEST(test_slices)
{
    for (size_t n = 0; n <= 64; n++) {
        size_t s = algo_slice_size(n, 2, 32);
        ck_assert_uint_ge(2 * s, n);
        ck_assert_uint_le(s, 32);
    }
}
END_TEST

START_TEST(test_half)
{
    for (uint32_t v = 0; v < 0x7c00; v++) {
        float f = type_half_load((uint16_t)v);
        int e = (int)(v >> 10);
        float want =
            e ? ldexpf((float)(1024 + (v & 1023)), e - 25) : ldexpf((float)(v & 1023), -24);
        must(f == want, "load");
        must(type_half_store(f) == v && type_half_store(-f) == (v | 0x8000), "store");
        if (v + 1 < 0x7c00) { /* the middle between two goes to the even one */
            float middle = (f + type_half_load((uint16_t)(v + 1))) / 2;
            must(type_half_store(middle) == (v & 1 ? v + 1 : v), "rounding");
        }
    }
}
END_TEST

START_TEST(test_bfloat16)
{
    for (uint32_t v = 0; v < 0x7f00; v++) {
        float f = type_bf16_load((uint16_t)v);
        must(type_bf16_store(f) == v, "store");
        float middle = f / 2 + type_bf16_load((uint16_t)(v + 1)) / 2;
        must(v < 0x100 || type_bf16_store(middle) == (v & 1 ? v + 1 : v), "rounding");
    }
}
END_TEST

/* Reducing in any order gives the same bits: what makes an exact check of every element possible.
 */
START_TEST(test_order)
{
    char in[RANKS][8], a[8], b[8];
    for (int type = 0; type < TYPE_COUNT; type++) {
        for (int op = 0; op < REDOP_COUNT; op++) {
            for (uint64_t k = 0; k < 2000; k++) {
                for (int r = 0; r < RANKS; r++) {
                    type_value_make((enum type_id)type, (enum type_redop)op,
                                    util_hash64(k * RANKS + (uint64_t)r), RANKS, in[r]);
                }
                memcpy(a, in[0], 8);
                memcpy(b, in[RANKS - 1], 8);
                for (int r = 1; r < RANKS; r++) {
                    type_vec_reduce((enum type_id)type, (enum type_redop)op, a, a, in[r], 1);
                    type_vec_reduce((enum type_id)type, (enum type_redop)op, b, in[RANKS - 1 - r],
                                    b, 1);
                }
                must(!memcmp(a, b, type_id_size((enum type_id)type)),
                     "the order of a reduction shows");
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("perf_algo");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, test_operations, 0, ALGO_COUNT);
    tcase_add_test(t, test_slices);
    tcase_add_test(t, test_half);
    tcase_add_test(t, test_bfloat16);
    tcase_add_test(t, test_order);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
