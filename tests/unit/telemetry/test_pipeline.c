/*
 * What transfer times are for (docs/diagnosis.md): a pipeline of stages with one forward, one
 * backward, in which each transfer between two stages takes c. It keeps its rate while
 * c <= (slack - 1) t, where the slack is how many forwards a stage does before its first backward
 * more than the next one. With PRINT=1 it prints the document's table.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

#define STAGES  4
#define BATCHES 200

/* When each forward and backward ends; 0: it has not begun. */
static double done[STAGES][2][BATCHES];

static void setup(void)
{
}
static void teardown(void)
{
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/*
 * The time of a microbatch in the middle of the run. @warm: forwards of each stage before its first
 * backward; then one of each in turn. @c: of the transfers between stage i and the next one, both
 * ways.
 */
static double time_each(const int warm[STAGES], const double c[STAGES - 1], double t)
{
    int next[STAGES] = {0}; /* in the order of the stage: 2 * BATCHES of them */
    double now[STAGES] = {0};
    int moved = 1;

    memset(done, 0, sizeof(done));
    while (moved) {
        moved = 0;
        for (int s = 0; s < STAGES; s++) {
            int n = next[s], w = warm[s], back, k;
            double from;

            if (n == 2 * BATCHES) {
                continue;
            }
            /* w forwards, then backward and forward in turn, then the backwards that are left */
            back = n >= w && (n >= 2 * BATCHES - w || (n - w) % 2 == 0);
            k = n < w                  ? n
                : n >= 2 * BATCHES - w ? n - BATCHES
                : back                 ? (n - w) / 2
                                       : w + (n - w) / 2;
            if (back && s + 1 < STAGES) {
                from = done[s + 1][1][k] > 0 ? done[s + 1][1][k] + c[s] : -1;
            } else if (!back && s > 0) {
                from = done[s - 1][0][k] > 0 ? done[s - 1][0][k] + c[s - 1] : -1;
            } else {
                from = back ? done[s][0][k] : 0;
            }
            if (from < 0) {
                continue;
            }
            now[s] = later(now[s], from) + t;
            done[s][back][k] = now[s];
            next[s]++;
            moved = 1;
        }
    }
    for (int s = 0; s < STAGES; s++) {
        ck_assert_int_eq(next[s], 2 * BATCHES);
    }
    return (done[0][1][170] - done[0][1][50]) / 120; /* a multiple of each slack + 1 */
}

static double with(int slack, int link, double c, double t)
{
    double link_c[STAGES - 1] = {0};
    int warm[STAGES];

    link_c[link] = c;
    for (int s = 0; s < STAGES; s++) { /* the link that is late has the slack, the others 1 */
        warm[s] = STAGES - s + (s <= link ? slack - 1 : 0);
    }
    return time_each(warm, link_c, t);
}

/* Absorbed exactly up to (slack - 1) t; what is above costs two transfers for slack + 1
 * microbatches. */
START_TEST(a_delay_is_absorbed_by_the_slack)
{
    const double t = 12;

    for (int link = 0; link < STAGES - 1; link++) {
        for (int slack = 1; slack <= 4; slack++) {
            for (double c = 0; c <= 48; c += 3) {
                double each = with(slack, link, c, t), bound = (slack - 1) * t;

                if (c <= bound) {
                    ck_assert_double_eq_tol(each, 2 * t, 1e-9);
                } else {
                    ck_assert_double_eq_tol(each, (4 * t + 2 * c) / (slack + 1), 1e-9);
                }
            }
        }
    }
}
END_TEST

/* The document's example: t = 12 ms; a row says that transfers over the second link take 10, 20, 30
 * ms. */
START_TEST(the_table_of_the_document)
{
    static const double want[3][3] = {{34, 24, 24}, {44, 88 / 3.0, 24}, {54, 36, 27}};
    const int print = getenv("PRINT") != NULL;

    for (int i = 0; i < 3; i++) {
        double c = 10 * (i + 1);

        if (print) {
            printf("| %.0f ms |", c);
        }
        for (int slack = 1; slack <= 3; slack++) {
            double each = with(slack, 1, c, 12);

            ck_assert_double_eq_tol(each, want[i][slack - 1], 1e-9);
            if (print) {
                printf(" %.1f ms |", each);
            }
        }
        if (print) {
            printf("\n");
        }
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_delay_is_absorbed_by_the_slack);
    tcase_add_test(t, the_table_of_the_document);
}

int main(void)
{
    return suite_run("pipeline", 60, setup, teardown, add);
}
