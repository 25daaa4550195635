/*
 * A small world that breaks, and what two ends see of it: the specification that probe_verdict() is
 * held against. It knows hosts, NICs, links, planes and processes, and nothing of the rows in
 * probe_verdict.c.
 *
 * Four hosts with three rails each; the pair in question is NIC 0 of hosts A and B. C and D are
 * third hosts.
 */
#ifndef TEST_VERDICT_WORLD_H
#define TEST_VERDICT_WORLD_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "plugin/probe/probe_verdict.h"

enum { HA, HB, HC, HD, HOSTS };
#define RAILS 3

enum fault_kind {
    ALL_WELL, /* congestion, or a queue pair of the data path alone */
    LOOP_QP_BROKEN,
    NIC_GONE,
    NIC_HANGS,
    NIC_HALF_HANGS, /* acknowledges what others ask, completes nothing of its own */
    LINK_DOWN,
    LINK_CUT, /* silent, one direction or both */
    PAIR_CUT, /* only between the two NICs */
    PLANE_CUT,
    FABRIC_CUT,
    SWITCH_OFF, /* of one plane: ports go down */
    PROCESS_STOPPED,
    PROCESS_KILLED,
    PROCESS_KILLED_LATE,   /* just after a probe had answered */
    PROCESS_KILLED_SILENT, /* its host refuses nothing */
    HOST_DEAD,
    CHANNEL_CUT,
    OTHER_RAILS, /* nothing but rail 0 is left */
    THIRD_HOSTS, /* nothing but A and B is left */
    FAULT_KINDS
};

static const char *const fault_names[FAULT_KINDS] = {
    "all well",   "loop qp broken",  "NIC gone",       "NIC hangs",   "NIC half hangs",
    "link down",  "link cut",        "pair cut",       "plane cut",   "fabric cut",
    "switch off", "process stopped", "process killed", "killed late", "killed silently",
    "host dead",  "channel cut",     "other rails",    "third hosts"};

struct fault {
    enum fault_kind kind;
    uint8_t host, rail;
};

struct world {
    uint32_t nic[HOSTS][RAILS], plane[RAILS], host[HOSTS], all; /* sets of fault kinds */
};

/* What can be seen at all, and how the world is wired. */
struct view {
    uint8_t self;               /* HA or HB */
    uint8_t ports[2], loops[2]; /* known; 0: our end, 1: the peer's */
    uint8_t direct;             /* 0: not asked; 1: by our end, 2: by the peer, who tells */
    uint8_t peer;               /* asked */
    uint8_t aux[2];             /* enum aux_layout of either end */
    uint8_t others;             /* how many other pairs there are */
    uint8_t channel_rides;      /* the out-of-band channel uses the same two NICs */
    uint8_t down_loop[2]; /* enum probe_outcome of the loop over a port that is down: NICs differ */
};
enum aux_layout { AUX_NONE, AUX_THIRD, AUX_PEER, AUX_MIXED, AUX_ONE, AUX_LAYOUTS };

#define BIT(x) (1u << (x))
#define B_(x)  BIT(PROBE_BLAME_##x)

static inline void world_break(struct world *w, struct fault f)
{
    switch (f.kind) {
    case NIC_GONE:
    case NIC_HANGS:
    case NIC_HALF_HANGS:
    case LINK_DOWN:
    case LINK_CUT:
    case LOOP_QP_BROKEN:
        w->nic[f.host][f.rail] |= BIT(f.kind);
        break;
    case PLANE_CUT:
    case SWITCH_OFF:
        for (int r = 0; r < RAILS; r++) { /* host 1: one switch has all planes */
            w->plane[r] |= r == f.rail || (f.kind == SWITCH_OFF && f.host == 1) ? BIT(f.kind) : 0;
        }
        break;
    case PROCESS_STOPPED:
    case PROCESS_KILLED:
    case PROCESS_KILLED_LATE:
    case PROCESS_KILLED_SILENT:
    case HOST_DEAD:
        w->host[f.host] |= BIT(f.kind);
        break;
    default:
        w->all |= BIT(f.kind);
    }
}

/* Packets pass between the NIC and its plane, and the NIC deals with them. */
static inline int nic_passes(const struct world *w, int h, int r)
{
    if ((h > HB && (w->all & BIT(THIRD_HOSTS))) || (r > 0 && (w->all & BIT(OTHER_RAILS)))) {
        return 0;
    }
    return !(w->nic[h][r] & (BIT(NIC_GONE) | BIT(NIC_HANGS) | BIT(LINK_DOWN) | BIT(LINK_CUT))) &&
           !(w->host[h] & BIT(HOST_DEAD));
}

static inline int wires_pass(const struct world *w, int h, int r, int h2, int r2)
{
    if ((w->all & BIT(FABRIC_CUT)) || (w->plane[r] | w->plane[r2]) != 0) {
        return 0;
    }
    return !((w->all & BIT(PAIR_CUT)) && r == 0 && r2 == 0 && h <= HB && h2 <= HB) &&
           nic_passes(w, h, r) && nic_passes(w, h2, r2);
}

/* A write of (h, r) to (h2, r2) is acknowledged. */
static inline int answered(const struct world *w, int h, int r, int h2, int r2)
{
    uint32_t dead = BIT(PROCESS_KILLED) | BIT(PROCESS_KILLED_SILENT);

    return wires_pass(w, h, r, h2, r2) && !(w->nic[h][r] & BIT(NIC_HALF_HANGS)) &&
           !(w->host[h2] & dead);
}

static inline uint8_t port_of(const struct world *w, int h)
{
    if (w->nic[h][0] & BIT(NIC_GONE)) {
        return PROBE_PORT_GONE;
    }
    return (w->nic[h][0] & BIT(LINK_DOWN)) || (w->plane[0] & BIT(SWITCH_OFF)) ? PROBE_PORT_DOWN
                                                                              : PROBE_PORT_UP;
}

static inline uint8_t loop_of(const struct world *w, int h, uint8_t down_loop)
{
    uint32_t n = w->nic[h][0];

    if ((n & BIT(NIC_GONE)) && down_loop != PROBE_OK) { /* Soft-RoCE goes on with calls */
        return PROBE_ERROR;
    }
    if (n & (BIT(NIC_HANGS) | BIT(NIC_HALF_HANGS) | BIT(LOOP_QP_BROKEN))) {
        return PROBE_TIMEOUT;
    }
    return port_of(w, h) == PROBE_PORT_UP ? PROBE_OK : down_loop;
}

static inline uint8_t aux_of(const struct world *w, int h, enum aux_layout layout, uint8_t *n)
{
    static const struct {
        int8_t host[2], rail[2]; /* host -1: the peer's */
    } to[AUX_LAYOUTS] = {
        [AUX_THIRD] = {{HC, HD}, {0, 0}},
        [AUX_PEER] = {{-1, -1}, {1, 2}},
        [AUX_MIXED] = {{HC, -1}, {0, 1}},
        [AUX_ONE] = {{HC}, {0}},
    };
    int ok = 0;

    *n = layout == AUX_NONE ? 0 : layout == AUX_ONE ? 1 : 2;
    for (int i = 0; i < *n; i++) {
        int h2 = to[layout].host[i] < 0 ? HB - h : to[layout].host[i];

        ok |= answered(w, h, 0, h2, to[layout].rail[i]);
    }
    return *n == 0 ? PROBE_NA : ok ? PROBE_OK : PROBE_TIMEOUT;
}

static inline struct probe_end end_seen(const struct world *w, const struct view *v, int far)
{
    int h = far ? HB - v->self : v->self;
    struct probe_end e = {0};

    /* Who has tried its loop has looked at its port. */
    e.port = v->ports[far] || v->loops[far] ? port_of(w, h) : PROBE_PORT_NA;
    e.loop = v->loops[far] ? loop_of(w, h, v->down_loop[far]) : PROBE_NA;
    e.aux = aux_of(w, h, (enum aux_layout)v->aux[far], &e.aux_n);
    return e;
}

static inline uint8_t peer_seen(const struct world *w, const struct view *v)
{
    uint32_t p = w->host[HB - v->self];

    if (!v->peer) {
        return PROBE_NA;
    }
    if ((w->all & BIT(CHANNEL_CUT)) || (p & BIT(HOST_DEAD)) ||
        (v->channel_rides && !wires_pass(w, HA, 0, HB, 0))) {
        return PROBE_TIMEOUT;
    }
    if (p & (BIT(PROCESS_KILLED) | BIT(PROCESS_KILLED_LATE))) {
        return PROBE_ERROR;
    }
    return p & (BIT(PROCESS_STOPPED) | BIT(PROCESS_KILLED_SILENT)) ? PROBE_TIMEOUT : PROBE_OK;
}

static inline struct probe_facts facts_seen(const struct world *w, const struct view *v)
{
    struct probe_facts f = {.peer = peer_seen(w, v), .others_n = v->others};
    int other = HB - v->self, ok = 0;

    if (v->direct == 2 && f.peer == PROBE_OK) {
        f.direct = answered(w, other, 0, v->self, 0) ? PROBE_OK : PROBE_TIMEOUT;
    } else if (v->direct == 1) {
        f.direct = answered(w, v->self, 0, other, 0) ? PROBE_OK : PROBE_TIMEOUT;
    }
    for (int r = 1; r <= v->others; r++) {
        ok |= answered(w, v->self, r, other, r);
    }
    f.others = v->others == 0 ? PROBE_NA : ok ? PROBE_OK : PROBE_TIMEOUT;
    f.local = end_seen(w, v, 0);
    if (f.peer == PROBE_OK) {
        f.remote = end_seen(w, v, 1);
    }
    return f;
}

/* What a process leaves behind that has ended: whatever was answered until then, and NICs that are
 * well. */
static inline int process_ended(const struct probe_facts *f)
{
    return f->peer == PROBE_ERROR && f->local.port <= PROBE_PORT_UP &&
           f->remote.port <= PROBE_PORT_UP && f->local.loop <= PROBE_OK &&
           f->remote.loop <= PROBE_OK;
}

/* Set of enum probe_blame: what is broken, of what a verdict about the pair can blame. A switch
 * that is off takes both links down. */
static inline uint32_t truth_of(struct fault f, int self)
{
    int far = f.host != self;

    switch (f.kind) {
    case NIC_GONE:
    case NIC_HANGS:
    case NIC_HALF_HANGS:
        return f.host > HB || f.rail > 0
                   ? BIT(PROBE_BLAME_NONE)
                   : BIT(far ? PROBE_BLAME_REMOTE_NIC : PROBE_BLAME_LOCAL_NIC);
    case LINK_DOWN:
    case LINK_CUT:
        return f.host > HB || f.rail > 0
                   ? BIT(PROBE_BLAME_NONE)
                   : BIT(far ? PROBE_BLAME_REMOTE_LINK : PROBE_BLAME_LOCAL_LINK);
    case PLANE_CUT:
        return BIT(f.rail > 0 ? PROBE_BLAME_NONE : PROBE_BLAME_PATH);
    case PAIR_CUT:
    case FABRIC_CUT:
        return BIT(PROBE_BLAME_PATH);
    case SWITCH_OFF:
        return f.rail > 0 ? BIT(PROBE_BLAME_NONE)
                          : BIT(PROBE_BLAME_PATH) | BIT(PROBE_BLAME_LOCAL_LINK) |
                                BIT(PROBE_BLAME_REMOTE_LINK);
    case PROCESS_STOPPED:
    case PROCESS_KILLED:
    case PROCESS_KILLED_LATE:
    case PROCESS_KILLED_SILENT:
    case HOST_DEAD:
        return BIT(f.host > HB ? PROBE_BLAME_NONE : PROBE_BLAME_PEER);
    case CHANNEL_CUT:
        return BIT(PROBE_BLAME_PEER);
    default:
        return BIT(PROBE_BLAME_NONE);
    }
}

/* Facts as text, with the verdict on them; the text stands until the next call. */
static inline const char *show(const struct probe_facts *f)
{
    static const char *const o[] = {"-", "ok", "error", "time-out"}, *const p[] = {"-", "up",
                                                                                   "down", "gone"};
    static char text[300];
    struct probe_verdict v = probe_verdict(f);

    snprintf(
        text, sizeof(text),
        "direct %s peer %s others %s/%u | ours: port %s loop %s aux %s/%u | its: port %s loop %s aux %s/%u -> %s, "
        "suspects %02x%s",
        o[f->direct], o[f->peer], o[f->others], f->others_n, p[f->local.port], o[f->local.loop],
        o[f->local.aux], f->local.aux_n, p[f->remote.port], o[f->remote.loop], o[f->remote.aux],
        f->remote.aux_n, probe_blame_name(v.blame), v.suspects, v.several ? ", several" : "");
    return text;
}

#endif
