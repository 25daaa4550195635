/* Ways of two ports, pure (ib_way, probe_way). */
#include <check.h>
#include <string.h>

#include "plugin/probe/probe_way.h"
#include "tests/support/times.h"
#include "tests/unit/suite.h"

/* Ways of two ports: labels, the ports that drivers make of them, and which one is taken. */
START_TEST(labels_of_ways)
{
    uint8_t a[16] = {0xfe, 0x80, [15] = 1}, b[16] = {0xfe, 0x80, [15] = 2};

    ck_assert_uint_eq(ib_way_label(NULL, 0, a, b), 0);
    ck_assert_uint_eq(ib_way_label(NULL, IB_WAYS_MAX + 1, a, b), 0);
    ck_assert_uint_eq(ib_way_udp_port(0), 0);
    for (int i = 0; i < 256; i++) {
        uint32_t low = ib_way_label(NULL, 1, a, b);

        b[14] = (uint8_t)i;
        low = ib_way_label(NULL, 1, a, b);
        for (unsigned way = 1; way <= IB_WAYS_MAX; way++) {
            uint32_t label = ib_way_label(NULL, way, a, b);

            ck_assert_uint_eq(label, ib_way_label(NULL, way, b, a));
            ck_assert_uint_eq(label ^ low, way - 1);
            ck_assert(label > 0 && label <= 0x3fff);
            ck_assert_uint_eq(ib_way_udp_port(label), 0xc000 | label);
        }
    }
    ck_assert_uint_eq(ib_way_udp_port(0x4001), 0xc000); /* rdma_flow_label_to_udp_sport() */
    ck_assert_uint_eq(ib_way_udp_port(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
}
END_TEST

START_TEST(choice_of_ways)
{
    struct probe_ways w = {0};

    ck_assert_uint_eq(probe_ways_pick(&w, 0, 5, NULL, S), 0);
    ck_assert_uint_eq(probe_ways_pick(&w, 1, 5, NULL, S), 0);
    for (unsigned first = 0; first < 40; first++) {
        ck_assert_uint_eq(probe_ways_pick(&w, 8, first, NULL, S), first % 8 + 1);
    }
    probe_ways_lost(&w, 0, S); /* no way */
    probe_ways_lost(&w, IB_WAYS_MAX + 1, S);
    probe_ways_lost(&w, 3, 100 * S);
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 2, NULL, 100 * S), 4);
    ck_assert(probe_ways_avoids(&w, 3, 109 * S));
    ck_assert(!probe_ways_avoids(&w, 3, 110 * S));
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 2, NULL, 110 * S), 3);
    for (int i = 0; i < 10; i++) { /* of many connections, at once: one loss */
        probe_ways_lost(&w, 3, 111 * S + (uint64_t)i * MS);
    }
    ck_assert(probe_ways_avoids(&w, 3, 130 * S));
    ck_assert(!probe_ways_avoids(&w, 3, 132 * S));
    for (uint64_t at = 132 * S; at < 3600 * S; at += 40 * S) {
        probe_ways_lost(&w, 3, at);
    }
    ck_assert(probe_ways_avoids(&w, 3, 3600 * S + 40 * S));
    ck_assert(!probe_ways_avoids(&w, 3, 3600 * S + PROBE_WAY_AVOID_MAX_NS));
    for (unsigned way = 1; way <= 8; way++) { /* all of them: the one that is over first */
        probe_ways_lost(&w, way, 5000 * S + (way == 6 ? 0 : way * MS));
    }
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 2, NULL, 5001 * S), 6);
}
END_TEST

START_TEST(choice_of_the_way_that_fewest_take)
{
    struct probe_ways w = {0};
    uint16_t used[IB_WAYS_MAX] = {0};

    for (unsigned i = 0; i < 24; i++) { /* whoever comes, they differ by one at most */
        unsigned way = probe_ways_pick(&w, 8, i * 5, used, S);

        ck_assert_uint_eq(used[way - 1], i / 8);
        used[way - 1]++;
    }
    used[6] = used[2] = 1;
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 3, used, S), 7); /* of two the first from 4 on */
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 7, used, S), 3);
    probe_ways_lost(&w, 3, S); /* rather with others than where packets are lost */
    probe_ways_lost(&w, 7, S);
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 3, used, 2 * S), 4);
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 3, used, 12 * S), 7);
    for (unsigned way = 1; way <= 8; way++) {
        probe_ways_lost(&w, way, 20 * S + way * MS);
    }
    used[0] = 9; /* all are avoided: the one that is over first, however many take it */
    ck_assert_uint_eq(probe_ways_pick(&w, 8, 3, used, 21 * S), 1);
}
END_TEST

/* One silence is lost packets, or may be; one on a queue pair made because of that is the way. */
START_TEST(silence_of_ways)
{
    struct probe_ways w = {0};

    ck_assert(!probe_ways_on_silent(&w, 0, false, S));
    ck_assert(!probe_ways_on_silent(&w, IB_WAYS_MAX + 1, false, S));
    ck_assert(!probe_ways_is_silent(&w, 0) && !probe_ways_is_silent(&w, IB_WAYS_MAX + 1));
    ck_assert(!probe_ways_on_silent(&w, 3, false, 100 * S)); /* nothing was lost there before */
    ck_assert(probe_ways_avoids(&w, 3, 101 * S));
    ck_assert(!probe_ways_on_silent(&w, 3, true, 101 * S)); /* it has answered in between */
    ck_assert(!probe_ways_is_silent(&w, 3));
    ck_assert(probe_ways_on_silent(&w, 3, false, 102 * S));
    ck_assert(!probe_ways_on_silent(&w, 3, false, 103 * S)); /* known */
    ck_assert(probe_ways_is_silent(&w, 3) && !probe_ways_is_silent(&w, 4));
    probe_ways_on_answer(&w, 3);
    ck_assert(!probe_ways_is_silent(&w, 3));
    ck_assert(probe_ways_on_silent(&w, 3, false, 104 * S));
    probe_ways_lost(&w, 3, 3600 * S); /* long after: not known any more */
    ck_assert(!probe_ways_is_silent(&w, 3));
    probe_ways_lost(&w, 5, 3600 * S); /* a tail, and then the probe */
    ck_assert(probe_ways_on_silent(&w, 5, false, 3601 * S));
    ck_assert(!probe_ways_on_silent(&w, 6, false, 3601 * S));
    ck_assert(!probe_ways_on_silent(&w, 6, false, 3700 * S)); /* avoided no more: the first again */
}
END_TEST

/* What others have found of a way counts, unless it has answered here since; a path that moves is
 * on another one. */
START_TEST(ways_that_others_have_lost)
{
    struct probe_ways w = {0};

    ck_assert(!probe_ways_on_notified(&w, 0, 99 * S, 0, 100 * S));
    ck_assert(!probe_ways_on_notified(&w, IB_WAYS_MAX + 1, 99 * S, 0, 100 * S));
    ck_assert(!probe_ways_on_notified(&w, 3, 99 * S, 99 * S + 1, 100 * S)); /* it answers here */
    ck_assert(!probe_ways_avoids(&w, 3, 100 * S) && !probe_ways_is_silent(&w, 3));
    ck_assert(probe_ways_on_notified(&w, 3, 99 * S, 99 * S, 100 * S));
    ck_assert(probe_ways_is_silent(&w, 3) && probe_ways_avoids(&w, 3, 109 * S));
    ck_assert(!probe_ways_avoids(&w, 3, 110 * S));
    ck_assert(!probe_ways_on_notified(&w, 3, 99 * S, 0, 101 * S)); /* known */
    ck_assert(!probe_ways_on_silent(&w, 3, false, 102 * S));       /* found here, too: not new */
    probe_ways_on_answer(&w, 3);
    ck_assert(probe_ways_on_notified(&w, 3, 120 * S, 0, 121 * S));
    ck_assert(probe_ways_on_silent(&w, 5, false, 130 * S) == false);
    ck_assert(probe_ways_on_silent(&w, 5, false, 131 * S));
    ck_assert(
        !probe_ways_on_notified(&w, 5, 131 * S, 0, 132 * S)); /* it has found that out itself */
    ck_assert(probe_way_is_left(0, 0, 0));
    ck_assert(probe_way_is_left(S, S + 30 * MS, 30 * MS));
    ck_assert(!probe_way_is_left(S, S + 31 * MS, 30 * MS));
}
END_TEST

/* Both ends come to the same ways, whoever hears of whom first. */
START_TEST(wishes_for_ways)
{
    for (unsigned i = 0; i < 4096; i++) {
        struct probe_way_wish a = {(uint16_t)(65530 + i % 12), {1 + i % 2, 5}},
                              b = {(uint16_t)(65530 + i / 12 % 12), {2 + i % 3, 6}};
        bool a_first = i & 1;
        bool a_yields = probe_way_yields(&a, &b, a_first),
             b_yields = probe_way_yields(&b, &a, !a_first);

        ck_assert_int_eq(a_yields, !b_yields);
        if (a.turn != b.turn) { /* the later choice, also where the number wraps */
            ck_assert_int_eq(a_yields, (uint16_t)(b.turn - a.turn) < 32768);
        } else {
            ck_assert_int_eq(a_yields, !a_first);
        }
        b.way[0] = i & 2 ? 0 : IB_WAYS_MAX + 1; /* no choice; a number that no peer sends */
        ck_assert(!probe_way_yields(&a, &b, a_first) && !probe_way_yields(&b, &a, !a_first));
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, labels_of_ways);
    tcase_add_test(t, choice_of_ways);
    tcase_add_test(t, choice_of_the_way_that_fewest_take);
    tcase_add_test(t, silence_of_ways);
    tcase_add_test(t, ways_that_others_have_lost);
    tcase_add_test(t, wishes_for_ways);
}

int main(void)
{
    return suite_run("probe: ways", 60, NULL, NULL, add);
}
