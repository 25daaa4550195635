/* Spines without traffic: ports, hashes, texts of faults and descriptions. */
#include "tests/unit/test_fabric_pair.h"

#include <stdio.h>

START_TEST(label_to_port)
{
    static const struct {
        uint32_t label;
        uint16_t port;
    } row[] = {{1, 0xC001},       {0x3fff, 0xffff}, {0x4000, 0xC001},
               {0xfffff, 0xffc0}, {0x1234, 0xd234}, {1u << 20, 0xC000}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ck_assert_uint_eq(fab_udp_sport(row[i].label, 7, 9), row[i].port);
    }
    ck_assert_uint_eq(fab_udp_sport(0, 0x80, 0x80), 0xC001); /* as label 0x4000 */
    ck_assert_uint_eq(fab_udp_sport(0, 0xabcdef, 0x123456), fab_udp_sport(0, 0x123456, 0xabcdef));
    /* 0xabcdef * 0x123456 = 0xc379a59ba4a: folded by 20 and by 40 bits. */
    ck_assert_uint_eq(fab_udp_sport(0, 0xabcdef, 0x123456),
                      fab_udp_sport(0x9ba4a ^ 0x379a5 ^ 0xc, 1, 1));
}
END_TEST

START_TEST(labels_spread_over_the_spines)
{
    int differ = 0;

    for (int pair = 0; pair < 4; pair++) {
        uint64_t hit = 0;

        for (uint32_t label = 1; label <= 64; label++) {
            struct fab_hdr h = {.src = {.host = (uint16_t)pair},
                                .dst = {.host = 9},
                                .src_qpn = 80,
                                .dst_qpn = 81,
                                .sport = fab_udp_sport(label, 80, 81)};
            struct fab_hdr back = h, other = h;
            int k = fab_spine_home(fab_spine_hash(&h, FAB_HASH_PORTS), 8);

            back.src = h.dst;
            back.dst = h.src;
            back.dst_qpn = 80;
            ck_assert_int_eq(fab_spine_home(fab_spine_hash(&back, FAB_HASH_PORTS), 8), k);
            other.src.host = 8;
            differ += fab_spine_home(fab_spine_hash(&other, FAB_HASH_PORTS), 8) != k;
            hit |= 1u << k;
        }
        ck_assert_uint_eq(hit, 0xff);
    }
    ck_assert_int_gt(differ, 4 * 64 / 2);
}
END_TEST

START_TEST(down_spreads)
{
    uint64_t down = 1ull << 5 | 1ull << 63;
    int hits[64] = {0};

    for (uint64_t i = 0; i < 64 * 400; i++) {
        uint64_t hash = (i + 1) * 0x9e3779b97f4a7c15ull;
        int k = fab_spine_pick(hash, 64, down);

        ck_assert(k >= 0 && k < 64 && !(down >> k & 1));
        ck_assert(fab_spine_home(hash, 64) == k || down >> fab_spine_home(hash, 64) & 1);
        hits[k] += fab_spine_home(hash, 64) != k;
    }
    for (int k = 0; k < 64; k++) {
        ck_assert((hits[k] > 0) == !(down >> k & 1));
    }
    ck_assert_int_eq(fab_spine_pick(3, 2, 2), 0);
    ck_assert_int_eq(fab_spine_pick(3, 2, 3), -1);
}
END_TEST

/* Where rails reach each other the spines of the lower one carry both directions. */
START_TEST(between_rails)
{
    struct fab_hdr h = {.src = {.nic = 2}, .dst = {.host = 1, .nic = 1}},
                   back = {.src = h.dst, .dst = h.src};

    ck_assert_int_eq(fab_hdr_rail(&h), 1);
    ck_assert_int_eq(fab_hdr_rail(&back), 1);
}
END_TEST

START_TEST(fault_texts)
{
    static const struct {
        const char *text;
        int rail, spine;
        enum fab_fault_kind kind;
        uint64_t value;
    } good[] = {
        {"spine 3 down", -1, 3, FAB_FAULT_DOWN, 0},
        {"  rail 1   spine 0 up ", 1, 0, FAB_FAULT_UP, 0},
        {"rail * spine * clear", -1, -1, FAB_FAULT_RESTORE, 0},
        {"rail 15 spine 63 loss 1%", 15, 63, FAB_FAULT_LOSS, 10000},
        {"spine * rate 5MB/s", -1, -1, FAB_FAULT_RATE, 5000000},
        {"spine 7 blackhole", -1, 7, FAB_FAULT_BLACKHOLE, 0},
    };
    static const char *const bad[][2] = {
        {"spine", "want a place"},        {"spine 3", "'spine 3'"},
        {"rail 1 down", "'rail 1 down'"}, {"rail 1 spine", "'rail 1 spine'"},
        {"rail 1 spine 3", "spine 3"},    {"rail 16 spine 1 down", "'16'"},
        {"spine 64 down", "'64'"},        {"spine x down", "'x'"},
        {"spine -1 down", "'-1'"},        {"spine 1 corrupt 1%", "'corrupt'"},
        {"spine 1 loss", "'loss'"},       {"spine 1 loss 101%", "101%"},
        {"spine 1 down now", "'now'"},    {"rail x spine 1 down", "'x'"},
        {"spine 1 dwn", "'dwn'"},         {"spine 1x down", "'1x'"},
    };
    struct pair_cfg c = {.spines = 4};
    struct fab_fault f;
    char err[200];
    struct pair p;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(fab_fault_parse(good[i].text, &f, err, sizeof err) == 0, "%s", err);
        ck_assert_int_eq(f.at, FAB_AT_SPINE);
        ck_assert_int_eq(f.host, -1);
        ck_assert_int_eq(f.nic, good[i].rail);
        ck_assert_int_eq(f.spine, good[i].spine);
        ck_assert_int_eq(f.kind, good[i].kind);
        ck_assert_uint_eq(f.value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(fab_fault_parse(bad[i][0], &f, err, sizeof err) == -1, "taken: %s",
                      bad[i][0]);
        ck_assert_msg(strstr(err, bad[i][1]) != NULL, "'%s' does not name '%s'", err, bad[i][1]);
    }
    pair_open(&p, &c);
    ck_assert_int_eq(fab_inproc_fault(p.f, "spine 4 down", err, sizeof err), -1);
    ck_assert_str_eq(err, "no spine 4: each rail has spines 0 to 3");
    ck_assert_int_eq(fab_inproc_fault(p.f, "rail 2 spine 1 down", err, sizeof err), -1);
    ck_assert_str_eq(err, "no rail 2: the fabric has rails 0 to 1");
    pair_close(&p);
}
END_TEST

START_TEST(description)
{
    static const char *const bad[] = {"spines 0", "spines 65", "spines",
                                      "hash",     "hash flow", "spines 4 5"};
    static struct fab_desc d;
    char text[80], err[200];

    ck_assert_int_eq(fab_desc_parse(&d, "hosts 2\nnics 1\nspines 4\nhash qp\n", err, sizeof err),
                     0);
    ck_assert_int_eq(d.spines, 4);
    ck_assert_int_eq(d.hash, FAB_HASH_QP);
    ck_assert_int_eq(fab_desc_parse(&d, "hosts 2\nnics 1\n", err, sizeof err), 0);
    ck_assert_int_eq(fab_spines(&d), 1);
    ck_assert_int_eq(d.hash, FAB_HASH_PORTS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "hosts 2\nnics 1\n%s\n", bad[i]);
        ck_assert_int_eq(fab_desc_parse(&d, text, err, sizeof err), -1);
        ck_assert_ptr_nonnull(strstr(err, "line 3"));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_spine");
    TCase *t = tcase_create("spine");

    tcase_add_test(t, label_to_port);
    tcase_add_test(t, labels_spread_over_the_spines);
    tcase_add_test(t, down_spreads);
    tcase_add_test(t, between_rails);
    tcase_add_test(t, fault_texts);
    tcase_add_test(t, description);
    suite_add_tcase(s, t);
    return pair_main(s);
}
