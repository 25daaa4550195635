/*
 * The faults of a schedule: which, where, after what. One rail, the safe one, is left alone where
 * every message has to arrive and nothing is mended for sure.
 */
#include "tests/soak/soak.h"
#include "tests/fabric/model/fab_fault.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *mend;
    int breaks;
} kinds[SOAK_KINDS] = {
    [SOAK_DOWN] = {"down", "up", 1},
    [SOAK_BLACKHOLE] = {"blackhole", "up", 1},
    [SOAK_BLACKHOLE_TX] = {"blackhole-tx", "up", 1},
    [SOAK_BLACKHOLE_RX] = {"blackhole-rx", "up", 1},
    [SOAK_ACK_LOST] = {"ack-lost", "restore", 1},
    [SOAK_CUT] = {"cut", "heal", 1},
    [SOAK_CUT_TX] = {"cut-tx", "heal", 1},
    [SOAK_HANG] = {"hang", "unhang", 1},
    [SOAK_SEND_STUCK] = {"send-stuck", NULL, 1},
    [SOAK_SEND_ERROR] = {"send-error", "up", 1},
    [SOAK_FATAL] = {"fatal", NULL, 1},
    [SOAK_REMOVE] = {"remove", NULL, 1},
    [SOAK_SILENT_DEATH] = {"silent-death", NULL, 1},
    [SOAK_UNPLUG] = {"unplug", NULL, 1},
    [SOAK_QP_ERROR] = {"qp-error", NULL, 1},
    [SOAK_GID_CHANGE] = {"gid-change", NULL, 1},
    [SOAK_MR_FAIL] = {"mr-fail", NULL, 1},
    [SOAK_LOSS] = {"loss", "restore", 0},
    [SOAK_CORRUPT] = {"corrupt", "restore", 0},
    [SOAK_DUP] = {"dup", "restore", 0},
    [SOAK_DELAY] = {"delay", "restore", 0},
    [SOAK_RATE] = {"rate", NULL, 0},
    [SOAK_RETRY7] = {"retry7-forever", NULL, 0},
    [SOAK_RECV_KEPT] = {"recv-kept", NULL, 0},
    [SOAK_PROVIDER] = {"provider", NULL, 0},
    [SOAK_MEND] = {"mended", NULL, 0},
    [SOAK_STOP] = {"stop", NULL, 0},
    [SOAK_KILLED] = {"kill", NULL, 0},
    [SOAK_SPINE] = {"spine", "restore", 1},
};

const char *soak_kind_name(int kind)
{
    return kind >= 0 && kind < SOAK_KINDS ? kinds[kind].name : "?";
}

/* "h1:n2" with stars for -1 */
static void text_compose(struct soak_fault *f, const char *what)
{
    char host[16] = "*", nic[16] = "*";

    if (f->host >= 0) {
        snprintf(host, sizeof(host), "h%d", f->host);
    }
    if (f->nic >= 0) {
        snprintf(nic, sizeof(nic), "n%d", f->nic);
    }
    snprintf(f->text, sizeof(f->text), "%s:%s %s", host, nic, what);
}

static int is_cut(const struct soak_fault *f)
{
    return f->kind == SOAK_CUT || f->kind == SOAK_CUT_TX;
}

/*
 * Where a cut goes: one in five takes the plane of the rail, one of all hosts is that; others one
 * other host, whose NIC is of another rail only where rails reach each other. @all: every NIC of
 * all the others.
 */
static void cut_compose(const struct soak_plan *p, struct fab_rng *r, struct soak_fault *f, int all)
{
    int far = (f->host + 1 + (int)(fab_rng_next(r) % (unsigned)(p->hosts - 1))) % p->hosts;
    int nic = p->crossrail && soak_pct(r, 50) ? (int)(fab_rng_next(r) % (unsigned)p->nics) : f->nic;
    char what[24];

    if (soak_pct(r, 20) && f->kind == SOAK_CUT && !all) {
        f->host = -1;
    }
    if (all) {
        snprintf(what, sizeof(what), "%s *:*", kinds[f->kind].name);
    } else if (f->host < 0) {
        snprintf(what, sizeof(what), "%s *:n%d", kinds[f->kind].name, f->nic);
    } else {
        snprintf(what, sizeof(what), "%s h%d:n%d", kinds[f->kind].name, far, nic);
    }
    text_compose(f, what);
}

struct soak_fault *soak_fault_add(struct soak_plan *p, enum soak_kind kind, int host, int nic)
{
    struct soak_fault *f;

    if (p->nfaults == SOAK_FAULTS) {
        return NULL;
    }
    f = &p->fault[p->nfaults++];
    *f = (struct soak_fault){
        .kind = kind, .host = host, .nic = nic, .after = -1, .breaks = kinds[kind].breaks};
    if (kind != SOAK_STOP && kind != SOAK_KILLED) {
        text_compose(f, kinds[kind].name);
    }
    return f;
}

static struct soak_fault *follow(struct soak_plan *p, const struct soak_fault *first,
                                 enum soak_kind kind, const char *what, uint64_t delay)
{
    int at = (int)(first - p->fault);
    struct soak_fault *f = soak_fault_add(p, kind, p->fault[at].host, p->fault[at].nic);

    if (f == NULL) {
        return NULL;
    }
    text_compose(f, what);
    f->breaks = kind != SOAK_MEND;
    f->after = at;
    f->delay = delay;
    return f;
}

/*
 * What hangs for longer than a packet incarnations is beyond what the holds promise when it comes
 * back: a hang is either short, or for ever. So no NIC has more than one of these two, of which
 * restore would end a hang as well: a hang, and something that restore ends.
 */
static int hang_or_restore(const struct soak_plan *p, int host, int nic)
{
    for (int i = 0; i < p->nfaults; i++) {
        const struct soak_fault *f = &p->fault[i];
        if (f->nic == nic && (f->host == host || f->host < 0 || host < 0) &&
            (f->kind == SOAK_HANG || strstr(f->text, "restore"))) {
            return 1;
        }
    }
    return 0;
}

static void mend_draw(struct soak_plan *p, struct fab_rng *r, struct soak_fault *f, int pct,
                      int alone)
{
    char heal[24];
    uint64_t most =
        (f->kind == SOAK_HANG || f->kind == SOAK_ACK_LOST ? (uint64_t)p->t_packet_ms / 3 : 300) *
        SOAK_MS;
    const char *how = kinds[f->kind].mend;

    if (how == NULL || !soak_pct(r, pct) || (!alone && strcmp(how, "restore") == 0)) {
        return;
    }
    if (is_cut(f)) {
        snprintf(heal, sizeof(heal), "heal %s", strrchr(f->text, ' ') + 1);
        how = heal;
    }
    follow(p, f, SOAK_MEND, how, soak_pick(r, SOAK_MS, most));
}

static enum soak_kind kind_draw(struct fab_rng *r, uint32_t mask)
{
    int k;

    do {
        k = (int)(fab_rng_next(r) %
                  SOAK_SPINE); /* which is drawn by itself, as what is behind it */
    } while (!(mask & SOAK_BIT(k)));
    return (enum soak_kind)k;
}

static void trigger_draw(const struct soak_plan *p, struct fab_rng *r, struct soak_fault *f,
                         int previous, int chain_pct)
{
    static const uint64_t most[] = {200 * SOAK_US, 10 * SOAK_MS, 150 * SOAK_MS};

    if (previous >= 0 && soak_pct(r, chain_pct)) {
        f->after = previous;
        f->delay = fab_rng_upto(r, most[fab_rng_next(r) % 3]);
        return;
    }
    f->done = (uint32_t)soak_pick(r, 1, p->total * 7 / 10);
    f->delay = fab_rng_upto(r, soak_pct(r, 50) ? 50 * SOAK_US : 5 * SOAK_MS);
}

/* One fault and what belongs to it. Returns its index, -1: no room. */
static int one_draw(struct soak_plan *p, struct fab_rng *r, enum soak_kind kind, int host, int rail,
                    int previous, int chain_pct)
{
    int alone = !hang_or_restore(p, host, rail), at = p->nfaults;
    struct soak_fault *f;

    if (kind == SOAK_HANG && !alone) {
        kind = SOAK_DOWN;
    }
    f = soak_fault_add(p, kind, host, rail);
    if (f == NULL) {
        return -1;
    }
    trigger_draw(p, r, f, previous, chain_pct);
    if (kind == SOAK_SILENT_DEATH) {
        enum soak_kind then = soak_pct(r, 50) ? SOAK_FATAL : SOAK_REMOVE;
        follow(p, f, then, kinds[then].name, 0);
    }
    if (is_cut(f)) {
        cut_compose(p, r, f, 0);
    }
    if (kind == SOAK_MR_FAIL) {
        snprintf(f->text, sizeof(f->text), "h%d:n%d mr-fail %d", host, rail,
                 (int)soak_pick(r, 1, 4));
    }
    mend_draw(p, r, &p->fault[at], 45, alone);
    return at;
}

/* What Soft-RoCE does and other devices do not, and what libraries of other NICs do, from the
 * start. */
static void traits_draw(struct soak_plan *p, struct fab_rng *r)
{
    if (soak_pct(r, 15)) {
        soak_fault_add(p, SOAK_RETRY7, -1, -1);
    }
    if (soak_pct(r, 15)) {
        soak_fault_add(p, SOAK_RECV_KEPT, -1, -1);
    }
    for (int host = 0; host < p->hosts && soak_pct(r, 50); host++) {
        uint64_t kind = soak_pick(r, FAB_PROVIDER_SEND_REFUSED, FAB_PROVIDERS_IN_ERR - 1);
        struct soak_fault *f = soak_fault_add(p, SOAK_PROVIDER, host, -1);
        char what[24];

        if (f == NULL) {
            return;
        }
        snprintf(what, sizeof(what), "provider %s", fab_provider_name(kind));
        text_compose(f, what);
    }
}

void soak_faults_draw(struct soak_plan *p, struct fab_rng *r, uint32_t mask, int count,
                      int chain_pct)
{
    int previous = -1;

    traits_draw(p, r);
    if ((mask & SOAK_BIT(SOAK_DOWN)) && soak_pct(r, 8)) { /* dead at start */
        struct soak_fault *f =
            soak_fault_add(p, SOAK_DOWN, (int)(fab_rng_next(r) % (unsigned)p->hosts),
                           (p->safe_rail + 1) % p->nics);
        if (f) {
            mend_draw(p, r, f, 30, 1);
        }
    }
    for (int i = 0; i < count; i++) {
        int rail = (int)(fab_rng_next(r) % (unsigned)(p->nics - 1)),
            host = (int)(fab_rng_next(r) % (unsigned)p->hosts);
        enum soak_kind kind = kind_draw(r, mask);

        rail += rail >= p->safe_rail;
        previous = one_draw(p, r, kind, host, rail, previous, chain_pct);
        if (previous >= 0 && soak_pct(r, 25)) { /* both ends of the rail */
            previous = one_draw(p, r, kind, (host + 1) % p->hosts, rail, previous, 100);
        }
    }
}

void soak_rounds_draw(struct soak_plan *p, struct fab_rng *r, uint32_t mask, int rounds)
{
    int previous = -1;

    for (int i = 0; i < rounds; i++) {
        enum soak_kind kind = kind_draw(r, mask);
        int host = soak_pct(r, 10) ? -1 : (int)(fab_rng_next(r) % (unsigned)p->hosts);
        struct soak_fault *f =
            soak_fault_add(p, kind, host, (int)(fab_rng_next(r) % (unsigned)p->nics));

        if (f == NULL) {
            return;
        }
        if (i == 0 || soak_pct(r, 40)) {
            f->done = (uint32_t)soak_pick(r, 1, p->total * 6 / 10);
        } else {
            f->after = previous;
            f->delay = fab_rng_upto(r, 400 * SOAK_MS);
        }
        previous = (int)(f - p->fault);
        if (is_cut(f)) {
            cut_compose(p, r, f, 0);
        }
        mend_draw(p, r, f, 100, 1);
    }
}

/* Every rail, at one host or at all of them; with @back one of them comes back. */
void soak_all_draw(struct soak_plan *p, struct fab_rng *r, uint32_t mask, int back)
{
    int host = soak_pct(r, 40) ? -1 : (int)(fab_rng_next(r) % (unsigned)p->hosts), previous = -1;
    int first = (int)(fab_rng_next(r) % (unsigned)p->nics);
    struct soak_fault *f = NULL;

    for (int i = 0; i < p->nics; i++) {
        enum soak_kind kind =
            kind_draw(r, mask & ~(SOAK_BIT(SOAK_QP_ERROR) | SOAK_BIT(SOAK_GID_CHANGE) |
                                  SOAK_BIT(SOAK_SILENT_DEATH)));
        f = soak_fault_add(p, kind, host, (first + i) % p->nics);
        if (i == 0) {
            f->done = (uint32_t)soak_pick(r, 1, p->total / 2);
        } else {
            f->after = previous;
            f->delay = fab_rng_upto(r, soak_pct(r, 50) ? SOAK_MS : 100 * SOAK_MS);
        }
        previous = (int)(f - p->fault);
        if (is_cut(f)) {
            cut_compose(p, r, f, 1);
        }
    }
    if (back) {
        follow(p, f, SOAK_MEND, "up", soak_pick(r, 50 * SOAK_MS, 800 * SOAK_MS));
    }
}

void soak_grey_draw(struct soak_plan *p, struct fab_rng *r, int count)
{
    static const uint32_t grey = SOAK_BIT(SOAK_LOSS) | SOAK_BIT(SOAK_CORRUPT) | SOAK_BIT(SOAK_DUP) |
                                 SOAK_BIT(SOAK_DELAY) | SOAK_BIT(SOAK_RATE);

    for (int i = 0; i < count; i++) {
        enum soak_kind kind = kind_draw(r, grey);
        int host = (int)(fab_rng_next(r) % (unsigned)p->hosts),
            rail = (int)(fab_rng_next(r) % (unsigned)p->nics);
        int alone = !hang_or_restore(p, host, rail);
        struct soak_fault *f = soak_fault_add(p, kind, host, rail);
        char what[24];

        if (f == NULL) {
            return;
        }
        if (kind == SOAK_DELAY) {
            snprintf(what, sizeof(what), "delay %dus", (int)soak_pick(r, 50, 3000));
        } else if (kind == SOAK_RATE) {
            snprintf(what, sizeof(what), "rate %dMB/s", (int)soak_pick(r, 5, 30));
        } else {
            snprintf(what, sizeof(what), "%s 0.%d%%", kinds[kind].name, (int)soak_pick(r, 1, 9));
        }
        text_compose(f, what);
        f->done = (uint32_t)soak_pick(r, 1, p->total * 7 / 10);
        mend_draw(p, r, f, 40, alone);
    }
}

/*
 * One of the ways of a rail at a time, the safe one's as well: the NICs live, and what was on that
 * way goes on over another. All are silent, or lose some, or are down, half of them for a while.
 */
void soak_spines_draw(struct soak_plan *p, struct fab_rng *r, int count)
{
    static const char *const what[] = {"blackhole", "blackhole", "blackhole", "loss 3%", "down"};
    uint32_t rails = 0;

    for (int i = 0; i < count; i++) {
        int rail = (int)(fab_rng_next(r) % (unsigned)p->nics),
            k = (int)(fab_rng_next(r) % (unsigned)p->spines), at = p->nfaults;
        struct soak_fault *f;

        if ((rails >> rail & 1) || (f = soak_fault_add(p, SOAK_SPINE, -1, rail)) == NULL) {
            continue;
        }
        rails |= 1u << rail;
        snprintf(f->text, sizeof(f->text), "rail %d spine %d %s", rail, k,
                 what[fab_rng_next(r) % (sizeof(what) / sizeof(what[0]))]);
        f->done = (uint32_t)soak_pick(r, 1, p->total * 7 / 10);
        f->delay = fab_rng_upto(r, 5 * SOAK_MS);
        if (soak_pct(r, 50) &&
            (f = follow(p, &p->fault[at], SOAK_MEND, "", soak_pick(r, SOAK_MS, 500 * SOAK_MS)))) {
            snprintf(f->text, sizeof(f->text), "rail %d spine %d restore", rail, k);
        }
    }
}

void soak_stops_draw(struct soak_plan *p, struct fab_rng *r, int count, int most_ms)
{
    for (int i = 0; i < count; i++) {
        int all = soak_pct(r, 30), proc = (int)(fab_rng_next(r) % (unsigned)p->procs);
        uint32_t done = (uint32_t)soak_pick(r, 1, p->total * 7 / 10);

        for (int k = all ? 0 : proc; k <= (all ? p->procs - 1 : proc); k++) {
            struct soak_fault *f = soak_fault_add(p, SOAK_STOP, 0, 0), *g;
            if (f == NULL) {
                return;
            }
            f->proc = k;
            f->done = done;
            g = follow(p, f, SOAK_STOP, "", soak_pick(r, 5, (uint64_t)most_ms) * SOAK_MS);
            if (g == NULL) {
                p->nfaults--; /* nobody stays stopped */
                return;
            }
            g->text[0] = '\0';
            g->proc = k;
            g->cont = 1;
            g->breaks = 0;
        }
    }
}

void soak_kill_draw(struct soak_plan *p, struct fab_rng *r)
{
    struct soak_fault *f;

    if (soak_pct(r, 50)) {
        struct soak_conn *c = &p->conn[fab_rng_next(r) % (unsigned)p->conns];
        c->leave = (int)soak_pick(r, 1, (uint64_t)c->msgs);
        c->leaver_sends = soak_pct(r, 50);
        c->extra = 0;
        return;
    }
    f = soak_fault_add(p, SOAK_KILLED, 0, 0);
    if (f == NULL) {
        return;
    }
    f->proc = (int)(fab_rng_next(r) % (unsigned)p->procs);
    f->done = (uint32_t)soak_pick(r, p->total / 2, p->total * 3 / 4);
}
