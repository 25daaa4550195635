/*
 * Whether the way to a host is slow: a process that sends to several hosts, looked at as the
 * service thread looks; what it says of a slow way, host or source, of incast, of a receiver or
 * sender that is late, of noise.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "plugin/probe/probe_slow.c"
#include "tests/unit/suite.h"

#define HOSTS   8
#define LOOK_NS 7500000ull
#define LOOKS   266
#define LINK    1000000000.0 /* bytes/s of each link */
#define BEST    2000000000ull

/* What is sent to one host in each period. */
struct way {
    double bytes; /* per message */
    double late;  /* ns that every message takes besides its turn on the wire */
    double rate;  /* bytes/s; 0: LINK */
    int deep;     /* messages that are out at a time */
};

static struct probe_slow core[HOSTS];
static struct way way[HOSTS];
static int hosts;
static double period;   /* ns from one operation to the next, at least */
static double jitter;   /* 0.2: each time by up to a fifth more or less */
static double compute;  /* ns of each period in which nothing is sent */
static uint64_t theirs; /* what other processes move over the NIC at the far end, bytes/s */
static int answers;     /* the far end answers what its NIC moves */
static uint64_t seed;
static int windows, said_at, over_at, said_of;
static unsigned said, over;

static double draw(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 33) / 2147483648.0;
}

static double noisy(double x)
{
    return x * (1 - jitter + 2 * jitter * draw());
}

static void begin(void)
{
    seed = 1;
    memset(core, 0, sizeof(core));
    memset(way, 0, sizeof(way));
    hosts = HOSTS;
    for (int i = 0; i < HOSTS; i++) {
        way[i] = (struct way){.bytes = 1 << 20, .late = 20000, .deep = 4};
    }
    period = 10e6;
    jitter = compute = 0;
    theirs = 0;
    answers = 1;
    windows = 0;
    said_at = over_at = said_of = -1;
    said = over = 0;
}

/* How long one message is on the wire, and how long the messages of an operation keep it. */
static double message_ns(const struct way *w)
{
    double rate = w->rate > 0 ? w->rate : LINK;

    return noisy(w->bytes * 1e9 / rate * w->deep + w->late);
}

/*
 * One window: all operations begin together and the next one when the slowest is done, as a
 * collective does. Of each way the looks are drawn: one falls into the time in which something is
 * on the wire with the probability of its share.
 */
static void window(void)
{
    struct probe_slow_looks l[HOSTS];
    double busy[HOSTS], longest = 0, ops;
    struct probe_slow_row row[HOSTS];
    int n = 0, of[HOSTS];

    for (int i = 0; i < hosts; i++) {
        busy[i] = message_ns(&way[i]);
        longest = busy[i] > longest ? busy[i] : longest;
    }
    longest = longest > period ? longest : period;
    longest += compute;
    ops = LOOKS * (double)LOOK_NS / longest;
    for (int i = 0; i < hosts; i++) {
        memset(&l[i], 0, sizeof(l[i]));
        for (int k = 0; k < LOOKS; k++) {
            if (draw() < busy[i] / longest && way[i].bytes > 0) {
                l[i].busy++;
                l[i].queued += way[i].bytes * way[i].deep * (0.5 + 0.5 * draw());
            }
        }
        l[i].parts = (uint32_t)(ops * way[i].deep);
        l[i].bytes = (uint64_t)(way[i].bytes * way[i].deep * ops);
        probe_slow_window(&core[i], &l[i], LOOKS, LOOKS * LOOK_NS);
        if (core[i].last.known) {
            of[n] = i;
            row[n++] = (struct probe_slow_row){(uint64_t)i, core[i].last.slow, core[i].last.most};
        }
    }
    for (int i = 0; i < hosts; i++) {
        uint64_t ns = LOOKS * LOOK_NS,
                 moved = l[i].bytes + (uint64_t)((double)theirs * (double)ns / 1e9);
        bool alone = false;
        enum probe_slow_change c;

        for (int k = 0; k < n; k++) {
            alone |= of[k] == i && probe_slow_is_alone(row, n, k);
        }
        c = probe_slow_decide(&core[i], alone,
                              answers ? probe_slow_load(moved, ns, BEST) : PROBE_SLOW_LOAD_UNKNOWN);
        if (c == PROBE_SLOW_SAY) {
            said++;
            said_of = i;
            said_at = windows;
        } else if (c == PROBE_SLOW_OVER) {
            over++;
            over_at = windows;
        }
    }
    windows++;
}

static void pass(int n)
{
    for (int i = 0; i < n; i++) {
        window();
    }
}

static void says_nothing(void)
{
    ck_assert_msg(said == 0 && over == 0, "said %u times, of host %d in window %d", said, said_of,
                  said_at);
}

/* --- what is slow --- */

static const struct {
    const char *what;
    double late, rate;
    int deep;
} slow[] = {
    {"late by 50 ms", 50e6, 0, 4},
    {"a hundredth of its rate", 20000, LINK / 100, 4},
    {"late, one message at a time", 50e6, 0, 1},
};

START_TEST(a_slow_way_is_said_once_and_when_it_is_over)
{
    jitter = 0.2;
    way[5].deep = slow[_i].deep;
    pass(20);
    says_nothing();
    way[5].late = slow[_i].late;
    way[5].rate = slow[_i].rate;
    pass(50);
    ck_assert_msg(said == 1 && said_of == 5, "%s: said %u times, of %d", slow[_i].what, said,
                  said_of);
    ck_assert_int_eq(said_at, 20 + PROBE_SLOW_ROW);
    ck_assert_uint_eq(over, 0);
    way[5].late = 20000;
    way[5].rate = 0;
    pass(50);
    ck_assert_uint_eq(said, 1);
    ck_assert_uint_eq(over, 1);
    ck_assert_int_eq(over_at, 70 + PROBE_SLOW_ROW - 1);
    ck_assert_int_eq(core[5].state, PROBE_SLOW_USUAL);
}
END_TEST

/* --- what is not --- */

START_TEST(jitter_says_nothing)
{
    static const double computes[] = {0, 5e6, 100e6};

    jitter = 0.2;
    compute = computes[_i];
    pass(1000);
    says_nothing();
}
END_TEST

/* A host that is further away than the others is so from the beginning. */
START_TEST(far_is_not_slow)
{
    way[3].late = 30e6;
    pass(300);
    says_nothing();
}
END_TEST

/* Seen from a source that is slow, everybody is. */
START_TEST(a_slow_source_blames_nobody)
{
    pass(20);
    for (int i = 0; i < HOSTS; i++) {
        way[i].late = 50e6;
    }
    pass(300);
    says_nothing();
}
END_TEST

START_TEST(two_hosts_blame_nobody)
{
    pass(20);
    way[2].late = way[6].late = 50e6;
    pass(300);
    says_nothing();
}
END_TEST

/* In a ring there is one destination, and in small jobs too few to say what is usual now. */
START_TEST(few_hosts_blame_nobody)
{
    hosts = _i + 1;
    pass(20);
    way[0].late = 50e6;
    pass(300);
    says_nothing();
}
END_TEST

START_TEST(enough_hosts_to_compare_with)
{
    hosts = PROBE_SLOW_OTHERS + 1;
    pass(20);
    way[0].late = 50e6;
    pass(20);
    ck_assert_uint_eq(said, 1);
}
END_TEST

/* All send to one: its NIC is full, and what waits there waits for the others. */
START_TEST(incast_says_nothing)
{
    int suspected = 0;

    pass(20);
    way[5].late = 50e6;
    theirs = (uint64_t)LINK * 9 / 10;
    for (int i = 0; i < 1000; i++) {
        window();
        suspected += core[5].state == PROBE_SLOW_SUSPECT;
    }
    says_nothing();
    ck_assert_int_gt(suspected, PROBE_SLOW_TRIES);
    ck_assert_int_le(suspected, 1000 / (PROBE_SLOW_REST + PROBE_SLOW_TRIES) * PROBE_SLOW_TRIES +
                                    PROBE_SLOW_TRIES);
}
END_TEST

START_TEST(a_far_end_that_does_not_answer_is_not_blamed)
{
    pass(20);
    way[5].late = 50e6;
    answers = 0;
    pass(300);
    says_nothing();
}
END_TEST

/* A rank that comes late, or whose receives do: the wire is empty meanwhile. */
START_TEST(a_late_rank_says_nothing)
{
    pass(20);
    compute = 200e6;
    pass(300);
    says_nothing();
}
END_TEST

/* A receiver that takes longer for each message holds the job up; nothing is on the wire. */
START_TEST(back_pressure_says_nothing)
{
    pass(20);
    period = 300e6;
    pass(300);
    says_nothing();
}
END_TEST

/* Another phase of the job: more, or larger, messages to one host; or smaller ones. */
START_TEST(other_messages_say_nothing)
{
    static const struct way other[] = {{.bytes = 16 << 20, .late = 20000, .deep = 4},
                                       {.bytes = 1 << 20, .late = 20000, .deep = 64},
                                       {.bytes = 4096, .late = 20000, .deep = 4}};

    pass(20);
    way[5] = other[_i];
    pass(300);
    says_nothing();
}
END_TEST

START_TEST(what_does_not_last_says_nothing)
{
    pass(20);
    for (int i = 0; i < 300; i++) {
        way[5].late = i % 4 < 2 ? 50e6 : 20000;
        window();
    }
    says_nothing();
}
END_TEST

START_TEST(too_few_completions_say_nothing)
{
    pass(20);
    way[5].late = 2e9;
    way[5].deep = 4;
    pass(300);
    says_nothing();
    ck_assert(!core[5].last.known);
}
END_TEST

/* Looks that fell out, a path that was down. */
START_TEST(what_is_not_whole_is_not_judged)
{
    struct probe_slow_looks l = {.busy = 100, .parts = 100, .bytes = 1000000, .queued = 1e6};
    struct probe_slow *s = &core[0];

    pass(20);
    ck_assert_int_eq(s->state, PROBE_SLOW_USUAL);
    probe_slow_window(s, &l, PROBE_SLOW_LOOKS - 1, 2000000000);
    ck_assert(!s->last.known);
    l.busy = LOOKS + 1;
    probe_slow_window(s, &l, LOOKS, 2000000000);
    ck_assert(!s->last.known);
    l.busy = 100;
    probe_slow_window(s, &l, LOOKS, 0);
    ck_assert(!s->last.known);
    probe_slow_window(s, &l, LOOKS, 2000000000);
    ck_assert(s->last.known);
    l.broken = 1;
    probe_slow_window(s, &l, LOOKS, 2000000000);
    ck_assert(!s->last.known);
    ck_assert_int_eq(s->state, PROBE_SLOW_LEARNS);
    ck_assert_int_eq(s->n, 0);
    s->state = PROBE_SLOW_SAID;
    probe_slow_window(s, &l, LOOKS, 2000000000);
    ck_assert_int_eq(s->state, PROBE_SLOW_SAID);
}
END_TEST

/* Both figures have to speak for it, and the wire has to be what the time goes to. */
START_TEST(longer_and_slower)
{
    static const struct {
        const char *what;
        struct probe_slow_looks l;
        bool slow;
    } table[] = {
        {"as ever", {.busy = 200, .parts = 400, .bytes = 400000000, .queued = 800e6}, false},
        {"longer and slower",
         {.busy = 260, .parts = 40, .bytes = 40000000, .queued = 1000e6},
         true},
        {"more is out", {.busy = 260, .parts = 400, .bytes = 520000000, .queued = 9000e6}, false},
        {"less is sent", {.busy = 200, .parts = 400, .bytes = 4000000, .queued = 8e6}, false},
        {"most of the time nothing is out",
         {.busy = 100, .parts = 40, .bytes = 10000000, .queued = 400e6},
         false},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct probe_slow s = {0};

        for (int k = 0; k < PROBE_SLOW_LEARN; k++) {
            probe_slow_window(&s, &table[0].l, LOOKS, LOOKS * LOOK_NS);
        }
        ck_assert_int_eq(s.state, PROBE_SLOW_USUAL);
        probe_slow_window(&s, &table[i].l, LOOKS, LOOKS * LOOK_NS);
        ck_assert(s.last.known);
        probe_slow_decide(&s, true, PROBE_SLOW_LOAD_FREE);
        ck_assert_msg((s.state == PROBE_SLOW_SUSPECT) == table[i].slow, "%s: slow %u, most %u",
                      table[i].what, s.last.slow, s.last.most);
    }
}
END_TEST

START_TEST(beside_the_others)
{
    static const struct {
        const char *what;
        int n;
        struct probe_slow_row row[6];
        int alone;
    } table[] = {
        {"one of five",
         5,
         {{1, 2000, 2000}, {2, 1000, 1000}, {3, 1000, 1000}, {4, 1000, 1000}, {5, 1000, 1000}},
         1},
        {"not by enough",
         5,
         {{1, 1500, 1500}, {2, 1000, 1000}, {3, 1000, 1000}, {4, 1000, 1000}, {5, 1000, 1000}},
         0},
        {"another one, by one measure",
         5,
         {{1, 2000, 2000}, {2, 1000, 1600}, {3, 1000, 1000}, {4, 1000, 1000}, {5, 1000, 1000}},
         0},
        {"all are slower",
         5,
         {{1, 2000, 2000}, {2, 1000, 1500}, {3, 1000, 1500}, {4, 1000, 1500}, {5, 1000, 1500}},
         0},
        {"others differ among each other",
         5,
         {{1, 2000, 2000}, {2, 1000, 1000}, {3, 1000, 1200}, {4, 1000, 1400}, {5, 1000, 1700}},
         0},
        {"too wide a spread",
         5,
         {{1, 1900, 1900}, {2, 1000, 1000}, {3, 1000, 1000}, {4, 1000, 1200}, {5, 1000, 1400}},
         0},
        {"processes of one host are one",
         6,
         {{1, 2000, 2000},
          {2, 1000, 1000},
          {2, 1000, 1000},
          {3, 1000, 1000},
          {3, 1000, 1000},
          {3, 1000, 1000}},
         0},
        {"another process of the same host is no other",
         5,
         {{1, 2000, 2000}, {1, 2000, 2000}, {2, 1000, 1000}, {3, 1000, 1000}, {4, 1000, 1000}},
         1},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        ck_assert_msg(probe_slow_is_alone(table[i].row, table[i].n, 0) == (table[i].alone != 0),
                      "%s", table[i].what);
    }
    ck_assert(!probe_slow_is_alone(table[0].row, 5, 5));
    ck_assert(!probe_slow_is_alone(table[0].row, PROBE_SLOW_ROWS + 1, 0));
}
END_TEST

START_TEST(loads)
{
    ck_assert_int_eq(probe_slow_load(1, 0, 1), PROBE_SLOW_LOAD_UNKNOWN);
    ck_assert_int_eq(probe_slow_load(1, 1, 0), PROBE_SLOW_LOAD_UNKNOWN);
    ck_assert_int_eq(probe_slow_load(249, 1000000000, 1000), PROBE_SLOW_LOAD_FREE);
    ck_assert_int_eq(probe_slow_load(250, 1000000000, 1000), PROBE_SLOW_LOAD_FULL);
    ck_assert_int_eq(probe_slow_load(UINT64_MAX, UINT64_MAX, UINT64_MAX), PROBE_SLOW_LOAD_FREE);
    ck_assert_int_eq(probe_slow_load(UINT64_MAX, 1, 1), PROBE_SLOW_LOAD_FULL);
}
END_TEST

START_TEST(moves)
{
    static const char legal[PROBE_SLOW_STATES][PROBE_SLOW_STATES + 1] = {
        /* to learns, usual, suspect, said */
        "-u--", "l-s-", "lu-S", "-u--"};

    for (int from = 0; from < PROBE_SLOW_STATES; from++) {
        for (int to = 0; to < PROBE_SLOW_STATES; to++) {
            struct probe_slow s = {.state = (uint8_t)from, .row = 2, .tries = 2};
            bool may = legal[from][to] != '-';

            ck_assert_int_eq(probe_slow_move(&s, (enum probe_slow_state)to), may);
            ck_assert_int_eq(s.state, may ? to : from);
            ck_assert_int_eq(s.row, may ? 0 : 2);
        }
    }
    ck_assert_str_eq(probe_slow_name(PROBE_SLOW_SAID), "said");
    ck_assert_str_eq(probe_slow_name(PROBE_SLOW_STATES), "?");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_slow_way_is_said_once_and_when_it_is_over, 0, 3);
    tcase_add_loop_test(t, jitter_says_nothing, 0, 3);
    tcase_add_test(t, far_is_not_slow);
    tcase_add_test(t, a_slow_source_blames_nobody);
    tcase_add_test(t, two_hosts_blame_nobody);
    tcase_add_loop_test(t, few_hosts_blame_nobody, 0, PROBE_SLOW_OTHERS);
    tcase_add_test(t, enough_hosts_to_compare_with);
    tcase_add_test(t, incast_says_nothing);
    tcase_add_test(t, a_far_end_that_does_not_answer_is_not_blamed);
    tcase_add_test(t, a_late_rank_says_nothing);
    tcase_add_test(t, back_pressure_says_nothing);
    tcase_add_loop_test(t, other_messages_say_nothing, 0, 3);
    tcase_add_test(t, what_does_not_last_says_nothing);
    tcase_add_test(t, too_few_completions_say_nothing);
    tcase_add_test(t, what_is_not_whole_is_not_judged);
    tcase_add_test(t, longer_and_slower);
    tcase_add_test(t, beside_the_others);
    tcase_add_test(t, loads);
    tcase_add_test(t, moves);
}

int main(void)
{
    return suite_run("probe_slow", 120, begin, NULL, add);
}
