/*
 * The out-of-band channel as the simulation has it: one bus, a channel per pair of processes,
 * messages that come late, twice, in another order, or not at all.
 */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct r2_oob_peer {
    struct sim_oob *oob; /* whose view of the channel this is */
    int other;
    unsigned refs;
    int up;   /* what the owner was told last */
    int tell; /* a change waits to be told */
    int tell_refused;
    uint64_t tell_at;
    char str[16];
};

struct sim_packet {
    struct sim_packet *next;
    uint64_t due;
    int from;
    size_t len;
    uint8_t data[];
};

struct sim_oob {
    struct r2_oob base;
    struct sim_bus *bus;
    struct sim_proc *proc;
    struct r2_oob_events ev;
    struct r2_oob_name name;
    struct r2_oob_peer peer[SIM_MAX_PROCS];
    struct sim_packet *in; /* by due time */
    struct r2_oob_counters cnt;
};

struct sim_bus {
    struct sim *sim;
    struct fab_rng rng;
    struct sim_oob *end[SIM_MAX_PROCS];
    uint64_t out_until[SIM_MAX_PROCS][SIM_MAX_PROCS]; /* outage */
    uint64_t last_due[SIM_MAX_PROCS][SIM_MAX_PROCS];
    int dialled[SIM_MAX_PROCS][SIM_MAX_PROCS];
    int dead[SIM_MAX_PROCS];
};

static uint64_t bus_delay(struct sim_bus *b)
{
    const struct sim_params *p = &b->sim->p;

    return sim_pick(&b->rng, p->oob_min_ns, p->oob_max_ns);
}

static void wake(void *arg)
{
    sim_proc_kick(arg);
}

static void tell_later(struct r2_oob_peer *p, int refused, uint64_t at)
{
    p->tell = 1;
    p->tell_refused = refused;
    p->tell_at = at;
    fab_inproc_at(p->oob->bus->sim->f, at, wake, p->oob->proc);
}

static int channel_out(struct sim_bus *b, int a, int c)
{
    return b->dead[a] || b->dead[c] || fab_inproc_now(b->sim->f) < b->out_until[a][c];
}

static void packets_drop(struct sim_oob *o, int from)
{
    struct sim_packet **pp = &o->in, *k;

    while ((k = *pp) != NULL) {
        if (from < 0 || k->from == from) {
            *pp = k->next;
            free(k);
        } else {
            pp = &k->next;
        }
    }
}

/* ---- ops ---- */

static void oob_destroy(struct r2_oob *oob)
{
    struct sim_oob *o = (struct sim_oob *)oob;

    packets_drop(o, -1);
    o->bus->end[o->proc->index] = NULL;
    o->proc->oob = NULL;
    free(o);
}

static int oob_fd(struct r2_oob *oob)
{
    return -1;
}

/* A dial that did not work is told and tried again; one that works makes the channel. */
static void peer_told(struct r2_oob_peer *p, uint64_t now)
{
    struct sim_oob *o = p->oob;
    struct sim_bus *b = o->bus;
    int me = o->proc->index;

    p->tell = 0;
    if (channel_out(b, me, p->other) || !b->end[p->other]) {
        p->up = 0;
        sim_trace(b->sim, "oob %d: channel to %d down%s", me, p->other,
                  b->dead[p->other] ? ", refused" : "");
        if (!b->dead[me]) {
            tell_later(p, 0, now + sim_pick(&b->rng, 5 * SIM_MS, 50 * SIM_MS));
        }
        o->ev.down(o->ev.arg, p, b->dead[p->other]);
        return;
    }
    if (!p->up) {
        p->up = 1;
        o->cnt.reconnects++;
        sim_trace(b->sim, "oob %d: channel to %d up", me, p->other);
        o->ev.up(o->ev.arg, p);
    }
}

static uint64_t oob_progress(struct r2_oob *oob, uint64_t now)
{
    struct sim_oob *o = (struct sim_oob *)oob;
    struct sim_packet *k;
    uint64_t next = UINT64_MAX;

    for (int i = 0; i < SIM_MAX_PROCS; i++) {
        if (o->peer[i].tell && o->peer[i].tell_at <= now) {
            peer_told(&o->peer[i], now);
        }
    }
    while ((k = o->in) != NULL && k->due <= now) {
        o->in = k->next;
        if (!channel_out(o->bus, o->proc->index, k->from) && o->peer[k->from].up) {
            o->cnt.received++;
            o->cnt.bytes_received += k->len;
            o->ev.message(o->ev.arg, &o->peer[k->from], k->data, k->len);
        } else {
            o->bus->sim->st.oob_lost++;
        }
        free(k);
    }
    if (o->in) {
        next = o->in->due;
    }
    for (int i = 0; i < SIM_MAX_PROCS; i++) {
        if (o->peer[i].tell && o->peer[i].tell_at < next) {
            next = o->peer[i].tell_at;
        }
    }
    return next;
}

static void oob_name_get(struct r2_oob *oob, struct r2_oob_name *name)
{
    *name = ((struct sim_oob *)oob)->name;
}

/* The listening end learns of a channel when it is made, and may hear its first message at once. */
static void dial(struct sim_bus *b, int a, int c)
{
    uint64_t at = fab_inproc_now(b->sim->f) + bus_delay(b);

    if (b->dialled[a][c]) {
        return;
    }
    b->dialled[a][c] = b->dialled[c][a] = 1;
    tell_later(&b->end[a]->peer[c], 0, at + bus_delay(b));
    if (b->end[c] && a != c) {
        tell_later(&b->end[c]->peer[a], 0, at);
    }
}

static struct r2_oob_peer *oob_peer_get(struct r2_oob *oob, const struct r2_oob_name *name)
{
    struct sim_oob *o = (struct sim_oob *)oob;
    int other = name->port;

    if (name->uuid[0] != 0x51ull + (uint64_t)other || other >= o->bus->sim->p.procs) {
        errno = EINVAL;
        return NULL;
    }
    o->peer[other].refs++;
    dial(o->bus, o->proc->index, other);
    return &o->peer[other];
}

static void oob_peer_ref(struct r2_oob_peer *p)
{
    p->refs++;
}

static void oob_peer_put(struct r2_oob_peer *p)
{
    if (p->refs == 0) {
        sim_fail(p->oob->bus->sim,
                 "process %d drops a reference to its channel to %d that it does not hold",
                 p->oob->proc->index, p->other);
        return;
    }
    p->refs--;
}

static const uint64_t *oob_peer_uuid(const struct r2_oob_peer *p)
{
    static uint64_t uuid[SIM_MAX_PROCS][2];

    uuid[p->other][0] = 0x51ull + (uint64_t)p->other;
    uuid[p->other][1] = p->oob->bus->sim->seed | 1;
    return uuid[p->other];
}

static const char *oob_peer_str(const struct r2_oob_peer *p)
{
    return p->str;
}

static bool oob_peer_is_up(const struct r2_oob_peer *p)
{
    return p->up;
}

static void packet_queue(struct sim_bus *b, int from, int to, const void *msg, size_t len,
                         uint64_t due)
{
    struct sim_oob *o = b->end[to];
    struct sim_packet *k = malloc(sizeof(*k) + len), **pp;

    if (!k || !o) {
        free(k);
        return;
    }
    k->due = due;
    k->from = from;
    k->len = len;
    memcpy(k->data, msg, len);
    for (pp = &o->in; *pp && (*pp)->due <= due; pp = &(*pp)->next) {
        continue;
    }
    k->next = *pp;
    *pp = k;
    fab_inproc_at(b->sim->f, due, wake, o->proc);
}

static int oob_send(struct r2_oob_peer *p, const void *msg, size_t len)
{
    struct sim_oob *o = p->oob;
    struct sim_bus *b = o->bus;
    const struct sim_params *pr = &b->sim->p;
    int me = o->proc->index;
    uint64_t now = fab_inproc_now(b->sim->f), due = now + bus_delay(b),
             *last = &b->last_due[me][p->other];

    if (len > R2_OOB_MAX_MESSAGE) {
        sim_fail(b->sim, "process %d sends %zu bytes in one message; the limit is %d", me, len,
                 R2_OOB_MAX_MESSAGE);
    }
    if (!p->up) {
        return -1;
    }
    o->cnt.sent++;
    o->cnt.bytes_sent += len;
    if (channel_out(b, me, p->other) || fab_rng_chance(&b->rng, pr->oob_loss_ppm)) {
        b->sim->st.oob_lost++;
        return 0;
    }
    if (fab_rng_chance(&b->rng, pr->oob_reorder_ppm)) {
        b->sim->st.oob_reordered++;
    } else {
        if (due <= *last) {
            due = *last + 1;
        }
        *last = due;
    }
    packet_queue(b, me, p->other, msg, len, due);
    if (fab_rng_chance(&b->rng, pr->oob_dup_ppm)) {
        b->sim->st.oob_dup++;
        packet_queue(b, me, p->other, msg, len,
                     due + bus_delay(b) * sim_pick(&b->rng, 0, 4) +
                         fab_rng_upto(&b->rng, pr->oob_late_ns));
    }
    return 0;
}

/* What was sent is under way in the bus, as in a kernel's socket: nothing to wait for. */
static void oob_drain(struct r2_oob *oob, uint64_t limit_ns)
{
}

static void oob_counters(struct r2_oob *oob, struct r2_oob_counters *out)
{
    *out = ((struct sim_oob *)oob)->cnt;
}

static const struct r2_oob_ops ops = {
    .name = "sim",
    .destroy = oob_destroy,
    .fd = oob_fd,
    .progress = oob_progress,
    .name_get = oob_name_get,
    .peer_get = oob_peer_get,
    .peer_ref = oob_peer_ref,
    .peer_put = oob_peer_put,
    .peer_uuid = oob_peer_uuid,
    .peer_str = oob_peer_str,
    .peer_is_up = oob_peer_is_up,
    .send = oob_send,
    .drain = oob_drain,
    .counters = oob_counters,
};

struct r2_oob *sim_oob_create(void *arg, const struct r2_oob_events *ev, char *why, size_t why_len)
{
    struct sim_proc *p = arg;
    struct sim_oob *o = calloc(1, sizeof(*o));

    if (!o) {
        snprintf(why, why_len, "out of memory");
        return NULL;
    }
    o->base.ops = &ops;
    o->bus = p->sim->bus;
    o->proc = p;
    o->ev = *ev;
    o->name.uuid[0] = 0x51ull + (uint64_t)p->index;
    o->name.uuid[1] = p->sim->seed | 1;
    o->name.port = (uint16_t)p->index;
    for (int i = 0; i < SIM_MAX_PROCS; i++) {
        o->peer[i].oob = o;
        o->peer[i].other = i;
        snprintf(o->peer[i].str, sizeof(o->peer[i].str), "proc%d", i);
    }
    p->oob = o;
    o->bus->end[p->index] = o;
    return &o->base;
}

struct sim_bus *sim_bus_create(struct sim *s)
{
    struct sim_bus *b = calloc(1, sizeof(*b));

    if (b) {
        b->sim = s;
        b->rng.s = s->seed * 0x9e3779b97f4a7c15ull + 0xb05;
    }
    return b;
}

void sim_bus_destroy(struct sim_bus *b)
{
    free(b);
}

void sim_bus_outage(struct sim_bus *b, int a, int other, uint64_t ns, int silent)
{
    uint64_t now = fab_inproc_now(b->sim->f);

    b->sim->st.oob_outages++;
    b->out_until[a][other] = b->out_until[other][a] = now + ns;
    for (int i = 0; i < 2; i++) {
        int me = i ? other : a, peer = i ? a : other;
        struct sim_oob *o = b->end[me];
        if (!o || (i && a == other)) {
            continue;
        }
        packets_drop(o, peer);
        if (o->peer[peer].up || o->peer[peer].tell) {
            tell_later(&o->peer[peer], 0, silent ? now + ns - 1 : now + bus_delay(b));
        }
    }
}

void sim_bus_dead(struct sim_bus *b, int proc)
{
    uint64_t now = fab_inproc_now(b->sim->f);

    b->dead[proc] = 1;
    for (int i = 0; i < b->sim->p.procs; i++) {
        struct sim_oob *o = b->end[i];
        if (!o || i == proc || !b->dialled[i][proc]) {
            continue;
        }
        packets_drop(o, proc);
        tell_later(&o->peer[proc], 1, now + bus_delay(b));
    }
}
