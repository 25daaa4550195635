/* Gossip: the rules of the table, one by one. */
#include "tests/unit/gossip_rig.h"

static struct probe_gossip table;

static int put(uint64_t subject, uint64_t version, uint64_t origin, int blame, int from)
{
    struct probe_report w = word(subject, version, origin, blame);

    return probe_gossip_put(&table, &w, from);
}

static const struct probe_report *held(uint64_t subject)
{
    struct probe_report w = word(subject, 0, 0, 0);

    return probe_gossip_find(&table, &w.subject);
}

static void told(int neighbour, uint64_t subject, uint64_t version, uint64_t origin)
{
    struct probe_report w = word(subject, 0, 0, 0);

    probe_gossip_sent(&table, neighbour, &w.subject, version, origin);
}

static unsigned unsent(int neighbour)
{
    unsigned k = 0;

    for (int i = 0; probe_gossip_unsent(&table, neighbour, &i); k++) {
    }
    return k;
}

static void join(int neighbour)
{
    probe_gossip_join(&table, neighbour);
}

/* --- rules --- */

START_TEST(the_later_word_wins)
{
    static const struct {
        uint64_t version, origin;
        int taken;
        unsigned known, stale;
    } row[] = {
        {7, 50, 0, 1, 0},         {7, 51, 1, 0, 0},         {7, 49, 0, 0, 1}, {8, 50, 1, 0, 0},
        {8, 1, 1, 0, 0},          {6, 50, 0, 0, 1},         {6, 99, 0, 0, 1}, {1, 0, 0, 0, 1},
        {7, UINT64_MAX, 1, 0, 0}, {1ull << 32, 0, 1, 0, 0},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        probe_gossip_init(&table);
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
        {1, 0, 1, 0}, {2, 0, 1, 0}, {1, 0, 2, 0}, {1, 2, 1, 0},
        {1, 2, 1, 1}, {1, 2, 1, 2}, {1, 3, 1, 1},
    };
    struct probe_report w = word(0, 1, 1, BAD);

    probe_gossip_init(&table);
    for (unsigned i = 0; i < sizeof(s) / sizeof(s[0]); i++) {
        w.subject = s[i];
        ck_assert_ptr_null(probe_gossip_find(&table, &s[i]));
        ck_assert_int_eq(probe_gossip_put(&table, &w, -1), 1);
        ck_assert_ptr_eq(probe_gossip_find(&table, &s[i]), probe_gossip_at(&table, (int)i));
    }
    ck_assert_ptr_null(probe_gossip_at(&table, -1));
    ck_assert_ptr_null(probe_gossip_at(&table, (int)(sizeof(s) / sizeof(s[0]))));
    ck_assert_ptr_null(probe_gossip_at(&table, PROBE_GOSSIP_MAX));
}
END_TEST

/* Who has not confirmed what. Numbers at every edge of the masks. */
START_TEST(neighbours_are_told_until_they_confirm)
{
    static const int nb[] = {0, 1, 63, 64, 127, 128, 192, PROBE_GOSSIP_NEIGHBOURS - 1};
    enum { N = sizeof(nb) / sizeof(nb[0]) };

    for (unsigned who = 0; who < N; who++) {
        probe_gossip_init(&table);
        for (unsigned i = 0; i < N; i++) {
            join(nb[i]);
        }
        put(1, 5, 9, BAD, nb[who]);
        for (unsigned i = 0; i < N; i++) {
            ck_assert_uint_eq(unsent(nb[i]), i != who);
        }
        ck_assert_uint_eq(unsent(2), 0); /* nobody */
        for (unsigned i = 0; i < N; i++) {
            if (i == who) {
                continue;
            }
            told(nb[i], 2, 5, 9); /* another subject, older words */
            told(nb[i], 1, 4, 9);
            told(nb[i], 1, 5, 8);
            ck_assert_uint_eq(unsent(nb[i]), 1);
            told(nb[i], 1, 5 + (i & 1), 9 + (i >> 1 & 1)); /* it, or a later one */
            ck_assert_uint_eq(unsent(nb[i]), 0);
        }
        put(1, 6, 9, BAD, -1); /* a new one: to all again, also to who said the last */
        for (unsigned i = 0; i < N; i++) {
            ck_assert_uint_eq(unsent(nb[i]), 1);
        }
        ck_assert_int_eq(put(1, 6, 9, BAD, nb[who]), 0); /* it knows */
        ck_assert_uint_eq(unsent(nb[who]), 0);
        ck_assert_int_eq(put(1, 5, 9, BAD, nb[who]),
                         0); /* a late copy of what it said before: it knows all the same */
        ck_assert_uint_eq(unsent(nb[who]), 0);
        ck_assert_int_eq(put(1, 5, 9, BAD, nb[(who + 1) % N]), 0); /* older: it is told ours */
        ck_assert_uint_eq(unsent(nb[(who + 1) % N]), 1);
    }
}
END_TEST

START_TEST(who_comes_is_told_all_and_who_goes_nothing)
{
    int i = 0;

    probe_gossip_init(&table);
    put(1, 1, 1, BAD, -1);
    put(2, 2, 1, GOOD, -1);
    ck_assert_uint_eq(unsent(70), 0);
    join(70);
    ck_assert_uint_eq(unsent(70), 2); /* it may hold an older, bad word about 2 */
    ck_assert_uint_eq(probe_gossip_unsent(&table, 70, &i)->subject.a, 1);
    ck_assert_int_eq(i, 1);
    ck_assert_uint_eq(probe_gossip_unsent(&table, 70, &i)->subject.a, 2);
    ck_assert_ptr_null(probe_gossip_unsent(&table, 70, &i));
    ck_assert_ptr_null(probe_gossip_unsent(&table, 70, &i));
    told(70, 1, 1, 1);
    i = 0;
    ck_assert_uint_eq(probe_gossip_unsent(&table, 70, &i)->subject.a, 2);
    ck_assert_int_eq(i, 2);
    i = -1;
    ck_assert_ptr_null(probe_gossip_unsent(&table, 70, &i));
    probe_gossip_leave(&table, 70);
    ck_assert_uint_eq(unsent(70), 0);
    put(3, 3, 1, BAD, -1);
    ck_assert_uint_eq(unsent(70), 0);
    join(70);
    ck_assert_uint_eq(unsent(70), 3); /* somebody else by that number: nothing is remembered */
    join(71);
    join(71); /* said twice */
    probe_gossip_leave(&table, 70);
    ck_assert_uint_eq(unsent(71), 3);
    for (int k = 0; k < 3; k++) { /* numbers that are none */
        static const int none[] = {-1, PROBE_GOSSIP_NEIGHBOURS, 1 << 20};

        join(none[k]);
        told(none[k], 1, 1, 1);
        ck_assert_uint_eq(unsent(none[k]), 0);
        ck_assert_int_eq(put(4 + (uint64_t)k, 4 + (uint64_t)k, 1, BAD, none[k]), 1);
        probe_gossip_leave(&table, none[k]);
    }
    ck_assert_uint_eq(unsent(71), 6);
}
END_TEST

static uint64_t next(void)
{
    struct probe_report w = word(999, 0, 3, BAD);

    probe_gossip_next_version(&table, &w);
    return w.version;
}

START_TEST(a_new_word_is_later_than_all_that_were_met)
{
    probe_gossip_init(&table);
    ck_assert_uint_eq(next(), 1);
    put(1, 10, 1, BAD, -1);
    ck_assert_uint_eq(next(), 11); /* of whatever subject */
    put(2, 5, 1, BAD, -1);
    ck_assert_uint_eq(next(), 11);
    ck_assert_int_eq(put(1, 12, 1, BAD, -1), 1);
    ck_assert_uint_eq(next(), 13);
    /* so far ahead: not believed, and not counted from; one less is */
    ck_assert_int_eq(put(3, 12 + PROBE_GOSSIP_AHEAD_MAX + 1, 1, BAD, -1), 0);
    ck_assert_int_eq(put(1, 12 + PROBE_GOSSIP_AHEAD_MAX + 1, 1, BAD, -1), 0);
    ck_assert_uint_eq(table.refused, 2);
    ck_assert_ptr_null(held(3));
    ck_assert_uint_eq(next(), 13);
    ck_assert_int_eq(put(3, 12 + PROBE_GOSSIP_AHEAD_MAX, 1, BAD, -1), 1);
    ck_assert_uint_eq(next(), 13 + PROBE_GOSSIP_AHEAD_MAX);
    table.clock = PROBE_GOSSIP_VERSION_MAX - 1;
    ck_assert_uint_eq(next(), PROBE_GOSSIP_VERSION_MAX);
    table.clock = PROBE_GOSSIP_VERSION_MAX;
    ck_assert_uint_eq(next(), PROBE_GOSSIP_VERSION_MAX); /* no further, and not 0 */
}
END_TEST

/* --- a full table --- */

/* Subjects 1000.. with versions 100.. (the i-th is the i-th oldest); @good of them good again. */
static void fill(const int *good, unsigned ngood)
{
    probe_gossip_init(&table);
    join(5);
    for (unsigned k = 0; k < PROBE_GOSSIP_MAX; k++) {
        unsigned i = (k * 37 + 11) % PROBE_GOSSIP_MAX; /* not in the order of their age */
        int blame = BAD;

        for (unsigned g = 0; g < ngood; g++) {
            blame = good[g] == (int)i ? GOOD : blame;
        }
        ck_assert_int_eq(put(1000 + i, 100 + i, 1, blame, -1), 1);
    }
    ck_assert_uint_eq(table.evicted, 0);
    ck_assert_uint_eq(unsent(5), PROBE_GOSSIP_MAX);
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
        ck_assert_uint_eq(unsent(5), PROBE_GOSSIP_MAX - i - 1); /* 5 has said it */
        ck_assert_uint_eq(table.count, PROBE_GOSSIP_MAX);
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
    const struct probe_report ok = word(1, 1, 1, BAD);
    struct probe_report w;

#define SAYS(want, change)                                                                         \
    do {                                                                                           \
        w = ok;                                                                                    \
        change;                                                                                    \
        ck_assert_msg(probe_report_is_valid(&w) == (want), "%s", #change);                         \
    } while (0)
    SAYS(1, (void)0);
    SAYS(0, w.version = 0);
    SAYS(1, w.version = PROBE_GOSSIP_VERSION_MAX);
    SAYS(0, w.version = PROBE_GOSSIP_VERSION_MAX + 1);
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
    SAYS(0, w.subject.pa = PROBE_GOSSIP_PROCESS);
    SAYS(0, w.subject.b = 2; w.subject.pb = PROBE_GOSSIP_PROCESS);
    SAYS(1, w.subject.pa = w.subject.pb = PROBE_GOSSIP_PROCESS);
    SAYS(1, w.subject.pa = w.subject.pb = PROBE_GOSSIP_PROCESS; w.subject.a = 9; w.subject.b = 8);
#undef SAYS
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_later_word_wins);
    tcase_add_test(t, subjects_are_told_apart_by_every_field);
    tcase_add_test(t, neighbours_are_told_until_they_confirm);
    tcase_add_test(t, who_comes_is_told_all_and_who_goes_nothing);
    tcase_add_test(t, a_new_word_is_later_than_all_that_were_met);
    tcase_add_test(t, a_full_table_drops_good_before_bad_and_old_before_new);
    tcase_add_test(t, what_would_be_dropped_itself_is_not_taken);
    tcase_add_test(t, what_was_dropped_does_not_come_back);
    tcase_add_test(t, words_that_make_no_sense);
}

int main(void)
{
    return suite_run("probe: gossip", 60, NULL, NULL, add);
}
