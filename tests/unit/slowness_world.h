/*
 * An instance that sends to five hosts, of which nothing is real but what r2_slowness looks at: the
 * counters of its connections, the clock, NCCL's thread and what peers answer are the test's. One
 * thread. For suites that are linked with --wrap=ib_send_progress,--wrap=r2_pair_find.
 */
#ifndef SLOWNESS_WORLD_H
#define SLOWNESS_WORLD_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_log.h"
#include "plugin/core/r2_notify.h"
#include "plugin/core/r2_registry.h"
#include "plugin/probe/diagnosis/r2_slowness.h"
#include "plugin/probe/diagnosis/r2_verdict.h"
#include "plugin/probe/health/r2_load.h"
#include "plugin/probe/health/r2_pair.h"
#include "plugin/probe/health/r2_watch.h"
#include "plugin/probe/probe_line.h"
#include "tests/support/times.h"

#define TICK   (7500 * US)
#define FLOWS  5
#define NICS   9
#define RATE   100000000.0 /* bytes/s of each flow */
#define OUT    1000000.0   /* bytes of it that are under way */
#define PART   65536
#define LEARNT (20 * S) /* what is usual is known */
#define SLOW   3        /* the flow that becomes slow */

/* What is sent to one process. */
struct flow {
    struct r2_peer peer;
    struct r2_comm *comm;
    double rate, done, out;
    double kept;          /* of @done, what NCCL's thread has taken */
    int paths;            /* ... over so many, in equal parts */
    bool lazy;            /* NCCL's thread takes nothing by itself */
    uint64_t moved, best; /* bytes over the NIC at the far end, of others; the best, bytes/s */
    bool full;            /* ... others move half of that */
    bool mute;            /* the process there answers nothing */
    unsigned asked, asked_pair; /* questions; of the last NIC pair */
    struct r2_pair pair[NICS];
};

static struct r2_inst *inst;
static struct flow *flow;
static uint64_t now, others; /* ns; bytes/s that all flows but SLOW move more */
static unsigned said, over, taken;
static char warn[500], info[500], brief[100];
static struct r2_cause cause, ended; /* what was said, and that it is over */

/* --- the world --- */

struct r2_pair *__wrap_r2_pair_find(const struct r2_inst *of, const struct r2_peer *peer, int nic,
                                    int peer_nic);
struct r2_pair *__wrap_r2_pair_find(const struct r2_inst *of, const struct r2_peer *peer, int nic,
                                    int peer_nic)
{
    for (int i = 0; i < FLOWS; i++) {
        if (&flow[i].peer == peer && nic == peer_nic) {
            return &flow[i].pair[nic];
        }
    }
    return NULL;
}

/* What has completed is taken. */
static inline void take(struct flow *f)
{
    f->kept = f->done;
    for (int p = 0; p < f->paths; p++) {
        struct ib_path *path = &f->comm->conn.path[p];

        path->count.bytes_done = (uint64_t)(f->kept / f->paths);
        path->count.cqes = path->count.bytes_done / PART;
        path->sq.used = path->count.bytes > path->count.bytes_done;
    }
}

static inline void put(struct flow *f)
{
    for (int p = 0; p < f->paths; p++) {
        struct ib_path *path = &f->comm->conn.path[p];

        path->count.bytes = (uint64_t)((f->done + f->out) / f->paths);
        path->sq.used = path->count.bytes > path->count.bytes_done;
    }
}

void __wrap_ib_send_progress(struct ib_send *s);
void __wrap_ib_send_progress(struct ib_send *s)
{
    for (int i = 0; i < FLOWS; i++) {
        if (flow[i].comm->tx == s) {
            take(&flow[i]);
            taken++;
        }
    }
}

static inline void log_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    if (getenv("RIG_VERBOSE")) {
        printf("%10.3f ms %s\n", (double)now / 1e6, msg);
    }
    if (level == R2_LOG_WARN || level == R2_LOG_INFO) {
        snprintf(level == R2_LOG_WARN ? warn : info, sizeof(warn), "%s", msg);
    }
}

static inline void on_cause(struct r2_inst *of, const struct r2_cause *c)
{
    ck_assert_str_eq(c->code, "R2-S01");
    if (strcmp(c->how, "well-again") == 0) {
        over++;
        ended = *c;
        return;
    }
    said++;
    cause = *c;
    snprintf(brief, sizeof(brief), "%s", c->brief);
    cause.peer_nic = c->peer_nic ? flow[SLOW].pair[0].far.name : NULL;
}

static inline uint64_t clock_of(void *arg)
{
    return now;
}

static inline void post(struct r2_inst *of, struct r2_peer *peer)
{
    ck_abort_msg("more than a message holds");
}

/* Instances have whole tables, which need not be here twice. */
static inline void world_make(void)
{
    static const struct r2_subscriber test = {.on_cause = on_cause};
    static const struct r2_subscriber *const list[] = {&r2_slowness_subscriber, &test, NULL};

    inst = calloc(1, sizeof(*inst));
    flow = calloc(FLOWS, sizeof(*flow));
    ck_assert(inst && flow);
    inst->env.now_ns = clock_of;
    inst->above.subscribers = list;
    inst->above.post = post;
    inst->cfg.slow = inst->cfg.watchdog = 1;
    inst->nics.count = NICS;
    snprintf(inst->self.job, sizeof(inst->self.job), "the-job");
    pthread_mutex_init(&inst->lock, NULL);
    snprintf(inst->self.host, sizeof(inst->self.host), "h9");
    for (int n = 0; n < NICS; n++) {
        snprintf(inst->nics.nic[n].name, sizeof(inst->nics.nic[n].name), "near%d", n);
    }
    ck_assert(r2_load_open(inst) == 0 && r2_verdict_open(inst) == 0 && r2_slowness_open(inst) == 0);
}

static inline struct r2_comm *comm_make(struct flow *f, int paths)
{
    struct r2_comm *c = calloc(1, sizeof(*c));

    ck_assert_ptr_nonnull(c);
    c->watch = calloc(1, sizeof(*c->watch));
    c->tx = calloc(1, sizeof(*c->tx));
    ck_assert(c->watch && c->tx);
    c->inst = inst;
    c->is_send = 1;
    r2_gate_init(&c->gate);
    atomic_store(&c->state.setup, R2_SETUP_DONE);
    c->conn.npaths = paths;
    c->conn.up = c->shown.up = (1u << paths) - 1;
    c->conn.touched = 1;
    for (int p = 0; p < paths; p++) {
        c->conn.path[p].nic = c->conn.path[p].peer_nic = (uint8_t)p;
    }
    r2_comm_enter(c);
    r2_comm_join(c, &f->peer);
    IB_RLX_SET(c->conn.awake, 1);
    r2_comm_wake(c);
    return c;
}

static inline void comm_free(struct r2_comm *c)
{
    r2_comm_unlink(c);
    r2_gate_destroy(&c->gate);
    free(c->watch);
    free(c->tx);
    free(c);
}

static inline void flow_make(struct flow *f, int i)
{
    f->rate = RATE;
    f->out = OUT;
    f->paths = 1;
    f->best = 100 * (uint64_t)RATE;
    f->peer.refs = 2;
    snprintf(f->peer.host, sizeof(f->peer.host), "h%d", i);
    f->peer.next = inst->index.peers;
    inst->index.peers = &f->peer;
    for (int n = 0; n < NICS; n++) {
        f->pair[n] = (struct r2_pair){
            .inst = inst, .peer = &f->peer, .nic = (uint8_t)n, .peer_nic = (uint8_t)n};
        snprintf(f->pair[n].far.name, sizeof(f->pair[n].far.name), "far%d", n);
    }
    f->comm = comm_make(f, 2);
}

static inline void begin(void)
{
    now = S;
    said = over = taken = 0;
    others = 0;
    warn[0] = info[0] = '\0';
    r2_gate_setup(0);
    r2_log_sink_set(log_sink);
    r2_log_level_set(R2_LOG_TRACE);
    world_make();
    for (int i = 0; i < FLOWS; i++) {
        flow_make(&flow[i], i);
    }
}

/* Everything, so that a leak is one of the plugin's. */
static inline void end(void)
{
    struct r2_peer *next;

    for (struct r2_peer *p = inst->index.peers; p; p = next) {
        next = p->next;
        while (p->comms) {
            comm_free(p->comms);
        }
        r2_slowness_leave(inst, p);
    }
    r2_slowness_close(inst);
    free(inst->watch.load);
    free(inst->diagnosis.verdicts);
    pthread_mutex_destroy(&inst->lock);
    free(inst);
    free(flow);
}

/* --- time --- */

/* What is in the message for the peer: nothing but questions after loads, which it answers. */
static inline void answer(struct flow *f)
{
    struct r2_reader r = {.p = f->peer.out.buf, .end = f->peer.out.buf + f->peer.out.len};
    union fo_body b;
    const char *why = NULL;
    int type;

    while ((type = fo_unpack(&r, &b, &why)) > 0) {
        struct fo_load l = {.rate = f->best, .at = now};

        ck_assert_int_eq(type, FO_MSG_LOAD);
        ck_assert_uint_eq(b.load.flags, FO_LOAD_REQUEST);
        f->asked++;
        f->asked_pair = b.load.nic;
        l.nic = b.load.peer_nic;
        l.peer_nic = b.load.nic;
        l.moved = (uint64_t)f->done + f->moved;
        if (!f->mute) {
            r2_load_on(inst, &f->peer, &l);
        }
    }
    ck_assert_int_eq(type, 0);
    f->peer.out.len = 0;
}

/* All that is under way goes on for @ns. */
static inline void flows_move(uint64_t ns)
{
    for (int i = 0; i < FLOWS; i++) {
        struct flow *f = &flow[i];

        f->moved += f->full ? f->best / 2 * ns / S : 0;
        f->done += (f->rate + (i == SLOW ? 0 : (double)others)) * (double)ns / 1e9;
        put(f);
        if (!f->lazy) {
            take(f);
        }
    }
}

/* A turn of the service thread, @ns after the last one. */
static inline void turn(uint64_t ns)
{
    now += ns;
    r2_load_step(inst, now);
    r2_slowness_subscriber.on_watch(inst, now, TICK);
    for (int i = 0; i < FLOWS; i++) {
        answer(&flow[i]);
    }
    r2_log_flush();
}

static inline void run(uint64_t ns)
{
    for (uint64_t till = now + ns; now < till;) {
        flows_move(TICK);
        turn(TICK);
    }
}

/* What is usual becomes known, and that NICs can do a hundred times as much. */
static inline void learn(void)
{
    double was[FLOWS];

    for (int i = 0; i < FLOWS; i++) {
        was[i] = flow[i].rate;
        flow[i].rate *= 100;
    }
    run(300 * MS);
    for (int i = 0; i < FLOWS; i++) {
        flow[i].rate = was[i];
    }
    run(LEARNT);
    ck_assert_uint_eq(said, 0);
}

#endif
