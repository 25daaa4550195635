/*
 * Whose a slow way is (plugin/balance/balance_whose.h): hosts with one NIC each that find ways
 * slow, each at its own time, and tell each other; words get lost. Who says what of himself.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/balance/balance_whose.h"
#include "tests/unit/suite.h"

#define HOSTS 6
#define MS    1000000ull
#define TICK  (100 * MS)
#define START (1000 * MS)

enum pattern { RING, ALL, CHAIN, STAR, PATTERNS };

static struct balance_whose whose[HOSTS];
static uint64_t found_at[HOSTS][HOSTS]; /* from, to; 0: that way is not slow */
static uint64_t now;
static unsigned hosts, loss; /* percent */
static enum pattern pattern;
static bool rests; /* nothing is sent */

static uint32_t name(unsigned h)
{
    return 4711 + 13 * h;
}

static bool is_way(unsigned from, unsigned to)
{
    switch (pattern) {
    case RING:
        return from != to && to == (from + 1) % hosts;
    case CHAIN:
        return to == from + 1 && to < hosts;
    case STAR:
        return from != to && (from == 0 || to == 0);
    default:
        return from != to;
    }
}

/* Whether the NIC of @h carries for others than @but. */
static bool carries_for_others(unsigned h, unsigned but)
{
    for (unsigned o = 0; o < hosts; o++) {
        if (o != but && (is_way(h, o) || is_way(o, h))) {
            return true;
        }
    }
    return false;
}

static enum balance_word word(unsigned of, unsigned to)
{
    return balance_whose_has_others(&whose[of], name(to), now) ? BALANCE_WORD_OTHERS
           : carries_for_others(of, to)                        ? BALANCE_WORD_WELL
                                                               : BALANCE_WORD_ALONE;
}

static void slow(unsigned from, unsigned to)
{
    found_at[from][to] = START + (uint64_t)(rand() % 25) * TICK;
}

static bool is_lost(void)
{
    return (unsigned)(rand() % 100) < loss;
}

/* @from tells @to, who answers. */
static void tell(unsigned from, unsigned to)
{
    if (!is_lost()) {
        balance_whose_told(&whose[to], name(from), word(from, to), now);
        if (!is_lost()) {
            balance_whose_word(&whose[from], name(to), word(to, from), now);
        }
    }
}

static void run(uint64_t ns)
{
    for (uint64_t end = now + ns; now < end; now += TICK) {
        for (unsigned f = 0; f < hosts; f++) {
            for (unsigned t = 0; t < hosts; t++) {
                if (found_at[f][t] && now >= found_at[f][t] && !rests) {
                    balance_whose_slow(&whose[f], name(t), now);
                    if (now / TICK % 5 == 0) {
                        tell(f, t);
                    }
                }
            }
        }
        for (unsigned h = 0; h < hosts; h++) {
            balance_whose_step(&whose[h], now);
        }
    }
}

static void begin(enum pattern p, unsigned n, unsigned seed)
{
    memset(whose, 0, sizeof(whose));
    memset(found_at, 0, sizeof(found_at));
    pattern = p;
    hosts = n;
    now = START;
    rests = false;
    srand(seed);
    loss = seed % 3 * 10;
}

static void forget(void)
{
    memset(found_at, 0, sizeof(found_at)); /* all recovers */
    for (unsigned h = 0; h < hosts; h++) {
        for (unsigned s = 0; s < 3; s++) {
            balance_whose_step(&whose[h], now + BALANCE_WHOSE_FRESH + s * BALANCE_WHOSE_KEPT);
        }
        ck_assert(!whose[h].ours);
    }
}

/* For @ns, @a and @b say so of their ways to us; NONE: that host says nothing. */
static void say(enum balance_word a, enum balance_word b, uint64_t ns)
{
    for (uint64_t end = now + ns; now < end; now += TICK) {
        if (a != BALANCE_WORD_NONE) {
            balance_whose_told(&whose[0], name(1), a, now);
        }
        if (b != BALANCE_WORD_NONE) {
            balance_whose_told(&whose[0], name(2), b, now);
        }
        balance_whose_step(&whose[0], now);
    }
}

/* Nobody at any time but @who; -1: nobody. */
static void only(int who)
{
    for (unsigned s = 0; s < 200; s++) {
        run(TICK);
        for (unsigned h = 0; h < hosts; h++) {
            ck_assert_msg(!whose[h].ours || (int)h == who, "host %u blames its NIC", h);
        }
    }
    ck_assert(who < 0 || whose[who].ours);
}

/* Hosts whose way to or from @at is slow, and which carry for others. */
static unsigned slow_nic(unsigned at, int dir)
{
    unsigned witnesses = 0;

    for (unsigned h = 0; h < hosts; h++) {
        bool out = is_way(at, h) && dir != 1, in = is_way(h, at) && dir != 2;

        if (out) {
            slow(at, h);
        }
        if (in) {
            slow(h, at);
        }
        witnesses += (out || in) && carries_for_others(h, at);
    }
    return witnesses;
}

/* In both directions, or only in or out: in a ring that is one way, and not told from the other
 * end's. At the end of a chain, or of a star, nobody carries for others. */
START_TEST(a_slow_nic)
{
    unsigned told = 0;

    for (enum pattern p = RING; p < PATTERNS; p++) {
        for (unsigned n = 2; n <= HOSTS; n++) {
            for (int dir = 0; dir < 3; dir++) {
                unsigned at = (unsigned)_i % n;
                bool is_told;

                begin(p, n, (unsigned)_i);
                is_told = slow_nic(at, dir) > 1;
                told += is_told;
                only(is_told ? (int)at : -1);
                if (is_told) {
                    ck_assert_uint_ne(whose[at].hosts[0], whose[at].hosts[1]);
                    ck_assert_uint_ne(whose[at].hosts[1], 0);
                    ck_assert_uint_ge(whose[at].from, START);
                    ck_assert_uint_le(whose[at].from, START + 2500 * MS + 3 * BALANCE_WHOSE_FRESH);
                }
                forget();
            }
        }
    }
    ck_assert_uint_gt(told, 10);
}
END_TEST

/* A cable between two switches, or the way between two hosts, one way or both. */
START_TEST(a_slow_way)
{
    for (enum pattern p = RING; p < PATTERNS; p++) {
        for (unsigned n = 2; n <= HOSTS; n++) {
            unsigned at = p == STAR ? 0 : (unsigned)_i % (n - 1), to = at + 1;

            begin(p, n, (unsigned)_i);
            slow(at, to);
            if (_i & 1 && is_way(to, at)) {
                slow(to, at);
            }
            only(-1);
        }
    }
}
END_TEST

/* All NICs of a rail are slow to each other: its switch, and no NIC. */
START_TEST(a_slow_rail)
{
    for (enum pattern p = RING; p < PATTERNS; p++) {
        for (unsigned n = 3; n <= HOSTS; n++) {
            begin(p, n, (unsigned)_i);
            loss = 0; /* nobody is a witness before it has heard of others */
            for (unsigned f = 0; f < n; f++) {
                for (unsigned t = 0; t < n; t++) {
                    if (is_way(f, t)) {
                        slow(f, t);
                    }
                }
            }
            only(-1);
        }
    }
}
END_TEST

/* Found out late: what was said is taken back. */
START_TEST(a_rail_that_is_found_slow_one_by_one)
{
    begin(RING, 4, 1);
    loss = 0;
    found_at[0][1] = found_at[1][2] = START;
    run(BALANCE_WHOSE_HOLDS + 1000 * MS);
    ck_assert(whose[1].ours);
    found_at[2][3] = found_at[3][0] = now;
    run(BALANCE_WHOSE_HOLDS + 1000 * MS);
    for (unsigned h = 0; h < 4; h++) {
        ck_assert(!whose[h].ours);
    }
}
END_TEST

/* A job that rests between its steps: found out in the bursts together, said once, and kept. */
START_TEST(bursts)
{
    unsigned changes = 0;

    begin(RING, 3, 3); /* none is lost */
    found_at[0][1] = found_at[1][2] = START;
    for (unsigned s = 0; s < 50; s++) {
        bool before = whose[1].ours;

        rests = false;
        run(1000 * MS);
        rests = true;
        run((s % 2 ? 3 : 20) * 1000 * MS);
        changes += whose[1].ours != before;
        ck_assert(s < 10 || whose[1].ours);
    }
    ck_assert_uint_eq(changes, 1);
}
END_TEST

/* Nothing but one exchange is said in each burst, and it grows old: it does not count through the
 * rest. */
START_TEST(short_bursts)
{
    const enum balance_word well = BALANCE_WORD_WELL;

    begin(RING, 3, 0);
    for (unsigned i = 0; i < 2; i++) {
        say(well, well, TICK);
        say(BALANCE_WORD_NONE, BALANCE_WORD_NONE, 10000 * MS);
        ck_assert_uint_gt(whose[0].held, 0);
        ck_assert_uint_le(whose[0].held, (i + 1) * (BALANCE_WHOSE_SPOKEN + TICK));
    }
    begin(RING, 3, 0);
    whose[0].ours = true;
    for (unsigned i = 0; i < 2; i++) {
        say(well, BALANCE_WORD_OTHERS, TICK);
        say(BALANCE_WORD_NONE, BALANCE_WORD_NONE, 10000 * MS);
        ck_assert_uint_gt(whose[0].against, 0);
        ck_assert_uint_le(whose[0].against, (i + 1) * (BALANCE_WHOSE_SPOKEN + TICK));
    }
}
END_TEST

/* What was found is forgotten in silence: nobody has said that it is not so. */
START_TEST(silence_is_forgotten_in_silence)
{
    bool changes = false;

    begin(RING, 3, 0);
    say(BALANCE_WORD_WELL, BALANCE_WORD_WELL, BALANCE_WHOSE_HOLDS + 2 * TICK);
    ck_assert(whose[0].ours);
    for (unsigned i = 0; i < 3; i++) {
        now += BALANCE_WHOSE_KEPT / 2 + BALANCE_WHOSE_FRESH;
        changes |= balance_whose_step(&whose[0], now);
        ck_assert_int_eq(whose[0].ours, i == 0);
    }
    ck_assert(!changes);
}
END_TEST

/* A host that does not know these words is no witness; nor is one that nobody asks. */
START_TEST(no_word_is_no_witness)
{
    begin(RING, 3, 0);
    for (unsigned i = 0; i < 100; i++) {
        balance_whose_slow(&whose[0], name(1), now);
        balance_whose_told(&whose[0], name(2), BALANCE_WORD_WELL, now);
        ck_assert(!balance_whose_step(&whose[0], now));
        now += TICK;
    }
    balance_whose_word(&whose[1], name(2), BALANCE_WORD_WELL, now);
    ck_assert(!balance_whose_has_others(&whose[1], name(0), now));
}
END_TEST

/* A witness is one by its last word, in an answer, too; and words grow old. */
START_TEST(the_last_word_counts)
{
    begin(RING, 3, 0);
    for (unsigned i = 0; i < 100; i++) {
        balance_whose_slow(&whose[0], name(1), now);
        balance_whose_slow(&whose[0], name(2), now);
        balance_whose_word(&whose[0], name(1), BALANCE_WORD_WELL, now);
        if (_i == 0 || i == 0) {
            balance_whose_word(&whose[0], name(2), BALANCE_WORD_WELL, now);
        }
        if (_i == 0) {
            balance_whose_word(&whose[0], name(2), i % 2 ? BALANCE_WORD_OTHERS : BALANCE_WORD_ALONE,
                               now);
        }
        ck_assert(!balance_whose_step(&whose[0], now));
        now += TICK;
    }
}
END_TEST

/* Each time that others turn out to be slow it begins anew; so does what takes it back. One host
 * that says nothing contradicts nobody. */
START_TEST(what_contradicts)
{
    const enum balance_word well = BALANCE_WORD_WELL, others = BALANCE_WORD_OTHERS;

    begin(RING, 3, 0);
    for (unsigned i = 0; i < 5; i++) {
        say(well, well, BALANCE_WHOSE_HOLDS - 500 * MS);
        say(well, others, 2 * TICK);
        ck_assert(!whose[0].ours);
    }
    say(well, well, BALANCE_WHOSE_HOLDS + 2 * TICK);
    ck_assert(whose[0].ours);
    for (unsigned i = 0; i < 5; i++) {
        say(well, others, BALANCE_WHOSE_HOLDS - 500 * MS);
        say(well, well, 2 * TICK);
        ck_assert(whose[0].ours);
    }
    say(well, BALANCE_WORD_NONE, 10 * BALANCE_WHOSE_HOLDS);
    say(BALANCE_WORD_ALONE, BALANCE_WORD_NONE, 10 * BALANCE_WHOSE_HOLDS);
    ck_assert(whose[0].ours);
    say(well, others, BALANCE_WHOSE_HOLDS + 2 * TICK);
    ck_assert(!whose[0].ours);
}
END_TEST

/* A process that stood still has looked at nothing meanwhile. */
START_TEST(a_step_that_comes_late)
{
    begin(RING, 3, 0);
    for (unsigned i = 0; i < 3; i++) {
        balance_whose_told(&whose[0], name(1), BALANCE_WORD_WELL, now);
        balance_whose_told(&whose[0], name(2), BALANCE_WORD_WELL, now);
        ck_assert(!balance_whose_step(&whose[0], now));
        now += 10 * BALANCE_WHOSE_HOLDS;
    }
}
END_TEST

/* A word that comes while a turn is under way is newer than the turn. */
START_TEST(a_word_is_newer_than_the_turn)
{
    bool ours = false;

    begin(RING, 3, 0);
    for (unsigned i = 0; i <= BALANCE_WHOSE_HOLDS / TICK && !ours; i++) {
        balance_whose_told(&whose[0], name(1), BALANCE_WORD_WELL, now + MS);
        balance_whose_told(&whose[0], name(2), BALANCE_WORD_WELL, now + MS);
        ours = balance_whose_step(&whose[0], now);
        now += TICK;
    }
    ck_assert(ours);
}
END_TEST

/* Slow to more hosts than there are places for: those that have one say enough. */
START_TEST(many_hosts)
{
    bool ours = false;

    begin(RING, 2, 0);
    for (unsigned i = 0; i <= BALANCE_WHOSE_HOLDS / TICK && !ours; i++) {
        for (unsigned h = 0; h < 3 * BALANCE_WHOSE_HOSTS; h++) {
            balance_whose_slow(&whose[0], name(h), now);
        }
        ours = balance_whose_step(&whose[0], now);
        for (unsigned h = 0; h < 3 * BALANCE_WHOSE_HOSTS; h++) {
            balance_whose_word(&whose[0], name(h), BALANCE_WORD_WELL, now);
        }
        now += TICK;
    }
    ck_assert(ours || balance_whose_step(&whose[0], now));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_slow_nic, 0, 60);
    tcase_add_loop_test(t, a_slow_way, 0, 60);
    tcase_add_loop_test(t, a_slow_rail, 0, 60);
    tcase_add_test(t, a_rail_that_is_found_slow_one_by_one);
    tcase_add_test(t, bursts);
    tcase_add_test(t, short_bursts);
    tcase_add_test(t, silence_is_forgotten_in_silence);
    tcase_add_test(t, what_contradicts);
    tcase_add_test(t, a_step_that_comes_late);
    tcase_add_loop_test(t, the_last_word_counts, 0, 2);
    tcase_add_test(t, no_word_is_no_witness);
    tcase_add_test(t, a_word_is_newer_than_the_turn);
    tcase_add_test(t, many_hosts);
}

int main(void)
{
    return suite_run("balance: whose", 120, NULL, NULL, add);
}
