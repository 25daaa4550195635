#include "tools/r2_perf/engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/player.h"
#include "tools/r2_perf/util.h"
#include "tools/r2_perf/watch.h"

/* A stream of chunks through at most one incoming and one outgoing connection: a channel of a ring,
 * or half a pair. */
struct lane {
    struct algo_lane plan;
    struct conn *in, *out;
    uint64_t i, count;   /* chunk, of how many */
    struct algo_act act; /* chunk i, when loaded */
    bool loaded;
    int slice;
    size_t slice_elems;
};

struct engine {
    struct wire *wire;
    struct trace *trace;
    struct boot *boot;
    uint64_t idle_ns;
    pthread_t thread;
    pthread_mutex_t lock; /* guards batch, result, stop */
    pthread_cond_t cond;
    struct engine_batch *batch; /* set by main, cleared by the thread when done */
    int result;
    bool stop;

    /* the thread's own */
    struct lane *lanes;
    int nlanes, room;
    struct player *player; /* NULL: by lanes */
    struct player_count count;
    int slices;
    const struct engine_op *op;
    size_t type_size;
    uint64_t mismatches;
    char mismatch[160];
};

static struct lane *engine_lane_add(struct engine *e, int peer, struct conn *in, struct conn *out)
{
    if (e->nlanes == e->room) {
        e->room = e->room ? e->room * 2 : 64;
        e->lanes = util_mem_resize(e->lanes, (size_t)e->room, sizeof(*e->lanes));
    }
    struct lane *l = &e->lanes[e->nlanes++];
    memset(l, 0, sizeof(*l));
    l->in = in;
    l->out = out;
    l->plan.peer = peer;
    l->plan.pair_send = out != NULL;
    return l;
}

static void engine_lane_start(struct engine *e, struct lane *l, int channel, int nchannels)
{
    const struct wire_setup *s = &e->wire->setup;
    l->plan.op = s->op;
    l->plan.rank = s->rank;
    l->plan.nranks = s->nranks;
    l->plan.root = e->op->root;
    l->plan.channel = channel;
    l->plan.nchannels = nchannels;
    l->plan.count = e->op->count;
    l->plan.align = util_size_max(16 / e->type_size, 1);
    l->plan.chunk = (size_t)e->slices * e->wire->slot_bytes / e->type_size;
    algo_lane_cut(&l->plan);
    l->count = algo_acts_count(&l->plan);
    if (l->in) {
        l->in->expected += algo_recvs_count(&l->plan) * (uint64_t)e->slices;
    }
}

/* One way to or from @peer, if the operation has it. */
static void engine_pair_add(struct engine *e, int c, int peer, bool sends)
{
    struct wire *w = e->wire;
    const struct wire_setup *s = &w->setup;
    int src = sends ? s->rank : peer, dst = sends ? peer : s->rank;
    if (algo_pair_exists(s->op, src, dst, s->nranks, e->op->root)) {
        engine_lane_add(e, peer, sends || peer == s->rank ? NULL : w->recv[c][peer],
                        sends && peer != s->rank ? w->send[c][peer] : NULL);
    }
}

static void engine_channel_start(struct engine *e, int c, int nchannels)
{
    struct wire *w = e->wire;
    int n = w->setup.nranks, rank = w->setup.rank;
    int next = (rank + 1) % n, prev = (rank + n - 1) % n, first = e->nlanes;
    if (!algo_info_get(w->setup.op)->pairwise) {
        engine_lane_add(e, next, n > 1 ? w->recv[c][prev] : NULL, n > 1 ? w->send[c][next] : NULL);
    } else {
        for (int d = 1; d < n;
             d++) { /* nearest first, so that not all ranks begin with the same one */
            engine_pair_add(e, c, (rank + d) % n, true);
            engine_pair_add(e, c, (rank + n - d) % n, false);
        }
        engine_pair_add(e, c, rank, false);
    }
    for (int i = first; i < e->nlanes; i++) {
        engine_lane_start(e, &e->lanes[i], c, nchannels);
    }
}

static void engine_op_start(struct engine *e, const struct engine_op *op)
{
    const struct wire_setup *s = &e->wire->setup;
    e->op = op;
    e->nlanes = 0;
    e->type_size = type_id_size(op->type);
    if (e->player) {
        player_start(e->player,
                     &(struct player_data){
                         .type = op->type, .redop = op->redop, .send = op->send, .recv = op->recv});
        return;
    }
    e->slices = algo_info_get(s->op)->slices;
    int nchannels =
        algo_channels_get(algo_bytes_get(s->op, op->count, e->type_size, s->nranks), s->channels);
    for (int c = 0; c < nchannels; c++) {
        engine_channel_start(e, c, nchannels);
    }
}

static void engine_size_check(struct engine *e, const struct lane *l, size_t got, size_t want)
{
    if (got == want) {
        return;
    }
    if (e->mismatches++ == 0) {
        snprintf(e->mismatch, sizeof(e->mismatch),
                 "from rank %d on rank %d, channel %d: %zu bytes instead of %zu", l->in->peer,
                 l->plan.rank, l->plan.channel, got, want);
    }
}

/* The work of a kernel on one slice: @got came in, @put goes out; either may be NULL. */
static void engine_slice_compute(struct engine *e, const struct algo_act *act, size_t off, size_t n,
                                 char *got, char *put)
{
    const struct engine_op *op = e->op;
    size_t ts = e->type_size, bytes = n * ts;
    char *in = op->send + (act->src + off) * ts, *out = op->recv + (act->dst + off) * ts;
    bool keep = act->flags & ALGO_DST;
    if (bytes == 0) {
        return;
    }
    if (act->flags & ALGO_REDUCE_IN) {
        char *sum = put ? put : out;
        type_vec_reduce(op->type, op->redop, sum, got, in, n);
        if (act->flags & ALGO_FINISH) {
            type_vec_finish(op->type, op->redop, sum, n, e->wire->setup.nranks);
        }
        if (keep && sum != out) {
            memcpy(out, sum, bytes);
        }
        return;
    }
    char *from = got ? got : in;
    if (put) {
        memcpy(put, from, bytes);
    }
    if (keep && out != from) {
        memmove(out, from, bytes);
    }
}

static void engine_slice_advance(struct lane *l, int slices)
{
    if (++l->slice == slices) {
        l->slice = 0;
        l->loaded = false;
        l->i++;
    }
}

/* One message of the lane, if what it needs is there. True when it moved. */
static bool engine_lane_step(struct engine *e, struct lane *l)
{
    char *got = NULL, *put = NULL;
    size_t got_bytes = 0;
    if (l->i == l->count) {
        return false;
    }
    if (!l->loaded) {
        algo_act_get(&l->plan, l->i, &l->act);
        l->slice_elems = algo_slice_size(l->act.n, e->slices, l->plan.chunk / (size_t)e->slices);
        l->loaded = true;
    }
    if ((l->act.flags & ALGO_RECV) && !(got = conn_slot_full(l->in, &got_bytes))) {
        return false;
    }
    if ((l->act.flags & ALGO_SEND) && !(put = conn_slot_free(l->out))) {
        return false;
    }
    size_t off = util_size_min((size_t)l->slice * l->slice_elems, l->act.n);
    size_t n = util_size_min(l->slice_elems, l->act.n - off);
    engine_slice_compute(e, &l->act, off, n, got, put);
    if (put) {
        conn_slot_fill(l->out, n * e->type_size);
    }
    if (got) {
        engine_size_check(e, l, got_bytes, n * e->type_size);
        conn_slot_release(l->in);
        if (e->trace->active_since) {
            trace_bytes_add(e->trace, util_now_ns(), got_bytes);
        }
    }
    engine_slice_advance(l, e->slices);
    return true;
}

/* All connections and lanes once. 1 when something moved, 0 when not, -1 when the run has failed.
 */
static int engine_pass(struct engine *e)
{
    char error[1400];
    int moved = 0;
    for (int i = 0; i < e->wire->nconns; i++) {
        int rc = conn_progress(&e->wire->conns[i], e->trace, error, sizeof(error));
        if (rc < 0) {
            boot_fail(e->boot, PERF_NET, error);
            return -1;
        }
        moved |= rc;
    }
    for (int i = 0; i < e->nlanes; i++) {
        moved |= engine_lane_step(e, &e->lanes[i]);
    }
    if (e->player) {
        moved |= player_step(e->player, e->trace);
    }
    if (boot_failed(e->boot)) {
        return -1;
    }
    if (moved) {
        watch_progress_note();
    } else if (e->idle_ns) {
        struct timespec ts = {.tv_sec = (time_t)(e->idle_ns / R2_NS_PER_S),
                              .tv_nsec = (long)(e->idle_ns % R2_NS_PER_S)};
        nanosleep(&ts, NULL);
    } else {
        sched_yield();
    }
    return moved;
}

static bool engine_lanes_done(const struct engine *e)
{
    for (int i = 0; i < e->nlanes; i++) {
        if (e->lanes[i].i != e->lanes[i].count) {
            return false;
        }
    }
    return !e->player || player_is_done(e->player);
}

static bool engine_conns_idle(const struct engine *e)
{
    for (int i = 0; i < e->wire->nconns; i++) {
        if (!conn_idle(&e->wire->conns[i])) {
            return false;
        }
    }
    return true;
}

/* The barriers of -z after operation @i. */
static int engine_op_block(struct engine *e, struct engine_batch *b, int i)
{
    bool inner = b->blocking == ENGINE_BARRIER;
    bool outer = b->blocking == ENGINE_BARRIER_UNTIMED && (i + 1) % b->agg == 0;
    if (!inner && !outer) {
        return 0;
    }
    uint64_t before = util_now_ns();
    int rc = boot_barrier(e->boot);
    if (outer) {
        b->excluded_ns += util_now_ns() - before;
    }
    return rc;
}

static int engine_ops_run(struct engine *e, struct engine_batch *b)
{
    for (int i = 0; i < b->n; i++) {
        engine_op_start(e, &b->ops[i]);
        while (!engine_lanes_done(e)) {
            if (engine_pass(e) < 0) {
                return -1;
            }
        }
        b->ops[i].end_ns = util_now_ns();
        if (engine_op_block(e, b, i) != 0) {
            return -1;
        }
    }
    return 0;
}

/* For the user: what a run that stood still was waiting for. */
static void engine_pending_print(const struct engine *e)
{
    for (int i = 0; i < e->wire->nconns; i++) {
        const struct conn *c = &e->wire->conns[i];
        if (!conn_idle(c)) {
            fprintf(
                stderr,
                "r2_perf: rank %d %s rank %d, channel %d, device %d: %llu messages given to the plugin, %llu "
                "finished\n",
                c->rank, c->kind == CONN_SEND ? "to" : "from", c->peer, c->channel, c->dev,
                (unsigned long long)c->posted, (unsigned long long)c->done);
        }
    }
}

static int engine_batch_run(struct engine *e, struct engine_batch *b)
{
    if (engine_batch_start(b, e->boot, e->trace) != 0) {
        return -1;
    }
    int rc = engine_ops_run(e, b);
    engine_batch_stop(b, e->trace);
    while (rc == 0 && !engine_conns_idle(e)) {
        rc = engine_pass(e) < 0 ? -1 : 0;
    }
    if (rc < 0 && boot_error(e->boot)->code == PERF_TIMEOUT) {
        engine_pending_print(e);
    }
    watch_phase_set(NULL);
    return rc;
}

static void *engine_main(void *arg)
{
    struct engine *e = arg;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->batch && !e->stop) {
            pthread_cond_wait(&e->cond, &e->lock);
        }
        if (e->stop) {
            break;
        }
        struct engine_batch *b = e->batch;
        pthread_mutex_unlock(&e->lock);
        int rc = engine_batch_run(e, b);
        pthread_mutex_lock(&e->lock);
        e->result = rc;
        e->batch = NULL;
        pthread_cond_broadcast(&e->cond);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

struct engine *engine_open(struct wire *wire, struct trace *trace, uint64_t idle_ns)
{
    struct engine *e = util_mem_alloc(1, sizeof(*e));
    e->wire = wire;
    e->trace = trace;
    e->idle_ns = idle_ns;
    e->boot = wire->setup.boot;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->cond, NULL);
    if (pthread_create(&e->thread, NULL, engine_main, e) != 0) {
        free(e);
        return NULL;
    }
    return e;
}

void engine_close(struct engine *e)
{
    if (!e) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    player_close(e->player);
    free(e->lanes);
    free(e);
}

int engine_run(struct engine *e, struct engine_batch *batch)
{
    pthread_mutex_lock(&e->lock);
    e->batch = batch;
    pthread_cond_broadcast(&e->cond);
    while (e->batch) {
        pthread_cond_wait(&e->cond, &e->lock);
    }
    int rc = e->result;
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void engine_play(struct engine *e, const struct spread *spread)
{
    if (e->player) {
        player_count_take(e->player, &e->count);
    }
    player_close(e->player);
    e->player = spread ? player_open(spread, e->wire) : NULL;
}

void engine_played_take(struct engine *e, uint64_t *sent, uint64_t *received)
{
    player_count_take(e->player, &e->count);
    memcpy(sent, e->count.sent, sizeof(e->count.sent));
    memcpy(received, e->count.received, sizeof(e->count.received));
    memset(e->count.sent, 0, sizeof(e->count.sent));
    memset(e->count.received, 0, sizeof(e->count.received));
}

uint64_t engine_mismatches_get(const struct engine *e, const char **first)
{
    *first = e->mismatches ? e->mismatch : e->count.mismatch;
    return e->mismatches + e->count.mismatches;
}

bool engine_can_play(void)
{
    return true;
}

bool engine_can_register(void)
{
    return false;
}
