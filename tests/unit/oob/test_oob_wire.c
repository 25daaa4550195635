#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oob/oob_ifsel.h"
#include "oob/oob_wire.h"

static const struct r2_siphash_key key = {0x1122334455667788u, 0x99aabbccddeeff00u};

static struct oob_hello some_hello(void)
{
    struct oob_hello h = {.version = OOB_VERSION,
                          .features = 0x80000001u,
                          .kind = OOB_HELLO_DIAL,
                          .secret_of = OOB_SECRET_DIALLER,
                          .code = 0,
                          .from = {1, 0xffffffff00000000u},
                          .to = {3, 4},
                          .lost_id = 0x0123456789abcdefu,
                          .family = 6,
                          .port = 54321,
                          .scope = 7};

    for (int i = 0; i < 16; i++) {
        h.nonce[i] = (uint8_t)(i + 1);
        h.addr[i] = (uint8_t)(0xf0 + i);
    }
    return h;
}

START_TEST(hello_round_trip)
{
    struct oob_hello h = some_hello(), back;
    uint8_t b[OOB_HELLO_SIZE];

    oob_hello_pack(&h, b);
    ck_assert_int_eq(oob_hello_parse(b, sizeof(b), &back), OOB_PARSE_OK);
    ck_assert_uint_eq(back.version, h.version);
    ck_assert_uint_eq(back.features, h.features);
    ck_assert_uint_eq(back.kind, h.kind);
    ck_assert_uint_eq(back.secret_of, h.secret_of);
    ck_assert_mem_eq(back.from, h.from, 16);
    ck_assert_mem_eq(back.to, h.to, 16);
    ck_assert_mem_eq(back.nonce, h.nonce, 16);
    ck_assert_mem_eq(back.addr, h.addr, 16);
    ck_assert_uint_eq(back.lost_id, h.lost_id);
    ck_assert_uint_eq(back.family, 6);
    ck_assert_uint_eq(back.port, 54321);
    ck_assert_uint_eq(back.scope, 7);
    for (size_t n = 0; n < sizeof(b); n++) {
        ck_assert_int_eq(oob_hello_parse(b, n, &back), OOB_PARSE_MORE);
    }
}
END_TEST

START_TEST(hello_refuses)
{
    struct oob_hello h = some_hello(), back;
    uint8_t b[OOB_HELLO_SIZE];

    ck_assert_int_eq(oob_hello_parse((const uint8_t *)"GET / HTTP/1.0", 1, &back), OOB_PARSE_BAD);
    oob_hello_pack(&h, b);
    b[12] = 9; /* kind */
    ck_assert_int_eq(oob_hello_parse(b, sizeof(b), &back), OOB_PARSE_BAD);
    oob_hello_pack(&h, b);
    b[15] = 1; /* reserved */
    ck_assert_int_eq(oob_hello_parse(b, sizeof(b), &back), OOB_PARSE_BAD);
    oob_hello_pack(&h, b);
    b[6]++; /* size */
    ck_assert_int_eq(oob_hello_parse(b, sizeof(b), &back), OOB_PARSE_BAD);
    h.from[0] = h.from[1] = 0;
    oob_hello_pack(&h, b);
    ck_assert_int_eq(oob_hello_parse(b, sizeof(b), &back), OOB_PARSE_BAD);
}
END_TEST

/* Another version is told from its fixed part, whatever follows. */
START_TEST(hello_of_another_version)
{
    struct oob_hello h = some_hello(), back;
    uint8_t b[OOB_HELLO_SIZE];

    h.version = 300;
    oob_hello_pack(&h, b);
    b[6] = 200;
    ck_assert_int_eq(oob_hello_parse(b, OOB_HELLO_FIXED - 1, &back), OOB_PARSE_MORE);
    ck_assert_int_eq(oob_hello_parse(b, OOB_HELLO_FIXED, &back), OOB_PARSE_VERSION);
    ck_assert_uint_eq(back.version, 300);
    ck_assert_mem_eq(back.from, h.from, 16);
}
END_TEST

START_TEST(keys_depend_on_everything)
{
    struct oob_hello h = some_hello();
    uint8_t dial[OOB_HELLO_SIZE], answer[OOB_HELLO_SIZE], secret[16] = {1};
    struct oob_keys k, other;

    oob_hello_pack(&h, dial);
    h.kind = OOB_HELLO_ANSWER;
    oob_hello_pack(&h, answer);
    oob_keys_derive(secret, dial, answer, &k);
    ck_assert_mem_ne(&k.dialler, &k.listener, sizeof(k.dialler)); /* nothing can be reflected */
    ck_assert_uint_ne(k.id, 0);
    for (int i = 0; i < OOB_HELLO_SIZE; i++) {
        dial[i] ^= 1;
        oob_keys_derive(secret, dial, answer, &other);
        ck_assert_mem_ne(&k.dialler, &other.dialler, sizeof(k.dialler));
        dial[i] ^= 1;
        answer[i] ^= 1;
        oob_keys_derive(secret, dial, answer, &other);
        ck_assert_mem_ne(&k.listener, &other.listener, sizeof(k.listener));
        answer[i] ^= 1;
    }
    secret[15] ^= 0x80;
    oob_keys_derive(secret, dial, answer, &other);
    ck_assert_mem_ne(&k, &other, sizeof(k));
}
END_TEST

/* Every proper beginning asks for more, every changed bit is found. */
START_TEST(frame_round_trip_and_tampering)
{
    uint8_t b[128], msg[40];
    struct oob_frame f;
    size_t n;

    for (size_t i = 0; i < sizeof(msg); i++) {
        msg[i] = (uint8_t)(i * 3);
    }
    n = oob_frame_pack(b, OOB_DATA, msg, sizeof(msg), 5, key);
    ck_assert_uint_eq(n, OOB_FRAME_HEAD + 40 + OOB_FRAME_MAC);
    ck_assert_uint_eq(oob_frame_size(b, OOB_FRAME_HEAD), n);
    ck_assert_int_eq(oob_frame_parse(b, n, 100, 5, key, &f), OOB_PARSE_OK);
    ck_assert_int_eq(f.type, OOB_DATA);
    ck_assert_uint_eq(f.len, 40);
    ck_assert_uint_eq(f.total, n);
    ck_assert_mem_eq(f.payload, msg, 40);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(oob_frame_parse(b, i, 100, 5, key, &f), OOB_PARSE_MORE);
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_int_ne(oob_frame_parse(b, n, 100, 5, key, &f), OOB_PARSE_OK);
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ck_assert_int_eq(oob_frame_parse(b, n, 100, 4, key, &f), OOB_PARSE_BAD); /* replayed */
    ck_assert_int_eq(f.why, OOB_BAD_NUMBER);
    ck_assert_int_eq(oob_frame_parse(b, n, 100, 6, key, &f), OOB_PARSE_BAD); /* one is missing */
    ck_assert_int_eq(f.why, OOB_BAD_NUMBER);
    ck_assert_int_eq(oob_frame_parse(b, OOB_FRAME_HEAD, 39, 5, key, &f),
                     OOB_PARSE_BAD); /* too long */
    ck_assert_int_eq(f.why, OOB_BAD_LENGTH);
}
END_TEST

/* Random and half right bytes, in blocks of their exact size so that a sanitizer sees every step
 * too far. */
START_TEST(parsers_take_garbage)
{
    struct oob_hello h = some_hello(), hb;
    struct oob_frame f;
    unsigned seed = 12345, counted[4] = {0};

    for (int i = 0; i < 60000; i++) {
        size_t len = (size_t)(rand_r(&seed) % 130);
        uint8_t *b = malloc(len ? len : 1);
        uint8_t whole[160];
        int is_hello = i & 1;
        if (is_hello) {
            oob_hello_pack(&h, whole);
        } else {
            oob_frame_pack(whole, OOB_DATA, "0123456789", 10, 7, key);
        }
        for (int k = rand_r(&seed) % 4; k > 0; k--) {
            whole[rand_r(&seed) % 34] ^= (uint8_t)(1u << rand_r(&seed) % 8);
        }
        memcpy(b, whole, len);
        enum oob_parse rc =
            is_hello ? oob_hello_parse(b, len, &hb) : oob_frame_parse(b, len, 64, 7, key, &f);
        counted[rc]++;
        if (!is_hello && rc == OOB_PARSE_OK) {
            ck_assert_uint_le(f.total, len);
            ck_assert_mem_eq(f.payload, "0123456789", 10);
        }
        free(b);
    }
    /* the generator really reaches every answer */
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_gt(counted[i], 100);
    }
}
END_TEST

/* Both ends must keep the same one of two channels, whatever they know. */
START_TEST(rivals_agree)
{
    uint64_t small[2] = {1, 9}, big[2] = {2, 0};

    for (int bits = 0; bits < 8; bits++) {
        int new_by_small = bits & 1, cur_by_small = bits >> 1 & 1, lost = bits >> 2;
        uint64_t cur_id = 77, new_lost = lost ? 77 : 5;
        struct oob_rivals s = {small, big, new_by_small, cur_by_small, new_lost, cur_id};
        struct oob_rivals b = {big, small, !new_by_small, !cur_by_small, new_lost, cur_id};
        ck_assert_int_eq(oob_rivals_new_stays(&s), oob_rivals_new_stays(&b));
        if (!lost && new_by_small != cur_by_small) {
            /* the same pair met in the other order */
            struct oob_rivals swapped = {small, big, cur_by_small, new_by_small, 5, 78};
            ck_assert_int_ne(oob_rivals_new_stays(&s), oob_rivals_new_stays(&swapped));
            ck_assert_int_eq(oob_rivals_new_stays(&s), new_by_small);
        } else {
            ck_assert_int_eq(oob_rivals_new_stays(&s), 1);
        }
    }
    ck_assert_int_lt(oob_uuid_compare(small, big), 0);
    ck_assert_int_gt(oob_uuid_compare(big, small), 0);
    ck_assert_int_eq(oob_uuid_compare(big, big), 0);
    ck_assert_int_lt(oob_uuid_compare((uint64_t[2]){2, 0}, (uint64_t[2]){2, 1}), 0);
}
END_TEST

START_TEST(backoff_doubles_within_bounds)
{
    for (unsigned a = 0; a < 40; a++) {
        uint64_t full = a < 7 ? 10000000ull << a : 1000000000ull, lo = oob_backoff_ns(a, 0),
                 hi = oob_backoff_ns(a, full / 2);
        ck_assert_uint_eq(lo, full / 2);
        ck_assert_uint_eq(hi, full);
        ck_assert_uint_le(oob_backoff_ns(a, UINT64_MAX), full);
    }
}
END_TEST

static const struct {
    const char *spec, *name;
    int want;
} matches[] = {
    {"", "eth0", 1},         {"eth", "eth0", 1},
    {"eth", "ib0", 0},       {"eth,ib", "ib0", 1},
    {"=eth0", "eth0", 1},    {"=eth", "eth0", 0},
    {"=eth0,ib1", "ib1", 1}, {"=eth0,ib", "ib1", 0},
    {"^eth", "eth0", 0},     {"^eth", "ib0", 1},
    {"^=eth", "eth0", 1},    {"^=eth0", "eth0", 0},
    {"^docker,lo", "lo", 0}, {"^docker,lo", "br0", 1},
    {"eth0:1", "eth0", 1},   {"=eth0:1,ib0:2", "ib0", 1},
    {",,eth", "eth0", 1},    {"eth0", "eth", 0},
    {",", "eth0", 1},        {"^", "eth0", 0},
    {"=", "eth0", 1},        {"eth1", "eth10", 1},
    {"=eth1", "eth10", 0},
};

START_TEST(interface_match_table)
{
    ck_assert_msg(oob_ifsel_match(matches[_i].spec, matches[_i].name) == matches[_i].want,
                  "'%s' and %s", matches[_i].spec, matches[_i].name);
}
END_TEST

#define V4(n, a)                                                                                   \
    {                                                                                              \
        .name = n, .family = 4, .up = 1, .addr = { 10, 0, 0, a }                                   \
    }
#define DOWN4(n, a)                                                                                \
    {                                                                                              \
        .name = n, .family = 4, .up = 0, .addr = { 10, 0, 0, a }                                   \
    }
#define V6(n, a)                                                                                   \
    {                                                                                              \
        .name = n, .family = 6, .up = 1, .addr = { 0x20, 0x01, [15] = a }                          \
    }
#define LL6(n, a)                                                                                  \
    {                                                                                              \
        .name = n, .family = 6, .up = 1, .addr = { 0xfe, 0x80, [15] = a }                          \
    }
#define LL4(n, a)                                                                                  \
    {                                                                                              \
        .name = n, .family = 4, .up = 1, .addr = { 169, 254, 3, a }                                \
    }
#define LO                                                                                         \
    {                                                                                              \
        .name = "lo", .family = 4, .up = 1, .addr = { 127, 0, 0, 1 }                               \
    }
#define LO6                                                                                        \
    {                                                                                              \
        .name = "lo", .family = 6, .up = 1, .addr = { [15] = 1 }                                   \
    }

static const char *const avoid_ib[] = {"ib0", "ib1", NULL};

static const struct {
    struct oob_if list[8];
    int n;
    const char *spec, *family;
    const char *const *avoid;
    int want;
} picks[] = {
    {{LO, V4("docker0", 1), V4("eth0", 2)}, 3, "", "", NULL, 2},
    {{LO, V4("docker0", 1)}, 2, "", "", NULL, 1},
    {{LO}, 1, "", "", NULL, 0},
    {{LO, V4("ib0", 1), V4("eth0", 2)}, 3, "", "", avoid_ib, 2},
    {{LO, V4("ib0", 1), V4("ib1", 2)}, 3, "", "", avoid_ib, 1},
    {{LO, V4("ib0", 1), V4("docker0", 2)}, 3, "", "", avoid_ib, 1},
    /* a host that is managed over its RDMA NICs: what else it has reaches nobody */
    {{LO, V4("br-3f2a9c01d4e7", 1), V4("ib0", 2)}, 3, "", "", avoid_ib, 2},
    {{LO, V4("virbr0", 1), V4("veth12ab", 2), V4("ib1", 3)}, 4, "", "", avoid_ib, 3},
    {{LO, V4("cni0", 1), V4("cali0a", 2), V4("kube-ipvs0", 3), V4("ib0", 4)},
     5,
     "",
     "",
     avoid_ib,
     4},
    {{LO, LL4("nodelocaldns", 1), LL4("usb0", 2), V4("ib0", 3)}, 4, "", "", avoid_ib, 3},
    {{LO, LL6("eth0", 1), V4("ib0", 3)}, 3, "", "", avoid_ib, 2},
    {{LO, V4("virbr0", 1), LL4("ib0", 2), LL4("usb0", 3)}, 4, "", "", avoid_ib, 3},
    {{LO, V4("brenda0", 1), V4("virbr0", 1)}, 3, "", "", avoid_ib, 1},
    {{LO, V4("br-ex", 1), LL6("ib0", 2)}, 3, "", "", avoid_ib, 1}, /* a host's own bridge */
    {{LO, V4("br-management01", 1), LL6("ib0", 2)}, 3, "", "", avoid_ib, 1},
    {{LO, V4("ib0", 1), V4("eth0", 2)}, 3, "ib", "", avoid_ib, 1}, /* asked for by name: obeyed */
    {{LO, DOWN4("eth0", 1), V4("eth1", 2)}, 3, "", "", NULL, 2},
    {{LO, DOWN4("eth0", 1)}, 2, "eth0", "", NULL, -1},
    {{LO, V4("eth0", 1), V4("eth1", 2)}, 3, "=eth1", "", NULL, 2},
    {{LO, V4("eth0", 1), V4("eth1", 2)}, 3, "^eth0", "", NULL, 2}, /* lo is not excluded but last */
    {{V4("eth0", 1), V4("eth1", 2)}, 2, "eth1,eth0", "", NULL, 0}, /* the host's order, as in NCCL
                                                                    */
    {{V4("eth0", 1), V6("eth0", 2)}, 2, "", "AF_INET6", NULL, 1},
    {{V6("eth0", 1), V4("eth0", 2)}, 2, "", "AF_INET", NULL, 1},
    {{LO, LO6, LL6("eth0", 1), V6("eth1", 2)}, 4, "", "", NULL, 3},
    {{LO, LO6, LL6("eth0", 1)}, 3, "", "", NULL, 2},
    {{LO6, LO}, 2, "lo", "", NULL, 1},
    {{LO, LO6}, 2, "lo", "AF_INET6", NULL, 1},
    {{V4("eth0", 1)}, 1, "", "AF_IB", NULL, -1},
    {{V4("eth0", 1)}, 1, "nothere", "", NULL, -1},
    {{V4("eth0", 1)}, 0, "", "", NULL, -1},
};

START_TEST(interface_pick_table)
{
    char why[256] = "";
    int got = oob_ifsel_pick(picks[_i].list, picks[_i].n, picks[_i].spec, picks[_i].family,
                             picks[_i].avoid, why, sizeof(why));

    ck_assert_msg(got == picks[_i].want, "row %d: %d instead of %d (%s)", _i, got, picks[_i].want,
                  why);
    ck_assert((got < 0) == (why[0] != '\0'));
}
END_TEST

static const struct {
    struct oob_if list[5];
    int n, at;
    const char *family;
    int want;
} addresses[] = {
    {{LO, V4("eth0", 1)}, 2, 1, "", 1},
    {{LO, V6("eth0", 1)}, 2, 1, "", 1}, /* not that of lo, which is IPv4 */
    {{V6("eth0", 1), V4("eth0", 2)}, 2, 0, "", 1},
    {{V6("eth0", 1), DOWN4("eth0", 2)}, 2, 0, "", 0},
    {{V6("eth0", 1), V4("eth0", 2)}, 2, 0, "AF_INET6", 0},
    {{LL6("eth0", 1), V6("eth1", 2), V6("eth0", 3)}, 3, 0, "", 2},
    {{LL6("eth0", 1), V6("eth0", 2), V4("eth0", 3)}, 3, 0, "AF_INET6", 1},
    {{LO, LL6("eth0", 1), LL6("eth0", 2)}, 3, 1, "AF_INET6", 1},
    {{LO, LO6}, 2, 1, "AF_INET6", 1},
    {{LL4("eth0", 1), V6("eth0", 2)}, 2, 1, "", 1},
    {{LL4("eth0", 1), LL6("eth0", 2)}, 2, 1, "", 0},
};

START_TEST(interface_address_table)
{
    ck_assert_int_eq(oob_ifsel_address(addresses[_i].list, addresses[_i].n, addresses[_i].at,
                                       addresses[_i].family),
                     addresses[_i].want);
}
END_TEST

START_TEST(interface_error_says_what_there_is)
{
    struct oob_if list[2] = {LO, V4("eth0", 1)};
    char why[256] = "";

    ck_assert_int_eq(oob_ifsel_pick(list, 2, "ib9", "", NULL, why, sizeof(why)), -1);
    ck_assert_str_eq(why, "no interface that is up matches 'ib9'; this host has lo eth0");
    ck_assert_int_eq(oob_ifsel_pick(list, 2, "", "IPV4", NULL, why, sizeof(why)), -1);
    ck_assert_str_eq(why, "NCCL_SOCKET_FAMILY=IPV4: expected AF_INET or AF_INET6");
    ck_assert_int_eq(oob_ifsel_pick(list, 2, "ib9", "", NULL, why, 10),
                     -1); /* no step over the end */
}
END_TEST

START_TEST(this_host_has_a_loopback)
{
    struct oob_if list[OOB_IF_MAX];
    int n = oob_ifsel_read(list, OOB_IF_MAX), found = 0;

    for (int i = 0; i < n; i++) {
        found |= strcmp(list[i].name, "lo") == 0 && list[i].family == 4 && list[i].addr[0] == 127;
    }
    ck_assert_int_eq(found, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("oob_wire");
    TCase *t = tcase_create("oob_wire");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, hello_round_trip);
    tcase_add_test(t, hello_refuses);
    tcase_add_test(t, hello_of_another_version);
    tcase_add_test(t, keys_depend_on_everything);
    tcase_add_test(t, frame_round_trip_and_tampering);
    tcase_add_test(t, parsers_take_garbage);
    tcase_add_test(t, rivals_agree);
    tcase_add_test(t, backoff_doubles_within_bounds);
    tcase_add_loop_test(t, interface_match_table, 0, sizeof(matches) / sizeof(matches[0]));
    tcase_add_loop_test(t, interface_pick_table, 0, sizeof(picks) / sizeof(picks[0]));
    tcase_add_loop_test(t, interface_address_table, 0, sizeof(addresses) / sizeof(addresses[0]));
    tcase_add_test(t, interface_error_says_what_there_is);
    tcase_add_test(t, this_host_has_a_loopback);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
