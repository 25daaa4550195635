/*
 * The picture of r2_perf --plot: what is drawn of timelines and statistics made by hand. Nothing is
 * looked at as a picture; places and texts of the SVG are.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/times.h"
#include "tools/r2_perf/plot.c"
#include "tools/r2_perf/plot_nics.c"
#include "tools/r2_perf/util.c"
#include "tools/shared/svg.c"

#include "tests/unit/suite.h"

#define STEP 100 /* ms */

static double rate[64], active[64];
static struct opts_fault spec[OPTS_FAULTS_MAX];
static struct timeline t;
static struct stats_told told[3];
static struct chrome_rank rank[3];
static struct chrome ranks;
static char text[1 << 18];

/* Twenty intervals of 2 GB/s, 1 GB/s from the eleventh on. */
static void setup(void)
{
    memset(told, 0, sizeof(told));
    memset(rank, 0, sizeof(rank));
    t = (struct timeline){.interval_ns = STEP * MS,
                          .n = 20,
                          .busbw = rate,
                          .active = active,
                          .before = 2,
                          .after = 1};
    for (int i = 0; i < 64; i++) {
        rate[i] = i < 10 ? 2 : 1;
        active[i] = 0.6;
    }
    for (int r = 0; r < 3; r++) {
        snprintf(rank[r].host, sizeof(rank[r].host), "h%d", r / 2);
        rank[r].told = &told[r];
    }
    ranks = (struct chrome){.nranks = 3, .ranks = rank};
}

static void fault(int i, uint64_t ms, const char *what)
{
    spec[i] = (struct opts_fault){.at_ns = ms * MS, .what = what};
    t.faults[i] = (struct timeline_fault){
        .event = {.spec = &spec[i], .fired = true, .fired_ns = ms * MS}, .stall_ns = MS};
    t.nfaults = i + 1;
    t.after_ns = ms * MS;
}

static void draw(void)
{
    char path[] = "/tmp/r2-plot-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "r");
    size_t n;

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(plot_timeline_write(path, "a title", &t, &ranks), 0);
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    fclose(f);
    unlink(path);
    ck_assert_ptr_nonnull(strstr(text, "</svg>"));
    ck_assert_msg(strstr(text, "nan") == NULL, "%s", strstr(text, "nan"));
}

static int count(const char *what)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
        n++;
    }
    return n;
}

/* The commands of the path whose attributes begin with @attributes; there is one. */
static const char *path_of(const char *attributes)
{
    static char out[1 << 16];
    char *end = strstr(text, attributes), *begin;

    ck_assert_msg(end != NULL, "no path %s", attributes);
    for (begin = end; strncmp(begin, "<path", 5) != 0; begin--) {
    }
    begin = strstr(begin, " d=\"") + 4;
    snprintf(out, sizeof(out), "%.*s", (int)strcspn(begin, "\""), begin);
    return out;
}

static int steps_of(const char *path)
{
    int n = 0;

    for (; *path; path++) {
        n += *path == 'H';
    }
    return n;
}

#define CURVE "fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.8\""

/* The run ended in the last interval, of which a tenth was timed. */
START_TEST(no_part_of_an_interval)
{
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 20);
    active[19] = 0.1;
    rate[19] = 7;
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 19);
    ck_assert_ptr_nonnull(strstr(path_of(CURVE), "H936.00 ")); /* to the end of the axis */
    t.n = 1; /* the only one is drawn, whatever it is */
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 1);
}
END_TEST

/* Many faults, one soon after the other: no label begins before the one on its line has ended. */
START_TEST(labels_do_not_meet)
{
    static char names[OPTS_FAULTS_MAX][40];
    double end[LABEL_LINES] = {0};
    int labels = 0;

    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof(names[i]), "h0:n%d down", i);
        fault(i, 900 + 90 * (uint64_t)i, names[i]);
    }
    draw();
    for (const char *p = text; (p = strstr(p, "class=\"fault\">")) != NULL; p++) {
        const char *at = p;
        double x, y;
        int line;

        while (strncmp(at, "<text", 5) != 0) {
            at--;
        }
        ck_assert_int_eq(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
        line = (int)((PLOT_TOP - y) / 14);
        ck_assert(line >= 0 && line < LABEL_LINES);
        ck_assert_double_ge(x, end[line]);
        end[line] = x + LABEL_FAULT * (double)strcspn(strchr(p, '>') + 1, "<");
        ck_assert_double_le(end[line], PLOT_WIDTH);
        labels++;
    }
    ck_assert_int_ge(labels, 4);
    ck_assert_int_eq(count("stroke-dasharray=\"5 3\""),
                     12 + 1); /* each has its line; the legend's */
}
END_TEST

/* What a mean is of stands above the curve, however high that is there. */
START_TEST(a_mean_is_not_covered)
{
    double y, highest = 0;
    const char *at;

    rate[4] = 3;
    fault(0, 1000, "x");
    draw();
    at = strstr(text, ">before 2<");
    ck_assert_ptr_nonnull(at);
    while (strncmp(at, "y=\"", 3) != 0) {
        at--;
    }
    ck_assert_int_eq(sscanf(at, "y=\"%lf\"", &y), 1);
    for (const char *p = path_of(CURVE); (p = strchr(p, ' ')) != NULL; p++) {
        double v;

        if (sscanf(p, " %lf H", &v) == 1 && (highest == 0 || v < highest)) {
            highest = v;
        }
    }
    ck_assert_double_lt(y, highest);
}
END_TEST

static void told_of(int r, uint64_t ms, int up, int all)
{
    told[r].event[told[r].nevents++] =
        (struct r2_stat_event){.mono = ms * MS, .capacity_up = up, .capacity_all = all};
}

/* The rate before, by what the host that has the fewest NICs has left. */
START_TEST(ideal)
{
    double full, half, x[3], y[3];

    draw();
    ck_assert_ptr_null(strstr(text, "class=\"ideal\"")); /* nobody knows */
    fault(0, 1000, "x");
    told_of(0, 1010, 3, 4);
    told_of(2, 1010, 4, 4);
    told_of(2, 1500, 2, 4);
    told_of(1, 1600, -1, -1); /* does not say */
    told_of(2, 1800, 4, 4);
    draw();
    ck_assert_int_eq(sscanf(path_of("class=\"ideal\""),
                            "M78 %lf H%lf V%lf H%lf V%lf H%lf V%lf H936.00", &full, &x[0], &y[0],
                            &x[1], &y[1], &x[2], &y[2]),
                     7);
    half = (PLOT_HEIGHT - PLOT_BOTTOM + full) / 2;
    ck_assert_double_eq_tol(y[1], half, 0.02);
    ck_assert_double_eq_tol(y[0], (full + half) / 2, 0.02);
    ck_assert_double_eq_tol(y[2], (full + half) / 2, 0.02);
    ck_assert_double_eq_tol(x[0], 78 + 858 * 1.01 / 2, 0.02);
    ck_assert_double_eq_tol(x[2], 78 + 858 * 1.8 / 2, 0.02);
}
END_TEST

static void row(int r, uint64_t ms, uint64_t sent, uint64_t received)
{
    struct stats_row *to = &told[r].row[told[r].nrows++];

    *to = (struct stats_row){.at_ns = (int64_t)(ms * MS)};
    to->sent[0] = sent;
    to->received[1] = received;
}

/* Both ranks of a host together, in steps of a quarter of a second, as far as both have told. */
START_TEST(traffic_of_nics)
{
    double y[4];
    const char *path;

    draw();
    ck_assert_int_eq(count("each NIC"), 0);
    ck_assert_ptr_nonnull(strstr(text, "height=\"440\""));
    for (int r = 0; r < 3; r++) {
        told[r].nics = 3;
        for (int n = 0; n < 3; n++) {
            snprintf(told[r].nic[n], sizeof(told[r].nic[n]), "mlx5_%d", n);
        }
        row(r, 0, 1000, 0);
        row(r, 500, 1000 + 50000000, 10000000);
        row(r, 1000, 1000 + 50000000, 10000000);
        row(r, r ? 1900 : 1100, 1000 + 50000000, 10000000);
    }
    draw();
    ck_assert_int_eq(count("h0: each NIC, both ways (MB/s)"), 1);
    ck_assert_int_eq(count("h1: each NIC, both ways (MB/s)"), 1);
    ck_assert_int_eq(count("class=\"nic\""), 4); /* the third of each host has carried nothing */
    ck_assert_int_eq(count(">mlx5_1<"), 2);
    ck_assert_int_eq(count(">mlx5_2<"), 0);
    path = path_of("class=\"nic\" fill=\"none\" stroke=\"#1565c0\"");
    ck_assert_int_eq(steps_of(path), 4); /* of h0: to 1.1 s; two ranks with 100 MB/s each */
    ck_assert_int_eq(sscanf(path, "M78.00 %lf H%*f L%*f %lf H%*f L%*f %lf H%*f L%*f %lf", &y[0],
                            &y[1], &y[2], &y[3]),
                     4);
    ck_assert_double_eq_tol(y[0], y[1], 0.02);
    ck_assert_double_eq_tol(y[2], y[3], 0.02);
    ck_assert_double_lt(y[0], y[2] - 20);
    path = path_of("class=\"nic\" fill=\"none\" stroke=\"#e65100\"");
    ck_assert_int_eq(sscanf(path, "M78.00 %lf", &y[1]), 1);
    ck_assert_double_eq_tol((y[2] - y[1]) * 5, y[2] - y[0], 0.1);
    /* a row from after the end, with what moved up to the end: no step of it */
    for (int r = 0; r < 2; r++) {
        row(r, 1950, 1000 + 150000000, 10000000);
        row(r, 2300, 1000 + 180000000, 10000000);
    }
    draw();
    path = path_of("class=\"nic\" fill=\"none\" stroke=\"#1565c0\"");
    ck_assert_int_eq(steps_of(path), 7); /* to 1.95 s */
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, no_part_of_an_interval);
    tcase_add_test(c, labels_do_not_meet);
    tcase_add_test(c, a_mean_is_not_covered);
    tcase_add_test(c, ideal);
    tcase_add_test(c, traffic_of_nics);
}

int main(void)
{
    return suite_run("perf_plot", 60, setup, NULL, add);
}
