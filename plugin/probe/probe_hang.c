#include "probe_hang_int.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/r2_time.h"

#define PERIOD_MIN (50 * R2_NS_PER_MS)
#define SILENT_MIN (2000 * R2_NS_PER_MS) /* a machine that is busy answers within that time */
#define FRESH_MIN  (2000 * R2_NS_PER_MS)
/* What a word is older by for having been sent: so one that goes round in a circle, though nobody
 * says it any more, comes to its end however fast it goes. */
#define TRANSIT (5 * R2_NS_PER_MS)

/* --- times --- */

static uint64_t at_least(uint64_t ns, uint64_t least)
{
    return ns > least ? ns : least;
}

static uint64_t period(const struct probe_hang *h)
{
    return at_least(h->after / 5, PERIOD_MIN);
}

/* What is shorter passes for work. */
static uint64_t counts_from(const struct probe_hang *h)
{
    return h->after / 4;
}

static uint64_t asks_from(const struct probe_hang *h)
{
    return h->after / 2;
}

static uint64_t silent_after(const struct probe_hang *h)
{
    return at_least(h->after * 3 / 5, SILENT_MIN);
}

/* A word that nobody has said again for so long counts no more. */
static uint64_t fresh_for(const struct probe_hang *h)
{
    return at_least(8 * period(h), FRESH_MIN);
}

static uint64_t asker_for(const struct probe_hang *h)
{
    return at_least(4 * period(h), FRESH_MIN);
}

void probe_hang_init(struct probe_hang *h, const struct probe_hang_who *self, uint64_t after_ns,
                     uint64_t clock)
{
    *h = (struct probe_hang){.self = *self, .after = after_ns, .now = clock, .moved_at = clock};
}

/* --- peers --- */

static bool asks_us(const struct probe_hang *h, const struct probe_hang_peer *p)
{
    return p->peer && p->asker_at && r2_elapsed(h->now, p->asker_at) <= asker_for(h);
}

static struct probe_hang_peer *peer_find(struct probe_hang *h, const void *peer)
{
    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        if (h->peer[i].peer == peer) {
            return &h->peer[i];
        }
    }
    return NULL;
}

/* NULL: there is no room. */
static struct probe_hang_peer *peer_take(struct probe_hang *h, const void *peer)
{
    struct probe_hang_peer *p = peer_find(h, peer);

    for (int i = 0; p == NULL && i < PROBE_HANG_PEERS; i++) {
        struct probe_hang_peer *q = &h->peer[i];

        if (q->peer == NULL || !(q->waits || q->mentioned || q->owed || asks_us(h, q))) {
            *q = (struct probe_hang_peer){.peer = peer};
            p = q;
        }
    }
    return p;
}

void probe_hang_leave(struct probe_hang *h, const void *peer)
{
    struct probe_hang_peer *p = peer_find(h, peer);

    if (p) {
        *p = (struct probe_hang_peer){0};
    }
}

static unsigned askers(const struct probe_hang *h)
{
    unsigned n = 0;

    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        n += asks_us(h, &h->peer[i]);
    }
    return n;
}

static bool is_counted(const struct probe_hang *h, const struct probe_hang_peer *p)
{
    return p->peer && p->waits && r2_elapsed(h->now, p->since) >= counts_from(h);
}

/* --- facts --- */

void probe_hang_begin(struct probe_hang *h, uint64_t clock, const struct probe_hang_facts *f)
{
    h->now = clock;
    h->moved_at = f->moved_at;
    h->silent_since = f->silent_since;
    h->silent_peer = f->peer;
    h->self_since = 0;
    memset(h->silent_nic, 0, sizeof(h->silent_nic));
    if (f->nic) {
        strncpy(h->silent_nic, f->nic, sizeof(h->silent_nic) - 1);
    }
    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        h->peer[i].mentioned = 0;
    }
}

void probe_hang_wait(struct probe_hang *h, const struct probe_hang_wait *w)
{
    struct probe_hang_peer *p;

    if (w->who.id == h->self.id) {
        h->self_since = h->self_since && h->self_since < w->since ? h->self_since : w->since;
        return;
    }
    p = peer_take(h, w->peer);
    if (p == NULL) {
        return; /* those that are known tell enough */
    }
    if (p->waits && p->contacts != w->contacts) {
        p->spoke_at = h->now;
    }
    if (!p->waits || p->contacts != w->contacts) {
        p->asks = 0;
        p->heard_at = h->now;
    }
    if (!p->waits) {
        p->word_at = p->spoke_at = 0; /* of another wait */
        p->asked_at = 0;
    }
    p->waits = p->mentioned = 1;
    p->contacts = w->contacts;
    p->since = w->since;
    p->who = w->who;
    p->knows = w->knows;
    p->up = w->up;
}

static void waits_end(struct probe_hang *h)
{
    h->young = 0;
    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        struct probe_hang_peer *p = &h->peer[i];

        p->waits = p->waits && p->mentioned;
        h->young |= p->waits && !is_counted(h, p);
    }
}

/* --- what lies at the end --- */

static struct probe_hang_report about_self(const struct probe_hang *h, enum probe_hang_kind kind,
                                           uint64_t since)
{
    return (struct probe_hang_report){.kind = (uint8_t)kind,
                                      .root = h->self,
                                      .since_ms = probe_hang_ms(r2_elapsed(h->now, since)),
                                      .waiting = (uint16_t)askers(h)};
}

static struct probe_hang_report
about_peer(const struct probe_hang *h, const struct probe_hang_peer *p, enum probe_hang_kind kind)
{
    uint64_t since = p->since > p->heard_at ? p->since : p->heard_at;

    return (struct probe_hang_report){.kind = (uint8_t)kind,
                                      .root = p->who,
                                      .hops = 1,
                                      .since_ms = probe_hang_ms(r2_elapsed(h->now, since)),
                                      .waiting = (uint16_t)(1 + askers(h))};
}

/* The latest word of a process that is waited for, as of now. 0: none that counts. */
static bool word_of(const struct probe_hang *h, const struct probe_hang_peer *p,
                    struct probe_hang_report *w)
{
    if (p->word_at == 0) {
        return false;
    }
    *w = p->report;
    probe_hang_age(w, r2_elapsed(h->now, p->word_at));
    return w->age_ms <= probe_hang_ms(fresh_for(h));
}

/* What is found over the wait for @p. NONE: nothing yet. */
static struct probe_hang_report found_over(const struct probe_hang *h,
                                           const struct probe_hang_peer *p)
{
    struct probe_hang_report w;

    if (p->asks >= 2 && r2_elapsed(h->now, p->ask_from) >= silent_after(h)) {
        return about_peer(h, p, p->up ? PROBE_HANG_STOPPED : PROBE_HANG_GONE);
    }
    if (!p->knows) {
        return about_peer(h, p, PROBE_HANG_DEAF);
    }
    if (!word_of(h, p, &w) || w.kind == PROBE_HANG_NONE || w.root.id == h->self.id ||
        w.hops >= PROBE_HANG_HOPS_MAX) {
        return (struct probe_hang_report){.kind = PROBE_HANG_NONE};
    }
    w.hops++;
    return w;
}

/* Whether @a is to be said rather than @b. */
static bool is_better(const struct probe_hang_report *a, const struct probe_hang_report *b)
{
    if (a->kind != PROBE_HANG_NONE && b->kind != PROBE_HANG_NONE && a->root.id == b->root.id) {
        return a->age_ms < b->age_ms; /* of one process the later word counts */
    }
    if (a->kind != b->kind) {
        return a->kind > b->kind;
    }
    return a->kind != PROBE_HANG_NONE && a->root.id < b->root.id; /* everybody names the same one */
}

/*
 * No wait ends anywhere: the smallest id behind them, this process included. What comes back to it
 * has gone round in a circle. *loop: members; 0: none. *open: some wait has no word yet.
 */
static struct probe_hang_report circling(const struct probe_hang *h, unsigned *loop, bool *open)
{
    struct probe_hang_report best = {
        .kind = PROBE_HANG_NONE, .low = h->self.id, .stood_ms = UINT32_MAX};

    *loop = 0;
    *open = false;
    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        const struct probe_hang_peer *p = &h->peer[i];
        struct probe_hang_report w;
        uint32_t stood;

        if (!is_counted(h, p)) {
            continue;
        }
        if (!word_of(h, p, &w)) {
            *open = true;
            continue;
        }
        stood = probe_hang_ms(r2_elapsed(h->now, p->since));
        if (w.kind == PROBE_HANG_CYCLE && w.root.id == h->self.id) {
            *loop = h->own.kind == PROBE_HANG_CYCLE ? w.waiting : *loop; /* ours of now, not of a
                                                                            wait before */
            continue;
        }
        w.stood_ms = w.stood_ms < stood ? w.stood_ms : stood;
        if (w.kind != PROBE_HANG_NONE || w.low == 0 || w.low_age_ms > PROBE_HANG_AGE_MAX ||
            w.low_age_ms > w.stood_ms || w.hops >= PROBE_HANG_HOPS_MAX) {
            continue;
        }
        w.hops++;
        if (w.low == h->self.id) {
            *loop = w.hops;
        } else if (w.low < best.low) {
            best = (struct probe_hang_report){.kind = PROBE_HANG_NONE,
                                              .low = w.low,
                                              .low_age_ms = w.low_age_ms,
                                              .stood_ms = w.stood_ms,
                                              .hops = w.hops};
        }
    }
    return best;
}

/* All waits of some processes lead to each other. Said only when it has stood for long: that
 * somebody behind them is silent takes its time to be found, and to come here. */
static struct probe_hang_report circle(struct probe_hang *h)
{
    unsigned loop;
    bool open;
    struct probe_hang_report w = circling(h, &loop, &open);

    if (loop == 0 || open || w.low != h->self.id) { /* or the smaller one says it */
        h->loop_since = 0;
        return w;
    }
    if (h->loop_since == 0) {
        h->loop_since = h->now;
    }
    if (r2_elapsed(h->now, h->loop_since) < 2 * silent_after(h)) {
        return w;
    }
    w = about_self(h, PROBE_HANG_CYCLE, h->loop_since);
    w.waiting = (uint16_t)loop;
    return w;
}

/* The process at the other end answers, and did when the path had been silent for as long as
 * counts: what it said before tells nothing of one that has been stopped since, with its NICs
 * perhaps. */
static bool has_answered_since(const struct probe_hang *h, const struct probe_hang_peer *p,
                               uint64_t silent)
{
    uint64_t at = p->knows ? p->word_at : p->spoke_at;

    return p->waits && at >= silent + counts_from(h) && r2_elapsed(h->now, at) <= 2 * period(h);
}

/* The fabric carries nothing to a process that answers by another way. Where it does not, it may
 * stand still with its NICs, or have lost its host; of one that is not queried nothing is known. */
static bool is_path_silent(struct probe_hang *h)
{
    const struct probe_hang_peer *p;

    if (h->silent_since == 0 || r2_elapsed(h->now, h->silent_since) < counts_from(h)) {
        return false;
    }
    if (h->silent_peer == NULL) {
        return true; /* this process is at the other end, too */
    }
    p = peer_find(h, h->silent_peer);
    return p != NULL && has_answered_since(h, p, h->silent_since);
}

static void conclude(struct probe_hang *h)
{
    struct probe_hang_report w = {.kind = PROBE_HANG_NONE};
    bool waits = false;

    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        struct probe_hang_report f;

        if (!is_counted(h, &h->peer[i])) {
            continue;
        }
        waits = true;
        f = found_over(h, &h->peer[i]);
        w = is_better(&f, &w) ? f : w;
    }
    if (is_path_silent(h)) {
        if (w.kind <= PROBE_HANG_PATH) { /* else a process is silent, with its NICs perhaps */
            w = about_self(h, PROBE_HANG_PATH, h->silent_since);
            memcpy(w.nic, h->silent_nic, sizeof(w.nic));
        }
    } else if (!waits) {
        bool works =
            h->young || h->silent_since || r2_elapsed(h->now, h->moved_at) < counts_from(h);

        w = about_self(h, works ? PROBE_HANG_MOVES : PROBE_HANG_IDLE, h->moved_at);
    }
    if (w.kind == PROBE_HANG_NONE) {
        w = circle(h);
    } else if (w.kind > PROBE_HANG_CYCLE) {
        h->loop_since = 0;
    }
    if (w.kind != h->own.kind || w.root.id != h->own.root.id) {
        h->version++;
        h->same_since = h->now;
    } else if (w.low != h->own.low) {
        h->version++;
    }
    h->own = w;
    h->own_at = h->now;
}

void probe_hang_report_get(const struct probe_hang *h, uint64_t clock,
                           struct probe_hang_report *out)
{
    *out = h->own;
    if (out->kind == PROBE_HANG_NONE || out->root.id != h->self.id) {
        probe_hang_age(out, r2_elapsed(clock, h->own_at));
    }
    out->age_ms = out->age_ms < PROBE_HANG_AGE_MAX ? out->age_ms : PROBE_HANG_AGE_MAX;
    if (out->low_age_ms > PROBE_HANG_AGE_MAX) {
        out->low = 0;
        out->low_age_ms = 0;
    }
}

/* --- words --- */

int probe_hang_on_report(struct probe_hang *h, uint64_t clock, const void *peer, unsigned flags,
                         const struct probe_hang_report *w)
{
    struct probe_hang_peer *p;

    h->now = clock > h->now ? clock : h->now;
    p = flags & PROBE_HANG_ASK ? peer_take(h, peer) : peer_find(h, peer);
    if (p == NULL) {
        return (flags & PROBE_HANG_ASK) != 0;
    }
    h->dirty = 1;
    if (flags & PROBE_HANG_ASK) {
        p->asker_at = clock;
        p->asker_long = (flags & PROBE_HANG_LONG) != 0;
        p->owed = 1;
    }
    if (p->waits) {
        p->asks = 0;
        p->heard_at = clock;
        p->report = *w;
        p->word_at = clock;
        probe_hang_age(&p->report, TRANSIT);
    }
    return 0;
}

/* --- a step --- */

/* Who waits asks twice in a period: one that has not does not wait any more, and may have gone on
 * with us; some words may be lost, though, and what was said is not taken back for that. */
static void judge_long(struct probe_hang *h)
{
    h->is_sure = h->is_long =
        (h->silent_since && r2_elapsed(h->now, h->silent_since) >= h->after) ||
        (h->self_since && r2_elapsed(h->now, h->self_since) >= h->after);
    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        const struct probe_hang_peer *p = &h->peer[i];

        if (p->peer && p->waits && r2_elapsed(h->now, p->since) >= h->after) {
            h->is_long = h->is_sure = 1;
        }
        if (asks_us(h, p) && p->asker_long) {
            h->is_long = 1;
            h->is_sure |= r2_elapsed(h->now, p->asker_at) <= period(h);
        }
    }
}

static bool is_asked(const struct probe_hang *h)
{
    for (int i = 0; i < PROBE_HANG_PEERS; i++) {
        const struct probe_hang_peer *p = &h->peer[i];

        if (asks_us(h, p) ||
            (p->peer && p->waits && r2_elapsed(h->now, p->since) >= asks_from(h))) {
            return true;
        }
    }
    return false;
}

/* When what we say was said by who it is about, or found that out. */
static uint64_t origin(const struct probe_hang *h)
{
    const struct probe_hang_report *w = &h->own;

    return r2_elapsed(h->own_at,
                      R2_NS_PER_MS * (w->kind == PROBE_HANG_NONE ? w->low_age_ms : w->age_ms));
}

/* What is due to @p; 0 flags with *send 0: nothing. */
static unsigned due_to(struct probe_hang *h, struct probe_hang_peer *p, bool asking, bool *send)
{
    unsigned flags = 0;

    *send = false;
    if (p->peer == NULL) {
        return 0;
    }
    if (asking && is_counted(h, p) &&
        (p->asked_at == 0 || r2_elapsed(h->now, p->asked_at) >= period(h) / 2)) {
        flags = PROBE_HANG_ASK;
        *send = true;
    }
    /* A word that was said again keeps those behind it fresh, and so is told on. */
    if (asks_us(h, p) && (p->owed || p->told != h->version ||
                          (h->dirty && r2_elapsed(origin(h), p->told_origin) >= period(h) / 2))) {
        *send = true;
    }
    return flags | (h->is_long ? PROBE_HANG_LONG : 0);
}

static void sent(struct probe_hang *h, struct probe_hang_peer *p, unsigned flags)
{
    if (flags & PROBE_HANG_ASK) {
        if (p->asks++ == 0) {
            p->ask_from = h->now;
        }
        p->asked_at = h->now;
    }
    p->owed = 0;
    p->told = h->version;
    p->told_origin = origin(h);
}

static int send_due(struct probe_hang *h, struct probe_hang_send out[PROBE_HANG_BUDGET])
{
    bool asking = is_asked(h), send;
    unsigned first = h->turn;
    int n = 0, over = 0;

    for (unsigned k = 0; k < PROBE_HANG_PEERS; k++) {
        unsigned i = (first + k) % PROBE_HANG_PEERS;
        unsigned flags = due_to(h, &h->peer[i], asking, &send);

        if (!send) {
            continue;
        }
        if (n == PROBE_HANG_BUDGET) {
            h->turn = i;
            over = 1;
            break;
        }
        out[n++] = (struct probe_hang_send){.peer = h->peer[i].peer, .flags = (uint8_t)flags};
        sent(h, &h->peer[i], flags);
    }
    h->dirty = (uint8_t)over;
    return n;
}

/* Our waits last, and who was named has gone on since: it is another one now. Who was not seen to
 * go on is named once, and so is one that does so now and then. */
static bool is_another(const struct probe_hang *h, uint64_t settle)
{
    return h->has_gone_on && h->own.root.id != h->what.root.id &&
           probe_hang_is_hang((enum probe_hang_kind)h->own.kind) &&
           r2_elapsed(h->now, h->same_since) >= settle &&
           r2_elapsed(h->now, h->said_at) >= h->after;
}

static enum probe_hang_change judge(struct probe_hang *h)
{
    uint64_t settle = h->after / 5;

    h->has_gone_on |= h->own.kind == PROBE_HANG_MOVES;
    if (!h->is_long || (h->said && is_another(h, settle))) {
        int was = h->said;

        h->said = 0;
        return was ? PROBE_HANG_CLEAR : PROBE_HANG_NOTHING;
    }
    if (h->said || !h->is_sure || !probe_hang_is_hang((enum probe_hang_kind)h->own.kind) ||
        r2_elapsed(h->now, h->same_since) < settle) {
        return PROBE_HANG_NOTHING;
    }
    h->said = 1;
    h->has_gone_on = 0;
    h->what = h->own;
    h->said_at = h->now;
    return PROBE_HANG_SAY;
}

int probe_hang_is_due(const struct probe_hang *h, uint64_t clock)
{
    if (h->after == 0) {
        return 0;
    }
    return clock >= h->next_at ? 1 : h->dirty ? 2 : 0;
}

uint64_t probe_hang_due_in(const struct probe_hang *h, uint64_t clock)
{
    if (h->after == 0) {
        return UINT64_MAX;
    }
    return h->dirty ? 0 : r2_elapsed(h->next_at, clock);
}

enum probe_hang_change probe_hang_step(struct probe_hang *h, uint64_t clock, int facts,
                                       struct probe_hang_send out[PROBE_HANG_BUDGET], int *n)
{
    h->now = clock;
    if (facts) {
        waits_end(h);
        h->next_at = clock + period(h) / 2;
    }
    judge_long(h);
    conclude(h);
    *n = send_due(h, out);
    return judge(h);
}
