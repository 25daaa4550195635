/* What r2_diag takes from statistics, and from what r2_stat --json prints of them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_time.h"
#include "tests/unit/suite.h"
#include "tools/r2_diag/figures.c"
#include "tools/r2_diag/json_read.c"
#include "tools/r2_diag/matrix.c"
#include "tools/r2_diag/words.c"
#include "tools/shared/json_in.c"
#include "tools/shared/sources_json.c"

#define SECOND R2_NS_PER_S
#define NOW    (1795752000 * SECOND) /* 2026-11-27T04:00:00Z */

static struct figures f;
static struct r2_stat_view v;
static struct r2_stat_conn conn[8];
static struct diag_matrix *m;
static struct diag d;

static void setup(void)
{
    memset(&f, 0, sizeof(f));
    memset(&d, 0, sizeof(d));
}

static void teardown(void)
{
    diag_matrix_free(m);
    m = NULL;
    diag_free(&d);
    figures_free(&f);
}

/* A process of host @host, with two NICs. */
static void process(const char *host, const char *job)
{
    memset(&v, 0, sizeof(v));
    memset(conn, 0, sizeof(conn));
    snprintf(v.who.host, sizeof(v.who.host), "%s", host);
    snprintf(v.who.job, sizeof(v.who.job), "%s", job);
    v.who.updated = NOW;
    v.who.nics = 2;
    for (int i = 0; i < 2; i++) {
        snprintf(v.nic[i].name, sizeof(v.nic[i].name), "mlx5_%d", i);
        v.nic[i].rail = i;
    }
    v.conn = conn;
}

static void peer(const char *host, int size, uint64_t p50, uint32_t n)
{
    struct r2_stat_peer *p = NULL;

    for (uint32_t i = 0; i < v.who.peers; i++) {
        p = strcmp(v.peer[i].host, host) == 0 ? &v.peer[i] : p;
    }
    p = p ? p : &v.peer[v.who.peers++];
    snprintf(p->host, sizeof(p->host), "%s", host);
    p->transfer[size] = (struct r2_stat_transfer){
        .times = 100, .n = n, .p50_ns = p50, .p99_ns = 2 * p50, .at = NOW - SECOND};
}

/* A send over NIC @nic to NIC @to of @host. */
static void send_to(int nic, const char *host, const char *to, uint64_t p50)
{
    struct r2_stat_conn *c = &conn[v.conns++];

    c->id = (uint32_t)v.conns;
    c->is_send = 1;
    c->npaths = 2;
    snprintf(c->peer_host, sizeof(c->peer_host), "%s", host);
    for (int p = 0; p < 2; p++) {
        c->path[p].nic = (uint8_t)(p ? !nic : nic);
        snprintf(c->path[p].peer_name, sizeof(c->path[p].peer_name), "%s", p ? "mlx5_9" : to);
    }
    c->path[0].bytes = 1 << 20;
    c->sends[R2_SEND_LARGE] = (struct r2_stat_times){.samples = 50, .p50_ns = p50, .p99_ns = p50};
}

static const struct diag_cell *cell_of(enum figures_by by, const char *from, const char *to)
{
    int s = -1, t = -1;

    for (int i = 0; i < f.by[by].places; i++) {
        s = strcmp(f.by[by].place[i].name, from) == 0 ? i : s;
        t = strcmp(f.by[by].place[i].name, to) == 0 ? i : t;
    }
    ck_assert_msg(s >= 0 && t >= 0, "%s or %s is no place", from, to);
    return &m->cell[s * m->n + t];
}

static void matrix_take(enum figures_by by, unsigned size)
{
    figures_sort(&f);
    diag_matrix_free(m);
    m = figures_matrix(&f, by, size);
    ck_assert_ptr_nonnull(m);
}

START_TEST(a_cell_is_the_median_of_its_processes)
{
    static const uint64_t p50[3] = {9000, 1000, 2000};

    for (int i = 0; i < 3; i++) {
        process("h10", "7");
        peer("h9", R2_BAND_128K, p50[i], 20);
        peer("h9", R2_BAND_16K, 5, 20);
        figures_view(&f, &v);
    }
    matrix_take(FIGURES_HOST, R2_BAND_128K);
    ck_assert_int_eq(f.processes, 3);
    ck_assert_str_eq(f.job, "7");
    ck_assert_int_eq(f.jobs, 1);
    ck_assert_str_eq(f.by[FIGURES_HOST].place[0].name, "h9"); /* numbers in their order */
    ck_assert_int_eq(f.by[FIGURES_HOST].place[0].is_read, 0);
    ck_assert_int_eq(f.by[FIGURES_HOST].place[1].is_read, 1);
    ck_assert(cell_of(FIGURES_HOST, "h10", "h9")->ns == 2000);
    ck_assert_uint_eq(cell_of(FIGURES_HOST, "h10", "h9")->times, 60);
    ck_assert(cell_of(FIGURES_HOST, "h9", "h10")->ns == 0);
}
END_TEST

START_TEST(what_is_old_or_at_home_is_left_out)
{
    process("a", "");
    peer("b", R2_BAND_1M, 1000, 20);
    v.peer[0].transfer[R2_BAND_1M].at = NOW - 61 * SECOND;
    peer("a", R2_BAND_1M, 1000, 20);
    peer("c", R2_BAND_1M, 3000, 20);
    v.who.peers_all = v.who.peers + 5;
    figures_view(&f, &v);
    matrix_take(FIGURES_HOST, R2_BAND_1M);
    ck_assert_int_eq(f.stale, 1);
    ck_assert_uint_eq(f.hidden, 5);
    ck_assert(cell_of(FIGURES_HOST, "a", "b")->ns == 0);
    ck_assert(cell_of(FIGURES_HOST, "a", "a")->ns == 0);
    ck_assert(cell_of(FIGURES_HOST, "a", "c")->ns == 3000);
}
END_TEST

START_TEST(jobs_are_told_apart)
{
    f.wanted = "8";
    process("a", "7");
    figures_view(&f, &v);
    ck_assert_int_eq(f.processes, 0);
    ck_assert_int_eq(f.jobs, 0);
    process("a", "8");
    figures_view(&f, &v);
    ck_assert_int_eq(f.processes, 1);
    f.wanted = NULL;
    process("a", "9");
    figures_view(&f, &v);
    ck_assert_int_eq(f.jobs, 2);
}
END_TEST

START_TEST(links_have_classes)
{
    process("a", "");
    send_to(0, "b", "mlx5_0", 1000);
    send_to(0, "b", "mlx5_1", 2000);
    send_to(1, "a", "mlx5_0", 3000);
    send_to(1, "x", "mlx5_1", 4000); /* nothing of x was read: by the names */
    send_to(1, "x", "mlx5_0", 5000);
    send_to(0, "y", "mlx5_0", 6000);
    conn[5].path[1].bytes = 1 << 18; /* over two NICs: of none */
    send_to(0, "y", "mlx5_0", 7000);
    conn[6].is_send = 0;
    figures_view(&f, &v);
    process("b", "");
    figures_view(&f, &v);
    matrix_take(FIGURES_NIC, R2_SEND_LARGE);
    ck_assert_int_eq(f.spread, 1);
    ck_assert_int_eq(f.by[FIGURES_NIC].places, 6);
    ck_assert(cell_of(FIGURES_NIC, "a/mlx5_0", "b/mlx5_0")->ns == 1000);
    ck_assert_int_eq(cell_of(FIGURES_NIC, "a/mlx5_0", "b/mlx5_0")->link, DIAG_LINK_RAIL);
    ck_assert_int_eq(cell_of(FIGURES_NIC, "a/mlx5_0", "b/mlx5_1")->link, DIAG_LINK_CROSS);
    ck_assert_int_eq(cell_of(FIGURES_NIC, "a/mlx5_1", "a/mlx5_0")->link, DIAG_LINK_HOST);
    ck_assert_int_eq(cell_of(FIGURES_NIC, "a/mlx5_1", "x/mlx5_1")->link, DIAG_LINK_RAIL);
    ck_assert_int_eq(cell_of(FIGURES_NIC, "a/mlx5_1", "x/mlx5_0")->link, DIAG_LINK_CROSS);
    matrix_take(FIGURES_NIC, R2_SEND_SMALL);
    ck_assert(cell_of(FIGURES_NIC, "a/mlx5_0", "b/mlx5_0")->ns == 0);
}
END_TEST

/* --- what r2_stat --json prints --- */

static const char sample[] =
    "{\"schema\":\"r2.stat/1\",\"host\":\"a\",\"jobs\":[{\"user\":\"u\",\"id\":\"7\",\"processes\":["
    "{\"host\":\"a\",\"pid\":1,\"updated\":\"2026-11-27T04:00:00.000Z\",\"peers\":["
    "{\"host\":\"b\",\"transfer\":{\"16K\":null,\"128K\":{\"timed\":99,\"samples\":20,"
    "\"at\":\"2026-11-27T03:59:59.500Z\",\"p50_ns\":1234,\"p99_ns\":5678,\"band_ns\":null,"
    "\"state\":\"learning\",\"since\":null}}},"
    "{\"host\":\"c\",\"transfer\":{\"128K\":{\"timed\":9,\"samples\":20,"
    "\"at\":\"2026-11-27T03:58:00.000Z\",\"p50_ns\":1,\"p99_ns\":1,\"band_ns\":[1,2],"
    "\"state\":\"inside\",\"since\":null}}}],\"peers_not_listed\":3,"
    "\"nics\":[{\"device\":\"n0\",\"rail\":4}],\"connections\":["
    "{\"id\":1,\"direction\":\"send\",\"nic\":\"n0\",\"peer\":{\"host\":\"b\",\"address\":null},"
    "\"send_times\":{\"small\":{\"samples\":9,\"p50_ns\":77,\"p99_ns\":88},\"large\":null},"
    "\"paths\":[{\"nic\":\"n0\",\"peer_nic\":\"n1\",\"bytes\":4096},"
    "{\"nic\":\"n0\",\"peer_nic\":null,\"bytes\":0}]},"
    "{\"id\":2,\"direction\":\"recv\",\"peer\":{\"host\":\"b\"},\"send_times\":{\"small\":null},"
    "\"paths\":[{\"nic\":\"n0\",\"peer_nic\":\"n2\",\"bytes\":4096}]}],\"history\":[]}]},"
    "{\"id\":null,\"processes\":[{\"host\":\"z\",\"peers\":[],\"peers_not_listed\":0}]}]}";

START_TEST(printed_statistics_are_taken)
{
    f.wanted = "7";
    ck_assert_int_eq(figures_json(&f, sample), 0);
    ck_assert_int_eq(f.processes, 1);
    ck_assert_str_eq(f.job, "7");
    ck_assert_int_eq(f.stale, 1);
    ck_assert_uint_eq(f.hidden, 3);
    matrix_take(FIGURES_HOST, R2_BAND_128K);
    ck_assert_int_eq(m->n, 3);
    ck_assert(cell_of(FIGURES_HOST, "a", "b")->ns == 1234);
    ck_assert(cell_of(FIGURES_HOST, "a", "b")->ns_p99 == 5678);
    ck_assert_uint_eq(cell_of(FIGURES_HOST, "a", "b")->times, 20);
    matrix_take(FIGURES_NIC, R2_SEND_SMALL);
    ck_assert_int_eq(m->n, 2); /* n2 only receives */
    ck_assert(cell_of(FIGURES_NIC, "a/n0", "b/n1")->ns == 77);
    ck_assert_int_eq(f.by[FIGURES_NIC].place[0].rail, 4);
}
END_TEST

START_TEST(what_is_cut_short_gives_nothing)
{
    char text[sizeof(sample)];

    for (size_t n = 0; n < sizeof(sample) - 1; n++) {
        memcpy(text, sample, n);
        text[n] = '\0';
        ck_assert_int_eq(figures_json(&f, text), -1);
        ck_assert_int_eq(f.processes, 0);
        ck_assert_int_eq(f.by[FIGURES_HOST].places, 0);
    }
    ck_assert_int_eq(figures_json(&f, "{\"schema\":\"r2.event/1\",\"host\":\"a\"}"), -1);
    ck_assert_int_eq(figures_json(&f, "{\"host\":\"a\"}"), -1);
}
END_TEST

START_TEST(hostile_texts_and_numbers)
{
    ck_assert_int_eq(
        figures_json(&f,
                     "{\"schema\":\"r2.stat/1\",\"jobs\":[{\"processes\":[{\"peers\":[{\"host\":"
                     "\"\\u001b[2J\\u00e4<&\",\"transfer\":{\"16K\":{\"timed\":1,\"samples\":-5,"
                     "\"at\":\"2026-11-27T03:59:59.000Z\",\"p50_ns\":1e999,\"state\":\"x\"},"
                     "\"64K\":{\"timed\":1,\"at\":\"soon\",\"state\":\"x\"}}},"
                     "{\"transfer\":3}],\"connections\":[{\"paths\":[{\"bytes\":7}]},{\"id\":1,"
                     "\"direction\":\"send\",\"paths\":[{\"nic\":\"a\",\"peer_nic\":\"b\","
                     "\"bytes\":18446744073709551615}]}]}]}]}"),
        0);
    figures_sort(&f);
    for (int i = 0; i < f.by[FIGURES_HOST].places; i++) {
        for (const char *c = f.by[FIGURES_HOST].place[i].name; *c; c++) {
            ck_assert(*c >= 0x20 && *c <= 0x7e);
        }
    }
    ck_assert_int_eq(diag_fill(&d, &f, FIGURES_HOST, FIGURES_SIZES), 0);
    ck_assert_int_eq(d.state, DIAG_FEW);
}
END_TEST

/* --- over all sizes --- */

/* Six hosts, each to all; that from @s, to @to takes @by times as long. -1: all. */
static void hosts(int size, int s, int to, int by)
{
    char from[16], name[16];

    for (int i = 0; i < 6; i++) {
        snprintf(from, sizeof(from), "h%d", i);
        process(from, "");
        for (int k = 0; k < 6; k++) {
            int is_slow = (s < 0 || s == i) && (to < 0 || to == k);

            snprintf(name, sizeof(name), "h%d", k);
            if (k != i) {
                peer(name, size, 100000 * (uint64_t)(is_slow ? by : 1), 20);
            }
        }
        figures_view(&f, &v);
    }
}

START_TEST(sizes_that_agree_are_one_finding)
{
    char text[SENTENCE];

    hosts(R2_BAND_16K, 2, -1, 5);
    hosts(R2_BAND_MORE, 2, -1, 9);
    hosts(R2_BAND_128K, 0, 0, 1);
    figures_sort(&f);
    ck_assert_int_eq(diag_fill(&d, &f, FIGURES_HOST, FIGURES_SIZES), 0);
    ck_assert_int_eq(d.state, DIAG_FOUND);
    ck_assert_int_eq(d.saids, 1);
    ck_assert_int_eq(d.shown, R2_BAND_MORE);
    ck_assert_ptr_null(d.m[R2_BAND_1M]);
    ck_assert_str_eq(diag_sentence(&d, &d.said[0], text),
                     "h2 is slow as a source: what it sends takes 9.0 times the usual time (size "
                     "16K, more), by 5 figures; its destinations are well for others");
    ck_assert_int_eq(diag_missing(&d), 0);
}
END_TEST

/* Of one size all see it, of another a ring alone: what is certain stays. */
START_TEST(what_is_certain_covers_what_is_open)
{
    char from[16], name[16];

    hosts(R2_BAND_16K, 2, -1, 5);
    for (int i = 0; i < 6; i++) {
        snprintf(from, sizeof(from), "h%d", i);
        snprintf(name, sizeof(name), "h%d", (i + 1) % 6);
        process(from, "");
        peer(name, R2_BAND_1M, i == 2 ? 900000 : 100000, 20);
        figures_view(&f, &v);
    }
    figures_sort(&f);
    ck_assert_int_eq(diag_fill(&d, &f, FIGURES_HOST, FIGURES_SIZES), 0);
    ck_assert_int_eq(d.saids, 1);
    ck_assert_int_eq(d.said[0].f.kind, DIAG_SOURCE);
    diag_free(&d);
    ck_assert_int_eq(diag_fill(&d, &f, FIGURES_HOST, R2_BAND_1M), 0);
    ck_assert_int_eq(d.saids, 1);
    ck_assert_int_eq(d.said[0].f.kind, DIAG_EITHER);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_cell_is_the_median_of_its_processes);
    tcase_add_test(t, what_is_old_or_at_home_is_left_out);
    tcase_add_test(t, jobs_are_told_apart);
    tcase_add_test(t, links_have_classes);
    tcase_add_test(t, printed_statistics_are_taken);
    tcase_add_test(t, what_is_cut_short_gives_nothing);
    tcase_add_test(t, hostile_texts_and_numbers);
    tcase_add_test(t, sizes_that_agree_are_one_finding);
    tcase_add_test(t, what_is_certain_covers_what_is_open);
}

int main(void)
{
    return suite_run("diag_figures", 60, setup, teardown, add);
}
