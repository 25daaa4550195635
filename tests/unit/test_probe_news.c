/*
 * News: the rules of the table one by one, then random schedules of many processes: words lost, repeated, late, out of
 * order, heard on the host, conflicting; neighbours that come and go, processes that are replaced; more subjects than a
 * table holds.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/probe/probe_news.h"
#include "plugin/probe/probe_verdict.h"

#define BAD  PROBE_BLAME_LOCAL_LINK
#define GOOD PROBE_BLAME_NONE

static struct probe_news table;

static struct probe_word word(uint64_t subject, uint64_t version, uint64_t origin, int blame)
{
    struct probe_word w;

    memset(&w, 0, sizeof(w));
    w.subject.a = subject;
    w.subject.pa = 1;
    w.version = version;
    w.origin = origin;
    w.blame = (uint8_t)blame;
    snprintf(w.host, sizeof(w.host), "v%llu", (unsigned long long)version); /* the text belongs to the word */
    return w;
}

static int put(uint64_t subject, uint64_t version, uint64_t origin, int blame, int from)
{
    struct probe_word w = word(subject, version, origin, blame);

    return probe_news_put(&table, &w, from);
}

static const struct probe_word *held(uint64_t subject)
{
    struct probe_word w = word(subject, 0, 0, 0);

    return probe_news_find(&table, &w.subject);
}

static void told(int neighbour, uint64_t subject, uint64_t version, uint64_t origin)
{
    struct probe_word w = word(subject, 0, 0, 0);

    probe_news_told(&table, neighbour, &w.subject, version, origin);
}

static unsigned untold(int neighbour)
{
    unsigned k = 0;

    for (int i = 0; probe_news_untold(&table, neighbour, &i); k++) {
    }
    return k;
}

static void join(int neighbour)
{
    probe_news_join(&table, neighbour);
}

/* --- rules --- */

START_TEST(the_later_word_wins)
{
    static const struct {
        uint64_t version, origin;
        int taken;
        unsigned known, stale;
    } row[] = {
        {7, 50, 0, 1, 0}, {7, 51, 1, 0, 0}, {7, 49, 0, 0, 1}, {8, 50, 1, 0, 0},         {8, 1, 1, 0, 0},
        {6, 50, 0, 0, 1}, {6, 99, 0, 0, 1}, {1, 0, 0, 0, 1},  {7, UINT64_MAX, 1, 0, 0}, {1ull << 32, 0, 1, 0, 0},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        probe_news_init(&table);
        ck_assert_int_eq(put(1, 7, 50, BAD, -1), 1);
        ck_assert_msg(put(1, row[i].version, row[i].origin, GOOD, 3) == row[i].taken, "row %u", i);
        ck_assert_uint_eq(table.known, row[i].known);
        ck_assert_uint_eq(table.stale, row[i].stale);
        ck_assert_uint_eq(table.refused + table.evicted, 0);
        ck_assert_int_eq(held(1)->blame, row[i].taken ? GOOD : BAD);
        ck_assert_uint_eq(held(1)->version, row[i].taken ? row[i].version : 7);
        ck_assert_uint_eq(held(1)->origin, row[i].taken ? row[i].origin : 50);
        ck_assert_str_eq(held(1)->host, word(1, row[i].taken ? row[i].version : 7, 0, 0).host);
    }
}
END_TEST

START_TEST(subjects_are_told_apart_by_every_field)
{
    static const struct probe_subject s[] = {
        {1, 0, 1, 0}, {2, 0, 1, 0}, {1, 0, 2, 0}, {1, 2, 1, 0}, {1, 2, 1, 1}, {1, 2, 1, 2}, {1, 3, 1, 1},
    };
    struct probe_word w = word(0, 1, 1, BAD);

    probe_news_init(&table);
    for (unsigned i = 0; i < sizeof(s) / sizeof(s[0]); i++) {
        w.subject = s[i];
        ck_assert_ptr_null(probe_news_find(&table, &s[i]));
        ck_assert_int_eq(probe_news_put(&table, &w, -1), 1);
        ck_assert_ptr_eq(probe_news_find(&table, &s[i]), probe_news_at(&table, (int)i));
    }
    ck_assert_ptr_null(probe_news_at(&table, -1));
    ck_assert_ptr_null(probe_news_at(&table, (int)(sizeof(s) / sizeof(s[0]))));
    ck_assert_ptr_null(probe_news_at(&table, PROBE_NEWS_MAX));
}
END_TEST

/* Who has not confirmed what. Numbers at every edge of the masks. */
START_TEST(neighbours_are_told_until_they_confirm)
{
    static const int nb[] = {0, 1, 63, 64, 127, 128, 192, PROBE_NEWS_NEIGHBOURS - 1};
    enum { N = sizeof(nb) / sizeof(nb[0]) };

    for (unsigned who = 0; who < N; who++) {
        probe_news_init(&table);
        for (unsigned i = 0; i < N; i++) {
            join(nb[i]);
        }
        put(1, 5, 9, BAD, nb[who]);
        for (unsigned i = 0; i < N; i++) {
            ck_assert_uint_eq(untold(nb[i]), i != who);
        }
        ck_assert_uint_eq(untold(2), 0); /* nobody */
        for (unsigned i = 0; i < N; i++) {
            if (i == who) {
                continue;
            }
            told(nb[i], 2, 5, 9); /* another subject, older words */
            told(nb[i], 1, 4, 9);
            told(nb[i], 1, 5, 8);
            ck_assert_uint_eq(untold(nb[i]), 1);
            told(nb[i], 1, 5 + (i & 1), 9 + (i >> 1 & 1)); /* it, or a later one */
            ck_assert_uint_eq(untold(nb[i]), 0);
        }
        put(1, 6, 9, BAD, -1); /* a new one: to all again, also to who said the last */
        for (unsigned i = 0; i < N; i++) {
            ck_assert_uint_eq(untold(nb[i]), 1);
        }
        ck_assert_int_eq(put(1, 6, 9, BAD, nb[who]), 0); /* it knows */
        ck_assert_uint_eq(untold(nb[who]), 0);
        ck_assert_int_eq(put(1, 5, 9, BAD, nb[who]), 0); /* a late copy of what it said before: it knows all the same */
        ck_assert_uint_eq(untold(nb[who]), 0);
        ck_assert_int_eq(put(1, 5, 9, BAD, nb[(who + 1) % N]), 0); /* older: it is told ours */
        ck_assert_uint_eq(untold(nb[(who + 1) % N]), 1);
    }
}
END_TEST

START_TEST(who_comes_is_told_all_and_who_goes_nothing)
{
    int i = 0;

    probe_news_init(&table);
    put(1, 1, 1, BAD, -1);
    put(2, 2, 1, GOOD, -1);
    ck_assert_uint_eq(untold(70), 0);
    join(70);
    ck_assert_uint_eq(untold(70), 2); /* it may hold an older, bad word about 2 */
    ck_assert_uint_eq(probe_news_untold(&table, 70, &i)->subject.a, 1);
    ck_assert_int_eq(i, 1);
    ck_assert_uint_eq(probe_news_untold(&table, 70, &i)->subject.a, 2);
    ck_assert_ptr_null(probe_news_untold(&table, 70, &i));
    ck_assert_ptr_null(probe_news_untold(&table, 70, &i));
    told(70, 1, 1, 1);
    i = 0;
    ck_assert_uint_eq(probe_news_untold(&table, 70, &i)->subject.a, 2);
    ck_assert_int_eq(i, 2);
    i = -1;
    ck_assert_ptr_null(probe_news_untold(&table, 70, &i));
    probe_news_leave(&table, 70);
    ck_assert_uint_eq(untold(70), 0);
    put(3, 3, 1, BAD, -1);
    ck_assert_uint_eq(untold(70), 0);
    join(70);
    ck_assert_uint_eq(untold(70), 3); /* somebody else by that number: nothing is remembered */
    join(71);
    join(71); /* said twice */
    probe_news_leave(&table, 70);
    ck_assert_uint_eq(untold(71), 3);
    for (int k = 0; k < 3; k++) { /* numbers that are none */
        static const int none[] = {-1, PROBE_NEWS_NEIGHBOURS, 1 << 20};

        join(none[k]);
        told(none[k], 1, 1, 1);
        ck_assert_uint_eq(untold(none[k]), 0);
        ck_assert_int_eq(put(4 + (uint64_t)k, 4 + (uint64_t)k, 1, BAD, none[k]), 1);
        probe_news_leave(&table, none[k]);
    }
    ck_assert_uint_eq(untold(71), 6);
}
END_TEST

static uint64_t next(void)
{
    struct probe_word w = word(999, 0, 3, BAD);

    probe_news_next_version(&table, &w);
    return w.version;
}

START_TEST(a_new_word_is_later_than_all_that_were_met)
{
    probe_news_init(&table);
    ck_assert_uint_eq(next(), 1);
    put(1, 10, 1, BAD, -1);
    ck_assert_uint_eq(next(), 11); /* of whatever subject */
    put(2, 5, 1, BAD, -1);
    ck_assert_uint_eq(next(), 11);
    ck_assert_int_eq(put(1, 12, 1, BAD, -1), 1);
    ck_assert_uint_eq(next(), 13);
    /* so far ahead: not believed, and not counted from; one less is */
    ck_assert_int_eq(put(3, 12 + PROBE_NEWS_AHEAD_MAX + 1, 1, BAD, -1), 0);
    ck_assert_int_eq(put(1, 12 + PROBE_NEWS_AHEAD_MAX + 1, 1, BAD, -1), 0);
    ck_assert_uint_eq(table.refused, 2);
    ck_assert_ptr_null(held(3));
    ck_assert_uint_eq(next(), 13);
    ck_assert_int_eq(put(3, 12 + PROBE_NEWS_AHEAD_MAX, 1, BAD, -1), 1);
    ck_assert_uint_eq(next(), 13 + PROBE_NEWS_AHEAD_MAX);
    table.clock = PROBE_NEWS_VERSION_MAX - 1;
    ck_assert_uint_eq(next(), PROBE_NEWS_VERSION_MAX);
    table.clock = PROBE_NEWS_VERSION_MAX;
    ck_assert_uint_eq(next(), PROBE_NEWS_VERSION_MAX); /* no further, and not 0 */
}
END_TEST

/* --- a full table --- */

/* Subjects 1000.. with versions 100.. (the i-th is the i-th oldest); @good of them good again. */
static void fill(const int *good, unsigned ngood)
{
    probe_news_init(&table);
    join(5);
    for (unsigned k = 0; k < PROBE_NEWS_MAX; k++) {
        unsigned i = (k * 37 + 11) % PROBE_NEWS_MAX; /* not in the order of their age */
        int blame = BAD;

        for (unsigned g = 0; g < ngood; g++) {
            blame = good[g] == (int)i ? GOOD : blame;
        }
        ck_assert_int_eq(put(1000 + i, 100 + i, 1, blame, -1), 1);
    }
    ck_assert_uint_eq(table.evicted, 0);
    ck_assert_uint_eq(untold(5), PROBE_NEWS_MAX);
}

START_TEST(a_full_table_drops_good_before_bad_and_old_before_new)
{
    static const int good[] = {200, 17, 90};
    static const unsigned order[] = {17, 90, 200, 0, 1, 2};

    fill(good, 3);
    for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        ck_assert_ptr_nonnull(held(1000 + order[i]));
        ck_assert_int_eq(put(i, 500 + i, 1, BAD, 5), 1);
        ck_assert_ptr_null(held(1000 + order[i]));
        ck_assert_ptr_nonnull(held(i));
        ck_assert_uint_eq(table.evicted, i + 1);
        ck_assert_uint_eq(untold(5), PROBE_NEWS_MAX - i - 1); /* 5 has said it */
        ck_assert_uint_eq(table.count, PROBE_NEWS_MAX);
    }
    ck_assert_uint_eq(table.floor_version, 300); /* the latest that was dropped, not the last */
    fill(good, 3);
    ck_assert_int_eq(put(1, 500, 1, GOOD, -1), 1); /* good for older good */
    ck_assert_ptr_null(held(1017));
}
END_TEST

START_TEST(what_would_be_dropped_itself_is_not_taken)
{
    static const int good[] = {17};

    fill(good, 1);
    ck_assert_int_eq(put(1, 116, 1, GOOD, 5), 0); /* older than the one good word */
    ck_assert_int_eq(put(1, 117, 0, GOOD, 5), 0);
    ck_assert_int_eq(put(1, 99, 1, BAD, 5), 1);   /* bad for good, whatever its age */
    ck_assert_int_eq(put(2, 900, 1, GOOD, 5), 0); /* all are bad */
    fill(NULL, 0);
    ck_assert_int_eq(put(1, 99, 9, BAD, 5), 0);
    ck_assert_int_eq(put(1, 100, 0, BAD, 5), 0);
    ck_assert_uint_eq(table.evicted, 0);
    ck_assert_uint_eq(table.refused, 2);
    ck_assert_int_eq(put(1, 100, 2, BAD, 5), 1);
    ck_assert_ptr_null(held(1000));
    ck_assert_int_eq(put(1255, 400, 1, BAD, 5), 1); /* a subject that is held needs no room */
    ck_assert_int_eq(put(1254, 400, 1, GOOD, 5), 1);
    ck_assert_uint_eq(table.evicted, 1);
}
END_TEST

START_TEST(what_was_dropped_does_not_come_back)
{
    static const int good[] = {200, 17};

    fill(good, 2);
    ck_assert_int_eq(put(1, 600, 1, BAD, -1), 1);    /* for 17 */
    ck_assert_int_eq(put(1017, 117, 1, GOOD, 5), 0); /* a late copy of it */
    ck_assert_int_eq(put(1017, 90, 1, BAD, 5), 0);   /* what it had put an end to */
    ck_assert_int_eq(put(2, 117, 0, BAD, 5), 0);     /* might be another such */
    ck_assert_int_eq(put(2, 117, 1, BAD, 5), 0);
    ck_assert_uint_eq(table.refused, 4);
    ck_assert_int_eq(put(3, 117, 2, BAD, 5), 1); /* for 200; cannot have been dropped */
    ck_assert_int_eq(put(2, 118, 1, BAD, 5), 0); /* 200 had 300: the floor is there now */
    ck_assert_int_eq(put(1017, next(), 1, BAD, 5), 1);
    ck_assert_uint_eq(table.clock, 601);
}
END_TEST

/* --- what makes sense --- */

START_TEST(words_that_make_no_sense)
{
    const struct probe_word ok = word(1, 1, 1, BAD);
    struct probe_word w;

#define SAYS(want, change)                                                                                             \
    do {                                                                                                               \
        w = ok;                                                                                                        \
        change;                                                                                                        \
        ck_assert_msg(probe_word_valid(&w) == (want), "%s", #change);                                                  \
    } while (0)
    SAYS(1, (void)0);
    SAYS(0, w.version = 0);
    SAYS(1, w.version = PROBE_NEWS_VERSION_MAX);
    SAYS(0, w.version = PROBE_NEWS_VERSION_MAX + 1);
    SAYS(1, w.blame = GOOD);
    SAYS(1, w.blame = PROBE_BLAMES - 1);
    SAYS(0, w.blame = PROBE_BLAMES);
    SAYS(1, w.confidence = 100);
    SAYS(0, w.confidence = 101);
    SAYS(1, memset(w.host, 'h', sizeof(w.host) - 1));
    SAYS(0, memset(w.host, 'h', sizeof(w.host)));
    SAYS(1, memset(w.nic, '~', sizeof(w.nic) - 1));
    SAYS(0, memset(w.nic, '~', sizeof(w.nic)));
    SAYS(1, strcpy(w.nic, "a b"));
    SAYS(0, strcpy(w.nic, "a\nb"));
    SAYS(0, strcpy(w.host, "a\x7f"));
    SAYS(0, strcpy(w.host, "\xc3\xa4"));
    SAYS(0, w.host[20] = 'x'); /* behind the end */
    SAYS(0, w.nic[sizeof(w.nic) - 1] = 'x');
    SAYS(0, w.subject.a = w.subject.pa = 0);
    SAYS(1, w.subject.a = 0);
    SAYS(1, w.subject.pa = 0);
    SAYS(0, w.subject.pb = 2); /* the smaller one first */
    SAYS(1, w.subject.b = 1; w.subject.pb = 2);
    SAYS(0, w.subject.pb = 1; w.subject.b = 1); /* a path to itself */
    SAYS(1, w.subject.b = 2);
    SAYS(0, w.subject.a = 3; w.subject.b = 2); /* the smaller one first */
    SAYS(0, w.subject.a = w.subject.b = 3; w.subject.pa = 2; w.subject.pb = 1);
    SAYS(0, w.subject.pa = PROBE_NEWS_PROCESS);
    SAYS(0, w.subject.b = 2; w.subject.pb = PROBE_NEWS_PROCESS);
    SAYS(1, w.subject.pa = w.subject.pb = PROBE_NEWS_PROCESS);
    SAYS(1, w.subject.pa = w.subject.pb = PROBE_NEWS_PROCESS; w.subject.a = 9; w.subject.b = 8);
#undef SAYS
}
END_TEST

/* --- schedules --- */

#define PROCS    24
#define WORDS    4096
#define SUBJECTS 640

struct msg {
    int from, to, ok; /* a confirmation */
    unsigned from_life, to_life;
    struct probe_word w;
};

struct proc {
    struct probe_news t;
    uint64_t origin;
    unsigned life;
    uint64_t latest[SUBJECTS][2]; /* version and origin of the last word taken up: never goes back */
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
    struct probe_word said[WORDS];
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
    return (q * 11 + p) % PROBE_NEWS_NEIGHBOURS;
}

/* ck_assert() tells the runner about every line: too slow for what is asked a million times. */
#define REQUIRE(cond, what)                                                                                            \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            ck_abort_msg("seed %llu: " what, (unsigned long long)g.seed);                                              \
        }                                                                                                              \
    } while (0)

static int word_id(const struct probe_word *w)
{
    REQUIRE(w->since_ms < (uint64_t)g.words && memcmp(&g.said[w->since_ms], w, sizeof(*w)) == 0,
            "a word that nobody said");
    return (int)w->since_ms;
}

static void world_put(int p, const struct probe_word *w, int from)
{
    struct proc *x = &g.p[p];
    uint64_t *latest = x->latest[w->subject.a - 1];
    int id = word_id(w);

    if (!probe_news_put(&x->t, w, from)) {
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
    struct probe_word w = word(1 + draw((unsigned)g.subjects), 0, x->origin, chance(g.good_pct) ? GOOD : BAD);

    if (g.words == WORDS) {
        return;
    }
    probe_news_next_version(&x->t, &w);
    w.since_ms = (uint64_t)g.words;
    for (int i = 0; i < g.words; i++) {
        g.ties += g.said[i].version == w.version && g.said[i].subject.a == w.subject.a;
        REQUIRE(g.said[i].version != w.version || g.said[i].origin != w.origin, "a version is used again");
    }
    g.said[g.words++] = w;
    world_put(p, &w, -1);
}

static void bag_add(int from, int to, int ok, const struct probe_word *w)
{
    if (g.nbag == g.room) {
        g.room = g.room ? 2 * g.room : 1024;
        g.bag = realloc(g.bag, g.room * sizeof(*g.bag));
        REQUIRE(g.bag, "no memory");
    }
    g.bag[g.nbag++] = (struct msg){from, to, ok, g.p[from].life, g.p[to].life, *w};
}

/* @p tells @q what it has not confirmed, for the first time or again. */
static int say_untold(int p, int q)
{
    const struct probe_word *w;
    int n = 0;

    for (int i = 0; (w = probe_news_untold(&g.p[p].t, number(p, q), &i)) != NULL; n++) {
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
    if (m.from_life != g.p[m.from].life || m.to_life != x->life) {
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
        probe_news_told(&x->t, number(m.to, m.from), &m.w.subject, m.w.version, m.w.origin);
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
        probe_news_join(&x->t, number(p, q));
        g.joins++;
    } else {
        probe_news_leave(&x->t, number(p, q));
        g.leaves++;
    }
}

/* Another process in its place: it knows nothing, and its neighbours see one go and another one come. */
static void replace(int p)
{
    struct proc *x = &g.p[p];

    for (int q = 0; q < g.procs; q++) {
        set_present(q, p, 0);
        set_present(p, q, 0);
    }
    probe_news_init(&x->t);
    memset(x->taken, 0, sizeof(x->taken));
    memset(x->latest, 0, sizeof(x->latest));
    x->life++;
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
        probe_news_init(&g.p[p].t);
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
        const struct probe_word *w = probe_news_at(&g.p[q].t, (int)draw(PROBE_NEWS_MAX) % (int)(g.p[q].t.count + 1));

        if (w && p != q) {
            struct probe_word copy = *w;

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
    const struct probe_news *a = &g.p[p].t, *b = &g.p[q].t;

    ck_assert_msg(a->count == b->count, "seed %llu: %d holds %u words, %d holds %u", (unsigned long long)g.seed, p,
                  a->count, q, b->count);
    for (unsigned i = 0; i < a->count; i++) {
        const struct probe_word *w = probe_news_find(b, &a->entry[i].word.subject);

        REQUIRE(w && memcmp(w, &a->entry[i].word, sizeof(*w)) == 0, "two tables differ");
    }
}

/* The last word said about @subject; NULL: none was. */
static const struct probe_word *last_said(uint64_t subject)
{
    const struct probe_word *best = NULL;

    for (int i = 0; i < g.words; i++) {
        const struct probe_word *w = &g.said[i];

        if (w->subject.a == subject &&
            (!best || w->version > best->version || (w->version == best->version && w->origin > best->origin))) {
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
            const struct probe_word *w = probe_news_find(&g.p[0].t, &(struct probe_subject){.a = s, .pa = 1});
            const struct probe_word *want = last_said(s);

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
    const struct probe_word *x = a, *y = b;

    return x->version != y->version ? (x->version < y->version ? 1 : -1) : x->origin < y->origin ? 1 : -1;
}

/* All bad: every table ends with the latest PROBE_NEWS_MAX of the words that none has replaced. */
static void latest_are_held(void)
{
    static struct probe_word want[SUBJECTS];
    unsigned n = 0;

    for (uint64_t s = 1; s <= (uint64_t)g.subjects; s++) {
        const struct probe_word *w = last_said(s);

        if (w) {
            want[n++] = *w;
        }
    }
    ck_assert_uint_gt(n, PROBE_NEWS_MAX);
    qsort(want, n, sizeof(want[0]), later_first);
    for (int p = 0; p < g.procs; p++) {
        ck_assert_uint_eq(g.p[p].t.count, PROBE_NEWS_MAX);
        for (unsigned i = 0; i < PROBE_NEWS_MAX; i++) {
            const struct probe_word *w = probe_news_find(&g.p[p].t, &want[i].subject);

            REQUIRE(w && memcmp(w, &want[i], sizeof(*w)) == 0, "one of the latest words is missing");
        }
    }
}

/* More subjects than a table holds: words still go round once at most, and tables of what is bad end equal. */
START_TEST(more_than_a_table_holds)
{
    memset(&g, 0, sizeof(g));
    for (uint64_t seed = 1; seed <= 30; seed++) {
        int mixed = seed % 2, procs = 2 + (int)(seed % 6);

        world_make(seed * 0x9e3779b97f4a7c15ull, procs, 300 + 100 * (int)(seed % 4), mixed ? 40 : 0);
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

int main(void)
{
    Suite *s = suite_create("probe: news");
    TCase *t = tcase_create("rules"), *p = tcase_create("schedules");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_later_word_wins);
    tcase_add_test(t, subjects_are_told_apart_by_every_field);
    tcase_add_test(t, neighbours_are_told_until_they_confirm);
    tcase_add_test(t, who_comes_is_told_all_and_who_goes_nothing);
    tcase_add_test(t, a_new_word_is_later_than_all_that_were_met);
    tcase_add_test(t, a_full_table_drops_good_before_bad_and_old_before_new);
    tcase_add_test(t, what_would_be_dropped_itself_is_not_taken);
    tcase_add_test(t, what_was_dropped_does_not_come_back);
    tcase_add_test(t, words_that_make_no_sense);
    tcase_set_timeout(p, 600);
    tcase_add_test(p, all_that_are_connected_end_equal);
    tcase_add_test(p, more_than_a_table_holds);
    suite_add_tcase(s, t);
    suite_add_tcase(s, p);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
