/*
 * Gossip: random schedules of many processes: words lost, repeated, late, out of order, heard on
 * the host, conflicting; neighbours that come and go, processes that are replaced; more subjects
 * than a table holds.
 */
#include "tests/unit/gossip_rig.h"

#define PROCS    24
#define WORDS    4096
#define SUBJECTS 640

struct msg {
    int from, to, ok; /* a confirmation */
    unsigned from_incarnation, to_incarnation;
    struct probe_report w;
};

struct proc {
    struct probe_gossip t;
    uint64_t origin;
    unsigned inc;
    uint64_t latest[SUBJECTS]
                   [2]; /* version and origin of the last word taken up: never goes back */
    uint8_t taken[WORDS];
    uint8_t linked[PROCS], present[PROCS]; /* of the graph; is a neighbour now */
    uint8_t confirmed[PROCS][WORDS];       /* by whom */
};

static struct world {
    uint64_t seed, rng;
    int procs, subjects, good_pct, loss_pct, replaced;
    struct proc *p;
    struct msg *bag;
    size_t nbag, room;
    struct probe_report said[WORDS];
    int words;
    /* what happened, over all seeds */
    unsigned ties, lost, twice, joins, leaves, replacements, host, contradicted;
    uint64_t stale, known, refused, evicted;
} g;

static unsigned draw(unsigned below)
{
    g.rng = g.rng * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((g.rng >> 33) % below);
}

static int chance(int pct)
{
    return (int)draw(100) < pct;
}

/* The numbers under which @p knows the others: spread over the whole mask. */
static int number(int p, int q)
{
    return (q * 11 + p) % PROBE_GOSSIP_NEIGHBOURS;
}

/* ck_assert() tells the runner about every line: too slow for what is asked a million times. */
#define REQUIRE(cond, what)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            ck_abort_msg("seed %llu: " what, (unsigned long long)g.seed);                          \
        }                                                                                          \
    } while (0)

static int word_id(const struct probe_report *w)
{
    REQUIRE(w->since_ms < (uint64_t)g.words && memcmp(&g.said[w->since_ms], w, sizeof(*w)) == 0,
            "a word that nobody said");
    return (int)w->since_ms;
}

static void world_put(int p, const struct probe_report *w, int from)
{
    struct proc *x = &g.p[p];
    uint64_t *latest = x->latest[w->subject.a - 1];
    int id = word_id(w);

    if (!probe_gossip_put(&x->t, w, from)) {
        return;
    }
    REQUIRE(!x->taken[id], "a process takes a word up again");
    REQUIRE(w->version > latest[0] || (w->version == latest[0] && w->origin > latest[1]),
            "a process goes back to an older word");
    x->taken[id] = 1;
    latest[0] = w->version;
    latest[1] = w->origin;
}

static void say_new(int p)
{
    struct proc *x = &g.p[p];
    struct probe_report w =
        word(1 + draw((unsigned)g.subjects), 0, x->origin, chance(g.good_pct) ? GOOD : BAD);

    if (g.words == WORDS) {
        return;
    }
    probe_gossip_next_version(&x->t, &w);
    w.since_ms = (uint64_t)g.words;
    for (int i = 0; i < g.words; i++) {
        g.ties += g.said[i].version == w.version && g.said[i].subject.a == w.subject.a;
        REQUIRE(g.said[i].version != w.version || g.said[i].origin != w.origin,
                "a version is used again");
    }
    g.said[g.words++] = w;
    world_put(p, &w, -1);
}

static void bag_add(int from, int to, int ok, const struct probe_report *w)
{
    if (g.nbag == g.room) {
        g.room = g.room ? 2 * g.room : 1024;
        g.bag = realloc(g.bag, g.room * sizeof(*g.bag));
        REQUIRE(g.bag, "no memory");
    }
    g.bag[g.nbag++] = (struct msg){from, to, ok, g.p[from].inc, g.p[to].inc, *w};
}

/* @p tells @q what it has not confirmed, for the first time or again. */
static int say_untold(int p, int q)
{
    const struct probe_report *w;
    int n = 0;

    for (int i = 0; (w = probe_gossip_unsent(&g.p[p].t, number(p, q), &i)) != NULL; n++) {
        REQUIRE(!g.p[p].confirmed[q][word_id(w)], "a neighbour is told what it has confirmed");
        bag_add(p, q, 0, w);
    }
    return n;
}

static void deliver(size_t i, int loss_pct)
{
    struct msg m = g.bag[i];
    struct proc *x = &g.p[m.to];

    if (chance(loss_pct)) {
        g.twice++; /* and once more later */
    } else {
        g.bag[i] = g.bag[--g.nbag];
    }
    if (m.from_incarnation != g.p[m.from].inc || m.to_incarnation != x->inc) {
        return; /* a channel ends with its process */
    }
    if (chance(loss_pct)) {
        g.lost++;
        return;
    }
    if (x->present[m.from]) {
        x->confirmed[m.from][word_id(&m.w)] = 1;
    }
    if (m.ok) {
        probe_gossip_sent(&x->t, number(m.to, m.from), &m.w.subject, m.w.version, m.w.origin);
    } else {
        world_put(m.to, &m.w, x->present[m.from] ? number(m.to, m.from) : -1);
        bag_add(m.to, m.from, 1, &m.w);
    }
}

static void set_present(int p, int q, int on)
{
    struct proc *x = &g.p[p];

    if (x->present[q] == on || !x->linked[q]) {
        return;
    }
    memset(x->confirmed[q], 0, sizeof(x->confirmed[q]));
    x->present[q] = (uint8_t)on;
    if (on) {
        probe_gossip_join(&x->t, number(p, q));
        g.joins++;
    } else {
        probe_gossip_leave(&x->t, number(p, q));
        g.leaves++;
    }
}

/* Another process in its place: it knows nothing, and its neighbours see one go and another one
 * come. */
static void replace(int p)
{
    struct proc *x = &g.p[p];

    for (int q = 0; q < g.procs; q++) {
        set_present(q, p, 0);
        set_present(p, q, 0);
    }
    probe_gossip_init(&x->t);
    memset(x->taken, 0, sizeof(x->taken));
    memset(x->latest, 0, sizeof(x->latest));
    x->inc++;
    x->origin = x->origin + PROCS;
    g.replacements++;
}

static void link_both(int p, int q)
{
    g.p[p].linked[q] = g.p[q].linked[p] = 1;
    set_present(p, q, 1);
    set_present(q, p, 1);
}

static void world_make(uint64_t seed, int procs, int subjects, int good_pct)
{
    g.seed = g.rng = seed;
    g.procs = procs;
    g.subjects = subjects;
    g.good_pct = good_pct;
    g.words = 0;
    g.nbag = 0;
    g.loss_pct = (int)draw(40);
    g.p = calloc((size_t)procs, sizeof(*g.p));
    ck_assert_ptr_nonnull(g.p);
    for (int p = 0; p < procs; p++) {
        probe_gossip_init(&g.p[p].t);
        g.p[p].origin = (uint64_t)(procs - p) * 1000;
    }
    for (int p = 1; p < procs; p++) { /* connected, by a path, a star or a random tree; and more */
        int shape = (int)(seed % 3);

        link_both(p, shape == 0 ? p - 1 : shape == 1 ? 0 : (int)draw((unsigned)p));
    }
    for (unsigned i = draw((unsigned)(procs * 2) + 1); procs > 1 && i > 0; i--) {
        int p = (int)draw((unsigned)procs), q = (int)draw((unsigned)procs);

        if (p != q) {
            link_both(p, q);
        }
    }
}

static void world_free(void)
{
    for (int p = 0; p < g.procs; p++) {
        g.stale += g.p[p].t.stale;
        g.known += g.p[p].t.known;
        g.refused += g.p[p].t.refused;
        g.evicted += g.p[p].t.evicted;
    }
    free(g.p);
    free(g.bag);
    g.p = NULL;
    g.bag = NULL;
    g.room = 0;
}

/* One thing happens somewhere. */
static void world_step(int replaced)
{
    int p = (int)draw((unsigned)g.procs), q = (int)draw((unsigned)g.procs);
    unsigned what = draw(100);

    if (what < 20) {
        say_new(p);
    } else if (what < 45) {
        say_untold(p, q);
    } else if (what < 90) {
        for (unsigned k = draw(8); k > 0 && g.nbag; k--) {
            deliver(draw((unsigned)g.nbag), g.loss_pct);
        }
    } else if (what < 94) {
        const struct probe_report *w =
            probe_gossip_at(&g.p[q].t, (int)draw(PROBE_GOSSIP_MAX) % (int)(g.p[q].t.count + 1));

        if (w && p != q) {
            struct probe_report copy = *w;

            g.host++;
            world_put(p, &copy, -1);
        }
    } else if (what < 99) {
        set_present(p, q, g.p[p].present[q] ? 0 : 1);
    } else if (replaced) {
        replace(p);
    }
}

/* Every link stands, nothing is lost any more, and nobody begins: it comes to an end. */
static void world_end(void)
{
    int more = 1;

    for (int p = 0; p < g.procs; p++) {
        for (int q = 0; q < g.procs; q++) {
            set_present(p, q, 1);
        }
    }
    for (int round = 0; more; round++) {
        ck_assert_msg(round < 4 * PROCS, "seed %llu: no end", (unsigned long long)g.seed);
        more = 0;
        for (int p = 0; p < g.procs; p++) {
            for (int q = 0; q < g.procs; q++) {
                more += say_untold(p, q);
            }
        }
        while (g.nbag) {
            deliver(draw((unsigned)g.nbag), 0);
        }
    }
}

static void tables_equal(int p, int q)
{
    const struct probe_gossip *a = &g.p[p].t, *b = &g.p[q].t;

    ck_assert_msg(a->count == b->count, "seed %llu: %d holds %u words, %d holds %u",
                  (unsigned long long)g.seed, p, a->count, q, b->count);
    for (unsigned i = 0; i < a->count; i++) {
        const struct probe_report *w = probe_gossip_find(b, &a->entry[i].report.subject);

        REQUIRE(w && memcmp(w, &a->entry[i].report, sizeof(*w)) == 0, "two tables differ");
    }
}

/* The last word said about @subject; NULL: none was. */
static const struct probe_report *last_said(uint64_t subject)
{
    const struct probe_report *best = NULL;

    for (int i = 0; i < g.words; i++) {
        const struct probe_report *w = &g.said[i];

        if (w->subject.a == subject &&
            (!best || w->version > best->version ||
             (w->version == best->version && w->origin > best->origin))) {
            best = w;
        }
    }
    return best;
}

START_TEST(all_that_are_connected_end_equal)
{
    memset(&g, 0, sizeof(g));
    for (uint64_t seed = 1; seed <= 600; seed++) {
        int replaced = seed % 3 == 0, all = 0;

        world_make(seed * 0x9e3779b97f4a7c15ull, 1 + (int)(seed % PROCS), 1 + (int)(seed % 20), 30);
        for (unsigned steps = 50 + draw(600); steps > 0; steps--) {
            world_step(replaced);
        }
        world_end();
        for (int p = 1; p < g.procs; p++) {
            tables_equal(0, p);
        }
        for (uint64_t s = 1; s <= (uint64_t)g.subjects && !replaced; s++) {
            const struct probe_report *w =
                probe_gossip_find(&g.p[0].t, &(struct probe_subject){.a = s, .pa = 1});
            const struct probe_report *want = last_said(s);

            ck_assert_int_eq(w != NULL, want != NULL);
            ck_assert(!w || memcmp(w, want, sizeof(*w)) == 0);
            all += w != NULL;
        }
        ck_assert(replaced || g.words == 0 || all > 0);
        world_free();
    }
    ck_assert_uint_gt(g.ties, 500);
    ck_assert_uint_gt(g.lost, 5000);
    ck_assert_uint_gt(g.twice, 5000);
    ck_assert_uint_gt(g.leaves, 1000);
    ck_assert_uint_gt(g.host, 1000);
    ck_assert_uint_gt(g.replacements, 300);
    ck_assert_uint_gt(g.stale, 5000);
    ck_assert_uint_gt(g.known, 10000);
    ck_assert_uint_eq(g.evicted + g.refused, 0);
}
END_TEST

static int later_first(const void *a, const void *b)
{
    const struct probe_report *x = a, *y = b;

    return x->version != y->version ? (x->version < y->version ? 1 : -1)
           : x->origin < y->origin  ? 1
                                    : -1;
}

/* All bad: every table ends with the latest PROBE_GOSSIP_MAX of the words that none has replaced.
 */
static void latest_are_held(void)
{
    static struct probe_report want[SUBJECTS];
    unsigned n = 0;

    for (uint64_t s = 1; s <= (uint64_t)g.subjects; s++) {
        const struct probe_report *w = last_said(s);

        if (w) {
            want[n++] = *w;
        }
    }
    ck_assert_uint_gt(n, PROBE_GOSSIP_MAX);
    qsort(want, n, sizeof(want[0]), later_first);
    for (int p = 0; p < g.procs; p++) {
        ck_assert_uint_eq(g.p[p].t.count, PROBE_GOSSIP_MAX);
        for (unsigned i = 0; i < PROBE_GOSSIP_MAX; i++) {
            const struct probe_report *w = probe_gossip_find(&g.p[p].t, &want[i].subject);

            REQUIRE(w && memcmp(w, &want[i], sizeof(*w)) == 0,
                    "one of the latest words is missing");
        }
    }
}

/* More subjects than a table holds: words still go round once at most, and tables of what is bad
 * end equal. */
START_TEST(more_than_a_table_holds)
{
    memset(&g, 0, sizeof(g));
    for (uint64_t seed = 1; seed <= 30; seed++) {
        int mixed = seed % 2, procs = 2 + (int)(seed % 6);

        world_make(seed * 0x9e3779b97f4a7c15ull, procs, 300 + 100 * (int)(seed % 4),
                   mixed ? 40 : 0);
        if (procs > 2) {
            link_both(0, procs - 1); /* a ring is what goes round */
        }
        for (unsigned steps = 0; steps < 4000; steps++) {
            world_step(0);
            if (steps % 40 == 0) {
                for (int i = 0; i < 20; i++) {
                    say_new((int)draw((unsigned)procs));
                }
            }
        }
        world_end();
        if (!mixed) {
            latest_are_held();
        }
        world_free();
    }
    ck_assert_uint_gt(g.evicted, 20000);
    ck_assert_uint_gt(g.refused, 5000);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, all_that_are_connected_end_equal);
    tcase_add_test(t, more_than_a_table_holds);
}

int main(void)
{
    return suite_run("probe: gossip, schedules", 600, NULL, NULL, add);
}
