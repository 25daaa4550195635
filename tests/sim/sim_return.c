/*
 * Schedules in which what fails comes back: rounds of faults on any rail, the safe one included,
 * each mended after a while. A run finishes as long as some rail returns within T_give_up, so that
 * a fault that lasts for ever may only hit the other rails.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define CUTS (SIM_F(SIM_F_CUT) | SIM_F(SIM_F_CUT_TX))
#define FOR_EVER                                                                                   \
    (SIM_F(SIM_F_FATAL) | SIM_F(SIM_F_REMOVE) | SIM_F(SIM_F_SILENT_DEATH) | SIM_F(SIM_F_UNPLUG))
#define BY_INCARNATION                                                                             \
    (SIM_F(SIM_F_QP_ERROR) | SIM_F(SIM_F_GID_CHANGE) |                                             \
     SIM_F(SIM_F_STUCK)) /* nothing to mend: new queue pairs work */
#define ENDS_BY_UP (SIM_F(SIM_F_DOWN) | SIM_F(SIM_F_FLAP) | SIM_F(SIM_F_SEND_ERROR))
#define ROUND_MOST 60 /* events of a round: what is begun must be mended, too */

static struct sim_fault *event(struct sim *s, int kind, int host, int rail, const char *what,
                               int after, uint64_t delay)
{
    struct sim_fault *f = sim_fault_new(s);

    if (!f) {
        return NULL;
    }
    f->kind = kind;
    f->host = host;
    f->nic = rail;
    f->after = after;
    f->delay = delay;
    snprintf(f->text, sizeof(f->text), "h%d:n%d %s", host, rail, what);
    return f;
}

static int index_of(const struct sim *s, const struct sim_fault *f)
{
    return (int)(f - s->fault);
}

/* A port that comes and goes faster than anybody can follow. Returns the last event. */
static struct sim_fault *storm(struct sim *s, struct sim_fault *f)
{
    int flaps = (int)sim_pick(&s->rng, 2, 8);

    for (int i = 0; i < 2 * flaps && f; i++) {
        struct sim_fault *next = event(s, -1, f->host, f->nic, i % 2 ? "down" : "up",
                                       index_of(s, f), sim_pick(&s->rng, 20 * SIM_US, 3 * SIM_MS));
        if (!next) {
            break;
        }
        f = next;
    }
    return f;
}

/* Between the same two places as the cut @f. */
static void heal_compose(const struct sim_fault *f, struct sim_fault *end)
{
    int place = (int)strcspn(f->text, " ");

    snprintf(end->text, sizeof(end->text), "%.*s heal %s", place, f->text,
             strrchr(f->text, ' ') + 1);
}

/* Ends what @f began. Returns the event that does. */
static struct sim_fault *mend(struct sim *s, struct sim_fault *f, int kind)
{
    uint64_t most = s->p.mend_ns, packet = (uint64_t)s->p.t_packet_ms * SIM_MS * 3 / 4;
    const char *how = kind == SIM_F_DRAIN        ? "undrain"
                      : SIM_F(kind) & ENDS_BY_UP ? "up"
                      : kind == SIM_F_HANG_BACK  ? "unhang"
                                                 : "restore";
    struct sim_fault *end;

    if (kind == SIM_F_FLAP) {
        f = storm(s, f);
    }
    if (kind == SIM_F_HANG_BACK && most > packet) {
        most = packet; /* what hangs longer than a packet incarnations is beyond what the holds
                          promise */
    }
    if (kind == SIM_F_SILENT_DEATH) {
        return event(s, -1, f->host, f->nic,
                     s->p.fault_mask & SIM_F(SIM_F_REMOVE) && sim_pct(&s->rng, 50) ? "remove"
                                                                                   : "fatal",
                     index_of(s, f), 0);
    }
    if (SIM_F(kind) & (FOR_EVER | BY_INCARNATION)) {
        return f;
    }
    end = event(s, -1, f->host, f->nic, how, index_of(s, f), sim_pick(&s->rng, 100 * SIM_US, most));
    if (end && SIM_F(kind) & CUTS) {
        heal_compose(f, end);
    }
    return end;
}

static int kind_draw(struct sim *s, int rail)
{
    uint64_t mask = s->p.fault_mask & ~SIM_F(SIM_F_OOB_OUTAGE);
    int k;

    if (rail == s->safe_rail) {
        mask &= ~FOR_EVER;
    }
    do {
        k = (int)(fab_rng_next(&s->rng) % SIM_F_KINDS);
    } while (!(mask & SIM_F(k)));
    return k;
}

static const char *text_of(int kind)
{
    switch (kind) {
    case SIM_F_FLAP:
        return "down";
    case SIM_F_HANG_BACK:
        return "hang";
    case SIM_F_STUCK:
        return "send-stuck";
    default:
        return sim_fault_kind_name(kind);
    }
}

static void outage(struct sim *s, int after, uint64_t delay)
{
    struct sim_fault *f = sim_fault_new(s);

    if (!f) {
        return;
    }
    f->kind = SIM_F_OOB_OUTAGE;
    f->after = after;
    f->delay = delay;
    f->host = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.procs);
    f->nic = (int)(fab_rng_next(&s->rng) % (unsigned)s->p.procs);
    f->outage_ns = sim_pick(&s->rng, SIM_MS, 100 * SIM_MS);
    f->silent = sim_pct(&s->rng, 40);
}

/* One round; returns the event that the next one waits for. */
static struct sim_fault *round_draw(struct sim *s, int rail, int after, uint64_t delay)
{
    int hosts = s->p.share_host ? 2 : s->p.procs,
        host = (int)(fab_rng_next(&s->rng) % (unsigned)hosts);
    int kind = kind_draw(s, rail), both = sim_pct(&s->rng, s->p.both_pct);
    struct sim_fault *first = event(s, kind, host, rail, text_of(kind), after, delay), *last;

    if (!first) {
        return NULL;
    }
    if (SIM_F(kind) & CUTS) {
        sim_cut_compose(s, first);
    }
    last = mend(s, first, kind);
    for (int h = 0; both && h < hosts; h++) {
        struct sim_fault *f;
        if (h == host) {
            continue;
        }
        f = event(s, kind, h, rail, text_of(kind), after,
                  delay + fab_rng_upto(&s->rng, s->p.chain_ns));
        if (f && SIM_F(kind) & CUTS) {
            sim_cut_compose(s, f);
        }
        if (f) {
            mend(s, f, kind);
        }
    }
    if (s->p.fault_mask & SIM_F(SIM_F_OOB_OUTAGE) && sim_pct(&s->rng, 30)) {
        outage(s, index_of(s, first), fab_rng_upto(&s->rng, s->p.mend_ns));
    }
    return last && !sim_pct(&s->rng, s->p.chain_pct) ? last : first;
}

void sim_rounds_draw(struct sim *s)
{
    struct sim_fault *previous = NULL;

    for (int i = 0; i < s->p.rounds && s->nfaults <= SIM_MAX_FAULTS - ROUND_MOST; i++) {
        int rail = (int)(fab_rng_next(&s->rng) % (unsigned)(s->p.nics - s->p.last_nic));
        struct sim_fault *f =
            round_draw(s, rail, previous ? index_of(s, previous) : -1,
                       fab_rng_upto(&s->rng, previous ? s->p.gap_ns : 2 * SIM_MS));
        if (!f) {
            return;
        }
        previous = f;
    }
}

void sim_rounds_late_nic(struct sim *s, int host, int rail)
{
    event(s, -1, host, rail, "up", -1, fab_rng_upto(&s->rng, 100 * SIM_MS));
}

int sim_rounds_must_wait(const struct sim *s, const struct sim_fault *f)
{
    if (f->kind < 0 || f->kind == SIM_F_OOB_OUTAGE ||
        !(s->p.last_nic || (s->p.rounds && f->nic == s->safe_rail))) {
        return 0;
    }
    for (int i = 0; i < s->p.conns; i++) {
        const struct sim_conn *c = &s->conn[i];
        if (c->s.state == SIM_END_OPENING || c->r.state == SIM_END_OPENING) {
            return 1;
        }
    }
    return 0;
}
