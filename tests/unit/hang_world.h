/*
 * The world of test_probe_hang.c: processes that wait for each other in virtual time, and messages
 * between them that are late and lost. One thread.
 */
#ifndef HANG_WORLD_H
#define HANG_WORLD_H

#include "plugin/probe/probe_hang.h"
#include "tests/support/times.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK  (10 * MS)
#define AFTER (5 * S)
#define PROCS 80
#define BAG   65536

enum how { WORKS, IDLE, SILENT, STOPPED, GONE, DEAF, MUTE };

struct msg {
    uint64_t at;
    uint16_t from, to;
    uint8_t flags, plain; /* plain: of another kind, by one that takes no part */
    struct probe_hang_report w;
};

struct proc {
    struct probe_hang h;
    enum how how;
    int nameless; /* nobody has heard who it is: it was stopped before */
    const struct proc *silent_to;
    uint64_t since[PROCS]; /* waits for; 0: not */
    uint64_t moved_at, contacts[PROCS];
    int says, clears, sent;
    uint64_t said_at;
    struct probe_hang_report said;
};

static struct world {
    int n, loss_pct, jitter_ms;
    uint64_t now, rng;
    struct proc p[PROCS];
    int nbag, most; /* of one process in one step */
    int refused;
    struct msg bag[BAG]; /* of use below nbag */
} g;

static inline unsigned draw(unsigned below)
{
    g.rng = g.rng * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((g.rng >> 33) % below);
}

static inline int draws(int pct)
{
    return (int)draw(100) < pct;
}

/* ck_assert() tells the runner about every line: too slow for what is asked a million times. */
#define REQUIRE(cond, ...)                                                                         \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

/* Processes are told apart by ids that do not follow their numbers. */
static inline uint64_t id_of(int i)
{
    return 1 + ((uint64_t)i * 37 + 11) % 1009;
}

static inline int proc_of(uint64_t id)
{
    for (int i = 0; i < g.n; i++) {
        if (id_of(i) == id) {
            return i;
        }
    }
    return -1;
}

static inline struct probe_hang_who who_of(int i)
{
    struct probe_hang_who w = {.id = id_of(i), .rank = (uint32_t)i, .pid = 1000 + (uint32_t)i};

    if (g.p[i].nameless) {
        w.rank = PROBE_HANG_RANK_NONE;
        w.pid = 0;
    }
    snprintf(w.host, sizeof(w.host), "n%d", i);
    return w;
}

/* Who is named is one of the world's, with all that is known of it. */
static inline void is_whole(const struct probe_hang_who *w)
{
    int i = proc_of(w->id);
    struct probe_hang_who is = who_of(i);

    REQUIRE(i >= 0, "nobody has the id %llu", (unsigned long long)w->id);
    REQUIRE(w->rank == is.rank && w->pid == is.pid && strcmp(w->host, is.host) == 0,
            "rank %u, pid %u, host %s for process %d", w->rank, w->pid, w->host, i);
}

static inline void world(int n, uint64_t seed)
{
    memset(&g, 0, offsetof(struct world, bag));
    g.n = n;
    g.now = S;
    g.rng = seed * 2654435761u + 17;
    for (int i = 0; i < n; i++) {
        struct probe_hang_who w = who_of(i);

        g.p[i].how = IDLE;
        g.p[i].moved_at = g.now;
        probe_hang_init(&g.p[i].h, &w, AFTER, g.now);
    }
}

static inline void post(int from, int to, uint8_t flags)
{
    struct msg *m;

    g.p[from].sent++;
    if (g.p[to].how == GONE || draws(g.loss_pct)) {
        return;
    }
    REQUIRE(g.nbag < BAG, "too many messages are under way");
    m = &g.bag[g.nbag++];
    *m = (struct msg){
        .from = (uint16_t)from, .to = (uint16_t)to, .flags = flags, .plain = g.p[from].how == DEAF};
    m->at = g.now + MS + (g.jitter_ms ? draw((unsigned)g.jitter_ms) * MS : 0);
    probe_hang_report_get(&g.p[from].h, g.now, &m->w);
    REQUIRE(probe_hang_report_is_valid(&m->w), "a word of our own is refused");
}

static inline int runs(int i)
{
    return g.p[i].how != STOPPED && g.p[i].how != GONE;
}

static inline void deliver(void)
{
    int n = g.nbag, kept = 0;

    for (int k = 0; k < n; k++) {
        struct msg m = g.bag[k];

        if (m.at > g.now || !runs(m.to)) {
            g.bag[kept++] = m;
            continue;
        }
        g.p[m.to].contacts[m.from]++;
        if (g.p[m.to].how == DEAF && (m.flags & PROBE_HANG_ASK)) {
            post(m.to, m.from, 0);
        }
        if (g.p[m.to].how < DEAF && !m.plain &&
            probe_hang_on_report(&g.p[m.to].h, g.now, &g.p[m.from], m.flags, &m.w)) {
            g.refused++;
        }
    }
    for (int k = n; k < g.nbag; k++) { /* answers of just now */
        g.bag[kept++] = g.bag[k];
    }
    g.nbag = kept;
}

static inline void facts(int i)
{
    struct proc *p = &g.p[i];
    struct probe_hang_facts f = {.moved_at = p->how == WORKS ? g.now : p->moved_at,
                                 .silent_since = p->how == SILENT ? p->moved_at : 0,
                                 .nic = "mlx5_0",
                                 .peer = p->silent_to};

    for (int j = 0; j < g.n && f.peer == NULL; j++) {
        f.peer = p->since[j] ? &g.p[j] : NULL;
    }
    probe_hang_begin(&p->h, g.now, &f);
    for (int j = 0; j < g.n; j++) {
        if (p->since[j]) {
            struct probe_hang_wait w = {.peer = &g.p[j],
                                        .who = who_of(j),
                                        .since = p->since[j],
                                        .contacts = p->contacts[j],
                                        .knows = g.p[j].how != DEAF && !g.p[j].nameless,
                                        .up = g.p[j].how != GONE};

            probe_hang_wait(&p->h, &w);
        }
    }
}

static inline void step(int i)
{
    struct probe_hang_send out[PROBE_HANG_BUDGET];
    struct proc *p = &g.p[i];
    int due = probe_hang_is_due(&p->h, g.now), n = 0;
    enum probe_hang_change c;

    if (!due || p->how >= DEAF) {
        return;
    }
    if (due == 1) {
        facts(i);
    }
    c = probe_hang_step(&p->h, g.now, due == 1, out, &n);
    REQUIRE(n <= PROBE_HANG_BUDGET, "%d messages in a step", n);
    g.most = n > g.most ? n : g.most;
    for (int k = 0; k < n; k++) {
        post(i, (int)((const struct proc *)out[k].peer - g.p), out[k].flags);
    }
    if (c == PROBE_HANG_SAY) {
        p->says++;
        p->said = p->h.what;
        p->said_at = g.now;
        is_whole(&p->said.root);
    }
    p->clears += c == PROBE_HANG_CLEAR;
}

static inline void run(uint64_t ns)
{
    for (uint64_t end = g.now + ns; g.now < end;) {
        int first = (int)draw((unsigned)g.n);

        g.now += TICK;
        deliver();
        for (int k = 0; k < g.n; k++) {
            int i = (first + k) % g.n;

            if (runs(i)) {
                step(i);
            }
        }
    }
}

static inline void waits(int i, int j)
{
    g.p[i].since[j] = g.now;
}

static inline void moves(int i)
{
    memset(g.p[i].since, 0, sizeof(g.p[i].since));
    g.p[i].how = WORKS;
}

/* Everybody who waits, and who is waited for and runs, has said that it is @root, once. */
static inline void all_say(int root, enum probe_hang_kind kind, uint64_t within, uint64_t from)
{
    for (int i = 0; i < g.n; i++) {
        const struct proc *p = &g.p[i];

        if (!runs(i)) {
            continue;
        }
        REQUIRE(p->says == 1, "process %d has said it %d times", i, p->says);
        REQUIRE(proc_of(p->said.root.id) == root && p->said.kind == kind,
                "process %d says process %d: %s", i, proc_of(p->said.root.id),
                probe_hang_kind_name((enum probe_hang_kind)p->said.kind));
        REQUIRE(p->said_at - from <= within, "process %d says it after %llu ms", i,
                (unsigned long long)((p->said_at - from) / MS));
    }
}

static inline void nobody_says(void)
{
    for (int i = 0; i < g.n; i++) {
        REQUIRE(g.p[i].says == 0, "process %d says process %d: %s", i, proc_of(g.p[i].said.root.id),
                probe_hang_kind_name((enum probe_hang_kind)g.p[i].said.kind));
    }
}

#endif
