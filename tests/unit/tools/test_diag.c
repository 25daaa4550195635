/*
 * What r2_diag makes of a matrix of transfer times: random ones of 8 to 64 places in which nothing,
 * a source, a destination, a place or a link is slow. With PRINT=1 it says how often each was
 * found.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tools/r2_diag/matrix.c"

#define ROUNDS 1000

static uint64_t seed;
static struct diag_matrix *m;
static struct diag_verdict v;

static void setup(void)
{
    seed = 1;
    m = NULL;
}

static void teardown(void)
{
    diag_matrix_free(m);
    m = NULL;
}

/* From 0 to 1. */
static double draw(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 33) / 2147483648.0;
}

static int draw_int(int below)
{
    return (int)(draw() * below);
}

static double normal(void)
{
    return sqrt(-2 * log(draw() + 1e-12)) * cos(2 * acos(-1) * draw());
}

enum noise { EVEN, BELL };

/* How often something else than what is slow was named. */
struct score {
    int right, wrong, silent, unclear;
};

static struct diag_cell *cell(int s, int d)
{
    return &m->cell[s * m->n + d];
}

/*
 * Times of @n places, 20 % of noise. @degree: destinations of each source, in a circle; 0: all.
 */
static void matrix_draw(int n, int degree, enum noise noise)
{
    double base = 1e4 * pow(1000, draw());

    diag_matrix_free(m);
    m = diag_matrix_new(n);
    ck_assert_ptr_nonnull(m);
    for (int s = 0; s < n; s++) {
        for (int k = 1; k < n && (degree == 0 || k <= degree); k++) {
            struct diag_cell *c = cell(s, (s + k) % n);

            c->ns = base * (noise == EVEN ? 0.8 + 0.4 * draw() : exp(0.2 * normal()));
            c->times = 16 + (uint32_t)draw_int(100);
        }
    }
}

static void slow_row(int s, double by)
{
    for (int d = 0; d < m->n; d++) {
        cell(s, d)->ns *= by;
    }
}

static void slow_column(int d, double by)
{
    for (int s = 0; s < m->n; s++) {
        cell(s, d)->ns *= by;
    }
}

static void row_lose(int s)
{
    for (int d = 0; d < m->n; d++) {
        *cell(s, d) = (struct diag_cell){0};
    }
}

/* Whether a finding names one of those that are slow, or might. -1: all of that side. */
static int names(const struct diag_finding *f, int kind, int s, int d)
{
    switch (f->kind) {
    case DIAG_PLACE:
        return kind == DIAG_PLACE && f->source == s;
    case DIAG_SOURCE:
        return (kind == DIAG_SOURCE || kind == DIAG_PLACE) && f->source == s;
    case DIAG_DESTINATION:
        return (kind == DIAG_DESTINATION || kind == DIAG_PLACE) && f->destination == d;
    case DIAG_LINK:
        return kind == DIAG_LINK && ((f->source == s && f->destination == d) ||
                                     (f->both_ways && f->source == d && f->destination == s));
    case DIAG_SOURCE_OR_LINK:
        return (kind == DIAG_SOURCE || kind == DIAG_LINK || kind == DIAG_PLACE) && f->source == s;
    case DIAG_DESTINATION_OR_LINK:
        return (kind == DIAG_DESTINATION || kind == DIAG_LINK || kind == DIAG_PLACE) &&
               f->destination == d;
    default:
        return f->source == s || f->destination == d;
    }
}

static void judge_and_score(struct score *out, int kind, int s, int d)
{
    int good = 0, exact = 0;

    diag_judge(m, &v);
    for (int i = 0; i < v.findings; i++) {
        good += names(&v.finding[i], kind, s, d);
        exact += v.finding[i].kind == kind;
    }
    out->wrong += good < v.findings;
    out->right += v.state == DIAG_FOUND && v.findings == 1 && good == 1 && exact == 1;
    out->silent += v.findings == 0;
    out->unclear += v.state == DIAG_UNCLEAR;
}

static void tell(const char *what, const struct score *s)
{
    if (getenv("PRINT")) {
        printf("%-30s right %4d  wrong %4d  silent %4d  unclear %4d  of %d\n", what, s->right,
               s->wrong, s->silent, s->unclear, ROUNDS);
    }
}

/* --- nothing is slow --- */

static void clean(const char *what, int degree, enum noise noise)
{
    int marks = 0;
    struct score score = {0};

    for (int i = 0; i < ROUNDS; i++) {
        matrix_draw(8 + draw_int(57), degree, noise);
        diag_judge(m, &v);
        ck_assert_int_ne(v.state, DIAG_FEW);
        for (int k = 0; k < m->n * m->n; k++) {
            marks += m->cell[k].mark != DIAG_MARK_NONE;
        }
        score.silent += v.findings == 0;
        score.wrong += v.findings > 0;
        score.unclear += v.state == DIAG_UNCLEAR;
    }
    tell(what, &score);
    ck_assert_int_eq(marks, 0);
    ck_assert_int_eq(score.unclear, 0);
}

START_TEST(noise_marks_nothing)
{
    clean("even noise, all to all", 0, EVEN);
    clean("normal noise, all to all", 0, BELL);
    clean("even noise, 3 of each", 3, EVEN);
    clean("normal noise, 3 of each", 3, BELL);
    clean("even noise, ring", 1, EVEN);
    clean("normal noise, ring", 1, BELL);
}
END_TEST

/* --- one thing is slow --- */

static struct score find(int kind, int degree, double least, int lost)
{
    struct score score = {0};

    for (int i = 0; i < ROUNDS; i++) {
        int n = 8 + draw_int(57), s = draw_int(n),
            d = (s + 1 + draw_int(degree ? degree : n - 1)) % n;
        double by = least + draw() * 7;

        matrix_draw(n, degree, EVEN);
        if (kind == DIAG_SOURCE || kind == DIAG_PLACE) {
            slow_row(s, by);
        }
        if (kind == DIAG_PLACE) {
            d = s;
        }
        if (kind == DIAG_DESTINATION || kind == DIAG_PLACE) {
            slow_column(d, by);
        }
        if (kind == DIAG_LINK) {
            cell(s, d)->ns *= by;
        }
        for (int k = 0; k < lost; k++) {
            int gone = draw_int(n);

            if (gone != s) {
                row_lose(gone);
            }
        }
        judge_and_score(&score, kind, s, d);
    }
    return score;
}

static void found(const char *what, int kind, int degree, double least, int lost)
{
    struct score score = find(kind, degree, least, lost);

    tell(what, &score);
    ck_assert_int_eq(score.wrong, 0);
    ck_assert_int_ge(score.right, ROUNDS * 99 / 100);
}

START_TEST(what_is_slow_is_found)
{
    found("source", DIAG_SOURCE, 0, 3, 0);
    found("destination", DIAG_DESTINATION, 0, 3, 0);
    found("place", DIAG_PLACE, 0, 3, 0);
    found("link", DIAG_LINK, 0, 3, 0);
}
END_TEST

START_TEST(few_neighbours_are_enough)
{
    found("source, 4 of each", DIAG_SOURCE, 4, 4, 0);
    found("destination, 4 of each", DIAG_DESTINATION, 4, 4, 0);
    found("link, 4 of each", DIAG_LINK, 4, 4, 0);
}
END_TEST

START_TEST(missing_hosts_are_missed_by_nobody)
{
    found("source, 2 hosts missing", DIAG_SOURCE, 0, 3, 2);
    found("destination, 2 hosts missing", DIAG_DESTINATION, 0, 3, 2);
    found("link, 2 hosts missing", DIAG_LINK, 0, 3, 2);
}
END_TEST

/* A host whose own statistics are missing is found as a destination, and blamed for no more. */
START_TEST(a_row_that_is_missing_is_not_blamed)
{
    for (int i = 0; i < ROUNDS; i++) {
        int n = 8 + draw_int(57), s = draw_int(n);

        matrix_draw(n, 0, EVEN);
        slow_row(s, 5);
        slow_column(s, 5);
        row_lose(s);
        diag_judge(m, &v);
        ck_assert_int_eq(v.findings, 1);
        ck_assert_int_eq(v.finding[0].kind, DIAG_DESTINATION);
        ck_assert_int_eq(v.finding[0].destination, s);
    }
}
END_TEST

START_TEST(four_places_are_enough)
{
    for (int s = 0; s < 4; s++) {
        matrix_draw(4, 0, EVEN);
        for (int i = 0; i < 16; i++) {
            m->cell[i].ns = m->cell[i].ns > 0 ? 1e6 : 0;
        }
        slow_row(s, 2.6); /* half of the cells: the median of all is no measure */
        slow_column(s, 2.6);
        diag_judge(m, &v);
        ck_assert_int_eq(v.findings, 1);
        ck_assert_int_eq(v.finding[0].kind, DIAG_PLACE);
        matrix_draw(4, 0, EVEN);
        slow_row(s, 8);
        slow_column(s, 8);
        diag_judge(m, &v);
        ck_assert_int_eq(v.state, DIAG_FOUND);
        ck_assert_int_eq(v.findings, 1);
        ck_assert_int_eq(v.finding[0].kind, DIAG_PLACE);
        ck_assert_int_eq(v.finding[0].source, s);
        ck_assert_int_eq(v.finding[0].cells, 6);
        matrix_draw(4, 0, EVEN);
        cell(s, (s + 2) % 4)->ns *= 25;
        cell((s + 2) % 4, s)->ns *= 25;
        diag_judge(m, &v);
        ck_assert_int_eq(v.findings, 1);
        ck_assert_int_eq(v.finding[0].kind, DIAG_LINK);
        ck_assert_int_eq(v.finding[0].both_ways, 1);
    }
}
END_TEST

/* Of a run of four hosts on the software fabric, one NIC at a twentieth of the rate, on a machine
 * with two cores: the times of the others differ by a factor of three. */
START_TEST(times_of_a_busy_machine)
{
    static const double ratio[4][4] = {
        {0, 0.9, 12.9, 0.5}, {1.0, 0, 28.1, 1.2}, {21.3, 26.1, 0, 19.3}, {0.4, 1.0, 13.1, 0}};

    matrix_draw(4, 0, EVEN);
    for (int i = 0; i < 16; i++) {
        m->cell[i].ns = 3e6 * ratio[i / 4][i % 4];
    }
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_FOUND);
    ck_assert_int_eq(v.findings, 1);
    ck_assert_int_eq(v.finding[0].kind, DIAG_PLACE);
    ck_assert_int_eq(v.finding[0].source, 2);
}
END_TEST

/* Times that differ a hundredfold: not that nothing is slow, but that it cannot be told. */
START_TEST(too_much_noise_is_said_to_be_so)
{
    for (int i = 0; i < ROUNDS; i++) {
        matrix_draw(8, 0, EVEN);
        for (int k = 0; k < 64; k++) {
            m->cell[k].ns *= pow(10, 2 * draw());
        }
        diag_judge(m, &v);
        ck_assert_int_eq(v.findings, 0);
        ck_assert_int_eq(v.state, DIAG_UNCLEAR);
    }
}
END_TEST

/* --- what cannot be told --- */

START_TEST(a_ring_is_ambiguous)
{
    struct score score = {0};

    for (int i = 0; i < ROUNDS; i++) {
        int n = 8 + draw_int(57), s = draw_int(n);

        matrix_draw(n, 1, EVEN);
        cell(s, (s + 1) % n)->ns *= 6 + draw() * 4;
        judge_and_score(&score, DIAG_EITHER, s, (s + 1) % n);
    }
    tell("ring", &score);
    ck_assert_int_eq(score.wrong, 0);
    ck_assert_int_ge(score.right, ROUNDS * 99 / 100);
}
END_TEST

/* One entry in the row, while the destination is well for others; and the other way round. */
START_TEST(a_side_that_nobody_else_saw_stays_open)
{
    matrix_draw(8, 0, EVEN);
    for (int d = 0; d < 8; d++) {
        if (d != 5) {
            cell(2, d)->ns = 0;
        }
    }
    cell(2, 5)->ns *= 6;
    diag_judge(m, &v);
    ck_assert_int_eq(v.findings, 1);
    ck_assert_int_eq(v.finding[0].kind, DIAG_SOURCE_OR_LINK);
    ck_assert_int_eq(v.finding[0].source, 2);
    matrix_draw(8, 0, EVEN);
    for (int s = 0; s < 8; s++) {
        if (s != 5) {
            cell(s, 2)->ns = 0;
        }
    }
    cell(5, 2)->ns *= 6;
    diag_judge(m, &v);
    ck_assert_int_eq(v.findings, 1);
    ck_assert_int_eq(v.finding[0].kind, DIAG_DESTINATION_OR_LINK);
    ck_assert_int_eq(v.finding[0].destination, 2);
}
END_TEST

/* A source whose destinations hear from nobody else: it may be these. */
START_TEST(destinations_without_a_witness_stay_open)
{
    matrix_draw(9, 0, EVEN);
    for (int s = 0; s < 9; s++) {
        for (int d = 0; d < 9; d++) {
            if ((s == 0) != (d > 5) || s > 5) {
                *cell(s, d) = (struct diag_cell){0};
            }
        }
    }
    slow_row(0, 6);
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_FOUND);
    ck_assert_int_eq(v.findings, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(v.finding[i].kind, DIAG_EITHER);
        ck_assert_int_eq(v.finding[i].source, 0);
    }
}
END_TEST

/* Two of eight hosts behind a switch that is further away: slow to all others, not to each other.
 */
START_TEST(distance_is_no_fault)
{
    for (int i = 0; i < ROUNDS; i++) {
        int n = 8 + draw_int(9), far = 2 + draw_int(n / 2 - 1);

        matrix_draw(n, 0, EVEN);
        for (int s = 0; s < n; s++) {
            for (int d = 0; d < n; d++) {
                cell(s, d)->ns *= (s < far) != (d < far) ? 4 : 1;
            }
        }
        diag_judge(m, &v);
        ck_assert_int_eq(v.findings, 0);
    }
}
END_TEST

START_TEST(two_that_are_slow_are_both_found)
{
    int right = 0;

    for (int i = 0; i < ROUNDS; i++) {
        int n = 12 + draw_int(53), s = draw_int(n), d = (s + 1 + draw_int(n - 1)) % n;

        matrix_draw(n, 0, EVEN);
        slow_row(s, 5);
        slow_column(d, 5);
        diag_judge(m, &v);
        for (int k = 0; k < v.findings; k++) {
            const struct diag_finding *f = &v.finding[k];

            ck_assert(f->kind == DIAG_SOURCE ? f->source == s
                                             : f->kind == DIAG_DESTINATION && f->destination == d);
        }
        right += v.findings == 2;
    }
    ck_assert_int_ge(right, ROUNDS * 99 / 100);
}
END_TEST

START_TEST(classes_are_not_compared)
{
    matrix_draw(12, 0, EVEN);
    for (int i = 0; i < 12 * 12; i++) { /* even hosts have another rail than odd ones */
        int s = i / 12, d = i % 12;

        if ((s ^ d) & 1) {
            m->cell[i].link = DIAG_LINK_CROSS;
            m->cell[i].ns *= 5;
        }
    }
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_CLEAN);
    ck_assert(v.usual_ns[DIAG_LINK_CROSS] > 4 * v.usual_ns[DIAG_LINK_RAIL]);
    ck_assert(v.usual_ns[DIAG_LINK_HOST] == 0);
    cell(3, 6)->ns *= 6;
    diag_judge(m, &v);
    ck_assert_int_eq(v.findings, 1);
    ck_assert_int_eq(v.finding[0].kind, DIAG_LINK);
}
END_TEST

START_TEST(too_little_is_said_to_be_so)
{
    m = diag_matrix_new(0);
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_FEW);
    matrix_draw(2, 0, EVEN); /* of two hosts neither is slow beside others */
    cell(0, 1)->ns *= 100;
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_FEW);
    matrix_draw(8, 0, EVEN);
    for (int i = 0; i < 64; i++) {
        m->cell[i].times = m->cell[i].ns > 0 ? DIAG_TIMES - 1 : 0;
    }
    slow_row(3, 10);
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_FEW);
    ck_assert_int_eq(v.thin, 56);
    ck_assert_int_eq(v.judged, 0);
    matrix_draw(8, 0, EVEN); /* one that is thin is not marked among others */
    cell(2, 3)->ns *= 10;
    cell(2, 3)->times = DIAG_TIMES - 1;
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_CLEAN);
    ck_assert_int_eq(v.thin, 1);
}
END_TEST

/* Half of the links are slow without any order: no link is named. */
START_TEST(no_order_is_no_finding)
{
    for (int i = 0; i < ROUNDS; i++) {
        matrix_draw(8 + draw_int(25), 0, EVEN);
        for (int k = 0; k < m->n * m->n; k++) {
            m->cell[k].ns *= draw() < 0.3 ? 8 : 1;
        }
        diag_judge(m, &v);
        ck_assert_int_eq(v.findings, 0);
    }
}
END_TEST

START_TEST(marks_are_those_of_the_finding)
{
    matrix_draw(8, 0, EVEN);
    slow_row(1, 6);
    slow_column(4, 6);
    cell(6, 2)->ns *= 6;
    diag_judge(m, &v);
    ck_assert_int_eq(v.state, DIAG_FOUND);
    ck_assert_int_eq(v.findings, 3);
    for (int s = 0; s < 8; s++) {
        for (int d = 0; d < 8; d++) {
            int want = s == d             ? DIAG_MARK_NONE
                       : s == 1           ? DIAG_MARK_ROW
                       : d == 4           ? DIAG_MARK_COLUMN
                       : s == 6 && d == 2 ? DIAG_MARK_CELL
                                          : DIAG_MARK_NONE;

            ck_assert_int_eq(cell(s, d)->mark, want);
        }
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, noise_marks_nothing);
    tcase_add_test(t, what_is_slow_is_found);
    tcase_add_test(t, few_neighbours_are_enough);
    tcase_add_test(t, missing_hosts_are_missed_by_nobody);
    tcase_add_test(t, a_row_that_is_missing_is_not_blamed);
    tcase_add_test(t, four_places_are_enough);
    tcase_add_test(t, times_of_a_busy_machine);
    tcase_add_test(t, too_much_noise_is_said_to_be_so);
    tcase_add_test(t, a_ring_is_ambiguous);
    tcase_add_test(t, a_side_that_nobody_else_saw_stays_open);
    tcase_add_test(t, destinations_without_a_witness_stay_open);
    tcase_add_test(t, distance_is_no_fault);
    tcase_add_test(t, two_that_are_slow_are_both_found);
    tcase_add_test(t, classes_are_not_compared);
    tcase_add_test(t, too_little_is_said_to_be_so);
    tcase_add_test(t, no_order_is_no_finding);
    tcase_add_test(t, marks_are_those_of_the_finding);
}

int main(void)
{
    return suite_run("diag", 300, setup, teardown, add);
}
