/*
 * The picture of r2_perf --plot: what is drawn of timelines and statistics made by hand. Nothing is
 * looked at as a picture; places and texts of the SVG are.
 */
#include <check.h>
#include <errno.h>
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

#define STEP  100 /* ms */
#define RANKS 6

static double rate[64], active[64];
static struct opts_fault spec[OPTS_FAULTS_MAX];
static struct timeline t;
static struct stats_told told[RANKS];
static struct chrome_rank rank[RANKS];
static struct chrome ranks;
static const char *title;
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
    title = "a title";
    for (int r = 0; r < RANKS; r++) {
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
    ck_assert_int_eq(plot_timeline_write(path, title, &t, &ranks), 0);
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

/* The commands of a path whose attributes begin with @attributes, the first after @from. */
static const char *path_after(const char *from, const char *attributes)
{
    static char out[1 << 16];
    const char *end, *begin;

    ck_assert_ptr_nonnull(from);
    end = strstr(from, attributes);
    ck_assert_msg(end != NULL, "no path %s", attributes);
    for (begin = end; strncmp(begin, "<path", 5) != 0; begin--) {
    }
    begin = strstr(begin, " d=\"") + 4;
    snprintf(out, sizeof(out), "%.*s", (int)strcspn(begin, "\""), begin);
    return out;
}

static const char *path_of(const char *attributes)
{
    return path_after(text, attributes);
}

/* Where the text @what stands. */
static void place_of(const char *what, double *x, double *y)
{
    const char *at = strstr(text, what);

    ck_assert_msg(at != NULL, "no text %s", what);
    while (strncmp(at, "<text", 5) != 0) {
        at--;
    }
    ck_assert_int_eq(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", x, y), 2);
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
    active[19] = 0.305;
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 20); /* half of the others', and a little more */
    active[19] = 0.29;
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 19);
    active[19] = 0.1;
    rate[19] = 7;
    draw();
    ck_assert_int_eq(count(">2.5<"), 1); /* the scale is of what is drawn */
    ck_assert_int_eq(steps_of(path_of(CURVE)), 19);
    ck_assert_ptr_nonnull(strstr(path_of(CURVE), "H936.00 ")); /* to the end of the axis */
    fault(0, 1950, "x"); /* in what is left out: the axis goes on to it */
    draw();
    ck_assert_ptr_nonnull(strstr(text, "<line x1=\"936.0\" y1=\"86.0\" x2=\"936.0\""));
    ck_assert_ptr_nonnull(strstr(path_of(CURVE), "H914.00 "));
    t.nfaults = 0;
    t.n = 1; /* the only one is drawn, whatever it is */
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 1);
    t.n = 0;
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 0);
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
    /* nor does a line go over a label */
    ck_assert_ptr_null(strstr(strstr(text, "class=\"fault\">"), PLOT_FAULT_LINE));
    ck_assert_int_eq(count("stroke-dasharray=\"5 3\""),
                     12 + 1); /* each has its line; the legend's */
}
END_TEST

/* What a mean is of stands above the curve, however high that is there. */
START_TEST(a_mean_is_not_covered)
{
    double x, y, highest = 0;

    rate[4] = 3;
    fault(0, 1000, "x");
    draw();
    place_of(">before 2<", &x, &y);
    for (const char *p = path_of(CURVE); (p = strchr(p, ' ')) != NULL; p++) {
        double v;

        if (sscanf(p, " %lf H", &v) == 1 && (highest == 0 || v < highest)) {
            highest = v;
        }
    }
    ck_assert_double_lt(y, highest);
    rate[4] = 2.38;
    draw();
    place_of(">before 2<", &x, &y);
    ck_assert_double_eq(y, PLOT_TOP + 10); /* and not above the area */
    rate[4] = NAN;
    rate[0] = rate[9] = 2.38; /* far from it */
    draw();
    place_of(">before 2<", &x, &y);
    ck_assert_double_eq_tol(y, 382 - 290 * 2 / 2.5 - 8, 0.06);
}
END_TEST

/* Of what there is: all of the run, before the first fault, after the last. */
START_TEST(means)
{
    double x, y;

    draw();
    place_of(">mean 2<", &x, &y);
    ck_assert_double_eq_tol(x, 78 + 858 / 2, 0.06);
    fault(0, 500, "x");
    t.after_ns = 1000 * MS;
    draw();
    place_of(">before 2<", &x, &y);
    ck_assert_double_eq_tol(x, 78 + 858 / 8.0, 0.06);
    place_of(">after 1<", &x, &y);
    ck_assert_double_eq_tol(x, 78 + 858 * 3 / 4.0, 0.06);
    fault(0, 0, "x");
    t.after = NAN;
    draw();
    ck_assert_int_eq(count("before 2"), 0);
    ck_assert_int_eq(count(">after"), 0);
}
END_TEST

START_TEST(scales)
{
    ck_assert_double_eq(plot_step_get(10, 10), 1);
    ck_assert_double_eq(plot_step_get(15, 10), 2);
    ck_assert_double_eq(plot_step_get(40, 10), 5);
    ck_assert_double_eq(plot_step_get(60, 10), 10);
    rate[5] = NAN;
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 19);
    ck_assert_int_eq(count("M292.50 "), 0);
    ck_assert_ptr_nonnull(strstr(path_of(CURVE), "H292.50 M335.40 ")); /* a hole */
    ck_assert_int_eq(count("bus bandwidth (GB/s)"), 1);
    ck_assert_int_eq(count(">1.8<"), 1); /* s */
    for (int i = 0; i < 64; i++) {
        rate[i] = 0.5;
    }
    t.before = 0.5;
    draw();
    ck_assert_int_eq(count("bus bandwidth (MB/s)"), 1);
    ck_assert_int_eq(count(">600<"), 1);
    ck_assert_int_eq(count(">mean 500<"), 1);
    for (int i = 0; i < 64; i++) {
        rate[i] = NAN;
    }
    t.before = NAN;
    draw();
    ck_assert_int_eq(steps_of(path_of(CURVE)), 0);
}
END_TEST

START_TEST(titles)
{
    char of_100[101];

    draw();
    ck_assert_int_eq(count(">a title<"), 1);
    ck_assert_int_eq(count("textLength"), 0);
    title = "a <b> & \"c\"\n";
    draw();
    ck_assert_int_eq(count(">a &lt;b&gt; &amp; \"c\" <"), 1);
    memset(of_100, 'W', sizeof(of_100));
    of_100[100] = '\0';
    title = of_100; /* in a font of 16 pixels */
    draw();
    ck_assert_int_eq(count("textLength=\"858\""), 1);
    ck_assert_int_eq(count("measured") * count(">mean<") * count(">fault<"), 1);
}
END_TEST

START_TEST(what_cannot_be_written)
{
    errno = 0;
    ck_assert_int_eq(plot_timeline_write("/nowhere/x.svg", title, &t, &ranks), -1);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(plot_timeline_write("/dev/full", title, &t, &ranks), -1);
    ck_assert_int_eq(errno, ENOSPC);
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
    told_of(1, 1600, -1, 4);
    told_of(1, 1600, 0, 0);
    told_of(2, 1800, 4, 4);
    told_of(0, 3000, 4, 4); /* after the end */
    draw();
    ck_assert_int_eq(sscanf(path_of("class=\"ideal\""),
                            "M78 %lf H%lf V%lf H%lf V%lf H%lf V%lf H936.00", &full, &x[0], &y[0],
                            &x[1], &y[1], &x[2], &y[2]),
                     7);
    ck_assert_int_eq(steps_of(path_of("class=\"ideal\"")), 4);
    half = (PLOT_HEIGHT - PLOT_BOTTOM + full) / 2;
    ck_assert_double_eq_tol(y[1], half, 0.02);
    ck_assert_double_eq_tol(y[0], (full + half) / 2, 0.02);
    ck_assert_double_eq_tol(y[2], (full + half) / 2, 0.02);
    ck_assert_double_eq_tol(x[0], 78 + 858 * 1.01 / 2, 0.02);
    ck_assert_double_eq_tol(x[2], 78 + 858 * 1.8 / 2, 0.02);
    told[0].event[0].mono = 500 * MS; /* before the fault: the mean before it is of all NICs */
    told[0].event[1].mono = 1900 * MS;
    draw();
    ck_assert_int_eq(sscanf(path_of("class=\"ideal\""),
                            "M78 %*f H%lf V%*f H%*f V%*f H%*f V%*f H%lf", &x[0], &x[1]),
                     2);
    ck_assert_double_eq_tol(x[0], 78 + 858 * 1.0 / 2, 0.02);
    ck_assert_double_eq_tol(x[1], 78 + 858 * 1.9 / 2, 0.02);
    t.nfaults = 0;
    draw();
    ck_assert_int_eq(count("class=\"ideal\""), 0);
    fault(0, 1000, "x");
    t.before = NAN;
    draw();
    ck_assert_int_eq(count("class=\"ideal\""), 0);
    t.before = 2;
    for (int r = 0; r < RANKS; r++) {
        rank[r].told = NULL;
    }
    draw();
    ck_assert_int_eq(count("class=\"ideal\""), 0);
}
END_TEST

static void row(int r, int64_t ms, uint64_t sent, uint64_t received)
{
    struct stats_row *to = &told[r].row[told[r].nrows++];

    *to = (struct stats_row){.at_ns = ms * (int64_t)MS};
    to->sent[0] = sent;
    to->received[1] = received;
}

static void nics(int r, uint32_t n, const char *name)
{
    told[r].nics = n;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(told[r].nic[i], sizeof(told[r].nic[i]), "%s%u", name, i);
    }
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
        nics(r, 3, "mlx5_");
        row(r, 0, 1000, 0);
        row(r, 500, 1000 + 50000000, 10000000);
        row(r, 1000, 1000 + 50000000, 10000000);
        row(r, r ? 1900 : 1100, 1000 + 50000000, 10000000);
    }
    draw();
    ck_assert_ptr_nonnull(strstr(text, "height=\"740\""));
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
    ck_assert_double_eq_tol(y[0], 570 - 96 * 200 / 300.0, 0.02);
    ck_assert_double_eq_tol(y[2], 570, 0.02);
    path = path_of("class=\"nic\" fill=\"none\" stroke=\"#e65100\"");
    ck_assert_int_eq(sscanf(path, "M78.00 %lf", &y[1]), 1);
    ck_assert_double_eq_tol(y[1], 570 - 96 * 40 / 300.0, 0.02);
    path = path_after(strstr(text, "h1: each"), "class=\"nic\" fill=\"none\" stroke=\"#1565c0\"");
    ck_assert_int_eq(steps_of(path), 7); /* to 1.9 s, one rank */
    ck_assert_int_eq(sscanf(path, "M78.00 %lf", &y[1]), 1);
    ck_assert_double_eq_tol(y[1], 720 - 96 * 100 / 300.0, 0.02);
    ck_assert_int_eq(count(">300<"), 2);
    /* a row from after the end, with what moved up to the end: no step of it */
    for (int r = 0; r < 2; r++) {
        row(r, 1950, 1000 + 150000000, 10000000);
        row(r, 2300, 1000 + 180000000, 10000000);
    }
    draw();
    path = path_of("class=\"nic\" fill=\"none\" stroke=\"#1565c0\"");
    ck_assert_int_eq(steps_of(path), 7); /* to 1.95 s */
    fault(0, 1000, "x");
    draw();
    ck_assert_int_eq(count(PLOT_FAULT_LINE), 3);
}
END_TEST

/* The first rank of the first host has none, that of the second one row, the third is asleep. */
START_TEST(ranks_without_rows)
{
    double y[2];

    rank[0].told = NULL;
    nics(1, 2, "<a&b>");
    row(1, 300, 1000, 1000); /* what was before is not known */
    row(1, 800, 1000 + 5000000000, 1000 + 100);
    row(1, 1900, 1000 + 5000000000, 1000 + 100);
    nics(2, 2, "x");
    row(2, 100, 5, 5);
    nics(4, 2, "y");
    row(4, -2000, 1, 1);
    row(4, -1000, 2, 2);
    ranks.nranks = RANKS;
    draw();
    ck_assert_int_eq(count("both ways (GB/s)"), 2);
    ck_assert_int_eq(count("h0: each") * count("h2: each"), 1);
    ck_assert_int_eq(count("class=\"nic\""), 2);
    ck_assert_int_eq(count(">&lt;a&amp;b&gt;0<"), 1);
    ck_assert_int_eq(sscanf(path_of("class=\"nic\" fill=\"none\" stroke=\"#1565c0\""),
                            "M78.00 %lf H%*f L%*f %lf", &y[0], &y[1]),
                     2);
    ck_assert_double_eq_tol(y[0], 570, 0.02);
    ck_assert_double_eq_tol(y[1], 570 - 96 * 8 / 15.0, 0.1);
    told[1].nrows = 0; /* nothing moves anywhere */
    draw();
    ck_assert_int_eq(count("class=\"nic\""), 0);
    ck_assert_int_eq(count("both ways (MB/s)"), 1);
    /* a NIC that the second rank of a host does not have */
    rank[0].told = &told[0];
    told[1].nrows = told[4].nrows = 0;
    nics(0, 1, "z");
    row(0, 0, 0, 0);
    row(0, 1900, 1000000, 1000000);
    nics(1, 2, "z");
    row(1, 0, 0, 0);
    row(1, 1900, 0, 1000000);
    draw();
    ck_assert_int_eq(count("class=\"nic\""), 1);
}
END_TEST

/* In a minute steps are longer; of more than four hosts the others are not drawn. */
START_TEST(long_runs_and_many_hosts)
{
    t.n = 64;
    t.interval_ns = 1000 * MS;
    for (int r = 0; r < RANKS; r++) {
        snprintf(rank[r].host, sizeof(rank[r].host), "h%d", r);
        nics(r, 1, "n");
        row(r, 0, 0, 0);
        row(r, 63000, 1000000, 0);
    }
    ranks.nranks = RANKS;
    draw();
    ck_assert_int_eq(count("class=\"nic\""), 4);
    ck_assert_int_eq(count("h3: each") - count("h4: each"), 1);
    ck_assert_int_eq(steps_of(path_of("class=\"nic\" fill")), (int)(63 / 0.32));
}
END_TEST

/* Names of as many NICs as there may be: none over another, none beyond the area. */
START_TEST(names_of_nics)
{
    static const struct {
        uint32_t nics;
        const char *name;
        int named; /* at least */
    } rows[] = {{8, "rocep35s0f", 8}, {9, "mlx5_", 9}, {R2_STAT_NICS, "mlx5_", 15}};
    double left[2] = {0}, x, y;
    int named = 0;

    nics(0, rows[_i].nics, rows[_i].name);
    row(0, 0, 0, 0);
    row(0, 1900, 0, 0);
    for (uint32_t n = 0; n < rows[_i].nics; n++) {
        told[0].row[1].sent[n] = 1000000;
    }
    draw();
    ck_assert_int_eq(count("class=\"nic\""), (int)rows[_i].nics);
    for (int n = (int)rows[_i].nics - 1; n >= 0; n--) {
        char name[40];
        double width;
        int line;

        snprintf(name, sizeof(name), ">%s%d<", rows[_i].name, n);
        if (strstr(text, name) == NULL) {
            continue;
        }
        place_of(name, &x, &y);
        width = SVG_LETTER(11) * (double)(strlen(name) - 2);
        line = y < 460;
        ck_assert_double_ge(x - 20, line ? PLOT_LEFT : PLOT_LEFT + 260);
        ck_assert_double_le(x + width, left[line] > 0 ? left[line] : PLOT_WIDTH - PLOT_RIGHT);
        left[line] = x - 20;
        named++;
    }
    ck_assert_int_ge(named, rows[_i].named);
    ck_assert_int_eq(count("class=\"nic\" fill=\"none\" stroke=\"#1565c0\""),
                     ((int)rows[_i].nics + 7) / 8);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, no_part_of_an_interval);
    tcase_add_test(c, labels_do_not_meet);
    tcase_add_test(c, a_mean_is_not_covered);
    tcase_add_test(c, means);
    tcase_add_test(c, scales);
    tcase_add_test(c, titles);
    tcase_add_test(c, what_cannot_be_written);
    tcase_add_test(c, ideal);
    tcase_add_test(c, traffic_of_nics);
    tcase_add_test(c, ranks_without_rows);
    tcase_add_test(c, long_runs_and_many_hosts);
    tcase_add_loop_test(c, names_of_nics, 0, 3);
}

int main(void)
{
    return suite_run("perf_plot", 60, setup, NULL, add);
}
