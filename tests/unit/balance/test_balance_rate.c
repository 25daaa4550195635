/* What a link carries while it has work, and whether it is slow beside others, by hand: tables. */
#include <check.h>
#include <string.h>

#include "balance/balance_slow.h"
#include "tests/support/times.h"
#include "tests/unit/suite.h"

static struct balance_tempo tempo_of(unsigned looks, unsigned busy_of_ten, uint64_t bytes,
                                     uint64_t queued)
{
    struct balance_rate r = {.windows = 0};
    struct balance_tempo t;
    unsigned i = 0;

    for (unsigned n = 0; n < BALANCE_RATE_WINDOWS; i++) {
        n += (unsigned)balance_rate_tick(&r, 10 * MS, 1, bytes, queued, i % 10 < busy_of_ten);
        ck_assert_uint_lt(i, 1000);
    }
    ck_assert_uint_eq(i, looks);
    balance_rate_get(&r, BALANCE_RATE_WINDOWS, &t);
    return t;
}

START_TEST(rate_while_busy)
{
    struct balance_tempo full = tempo_of(48, 10, 1000000, 4000000),
                         half = tempo_of(48, 5, 500000, 4000000);
    struct balance_tempo none = tempo_of(48, 0, 0, 0), unseen = tempo_of(48, 0, 1000, 0);
    struct balance_rate r = {.windows = 0};
    struct balance_tempo t;

    ck_assert_uint_eq(full.rate, 100000000);
    ck_assert_uint_eq(full.busy, 1024);
    ck_assert_uint_eq(full.parts, 48);
    ck_assert_uint_eq(full.wait, 40 * MS);
    ck_assert_uint_ge(full.least, 97000000);
    ck_assert_uint_le(full.most, 104000000);
    ck_assert_uint_gt(half.rate, 90000000); /* the load is half, the link the same */
    ck_assert_uint_lt(half.rate, 110000000);
    ck_assert_uint_lt(half.least, half.rate);
    ck_assert_uint_gt(half.most, half.rate);
    ck_assert_uint_eq(none.rate, 0);
    ck_assert_uint_eq(none.parts, 0);
    ck_assert_uint_gt(unseen.rate,
                      0); /* so little that no look met it: a rate, but nothing that is sure */
    ck_assert_uint_lt(unseen.least, unseen.rate);
    balance_rate_get(&r, 1, &t); /* nothing yet */
    ck_assert_uint_eq(t.rate, 0);
    balance_rate_get(&r, 0, &t);
    ck_assert_uint_eq(t.rate, 0);
    while (!balance_rate_tick(&r, UINT64_MAX / 64, UINT32_MAX / 64, UINT64_MAX / 64,
                              UINT64_MAX / 64, 1)) { /* nonsense is no trap */
    }
    balance_rate_get(&r, 1, &t);
    ck_assert_uint_gt(t.rate, 0);
    balance_rate_get(&r, 2, &t);
    ck_assert_uint_eq(t.rate, 0);
}
END_TEST

/* What four windows of the same facts come to, from a pair that nothing was known of. */
static struct balance_slow after(struct balance_slow_facts f, int windows)
{
    struct balance_slow s = {.state = BALANCE_SLOW_NO};

    f.all = f.own;
    for (int i = 0; i < windows; i++) {
        balance_slow_window(&s, &f);
    }
    return s;
}

#define TEMPO(rate_, wait_, busy_)                                                                 \
    {                                                                                              \
        .rate = (rate_), .least = (rate_) / 10 * 9, .most = (rate_) / 10 * 11, .wait = (wait_),    \
        .parts = 20, .busy = (busy_)                                                               \
    }

static struct balance_tempo tempo(uint64_t rate, uint64_t wait, uint32_t busy)
{
    return (struct balance_tempo)TEMPO(rate, wait, busy);
}

enum { M = 1000000 };
#define FAST                                                                                       \
    {                                                                                              \
        TEMPO(100 * M, 10 * MS, 300), 400000                                                       \
    }
#define BUSY                                                                                       \
    {                                                                                              \
        TEMPO(21 * M, 50 * MS, 1024), 400000                                                       \
    }
#define FASTER                                                                                     \
    {                                                                                              \
        TEMPO(100 * M, 10 * MS, 300), 1600000                                                      \
    }
#define RESTS                                                                                      \
    {                                                                                              \
        .mbps = 400000                                                                             \
    }

static const struct {
    const char *what;
    struct balance_slow_peer peer[3];
    struct balance_tempo own;
    uint64_t here, there;
    int known, windows;
    enum balance_slow_state state;
    unsigned part; /* of a hundred */
} verdict_cases[] = {
    {"a fifth",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     4,
     BALANCE_SLOW_YES,
     20},
    {"not yet",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     3,
     BALANCE_SLOW_SUSPECT,
     0},
    {"too early for a suspicion",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     0,
     0,
     1,
     1,
     BALANCE_SLOW_NO,
     0},
    {"the peer does not answer",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     0,
     0,
     0,
     6,
     BALANCE_SLOW_SUSPECT,
     0},
    {"... for long",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     0,
     0,
     0,
     19,
     BALANCE_SLOW_NO,
     0},
    {"our NIC is busy for others",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     90 * M,
     40 * M,
     1,
     4,
     BALANCE_SLOW_NO,
     0},
    {"theirs is",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     90 * M,
     1,
     4,
     BALANCE_SLOW_NO,
     0},
    {"all alike",
     {BUSY, BUSY, BUSY},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"half of them",
     {FAST, FAST, BUSY},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     4,
     BALANCE_SLOW_YES,
     20},
    {"more than half",
     {FAST, BUSY, BUSY},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"the others rest",
     {RESTS, RESTS, RESTS},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"one other is enough",
     {FAST, RESTS, RESTS},
     TEMPO(20 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     4,
     BALANCE_SLOW_YES,
     20},
    {"small messages",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 15 * MS, 1024),
     40 * M,
     40 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"two thirds",
     {FAST, FAST, FAST},
     TEMPO(66 * M, 50 * MS, 1024),
     40 * M,
     40 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"hardly anything to do",
     {FAST, FAST, FAST},
     TEMPO(20 * M, 50 * MS, 200),
     40 * M,
     40 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"by the ports' rates",
     {FASTER, FASTER, FASTER},
     TEMPO(20 * M, 50 * MS, 1024),
     10 * M,
     10 * M,
     1,
     8,
     BALANCE_SLOW_NO,
     0},
    {"hardly moves",
     {FAST, FAST, FAST},
     TEMPO(1000, 50 * MS, 1024),
     2000,
     2000,
     1,
     4,
     BALANCE_SLOW_YES,
     3},
};

START_TEST(verdicts)
{
    for (size_t i = 0; i < sizeof(verdict_cases) / sizeof(verdict_cases[0]); i++) {
        struct balance_slow_facts f = {.own = verdict_cases[i].own,
                                       .mbps = 400000,
                                       .peer = verdict_cases[i].peer,
                                       .peers = 3,
                                       .moved_known = verdict_cases[i].known,
                                       .moved_here = verdict_cases[i].here,
                                       .moved_there = verdict_cases[i].there,
                                       .percent = 60};
        struct balance_slow s = after(f, verdict_cases[i].windows);

        ck_assert_msg(s.state == verdict_cases[i].state &&
                          s.part * 100 / BALANCE_SLOW_ONE ==
                              (verdict_cases[i].part
                                   ? verdict_cases[i].part - (verdict_cases[i].part == 20)
                                   : 0),
                      "%s: %s, part %u", verdict_cases[i].what, balance_slow_name(s.state), s.part);
    }
    ck_assert_str_eq(balance_slow_name(BALANCE_SLOW_STATES), "?");
}
END_TEST

/* A suspicion that nobody could confirm is not put again at once; a pair that was slow is trusted
 * later each time. */
START_TEST(rests_and_holds)
{
    struct balance_slow_peer fast = {tempo(100000000, 10 * MS, 1024), 400000};
    struct balance_slow_facts f = {
        .mbps = 400000, .peer = &fast, .peers = 1, .moved_known = 1, .percent = 60};
    struct balance_slow s = {.state = BALANCE_SLOW_NO};
    unsigned last = 0;

    for (int round = 0; round < 12; round++) {
        unsigned windows = 0;

        f.own = f.all = tempo(20000000, 50 * MS, 1024);
        while (s.state != BALANCE_SLOW_YES) {
            balance_slow_window(&s, &f);
            ck_assert_uint_lt(++windows, 20);
        }
        f.own = f.all = tempo(98000000, 10 * MS, 1024);
        for (windows = 0; s.state == BALANCE_SLOW_YES; windows++) {
            balance_slow_window(&s, &f);
            ck_assert_uint_lt(windows, 300);
        }
        ck_assert_uint_eq(s.part, 0);
        ck_assert_uint_ge(windows, last);
        last = windows;
    }
    ck_assert_uint_eq(last, 256);
    for (int i = 0; i < 600; i++) { /* a minute of trust */
        balance_slow_window(&s, &f);
    }
    ck_assert_uint_eq(s.hold, 2);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, rate_while_busy);
    tcase_add_test(t, verdicts);
    tcase_add_test(t, rests_and_holds);
}

int main(void)
{
    return suite_run("balance_rate", 30, NULL, NULL, add);
}
