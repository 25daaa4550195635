#include "planner_level.h"

#include "planner_bound.h"

#define TINY 1e-12 /* of coefficients near 1 */

static void members_count(struct planner_level *level, int levels)
{
    for (int k = levels - 1, above = 0; k >= 0; k--) {
        above += level[k].nodes;
        level[k].members = above;
    }
}

int planner_level_find(const double *b, int n, struct planner_level *level)
{
    int levels = 0;

    for (int i = 0; i < n; i++) {
        int k = 0;

        while (k < levels && level[k].b < b[i]) {
            k++;
        }
        if (k < levels && level[k].b == b[i]) {
            level[k].nodes++;
            continue;
        }
        if (levels == PLANNER_LEVELS) {
            return -1;
        }
        for (int m = levels++; m > k; m--) {
            level[m] = level[m - 1];
        }
        level[k] = (struct planner_level){.b = b[i], .nodes = 1};
    }
    members_count(level, levels);
    return levels;
}

int planner_level_isolate(const double *b, int n, struct planner_level *level)
{
    int worst = b[1] < b[0], second;

    second = !worst;
    for (int i = 2; i < n; i++) {
        if (b[i] < b[worst]) {
            second = worst;
            worst = i;
        } else if (b[i] < b[second]) {
            second = i;
        }
    }
    level[0] = (struct planner_level){.b = b[worst], .nodes = 1};
    level[1] = (struct planner_level){.b = b[second], .nodes = n - 1};
    members_count(level, 2);
    return 2;
}

/* What a node of level @of carries for each byte of level @k. */
static double coefficient(const struct planner_level *level, int gpus, enum planner_scheme scheme,
                          int of, int k)
{
    int members = level[k].members, outside = level[0].members - members;
    double in = outside;

    if (of < k) {
        return 1;
    }
    return planner_bound_ring(members, gpus) + (scheme == PLANNER_LEAF ? in / members : in);
}

double planner_level_load(const struct planner_level *level, int levels, int gpus,
                          enum planner_scheme scheme, int of)
{
    double load = 0;

    for (int k = 0; k < levels; k++) {
        load += level[k].share * coefficient(level, gpus, scheme, of, k);
    }
    return load;
}

double planner_level_time(const struct planner_level *level, int levels, int gpus,
                          enum planner_scheme scheme)
{
    double longest = 0;

    for (int of = 0; of < levels; of++) {
        double t = planner_level_load(level, levels, gpus, scheme, of) / level[of].b;

        longest = t > longest ? t : longest;
    }
    return longest;
}

double planner_level_proportional(struct planner_level *level, int levels, int gpus,
                                  enum planner_scheme scheme)
{
    for (int k = 0; k < levels; k++) {
        level[k].share = (level[k].b - (k > 0 ? level[k - 1].b : 0)) / level[levels - 1].b;
    }
    return planner_level_time(level, levels, gpus, scheme);
}

/*
 * The least T with sum_k M_jk Y_k <= T for each j, Y >= 0, sum Y = 1, where M > 0: with x = Y/T
 * this is the largest sum of x with M x <= 1, whose slacks are a first basis. The tableau is kept
 * without the columns of the basis: a pivot exchanges the variable of a row with that of a column.
 * The smallest index is taken where there is a choice (Bland), so it ends.
 */
struct tableau {
    int n;
    double at[PLANNER_LEVELS + 1][PLANNER_LEVELS + 1]; /* row n: what is gained; column n: value */
    int row[PLANNER_LEVELS], column[PLANNER_LEVELS];   /* variables: below n an x, else a slack */
};

static void pivot(struct tableau *t, int r, int c)
{
    double p = 1 / t->at[r][c];
    int swap = t->row[r];

    for (int j = 0; j <= t->n; j++) {
        t->at[r][j] = j == c ? p : t->at[r][j] * p;
    }
    for (int i = 0; i <= t->n; i++) {
        double f = t->at[i][c];

        if (i == r) {
            continue;
        }
        for (int j = 0; j <= t->n; j++) {
            t->at[i][j] = j == c ? -f * p : t->at[i][j] - f * t->at[r][j];
        }
    }
    t->row[r] = t->column[c];
    t->column[c] = swap;
}

static int column_choose(const struct tableau *t)
{
    int best = -1;

    for (int j = 0; j < t->n; j++) {
        if (t->at[t->n][j] > TINY && (best < 0 || t->column[j] < t->column[best])) {
            best = j;
        }
    }
    return best;
}

static int row_choose(const struct tableau *t, int c)
{
    double least = 0;
    int best = -1;

    for (int i = 0; i < t->n; i++) {
        double ratio;

        if (t->at[i][c] <= TINY) {
            continue;
        }
        ratio = t->at[i][t->n] / t->at[i][c];
        if (best < 0 || ratio < least - TINY ||
            (ratio < least + TINY && t->row[i] < t->row[best])) {
            least = best < 0 || ratio < least ? ratio : least;
            best = i;
        }
    }
    return best;
}

double planner_level_best(struct planner_level *level, int levels, int gpus,
                          enum planner_scheme scheme)
{
    struct tableau t = {.n = levels};
    double sum = 0;
    int r, c;

    for (int i = 0; i < levels; i++) {
        for (int j = 0; j < levels; j++) {
            t.at[i][j] = coefficient(level, gpus, scheme, i, j) / level[i].b;
        }
        t.at[i][levels] = t.at[levels][i] = 1;
        t.row[i] = levels + i;
        t.column[i] = i;
        level[i].share = 0;
    }
    /* Bland's rule ends by itself; the bound is for what rounding could do. */
    for (int steps = 0; steps < 64 * PLANNER_LEVELS && (c = column_choose(&t)) >= 0; steps++) {
        r = row_choose(&t, c);
        if (r < 0) {
            break;
        }
        pivot(&t, r, c);
    }
    for (int i = 0; i < levels; i++) {
        double x = t.at[i][levels];

        if (t.row[i] < levels && x > 0) {
            level[t.row[i]].share = x;
            sum += x;
        }
    }
    for (int k = 0; k < levels; k++) {
        level[k].share /= sum;
    }
    return planner_level_time(level, levels, gpus, scheme);
}
