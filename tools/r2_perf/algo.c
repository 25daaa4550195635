#include "tools/r2_perf/algo.h"

#include <string.h>

#include "tools/r2_perf/util.h"

/* Messages of the ring collectives are 2 steps long and two make a chunk; one step elsewhere:
 * NCCL's constants. */
static const struct algo_info info_table[ALGO_COUNT] = {
    [ALGO_ALL_REDUCE] = {"all_reduce", false, true, true, false, true, 2, 2},
    [ALGO_ALL_GATHER] = {"all_gather", false, false, false, false, true, 2, 2},
    [ALGO_REDUCE_SCATTER] = {"reduce_scatter", false, true, true, false, true, 2, 2},
    [ALGO_BROADCAST] = {"broadcast", true, false, false, false, true, 1, 1},
    [ALGO_REDUCE] = {"reduce", true, true, true, false, true, 1, 1},
    [ALGO_SENDRECV] = {"sendrecv", false, false, true, true, false, 1, 1},
    [ALGO_ALLTOALL] = {"alltoall", false, false, false, true, false, 1, 1},
    [ALGO_GATHER] = {"gather", true, false, false, true, true, 1, 1},
    [ALGO_SCATTER] = {"scatter", true, false, false, true, true, 1, 1},
};

const struct algo_info *algo_info_get(enum algo_op op)
{
    return &info_table[op];
}

enum algo_op algo_op_find(const char *name)
{
    size_t n = strlen(name);
    if (n > 5 && !strcmp(name + n - 5, "_perf")) {
        n -= 5;
    }
    for (int i = 0; i < ALGO_COUNT; i++) {
        if (strlen(info_table[i].name) == n && !strncmp(name, info_table[i].name, n)) {
            return (enum algo_op)i;
        }
    }
    return ALGO_COUNT;
}

void algo_counts_get(enum algo_op op, size_t count, size_t type_size, int nranks,
                     struct algo_counts *out)
{
    size_t n = (size_t)nranks;
    size_t base = (count / n) & ~(16 / type_size - 1);
    memset(out, 0, sizeof(*out));
    switch (op) {
    case ALGO_ALL_GATHER:
    case ALGO_GATHER:
        *out = (struct algo_counts){
            .send = base, .recv = base * n, .param = base, .send_in_place = base};
        break;
    case ALGO_REDUCE_SCATTER:
    case ALGO_SCATTER:
        *out = (struct algo_counts){
            .send = base * n, .recv = base, .param = base, .recv_in_place = base};
        break;
    case ALGO_ALLTOALL:
        *out = (struct algo_counts){.send = base * n, .recv = base * n, .param = base};
        break;
    default:
        *out = (struct algo_counts){.send = count, .recv = count, .param = count};
    }
}

static bool algo_op_split(enum algo_op op)
{
    return op == ALGO_ALL_GATHER || op == ALGO_REDUCE_SCATTER || op == ALGO_ALLTOALL ||
           op == ALGO_GATHER || op == ALGO_SCATTER;
}

bool algo_pair_exists(enum algo_op op, int src, int dst, int nranks, int root)
{
    switch (op) {
    case ALGO_GATHER:
        return dst == root;
    case ALGO_SCATTER:
        return src == root;
    case ALGO_SENDRECV:
        return dst == (src + 1) % nranks;
    default:
        return true;
    }
}

size_t algo_bytes_get(enum algo_op op, size_t param, size_t type_size, int nranks)
{
    return param * type_size * (algo_op_split(op) ? (size_t)nranks : 1);
}

double algo_bus_factor(enum algo_op op, int nranks)
{
    double share = (double)(nranks - 1) / nranks;
    if (op == ALGO_ALL_REDUCE) {
        return 2 * share;
    }
    return algo_op_split(op) ? share : 1;
}

int algo_channels_get(size_t bytes, int channels)
{
    size_t worth = bytes / (32 * 1024);
    return worth < 1 ? 1 : (int)util_size_min(worth, (size_t)channels);
}

void algo_lane_cut(struct algo_lane *lane)
{
    size_t nch = (size_t)lane->nchannels;
    size_t part = util_size_roundup((lane->count + nch - 1) / nch, lane->align);
    lane->base = util_size_min(part * (size_t)lane->channel, lane->count);
    lane->len = util_size_min(part, lane->count - lane->base);
}

/* Chunks that one pass of the ring handles, and the elements of the channel's part that it covers.
 */
static uint64_t algo_loop_acts(const struct algo_lane *lane)
{
    uint64_t n = (uint64_t)lane->nranks;
    switch (lane->op) {
    case ALGO_ALL_REDUCE:
        return n == 1 ? 1 : 2 * n - 1;
    case ALGO_ALL_GATHER:
    case ALGO_REDUCE_SCATTER:
        return n;
    default:
        return 1;
    }
}

static size_t algo_loop_elems(const struct algo_lane *lane)
{
    return lane->op == ALGO_ALL_REDUCE ? lane->chunk * (size_t)lane->nranks : lane->chunk;
}

uint64_t algo_acts_count(const struct algo_lane *lane)
{
    size_t loop = algo_loop_elems(lane);
    return (lane->len + loop - 1) / loop * algo_loop_acts(lane);
}

/* The ring position @back ranks before this one. */
static size_t algo_ring_before(const struct algo_lane *lane, uint64_t back)
{
    uint64_t n = (uint64_t)lane->nranks;
    return (size_t)(((uint64_t)lane->rank + n - back % n) % n);
}

static unsigned algo_all_reduce_flags(uint64_t step, uint64_t n)
{
    if (n == 1) {
        return ALGO_SRC | ALGO_DST | ALGO_FINISH;
    }
    if (step == 0) {
        return ALGO_SRC | ALGO_SEND;
    }
    if (step < n - 1) {
        return ALGO_RECV | ALGO_REDUCE_IN | ALGO_SRC | ALGO_SEND;
    }
    if (step == n - 1) {
        return ALGO_RECV | ALGO_REDUCE_IN | ALGO_SRC | ALGO_DST | ALGO_SEND | ALGO_FINISH;
    }
    return step < 2 * n - 2 ? ALGO_RECV | ALGO_DST | ALGO_SEND : ALGO_RECV | ALGO_DST;
}

static void algo_all_reduce_act(const struct algo_lane *lane, size_t off, uint64_t step,
                                struct algo_act *out)
{
    size_t n = (size_t)lane->nranks, rem = lane->len - off;
    size_t chunk = lane->chunk;
    if (rem < n * chunk) {
        chunk = util_size_roundup((rem + n - 1) / n, lane->align);
    }
    /* step s of the reduction handles the chunk of the rank s+1 places back, and the same again
     * while copying */
    size_t start = off + algo_ring_before(lane, step + 1) * chunk;
    start = util_size_min(start, lane->len);
    out->n = util_size_min(chunk, lane->len - start);
    out->src = out->dst = lane->base + start;
    out->flags = algo_all_reduce_flags(step, n);
}

static void algo_scatter_act(const struct algo_lane *lane, size_t off, uint64_t step,
                             struct algo_act *out)
{
    uint64_t n = (uint64_t)lane->nranks;
    out->src = algo_ring_before(lane, step + 1) * lane->count + lane->base + off;
    out->dst = lane->base + off;
    out->flags = ALGO_SRC;
    if (step > 0) {
        out->flags |= ALGO_RECV | ALGO_REDUCE_IN;
    }
    out->flags |= step < n - 1 ? ALGO_SEND : ALGO_DST | ALGO_FINISH;
}

static void algo_gather_act(const struct algo_lane *lane, size_t off, uint64_t step,
                            struct algo_act *out)
{
    uint64_t n = (uint64_t)lane->nranks;
    out->src = lane->base + off;
    out->dst = algo_ring_before(lane, step) * lane->count + lane->base + off;
    out->flags = ALGO_DST | (step ? ALGO_RECV : ALGO_SRC);
    if (step < n - 1) {
        out->flags |= ALGO_SEND;
    }
}

/* broadcast runs from the root once around; reduce ends at the root, starting one place after it.
 */
static void algo_rooted_act(const struct algo_lane *lane, size_t off, struct algo_act *out)
{
    int n = lane->nranks, dist = (lane->rank - lane->root + n) % n;
    out->src = out->dst = lane->base + off;
    if (lane->op == ALGO_BROADCAST) {
        out->flags = ALGO_DST | (dist ? ALGO_RECV : ALGO_SRC) | (dist == n - 1 ? 0 : ALGO_SEND);
        return;
    }
    out->flags = ALGO_SRC;
    if (dist != 1 && n > 1) {
        out->flags |= ALGO_RECV | ALGO_REDUCE_IN;
    }
    out->flags |= dist == 0 ? ALGO_DST | ALGO_FINISH : ALGO_SEND;
}

static void algo_pair_act(const struct algo_lane *lane, size_t off, struct algo_act *out)
{
    size_t slot = (size_t)lane->peer * lane->count, at = lane->base + off;
    out->src = at + (lane->op == ALGO_ALLTOALL || lane->op == ALGO_SCATTER ? slot : 0);
    out->dst = at + (lane->op == ALGO_ALLTOALL || lane->op == ALGO_GATHER ? slot : 0);
    if (lane->peer == lane->rank) {
        out->flags = ALGO_SRC | ALGO_DST;
    } else {
        out->flags = lane->pair_send ? ALGO_SRC | ALGO_SEND : ALGO_RECV | ALGO_DST;
    }
}

void algo_act_get(const struct algo_lane *lane, uint64_t i, struct algo_act *out)
{
    uint64_t acts = algo_loop_acts(lane), step = i % acts;
    size_t off = (size_t)(i / acts) * algo_loop_elems(lane);
    out->n = util_size_min(lane->chunk, lane->len - off);
    switch (lane->op) {
    case ALGO_ALL_REDUCE:
        algo_all_reduce_act(lane, off, step, out);
        break;
    case ALGO_REDUCE_SCATTER:
        algo_scatter_act(lane, off, step, out);
        break;
    case ALGO_ALL_GATHER:
        algo_gather_act(lane, off, step, out);
        break;
    case ALGO_BROADCAST:
    case ALGO_REDUCE:
        algo_rooted_act(lane, off, out);
        break;
    default:
        algo_pair_act(lane, off, out);
    }
}

size_t algo_slice_size(size_t n, int slices, size_t slice_max)
{
    if (slices == 1) {
        return slice_max;
    }
    size_t even = util_size_roundup((n + (size_t)slices - 1) / (size_t)slices, 16);
    return util_size_min(util_size_max(even, slice_max / 32), slice_max);
}

uint64_t algo_recvs_count(const struct algo_lane *lane)
{
    uint64_t acts = algo_acts_count(lane), per_loop = algo_loop_acts(lane), recvs = 0;
    for (uint64_t i = 0; i < per_loop && i < acts; i++) {
        struct algo_act act;
        algo_act_get(lane, i, &act);
        recvs += act.flags & ALGO_RECV ? 1 : 0;
    }
    return acts / per_loop * recvs;
}
