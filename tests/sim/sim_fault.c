/*
 * The schedule of faults. Each waits for its trigger (so many messages done, or the fault before
 * it) and a random delay, so that a schedule hits the traffic wherever that happens to be, and a
 * second fault hits the settlement of the first. One rail, the safe one, is never touched where the
 * run has to finish.
 */
#include "sim.h"

#include "plugin/admin/r2_drain.h"
#include "plugin/probe/health/r2_pair.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text; /* text: what the fabric is told; NULL: composed below */
} kinds[SIM_F_KINDS] = {
    [SIM_F_DOWN] = {"down", "down"},
    [SIM_F_FLAP] = {"flap", NULL},
    [SIM_F_BLACKHOLE] = {"blackhole", "blackhole"},
    [SIM_F_BLACKHOLE_TX] = {"blackhole-tx", "blackhole-tx"},
    [SIM_F_BLACKHOLE_RX] = {"blackhole-rx", "blackhole-rx"},
    [SIM_F_ACK_LOST] = {"ack-lost", "ack-lost"},
    [SIM_F_FATAL] = {"fatal", "fatal"},
    [SIM_F_REMOVE] = {"remove", "remove"},
    [SIM_F_QP_ERROR] = {"qp-error", "qp-error"},
    [SIM_F_HANG_FATAL] = {"hang+fatal", NULL},
    [SIM_F_HANG_BACK] = {"hang+unhang", NULL},
    [SIM_F_HANG] = {"hang", "hang"},
    [SIM_F_STUCK] = {"send-stuck", "send-stuck"},
    [SIM_F_LOSS] = {"loss", NULL},
    [SIM_F_DUP] = {"dup", NULL},
    [SIM_F_DELAY] = {"delay", NULL},
    [SIM_F_RATE] = {"rate", NULL},
    [SIM_F_MR_FAIL] = {"mr-fail", NULL},
    [SIM_F_GID_CHANGE] = {"gid-change", "gid-change"},
    [SIM_F_OOB_OUTAGE] = {"oob-outage", NULL},
    [SIM_F_DRAIN] = {"drain", "drain"},
    [SIM_F_CUT] = {"cut", NULL},
    [SIM_F_CUT_TX] = {"cut-tx", NULL},
    [SIM_F_CORRUPT] = {"corrupt", NULL},
    [SIM_F_SEND_ERROR] = {"send-error", "send-error"},
    [SIM_F_SILENT_DEATH] = {"silent-death", NULL},
    [SIM_F_UNPLUG] = {"unplug", "unplug"},
    [SIM_F_CALL_ERROR] = {"call-error", NULL},
    [SIM_F_DEAF] = {"deaf", NULL},
    [SIM_F_RETRY7] = {"retry7-forever", NULL},
    [SIM_F_RECV_KEPT] = {"recv-kept", NULL},
    [SIM_F_PROVIDER] = {"provider", NULL},
    [SIM_F_SPINE] = {"spine", NULL},
};

const char *sim_fault_kind_name(int kind)
{
    return kind >= 0 && kind < SIM_F_KINDS ? kinds[kind].name : "?";
}

static void fault_arm(struct sim_fault *f);

/* As when the drain file of the host changes: every process of it looks. */
static void drain(struct sim_fault *f, int on)
{
    struct sim *s = f->sim;

    s->broken.drained[f->host] |= 1u << f->nic;
    for (int i = 0; i < s->p.procs; i++) {
        struct sim_proc *p = &s->proc[i];
        uint32_t nics;
        int n = 0;

        if (p->host != f->host || p->dead || p->inst == NULL) {
            continue;
        }
        nics = on ? p->inst->drain.nics | 1u << f->nic : p->inst->drain.nics & ~(1u << f->nic);
        p->inst->cfg.drain[0] = '\0';
        for (; nics; nics &= nics - 1) {
            n += snprintf(p->inst->cfg.drain + n, sizeof(p->inst->cfg.drain) - (size_t)n, "%sfab%d",
                          n ? "," : "=", __builtin_ctz(nics));
        }
        sim_proc_enter(p);
        r2_drain_poll(p->inst);
        sim_proc_leave(p);
        sim_proc_kick(p);
    }
}

static void fabric_fault(struct sim_fault *f)
{
    struct sim *s = f->sim;

    sim_fabric_fault(s, f->text);
    for (int i = 0; i < s->p.procs; i++) {
        if (s->proc[i].host == f->host) {
            sim_proc_kick(&s->proc[i]);
        }
    }
}

/* With the last rail gone an error is the right end of what is not finished. */
static void last_rail(struct sim *s)
{
    uint32_t gone = 0;

    for (int i = 0; i < s->nfaults; i++) {
        if (s->fault[i].fired) {
            gone |= 1u << s->fault[i].nic;
        }
    }
    if (s->p.no_failover) {
        gone = (1u << s->p.nics) - 1;
    }
    if (s->p.want != SIM_WANT_ERROR || gone != (1u << s->p.nics) - 1) {
        return;
    }
    for (int i = 0; i < s->p.conns; i++) {
        s->conn[i].may_fail = 1;
    }
}

static void fault_fire(void *arg)
{
    struct sim_fault *f = arg;
    struct sim *s = f->sim;

    if (s->failed) {
        return;
    }
    if (sim_rounds_must_wait(s, f)) {
        fab_inproc_at(s->f, fab_inproc_now(s->f) + SIM_MS, fault_fire, f);
        return;
    }
    f->fired = 1;
    if (f->kind >= 0) {
        s->st.faults[f->kind]++;
    }
    last_rail(s);
    if (f->text[0]) {
        sim_trace(s, "fault: %s", f->text);
        if (strstr(f->text, "drain")) {
            drain(f, strstr(f->text, "undrain") == NULL);
        } else {
            fabric_fault(f);
        }
    } else {
        sim_trace(s, "fault: no channel between %d and %d for %.3f ms%s", f->host, f->nic,
                  (double)f->outage_ns / 1e6, f->silent ? ", silent" : "");
        sim_bus_outage(s->bus, f->host, f->nic, f->outage_ns, f->silent);
    }
    for (int i = 0; i < s->nfaults; i++) {
        if (s->fault[i].after == (int)(f - s->fault) && !s->fault[i].armed) {
            fault_arm(&s->fault[i]);
        }
    }
}

static void fault_arm(struct sim_fault *f)
{
    f->armed = 1;
    fab_inproc_at(f->sim->f, fab_inproc_now(f->sim->f) + f->delay, fault_fire, f);
}

struct sim_fault *sim_fault_new(struct sim *s)
{
    struct sim_fault *f;

    if (s->nfaults == SIM_MAX_FAULTS) {
        return NULL;
    }
    f = &s->fault[s->nfaults++];
    memset(f, 0, sizeof(*f));
    f->sim = s;
    f->after = -1;
    f->kind = -1;
    return f;
}

/* The second half of a fault that is two, @delay after the one just made. */
static void fault_follow(struct sim *s, const struct sim_fault *first, const char *what,
                         uint64_t delay)
{
    struct sim_fault *f = sim_fault_new(s);

    if (!f) {
        return;
    }
    f->after = (int)(first - s->fault);
    f->delay = delay;
    f->host = first->host;
    f->nic = first->nic;
    snprintf(f->text, sizeof(f->text), "h%d:n%d %s", f->host, f->nic, what);
}

/* One in five is the loss of a plane: the same rail of all hosts. Otherwise the far end may be of
 * another rail only where rails reach each other. */
void sim_cut_compose(struct sim *s, struct sim_fault *f)
{
    int hosts = s->p.share_host ? 2 : s->p.procs;
    int far = (f->host + 1 + (int)(fab_rng_next(&s->rng) % (unsigned)(hosts - 1))) % hosts;
    int nic = s->p.crossrail && sim_pct(&s->rng, 50)
                  ? (int)(fab_rng_next(&s->rng) % (unsigned)s->p.nics)
                  : f->nic;

    if (f->kind == SIM_F_CUT && sim_pct(&s->rng, 20)) {
        snprintf(f->text, sizeof(f->text), "*:n%d cut *:n%d", f->nic, f->nic);
    } else {
        snprintf(f->text, sizeof(f->text), "h%d:n%d %s h%d:n%d", f->host, f->nic,
                 kinds[f->kind].name, far, nic);
    }
}

/* One of the ways between the NICs of a rail, for a while or for good. */
static void spine_compose(struct sim *s, struct sim_fault *f)
{
    static const char *const what[] = {"blackhole", "blackhole", "blackhole", "loss 3%", "down"};
    struct fab_rng *r = &s->rng;
    int k = (int)(fab_rng_next(r) % (unsigned)s->p.spines);
    struct sim_fault *end;

    f->kind = SIM_F_SPINE;
    snprintf(f->text, sizeof(f->text), "rail %d spine %d %s", f->nic, k,
             what[fab_rng_next(r) % (sizeof(what) / sizeof(what[0]))]);
    if (sim_pct(r, 50) && (end = sim_fault_new(s))) {
        end->after = (int)(f - s->fault);
        end->delay = sim_pick(r, SIM_MS, 100 * SIM_MS);
        end->host = f->host;
        end->nic = f->nic;
        snprintf(end->text, sizeof(end->text), "rail %d spine %d restore", f->nic, k);
    }
}

/* What happens to a NIC whose driver refuses calls. */
static const char *const beside[] = {"down",         "down",     "blackhole",
                                     "blackhole-tx", "ack-lost", "qp-error"};
#define BESIDES (sizeof(beside) / sizeof(beside[0]))

static const char *const swallowed[] = {"blackhole", "blackhole-tx", "blackhole-rx"};
#define SWALLOWED (sizeof(swallowed) / sizeof(swallowed[0]))

static void text_compose(struct sim *s, struct sim_fault *f)
{
    struct fab_rng *r = &s->rng;
    char what[24] = "";
    int quiet = s->p.quiet;

    if (s->p.spines && sim_pct(r, 70)) {
        spine_compose(s, f);
        return;
    }
    switch (f->kind) {
    case SIM_F_FLAP:
        snprintf(what, sizeof(what), "down");
        fault_follow(s, f, "up", sim_pick(r, 10 * SIM_US, 20 * SIM_MS));
        break;
    case SIM_F_HANG_FATAL:
        snprintf(what, sizeof(what), "hang");
        fault_follow(s, f, "fatal", sim_pick(r, SIM_MS, (uint64_t)s->p.t_packet_ms * SIM_MS));
        break;
    case SIM_F_HANG_BACK:
        snprintf(what, sizeof(what), "hang");
        /* Back within the life of a packet: what hangs longer than that is beyond what the holds
         * promise. */
        fault_follow(s, f, "unhang",
                     sim_pick(r, SIM_MS, (uint64_t)s->p.t_packet_ms * SIM_MS * 3 / 4));
        break;
    case SIM_F_CUT:
    case SIM_F_CUT_TX:
        sim_cut_compose(s, f);
        return;
    case SIM_F_SILENT_DEATH:
        snprintf(what, sizeof(what), "silent-death");
        fault_follow(
            s, f, s->p.fault_mask & SIM_F(SIM_F_REMOVE) && sim_pct(r, 50) ? "remove" : "fatal", 0);
        break;
    case SIM_F_CALL_ERROR:
        snprintf(what, sizeof(what), "call-error %d", (int)sim_pick(r, 1, 6));
        fault_follow(s, f, quiet ? "down" : beside[fab_rng_next(r) % BESIDES], 0);
        break;
    case SIM_F_DEAF:
        snprintf(what, sizeof(what), "call-error 1000000");
        fault_follow(s, f, swallowed[fab_rng_next(r) % SWALLOWED], 0);
        fault_follow(s, f, "up", sim_pick(r, SIM_MS, sim_rc_ns(&s->p)));
        break;
    case SIM_F_LOSS:
    case SIM_F_CORRUPT:
        snprintf(what, sizeof(what), "%s %d%%", kinds[f->kind].name,
                 quiet ? 1 : (int)sim_pick(r, 1, 30));
        break;
    case SIM_F_DUP:
        snprintf(what, sizeof(what), "dup %d%%", (int)sim_pick(r, 1, 30));
        break;
    case SIM_F_DELAY:
        snprintf(what, sizeof(what), "delay %dus", (int)sim_pick(r, 10, quiet ? 400 : 5000));
        break;
    case SIM_F_RATE:
        snprintf(what, sizeof(what), "rate %dMB/s", (int)sim_pick(r, quiet ? 500 : 20, 1000));
        break;
    case SIM_F_MR_FAIL:
        snprintf(what, sizeof(what), "mr-fail %d", (int)sim_pick(r, 1, 4));
        break;
    default:
        snprintf(what, sizeof(what), "%s", kinds[f->kind].text);
        break;
    }
    snprintf(f->text, sizeof(f->text), "h%d:n%d %s", f->host, f->nic, what);
}

static int kind_draw(struct sim *s)
{
    int k;

    do {
        k = (int)(fab_rng_next(&s->rng) % SIM_F_DRAWN);
    } while (!(s->p.fault_mask & SIM_F(k)));
    return k;
}

static int hosts_of(const struct sim *s)
{
    return s->p.share_host ? 2 : s->p.procs;
}

static void trigger_draw(struct sim *s, struct sim_fault *f, int previous)
{
    struct fab_rng *r = &s->rng;
    const struct sim_params *p = &s->p;

    if (previous >= 0 && sim_pct(r, p->chain_pct)) {
        f->after = previous;
        f->delay = fab_rng_upto(r, p->chain_ns);
    } else if (sim_pct(r, p->early_pct)) {
        f->delay = fab_rng_upto(r, 3 * SIM_MS);
    } else if (sim_pct(r, p->late_pct)) {
        uint64_t tail = s->msgs_total < 8 ? s->msgs_total : 8;
        f->done = s->msgs_total - (uint32_t)fab_rng_upto(r, tail - 1);
        f->delay = fab_rng_upto(r, 30 * SIM_US);
    } else {
        f->done = (uint32_t)sim_pick(r, 1, s->msgs_total * 9 / 10 + 1);
        f->delay = fab_rng_upto(r, sim_pct(r, 50) ? 20 * SIM_US : 300 * SIM_US);
    }
}

static void outage_draw(struct sim *s, struct sim_fault *f)
{
    f->host = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.procs);
    f->nic = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.procs);
    f->outage_ns = sim_pick(&s->rng, SIM_MS, (uint64_t)s->p.give_up_ms * SIM_MS / 5);
    f->silent = sim_pct(&s->rng, 40);
}

/* One fault, on all hosts of the rail if @both. Returns its index, or -1. */
static int fault_draw(struct sim *s, int previous, int rail)
{
    struct sim_fault *f = sim_fault_new(s), *g;
    int both = sim_pct(&s->rng, s->p.both_pct), at = s->nfaults - 1, kind;

    if (!f) {
        return -1;
    }
    kind = kind_draw(s);
    f->kind = kind;
    trigger_draw(s, f, previous);
    if (f->kind == SIM_F_OOB_OUTAGE) {
        outage_draw(s, f);
        return at;
    }
    f->host = (int)(fab_rng_next(&s->rng) % (unsigned)hosts_of(s));
    f->nic = rail;
    text_compose(s, f);
    for (int h = 0; both && h < hosts_of(s); h++) {
        if (h == f->host || !(g = sim_fault_new(s))) {
            continue;
        }
        g->kind = kind;
        g->after = f->after;
        g->done = f->done;
        g->delay =
            sim_pct(&s->rng, 50) ? f->delay : f->delay + fab_rng_upto(&s->rng, s->p.chain_ns);
        g->host = h;
        g->nic = rail;
        text_compose(s, g);
    }
    return at;
}

static int rail_draw(struct sim *s)
{
    int rail = (int)(fab_rng_next(&s->rng) % (unsigned)(s->p.nics - 1));

    return rail >= s->safe_rail ? rail + 1 : rail;
}

/* One draw for all: they go together, silently or not, and do not come back within the run. */
static void channels_go(struct sim *s)
{
    uint32_t done = (uint32_t)sim_pick(&s->rng, s->msgs_total / 20 + 1, s->msgs_total / 2 + 1);
    int silent = sim_pct(&s->rng, 50);

    for (int a = 0; a < s->p.procs; a++) {
        for (int b = a; b < s->p.procs; b++) {
            struct sim_fault *f = sim_fault_new(s);

            if (!f) {
                return;
            }
            f->kind = SIM_F_OOB_OUTAGE;
            f->host = a;
            f->nic = b;
            f->done = done;
            f->outage_ns = 1000000 * SIM_MS;
            f->silent = silent;
        }
    }
}

void sim_faults_draw(struct sim *s)
{
    int previous = -1;

    s->nfaults = 0;
    s->safe_rail = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.nics);
    if (s->p.last_nic) {
        s->safe_rail = s->p.nics - 1;
    }
    for (int i = 0; s->p.idle_rails && i < s->p.conns; i++) {
        s->conn[i].s.dev = s->conn[i].r.dev = s->safe_rail;
    }
    if (s->p.rounds) {
        sim_rounds_draw(s);
        return;
    }
    if ((s->p.want == SIM_WANT_ERROR && !s->p.no_failover) || s->p.all_go) {
        for (int i = s->p.all_go; i < s->p.nics; i++) {
            previous = fault_draw(s, previous, (s->safe_rail + i) % s->p.nics);
        }
        return;
    }
    if (s->p.oob_gone) {
        channels_go(s);
    }
    for (int i = 0; i < s->p.faults && s->p.nics > 1; i++) {
        previous = fault_draw(s, previous, rail_draw(s));
    }
}

void sim_faults_start(struct sim *s)
{
    for (int i = 0; i < s->nfaults; i++) {
        if (s->fault[i].after < 0 && s->fault[i].done == 0 && !s->fault[i].armed) {
            fault_arm(&s->fault[i]);
        }
    }
}

/* All connections, and the NIC pairs for what the channels will not carry. */
static int all_connected(const struct sim *s)
{
    for (int i = 0; i < s->p.conns; i++) {
        if (s->conn[i].s.state < SIM_END_RUN || s->conn[i].r.state < SIM_END_RUN) {
            return 0;
        }
    }
    for (int i = 0; i < s->p.procs; i++) {
        for (const struct r2_pair *p = s->proc[i].inst ? s->proc[i].inst->index.pairs : NULL; p;
             p = p->next) {
            if (p->peer && !(r2_pair_ready(p) && p->inband.up)) {
                return 0;
            }
        }
    }
    return 1;
}

void sim_faults_progress(struct sim *s)
{
    for (int i = 0; i < s->nfaults; i++) {
        struct sim_fault *f = &s->fault[i];
        if (s->p.oob_gone && !s->fault[0].armed && !all_connected(s)) {
            return; /* what no two processes have been told yet cannot be said over NICs */
        }
        if (!f->armed && f->after < 0 && f->done && f->done <= s->done_total) {
            fault_arm(f);
        }
    }
}

int sim_faults_left(const struct sim *s)
{
    int n = 0;

    for (int i = 0; i < s->nfaults; i++) {
        n += !s->fault[i].fired;
    }
    return n;
}

void sim_faults_rest(struct sim *s)
{
    for (int i = 0; i < s->nfaults; i++) {
        if (s->fault[i].after < 0 && !s->fault[i].armed) {
            fault_arm(&s->fault[i]);
        }
    }
}
