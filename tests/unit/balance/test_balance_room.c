/* Who makes room for connections that stand in: when it begins and ends, what of a NIC is left for
 * whom, and where senders come out that divide by it. */
#include <check.h>
#include <string.h>

#include "balance/balance_room.h"
#include "tests/unit/suite.h"

#define MB 1000000ull

/* --- S --- */

static bool wants(uint64_t home, uint64_t bound, uint64_t elsewhere, bool is_making)
{
    return balance_room_wants(&(struct balance_room_facts){.some_stand_in = true,
                                                           .home = home * MB,
                                                           .bound = bound * MB,
                                                           .elsewhere = elsewhere * MB,
                                                           .is_making = is_making});
}

START_TEST(by_what_this_host_sends)
{
    ck_assert(
        !wants(100, 0, 0, false)); /* uneven, but nobody stands in: the application's choice */
    ck_assert(wants(125, 25, 75, false));
    ck_assert(wants(160, 10, 0, false));
    ck_assert(!wants(161, 10, 0, false));  /* hardly any */
    ck_assert(!wants(100, 50, 80, false)); /* nowhere to go */
    ck_assert(wants(100, 50, 79, false));
    ck_assert(!wants(100, 50, UINT64_MAX / MB, false)); /* no other NIC pair */
}
END_TEST

START_TEST(goes_on_until_it_is_over)
{
    ck_assert(wants(100, 25, 100, true)); /* room is made: the NICs send alike */
    ck_assert(wants(160, 3, 160, true));
    ck_assert(!wants(160, 2, 100, true));
    ck_assert(!wants(100, 0, 100, true));
}
END_TEST

START_TEST(a_job_that_rests_stays_as_it_was)
{
    ck_assert(wants(0, 0, 0, true));
    ck_assert(!wants(0, 0, 0, false));
    ck_assert(!balance_room_wants(&(struct balance_room_facts){.is_making = true})); /* all back */
    for (int was = 0; was < 2; was++) {
        struct balance_room_facts f = {.some_stand_in = true,
                                       .home = BALANCE_ROOM_LEAST - 1,
                                       .bound = was ? 0 : 60000,
                                       .is_making = was};

        ck_assert_int_eq(balance_room_wants(&f), was);
        f.home++;
        ck_assert_int_eq(balance_room_wants(&f), !was);
    }
}
END_TEST

START_TEST(by_what_the_other_end_says)
{
    static const struct {
        uint32_t first, now;
        bool begins, goes_on;
    } t[] = {{800, 800, 0, 0},     {800, 751, 0, 0}, {800, 750, 0, 1},
             {800, 701, 0, 1},     {800, 700, 1, 1}, {800, 100, 1, 1},
             {800, 900, 0, 0},     {0, 0, 0, 0},     {800, 0, 0, 0}, /* it does not know any more */
             {UINT32_MAX, 1, 1, 1}};

    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        struct balance_room_facts f = {
            .home = 100 * MB, .elsewhere = UINT64_MAX, .first = t[i].first, .now = t[i].now};

        ck_assert_msg(balance_room_wants(&f) == t[i].begins, "%zu begins", i);
        f.is_making = true;
        ck_assert_msg(balance_room_wants(&f) == t[i].goes_on, "%zu goes on", i);
    }
}
END_TEST

/* --- R --- */

static struct balance_in in[4];

static void in_set(int nic, uint32_t mbps, uint64_t all, uint64_t bound)
{
    in[nic] = (struct balance_in){mbps, all * MB, bound * MB, bound * MB};
}

START_TEST(which_are_crowded)
{
    in_set(0, 400, 160, 20);
    in_set(1, 400, 127, 0);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 0), 1);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 1, 0), 0); /* no NIC that could take some */
    in_set(0, 400, 161, 20);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 0), 0); /* hardly any */
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 1), 1); /* it goes on */
    in_set(0, 400, 160, 5);
    in_set(1, 400, 160, 0);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 1), 1);
    in_set(0, 400, 161, 5);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 1), 0);
    in_set(0, 400, 100, 100);
    in_set(1, 200, 41, 0);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 0), 0); /* the other one is slower */
    in_set(1, 200, 39, 0);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 0), 1);
    in_set(1, 0, 0, 0); /* its rate is not known */
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 0), 0);
    in_set(0, 0, 100, 100);
    ck_assert_uint_eq(balance_room_crowded(in, 2, 3, 3), 0);
    in[0] = (struct balance_in){.mbps = 400, .all = BALANCE_ROOM_LEAST - 1}; /* nothing is known */
    ck_assert_uint_eq(balance_room_crowded(in, 1, 1, 1), 1);
}
END_TEST

#define LEVEL(nics, move, want)                                                                    \
    ck_assert_double_eq_tol(balance_room_level(in, nics, (move)*MB), (want) * (double)MB, 1)

START_TEST(filled_to_one_level)
{
    in_set(0, 100, 60, 60);
    in_set(1, 100, 20, 20);
    in_set(2, 200, 0, 0);
    LEVEL(7, 120, 140.0 / 300); /* not 200 over 400: NIC 0 has more than that */
    in_set(0, 100, 50, 50);
    LEVEL(3, 30, 0.5);
    LEVEL(1, 30, 0.8);
    LEVEL(3, 10, 0.3); /* NIC 1 alone */
    LEVEL(0, 10, 0);
    LEVEL(3, 0, 0);
    in_set(1, 0, 0, 0);
    LEVEL(3, 50, 1.0);
    LEVEL(2, 50, 0);
}
END_TEST

static uint32_t left[4];

static void left_for(int n, uint32_t nics, uint32_t crowded, uint64_t move, double part,
                     uint64_t own1)
{
    struct balance_room_sender s = {.part = part, .own = {0, own1 * MB}};

    balance_room_left(in, n, nics, crowded, balance_room_level(in, nics, move * MB), &s, left);
}

START_TEST(what_is_left)
{
    /* A neighbour in a tree: D/2 over either NIC, of which NIC 0 has D of a host without NIC 1. */
    in_set(0, 400, 15, 10);
    in_set(1, 400, 5, 0);
    in[1].fixed = 5 * MB;
    left_for(2, 3, 1, 5, 1, 5);
    ck_assert_uint_eq(left[0], 13); /* nothing, but for a 32nd: 10 and 10 */
    ck_assert_uint_eq(left[1], 400);
    in_set(0, 400, 10, 5);
    left_for(2, 3, 1, 5, 1, 5);
    /* 15 in all, 7.5 each: 2.5 over NIC 0; 2.5 and 5 over NIC 1 */
    ck_assert_uint_eq(left[0], 133);
    /* Who has nothing that can move, and who stands in: full rates. */
    left_for(2, 3, 1, 5, 0, 5);
    ck_assert_uint_eq(left[0], 400);
    left_for(2, 3, 0, 0, 0, 0);
    ck_assert_uint_eq(left[0], 400);
    in_set(1, 0, 0, 0);
    left_for(2, 3, 1, 5, 1, 0);
    ck_assert_uint_eq(left[0], 400);
    ck_assert_uint_eq(left[1], 0);
    in_set(0, 1, 10, 10);
    in_set(1, 1, 0, 0);
    left_for(2, 3, 1, 1, 1, 0);
    ck_assert_uint_eq(left[0], 1); /* never unknown */
}
END_TEST

/* NIC 1 has work of its own that cannot move. What can, from NIC 0, is not sent there for it. */
START_TEST(not_into_another_crowd)
{
    in_set(0, 400, 15, 5);
    in_set(1, 400, 10, 0);
    in[1].fixed = 10 * MB;
    left_for(2, 3, 1, 10, 1, 0);
    ck_assert_uint_eq(left[0], 400); /* NIC 0 is the one with most room */
    ck_assert_uint_eq(left[1], 400);
}
END_TEST

START_TEST(what_is_news)
{
    ck_assert(!balance_room_is_news(800, 800, 800));
    ck_assert(!balance_room_is_news(800, 721, 800));
    ck_assert(balance_room_is_news(800, 720, 800));
    ck_assert(balance_room_is_news(600, 680, 800));
    ck_assert(!balance_room_is_news(600, 679, 800));
    ck_assert(balance_room_is_news(799, 800, 800)); /* over: whatever is missing */
    ck_assert(!balance_room_is_news(0, 0, 0));
}
END_TEST

/* Senders over two NICs: each has @home at home on NIC 0, and @other on NIC 1, where it stays. */
struct sender {
    double home, other;
    double over0; /* of home */
};

static double min(double a, double b)
{
    return a < b ? a : b;
}

/* It divides what it has at home on NIC 0 so that both flows get alike of what is left; or not at
 * all, where an eighth is not taken. */
static void divide(struct sender *s)
{
    double c0 = left[0] / 400.0, c1 = left[1] / 400.0;
    double x = min((c0 + c1) / (s->home + s->other), c1 / (s->other > 0 ? s->other : 1e-9));

    s->over0 = left[0] > 350 ? s->home : min(s->home, c0 / x);
}

/* What the NIC carries that carries most, after by before. */
static double settle(double bound, struct sender *s, int n)
{
    double home = 0, other = 0, all0 = bound, all1 = 0, before;

    for (int i = 0; i < n; i++) {
        home += s[i].home;
        other += s[i].other;
    }
    before = bound + home > other ? bound + home : other;
    in[0] = (struct balance_in){400, 0, (uint64_t)(bound * 1e9), (uint64_t)(bound * 1e9)};
    in[1] = (struct balance_in){400, 0, 0, (uint64_t)(other * 1e9)};
    for (int i = 0; i < n; i++) {
        struct balance_room_sender to = {.part = s[i].home / home,
                                         .own = {0, (uint64_t)(s[i].other * 1e9)}};

        balance_room_left(in, 2, 3, 1, balance_room_level(in, 3, (uint64_t)(home * 1e9)), &to,
                          left);
        divide(&s[i]);
        all0 += s[i].over0;
        all1 += s[i].home - s[i].over0 + s[i].other;
    }
    return (all0 > all1 ? all0 : all1) / before;
}

/* Where what they have on NIC 0 is no more than on NIC 1 they come out even at once: what is left
 * does not hang on what they have moved. Otherwise no worse than before. */
START_TEST(senders_come_out_even)
{
    for (int bound = 2; bound <= 10; bound++) {
        struct sender one[] = {{.home = 0.5, .other = 0.5}}, all[] = {{.home = 1, .other = 0}},
                      two[] = {{.home = 0.3, .other = 0.3}, {.home = 0.2, .other = 0.2}},
                      uneven[] = {{.home = 0.3, .other = 0.1}, {.home = 0.2, .other = 0.4}},
                      elsewhere[] = {{.home = 0.5, .other = 0}, {.home = 0.01, .other = 0.5}};
        double b = bound / 10.0;

        ck_assert_double_eq_tol(settle(b, one, 1), (b + 1) / 2 / (b + 0.5), 0.03);
        ck_assert_double_eq_tol(settle(b, two, 2), (b + 1) / 2 / (b + 0.5), 0.03);
        ck_assert_double_le(settle(b, all, 1), 1);
        ck_assert_double_le(settle(b, uneven, 2), 1);
        ck_assert_double_le(settle(b, elsewhere, 2), 1);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, by_what_this_host_sends);
    tcase_add_test(t, goes_on_until_it_is_over);
    tcase_add_test(t, a_job_that_rests_stays_as_it_was);
    tcase_add_test(t, by_what_the_other_end_says);
    tcase_add_test(t, which_are_crowded);
    tcase_add_test(t, filled_to_one_level);
    tcase_add_test(t, what_is_left);
    tcase_add_test(t, not_into_another_crowd);
    tcase_add_test(t, what_is_news);
    tcase_add_test(t, senders_come_out_even);
}

int main(void)
{
    return suite_run("balance_room", 30, NULL, NULL, add);
}
