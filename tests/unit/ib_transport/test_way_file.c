/* NCCL_R2_WAYS: its values, the file of ports, and the labels that follow. */
#include "tests/unit/suite.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/r2_config.h"
#include "ib_transport/ib_way_file.h"

static struct ib_way_rule rule[IB_WAY_RULES_MAX];
static struct ib_way_file_error err;

static int parse(const char *text)
{
    return ib_way_file_parse(text, strlen(text), rule, &err);
}

/* "10.0.0.1", or of IPv6. */
static void gid_of(uint8_t gid[16], const char *text)
{
    memset(gid, 0, 16);
    if (inet_pton(AF_INET6, text, gid) != 1) {
        gid[10] = gid[11] = 0xff;
        ck_assert_int_eq(inet_pton(AF_INET, text, gid + 12), 1);
    }
}

/* UDP source port of way @way from @from to @to under the rules of the text parsed last. */
static unsigned port_of(unsigned way, const char *from, const char *to)
{
    struct ib_ways w = {.n = IB_WAYS_DEFAULT, .rules = 0, .rule = rule};
    uint8_t gid[2][16];

    for (; w.rules < IB_WAY_RULES_MAX && rule[w.rules].ports; w.rules++) {
    }
    gid_of(gid[0], from);
    gid_of(gid[1], to);
    ck_assert_uint_eq(ib_way_label(&w, way, gid[0], gid[1]), ib_way_label(&w, way, gid[1], gid[0]));
    return ib_way_udp_port(ib_way_label(&w, way, gid[0], gid[1]));
}

static int parse_rules(const char *text)
{
    memset(rule, 0, sizeof(rule));
    return parse(text);
}

START_TEST(rules_are_read)
{
    static const char text[] = "# of 12:00\n"
                               "\n"
                               "10.0.1.0/24 10.0.2.0/24 50000 50010,50020-50022 # spines 0 to 4\r\n"
                               "  fd00:1::/64\t*\t49152 , 65535\n"
                               "::ffff:10.9.0.1 10.9.0.2 60000-60015\n"
                               "10.0.1.0/24 * 51000";

    ck_assert_int_eq(parse_rules(text), 4);
    ck_assert_uint_eq(rule[0].ports, 5);
    ck_assert_uint_eq(rule[0].line, 3);
    ck_assert_uint_eq(rule[1].end[1].bits, 0);
    ck_assert_uint_eq(rule[2].ports, IB_WAYS_MAX);
    ck_assert_uint_eq(rule[2].end[0].bits, 128);
    ck_assert_uint_eq(port_of(1, "10.0.1.7", "10.0.2.9"), 50000);
    ck_assert_uint_eq(port_of(5, "10.0.2.9", "10.0.1.7"), 50022);
    ck_assert_uint_eq(port_of(1, "fd00:1::5", "fe80::1"), 49152);
    ck_assert_uint_eq(port_of(2, "10.0.0.1", "fd00:1::5"), 65535);
    ck_assert_uint_eq(port_of(16, "10.9.0.2", "10.9.0.1"), 60015);
    ck_assert_uint_eq(port_of(1, "10.0.3.1", "10.0.1.1"), 51000); /* not of the first */
}
END_TEST

/* Each port that a label can make is made by the one that a rule has for it. */
START_TEST(every_port_has_its_label)
{
    struct ib_way_rule r = {.ports = 1};
    struct ib_ways w = {.n = 8, .rules = 1, .rule = &r};
    uint8_t a[16] = {1}, b[16] = {2};

    for (unsigned port = IB_WAY_PORT_MIN; port <= UINT16_MAX; port++) {
        uint32_t label;

        r.port[0] = (uint16_t)port;
        label = ib_way_label(&w, 1, a, b);
        ck_assert(label > 0 && label < 1u << 20);
        ck_assert_uint_eq(ib_way_udp_port(label), port);
    }
}
END_TEST

START_TEST(numbers_are_folded)
{
    uint8_t a[16], b[16], c[16];
    struct ib_ways w = {.n = 4, .rules = 2, .rule = rule};

    ck_assert_int_eq(parse_rules("10.0.0.1 10.0.0.2 50000 50001 50002\n"
                                 "10.0.0.1 10.0.0.0/8 50003\n"),
                     2);
    gid_of(a, "10.0.0.1");
    gid_of(b, "10.0.0.2");
    gid_of(c, "192.168.0.1");
    for (unsigned way = 0; way <= IB_WAYS_MAX; way++) {
        ck_assert_uint_eq(ib_way_fold(&w, way, a, b), way ? (way - 1) % 3 + 1 : 1);
        ck_assert_uint_eq(ib_way_fold(&w, way, b, a), ib_way_fold(&w, way, a, b));
        ck_assert_uint_eq(ib_way_fold(&w, way, a, a), 1);
        ck_assert_uint_eq(ib_way_fold(&w, way, a, c), way);
        ck_assert_uint_eq(ib_way_fold(NULL, way, a, b), way);
        ck_assert_uint_eq(ib_way_label(&w, way, a, b),
                          ib_way_label(&w, ib_way_fold(&w, way, a, b), a, b));
        ck_assert_uint_eq(ib_way_label(&w, way, a, c), ib_way_label(NULL, way, a, c));
    }
    ck_assert_uint_eq(ib_ways_count(&w, a, b), 3);
    ck_assert_uint_eq(ib_ways_count(&w, a, a), 1);
    ck_assert_uint_eq(ib_ways_count(&w, b, c), 4);
    ck_assert_uint_eq(ib_ways_count(NULL, a, b), IB_WAYS_DEFAULT);
    ck_assert_uint_eq(ib_ways_most(&w, b), 4);
    w.n = 2;
    ck_assert_uint_eq(ib_ways_most(&w, b), 3);
    ck_assert_uint_eq(ib_ways_most(&w, c), 2);
}
END_TEST

/* What is wrong is named, with its line. */
static const struct {
    const char *text;
    unsigned line;
    const char *why;
} wrong[] = {
    {"", 0, "no rule"},
    {"# nothing\n\n", 0, "no rule"},
    {"10.0.0.1\n", 1, "a source without a destination"},
    {"\n10.0.0.1 10.0.0.2 # 50000\n", 2, "no port"},
    {"* * 80", 1, "'80': expected a port of 49152 to 65535"},
    {"* * 49151", 1, "'49151': expected a port"},
    {"* * 65536", 1, "'65536': expected a port"},
    {"* * 50000-49999", 1, "'50000-49999': expected a port"},
    {"* * 50000-", 1, "'50000-': expected"},
    {"* * -50000", 1, "'-50000': expected"},
    {"* * 0x50000", 1, "'0x50000': expected"},
    {"* * 4294967295", 1, "expected a port"},
    {"* * 50000 50000", 1, "port 50000 twice"},
    {"* * 50000 49999-50001", 1, "port 50000 twice"},
    {"* * 50000-50016", 1, "more than 16 ports"},
    {"* * 50000-65535", 1, "more than 16 ports"},
    {"* 10.0.0.300 50000", 1, "'10.0.0.300' is no address"},
    {"*/0 * 50000", 1, "'*/0' is no address"},
    {"10.0.0.0/33 * 50000", 1, "'10.0.0.0/33': expected 0 to 32 bits"},
    {"10.0.0.0/ * 50000", 1, "'10.0.0.0/': expected 0 to 32 bits"},
    {"10.0.0.0/-1 * 50000", 1, "expected 0 to 32 bits"},
    {"10.0.0.0/8/8 * 50000", 1, "expected 0 to 32 bits"},
    {"fd00::/129 * 50000", 1, "'fd00::/129': expected 0 to 128 bits"},
    {"10.0.1.5/24 * 50000", 1, "'10.0.1.5/24' has bits set beyond its first 24"},
    {"fd00::1/64 * 50000", 1, "'fd00::1/64' has bits set"},
    {"mlx5_0 * 50000", 1, "'mlx5_0' is no address"},
    {"a\001b\377 * 50000", 1, "'a?b?' is no address"},
    {"* * 50000\n10.0.0.1 * 50001\n* 10.0.0.1 50002\n", 3, "the same two ends as in line 2"},
    {"* * 50000\n* * 50001", 2, "the same two ends as in line 1"},
    {"0000000000000000000000000000000000000000000000000000000000000000000000000001 * 50000", 1,
     "is no address"},
    {"* * 0000000000000000000000000000000000000000000000000000000000000000000000050000", 1,
     "expected a port"},
};
#define WRONG (int)(sizeof(wrong) / sizeof(wrong[0]))

START_TEST(wrong_lines)
{
    ck_assert_int_eq(parse(wrong[_i].text), -1);
    ck_assert_uint_eq(err.line, wrong[_i].line);
    ck_assert_msg(strstr(err.why, wrong[_i].why) != NULL, "'%s' says '%s'", wrong[_i].text,
                  err.why);
}
END_TEST

/* A byte that ends a string is none that ends the file. */
START_TEST(zero_bytes)
{
    ck_assert_int_eq(ib_way_file_parse("* * 50000\0 50001\n", 17, rule, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.why, "'50000?': expected"));
}
END_TEST

START_TEST(too_many_rules)
{
    static char text[IB_WAY_FILE_MAX];
    size_t n = 0;

    for (int i = 0; i < IB_WAY_RULES_MAX; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "10.1.%d.%d * 50000\n", i / 256, i % 256);
    }
    ck_assert_int_eq(ib_way_file_parse(text, n, rule, &err), IB_WAY_RULES_MAX);
    n += (size_t)snprintf(text + n, sizeof(text) - n, "# one\n10.2.0.0 * 50000\n");
    ck_assert_int_eq(ib_way_file_parse(text, n, rule, &err), -1);
    ck_assert_uint_eq(err.line, IB_WAY_RULES_MAX + 2);
    ck_assert_ptr_nonnull(strstr(err.why, "more than 4096 rules"));
}
END_TEST

START_TEST(digest_is_of_what_rules_say)
{
    static const char *const text[] = {
        "* * 50000 50001",        "*  *  50000-50001 # the same", "* * 50001 50000",
        "* 10.0.0.1 50000 50001", "10.0.0.0/8 * 50000 50001",     "* * 50000\n10.0.0.1 * 50001",
    };
    uint32_t digest[6];

    for (int i = 0; i < 6; i++) {
        struct ib_ways w = {.n = 8, .rule = rule, .rules = (unsigned)parse(text[i])};

        digest[i] = ib_ways_digest(&w);
        for (int k = 0; k < i; k++) {
            ck_assert_int_eq(digest[i] == digest[k], i == 1 && k == 0);
        }
    }
    ck_assert_uint_eq(ib_ways_digest(&(struct ib_ways){.n = 8}), 0);
}
END_TEST

START_TEST(values)
{
    static const struct {
        const char *text;
        int rc;
        unsigned n;
    } value[] = {{"8", 0, 8},     {"1", 0, 1},   {"16", 0, 16},  {"off", 0, 1},   {"OFF", 0, 1},
                 {"", 0, 8},      {"0", -1, 0},  {"17", -1, 0},  {"-1", -1, 0},   {"8 ", -1, 0},
                 {"many", -1, 0}, {"on", -1, 0}, {"008", -1, 0}, {"ports", -1, 0}};
    struct r2_config cfg;
    const char *path;
    unsigned n;

    for (size_t i = 0; i < sizeof(value) / sizeof(value[0]); i++) {
        ck_assert_int_eq(ib_ways_option(value[i].text, &n, &path), value[i].rc);
        ck_assert(value[i].rc != 0 || (n == value[i].n && path == NULL));
    }
    ck_assert_int_eq(ib_ways_option("./8", &n, &path), 0);
    ck_assert_str_eq(path, "./8");
    r2_config_defaults(&cfg);
    ck_assert_int_eq(ib_ways_option(cfg.ways, &n, &path), 0);
    ck_assert_uint_eq(n, IB_WAYS_DEFAULT);
}
END_TEST

static char dir[] = "/tmp/test_way_file.XXXXXX";

static void file_write(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "we");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    fclose(f);
}

/* Whatever is wrong with the file is said in one sentence that names it, and it is as if it was not
 * there. */
START_TEST(files)
{
    char path[64], why[600], want[200];
    static char big[IB_WAY_FILE_MAX + 1];
    struct ib_ways w;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/ways", dir);
    for (int i = 0; i < 5; i++) {
        static const char *const says[] = {
            ": No such file", ": it is a directory", ": it is no regular file",
            ": it is larger than 1024 KiB", ":2: '4791': expected a port"};

        if (i == 2) {
            ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes into it */
        } else if (i == 3) {
            memset(big, '\n', sizeof(big));
            file_write(path, big, sizeof(big));
        } else if (i == 4) {
            file_write(path, "* * 50000\n* * 4791", 18);
        }
        snprintf(want, sizeof(want), "NCCL_R2_WAYS: %s%s", i == 1 ? dir : path, says[i]);
        ck_assert_int_eq(ib_ways_load(&w, i == 1 ? dir : path, why, sizeof(why)), -1);
        ck_assert_msg(strncmp(why, want, strlen(want)) == 0, "'%s', not '%s'", why, want);
        ck_assert(w.n == IB_WAYS_DEFAULT && w.rules == 0 && w.rule == NULL);
        unlink(path);
    }
    big[IB_WAY_FILE_MAX - 10] = '\0';
    memcpy(big, "* * 50000,50001\n", 16);
    file_write(path, big, IB_WAY_FILE_MAX - 10);
    ck_assert_int_eq(ib_ways_load(&w, path, why, sizeof(why)), 0);
    ck_assert(w.rules == 1 && w.rule[0].ports == 2 && w.n == IB_WAYS_DEFAULT);
    ib_ways_free(&w);
    unlink(path);
    rmdir(dir);
    ck_assert_int_eq(ib_ways_load(&w, "3", why, sizeof(why)), 0);
    ck_assert(w.n == 3 && w.rules == 0);
    ck_assert_int_eq(ib_ways_load(&w, "many", why, sizeof(why)), 0); /* refused elsewhere */
    ck_assert(w.n == IB_WAYS_DEFAULT && w.rules == 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, rules_are_read);
    tcase_add_test(t, every_port_has_its_label);
    tcase_add_test(t, numbers_are_folded);
    tcase_add_loop_test(t, wrong_lines, 0, WRONG);
    tcase_add_test(t, zero_bytes);
    tcase_add_test(t, too_many_rules);
    tcase_add_test(t, digest_is_of_what_rules_say);
    tcase_add_test(t, values);
    tcase_add_test(t, files);
}

int main(void)
{
    return suite_run("way_file", 60, NULL, NULL, add);
}
