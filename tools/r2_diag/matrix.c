#include "tools/r2_diag/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a cell's logarithm is compared with: chance reaches it in one of so many matrices. */
#define CHANCE     1e4
#define FEW        1.7    /* how much further: a MAD of few cells is small by chance */
#define MAD_TO_DEV 1.4826 /* of a normal distribution */

/* A line is a row or a column. */
struct judge {
    struct diag_matrix *m;
    struct diag_verdict *v;
    double spread;           /* MAD of logarithms */
    double of_line, of_cell; /* logarithms above which a line, a cell is slow */
};

enum { ROW, COLUMN };

/* Of a line. */
enum { OUT = 1, SUSPECT = 2 };

const char *diag_kind_name(unsigned kind)
{
    static const char *const names[DIAG_KINDS] = {"place", "source",         "destination",
                                                  "link",  "source-or-link", "destination-or-link",
                                                  "either"};

    return kind < DIAG_KINDS ? names[kind] : "?";
}

const char *diag_state_name(unsigned state)
{
    static const char *const names[DIAG_STATES] = {"few", "clean", "found", "unclear"};

    return state < DIAG_STATES ? names[state] : "?";
}

struct diag_matrix *diag_matrix_new(int n)
{
    struct diag_matrix *m = calloc(1, sizeof(*m));
    size_t cells = (size_t)n * (size_t)n;

    if (m == NULL) {
        return NULL;
    }
    m->n = n;
    m->cell = calloc(cells + 1, sizeof(*m->cell));
    m->scratch = calloc(cells + (size_t)n + 1, sizeof(*m->scratch));
    m->place = calloc(2 * (size_t)n + 1, 1);
    if (m->cell == NULL || m->scratch == NULL || m->place == NULL) {
        diag_matrix_free(m);
        return NULL;
    }
    return m;
}

void diag_matrix_free(struct diag_matrix *m)
{
    if (m) {
        free(m->cell);
        free(m->scratch);
        free(m->place);
        free(m);
    }
}

static struct diag_cell *at(const struct diag_matrix *m, int way, int line, int k)
{
    return &m->cell[way == ROW ? line * m->n + k : k * m->n + line];
}

static uint8_t *flags(const struct diag_matrix *m, int way, int line)
{
    return &m->place[way == ROW ? line : m->n + line];
}

static int is_out(const struct diag_matrix *m, int way, int line)
{
    return *flags(m, way, line) & OUT;
}

static double lg(const struct diag_cell *c)
{
    return log(c->ratio);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Of an even number the lower one: what is slow lies above. 0 of none. */
static double median(double *x, int n)
{
    if (n == 0) {
        return 0;
    }
    qsort(x, (size_t)n, sizeof(x[0]), compare);
    return x[(n - 1) / 2];
}

/* --- what is usual --- */

static int is_counted(const struct diag_matrix *m, int s, int d, int link)
{
    const struct diag_cell *c = &m->cell[s * m->n + d];

    return c->ns > 0 && c->times >= DIAG_TIMES && c->link == link && !is_out(m, ROW, s) &&
           !is_out(m, COLUMN, d);
}

/*
 * What is usual in a class, the median of its cells. @below: it is not known yet what is slow; then
 * it is the median of the rows' medians, each the lower one, which stands where a slow place of
 * four has half of the cells. Rows and columns that are out do not count. 0: there are too few.
 */
static double usual(const struct diag_matrix *m, int link, int below)
{
    double *cell = m->scratch, *of_rows = m->scratch + (size_t)m->n * (size_t)m->n;
    int rows = 0, cells = 0;

    for (int s = 0; s < m->n; s++) {
        double *row = cell + (below ? 0 : cells);
        int n = 0;

        for (int d = 0; d < m->n; d++) {
            if (is_counted(m, s, d, link)) {
                row[n++] = m->cell[s * m->n + d].ns;
            }
        }
        if (n > 0) {
            of_rows[rows++] = below ? median(row, n) : 0;
            cells += n;
        }
    }
    if (rows < DIAG_ROWS || cells < DIAG_CELLS) {
        return 0;
    }
    if (below) {
        return median(of_rows, rows);
    }
    median(cell, cells); /* sorts them */
    return (cell[(cells - 1) / 2] + cell[cells / 2]) / 2;
}

static void ratios_fill(struct judge *j)
{
    struct diag_matrix *m = j->m;

    j->v->figures = j->v->judged = j->v->thin = 0;
    for (int i = 0; i < m->n * m->n; i++) {
        struct diag_cell *c = &m->cell[i];
        double u = c->link < DIAG_LINKS ? j->v->usual_ns[c->link] : 0;

        c->ratio = c->ns > 0 && u > 0 ? c->ns / u : 0;
        c->judged = c->ratio > 0 && c->times >= DIAG_TIMES;
        j->v->figures += c->ns > 0;
        j->v->judged += c->judged;
        j->v->thin += c->ns > 0 && c->times < DIAG_TIMES;
    }
}

/*
 * How far cells are from the usual. @below: only those that are faster, since of the others any
 * number may be slow as long as it is not known who is.
 */
static void spread_fill(struct judge *j, int below)
{
    const struct diag_matrix *m = j->m;
    double z, few, ratio;
    int n = 0;

    for (int s = 0; s < m->n; s++) {
        for (int d = 0; d < m->n; d++) {
            const struct diag_cell *c = &m->cell[s * m->n + d];

            if (c->judged && is_counted(m, s, d, c->link) && (!below || c->ratio <= 1)) {
                m->scratch[n++] = fabs(lg(c));
            }
        }
    }
    j->spread = median(m->scratch, n);
    /* A MAD of few cells may be small by chance; of many cells one is far away by chance. */
    few = 1 + FEW / sqrt(n > 0 ? n : 1);
    z = MAD_TO_DEV * sqrt(2 * log(CHANCE * (n > 0 ? n : 1)));
    ratio = log(n < DIAG_FEW_CELLS ? DIAG_RATIO_FEW : DIAG_RATIO);
    j->of_line = fmax(ratio, DIAG_MADS * few * j->spread);
    j->of_cell = fmax(ratio, fmax(DIAG_MADS, z) * few * j->spread);
    j->v->limit = exp(j->of_cell);
}

static int measure(struct judge *j, int below)
{
    int known = 0;

    for (int l = 0; l < DIAG_LINKS; l++) {
        j->v->usual_ns[l] = usual(j->m, l, below);
        known += j->v->usual_ns[l] > 0;
    }
    ratios_fill(j);
    spread_fill(j, below);
    return known;
}

/* --- rows and columns --- */

/* Whether a cell is slow as one of a line is whose cells are so by @level: nearer to that than to
 * the usual. */
static int is_high(const struct diag_cell *c, double level)
{
    return lg(c) > level / 2;
}

/* By how much a line is slow: the median of its cells outside of lines that are out. @n: of how
 * many. */
static double level_of(const struct diag_matrix *m, int way, int line, int *n)
{
    *n = 0;
    for (int k = 0; k < m->n; k++) {
        const struct diag_cell *c = at(m, way, line, k);

        if (c->judged && !is_out(m, !way, k)) {
            m->scratch[(*n)++] = lg(c);
        }
    }
    return median(m->scratch, *n);
}

/* The line across at @k has a cell elsewhere that is well: it is not what is slow. */
static int is_witness(const struct diag_matrix *m, int way, int line, int k, double level)
{
    for (int i = 0; i < m->n; i++) {
        const struct diag_cell *c = at(m, !way, k, i);

        if (i != line && c->judged && !is_high(c, level)) {
            return 1;
        }
    }
    return 0;
}

/* Four fifths of its cells are slow, and what they lead to is well elsewhere, at two places at
 * least. */
static int is_slow(const struct judge *j, int way, int line, double *level)
{
    const struct diag_matrix *m = j->m;
    int n, high = 0, witnesses = 0;

    *level = level_of(m, way, line, &n);
    if (n < 2 || *level <= j->of_line) {
        return 0;
    }
    for (int k = 0; k < m->n; k++) {
        const struct diag_cell *c = at(m, way, line, k);

        if (c->judged && !is_out(m, !way, k) && is_high(c, *level)) {
            high++;
            witnesses += is_witness(m, way, line, k, *level);
        }
    }
    return high * 5 >= n * 4 && witnesses >= 2;
}

/* Those of which it may be so are out: what is usual is then measured without them. Returns how
 * many. */
static int lines_suspect(struct judge *j)
{
    int suspects = 0;

    for (int way = ROW; way <= COLUMN; way++) {
        for (int i = 0; i < j->m->n; i++) {
            int n;
            double level = level_of(j->m, way, i, &n);

            *flags(j->m, way, i) |= n >= 2 && level > log(DIAG_RATIO) ? SUSPECT : 0;
        }
    }
    for (int i = 0; i < 2 * j->m->n; i++) {
        suspects += j->m->place[i] == SUSPECT;
        j->m->place[i] = j->m->place[i] ? OUT : 0;
    }
    return suspects;
}

/* Puts back what is not slow. Returns how many that are. */
static int lines_put_back(struct judge *j)
{
    int back = 0;

    for (int i = 0; i < 2 * j->m->n; i++) {
        int way = i < j->m->n ? ROW : COLUMN;
        double level;

        if (j->m->place[i] == OUT && !is_slow(j, way, i % j->m->n, &level)) {
            j->m->place[i] = SUSPECT;
            back++;
        }
    }
    for (int i = 0; i < 2 * j->m->n; i++) {
        j->m->place[i] &= OUT;
    }
    return back;
}

/*
 * Whether lines that are out can be what is slow. Not where there are too many of them, or where
 * the cell at which two of them cross is well: then these two are far from the others, and near to
 * each other.
 */
static int is_plausible(const struct diag_matrix *m, double limit)
{
    for (int way = ROW; way <= COLUMN; way++) {
        int lines = 0, out = 0;

        for (int i = 0; i < m->n; i++) {
            int n = 0;

            for (int k = 0; k < m->n; k++) {
                n += at(m, way, i, k)->judged;
            }
            lines += n > 0;
            out += is_out(m, way, i) != 0;
        }
        if (out > 1 && out * 3 > lines) {
            return 0;
        }
    }
    for (int i = 0; i < m->n * m->n; i++) {
        const struct diag_cell *c = &m->cell[i];

        if (c->judged && is_out(m, ROW, i / m->n) && is_out(m, COLUMN, i % m->n) &&
            !is_high(c, limit)) {
            return 0;
        }
    }
    return 1;
}

/* Leaves the rows and columns that are slow out, and what is usual measured without them. Returns
 * 0; 1: there is no telling which they are. */
static int lines_find(struct judge *j)
{
    struct diag_matrix *m = j->m;
    int known, suspects;

    memset(m->place, 0, 2 * (size_t)m->n);
    if (measure(j, 1) == 0) {
        return 0;
    }
    suspects = lines_suspect(j);
    do {
        known = measure(j, 0);
    } while (known && lines_put_back(j) > 0);
    if (known && is_plausible(m, j->of_line)) {
        return 0;
    }
    memset(m->place, 0, 2 * (size_t)m->n);
    measure(j, 0);
    return suspects > 0;
}

/* --- findings --- */

static struct diag_finding *finding_add(struct diag_verdict *v, int kind, int source,
                                        int destination, double ratio)
{
    struct diag_finding *f = v->findings < DIAG_FINDINGS ? &v->finding[v->findings++] : NULL;

    if (f) {
        *f = (struct diag_finding){.kind = (uint8_t)kind,
                                   .source = source,
                                   .destination = destination,
                                   .cells = 1,
                                   .ratio = ratio};
    }
    return f;
}

/* The cells of a line that is out. */
static int line_mark(const struct diag_matrix *m, int way, int line, double *ratio)
{
    int n = 0;

    for (int k = 0; k < m->n; k++) {
        struct diag_cell *c = at(m, way, line, k);

        if (c->judged) {
            m->scratch[n++] = c->ratio;
            c->mark = way == ROW || c->mark == DIAG_MARK_ROW ? DIAG_MARK_ROW : DIAG_MARK_COLUMN;
        }
    }
    *ratio = median(m->scratch, n);
    return n;
}

static void lines_say(struct judge *j)
{
    for (int i = 0; i < j->m->n; i++) {
        int row = is_out(j->m, ROW, i), column = is_out(j->m, COLUMN, i), cells = 0;
        double from = 0, to = 0;
        struct diag_finding *f;

        cells += column ? line_mark(j->m, COLUMN, i, &to) : 0;
        cells += row ? line_mark(j->m, ROW, i, &from) : 0;
        if (!row && !column) {
            continue;
        }
        f = finding_add(j->v,
                        row && column ? DIAG_PLACE
                        : row         ? DIAG_SOURCE
                                      : DIAG_DESTINATION,
                        row ? i : -1, column ? i : -1, row ? from : to);
        if (f) {
            f->cells = cells;
        }
    }
}

static int is_slow_cell(const struct judge *j, int s, int d)
{
    const struct diag_cell *c = &j->m->cell[s * j->m->n + d];

    return c->judged && !is_out(j->m, ROW, s) && !is_out(j->m, COLUMN, d) && lg(c) > j->of_cell;
}

/* Whether the line has another cell that is well beside one of @level. */
static int is_well(const struct diag_matrix *m, int way, int line, int but, double level)
{
    for (int k = 0; k < m->n; k++) {
        const struct diag_cell *c = at(m, way, line, k);

        if (k != but && c->judged && !is_high(c, level)) {
            return 1;
        }
    }
    return 0;
}

static void cell_say(struct judge *j, int s, int d)
{
    struct diag_cell *c = &j->m->cell[s * j->m->n + d];
    int from = is_well(j->m, ROW, s, d, lg(c)), to = is_well(j->m, COLUMN, d, s, lg(c));
    int kind = from && to ? DIAG_LINK
               : to       ? DIAG_SOURCE_OR_LINK
               : from     ? DIAG_DESTINATION_OR_LINK
                          : DIAG_EITHER;

    for (int i = 0; i < j->v->findings; i++) { /* the other direction, which was first */
        struct diag_finding *f = &j->v->finding[i];

        if (kind == DIAG_LINK && f->kind == DIAG_LINK && f->source == d && f->destination == s) {
            f->both_ways = 1;
            f->cells = 2;
            c->mark = DIAG_MARK_CELL;
            return;
        }
    }
    if (finding_add(j->v, kind, s, d, c->ratio)) {
        c->mark = DIAG_MARK_CELL;
    }
}

/* Cells of lines that are well, and slow by @level. */
static int cells_count(const struct diag_matrix *m, double level)
{
    int slow = 0;

    for (int i = 0; i < m->n * m->n; i++) {
        slow += m->cell[i].judged && !is_out(m, ROW, i / m->n) && !is_out(m, COLUMN, i % m->n) &&
                lg(&m->cell[i]) > level;
    }
    return slow;
}

/*
 * How many cells are slow in no order: more than links would be, an eighth of all. Those count,
 * too, that are nearer to what is slow than to the usual.
 */
static int disorder(const struct judge *j)
{
    const struct diag_matrix *m = j->m;
    double least = INFINITY;
    int slow;

    for (int i = 0; i < m->n * m->n; i++) {
        if (is_slow_cell(j, i / m->n, i % m->n)) {
            least = fmin(least, lg(&m->cell[i]));
        }
    }
    slow = cells_count(m, least / 2);
    return slow > 4 && slow * 8 > j->v->judged ? slow : 0;
}

void diag_judge(struct diag_matrix *m, struct diag_verdict *out)
{
    struct judge j = {.m = m, .v = out};
    int unclear, lines = 0;

    memset(out, 0, sizeof(*out));
    for (int i = 0; i < m->n * m->n; i++) {
        m->cell[i].mark = DIAG_MARK_NONE;
    }
    unclear = lines_find(&j);
    if (out->judged == 0) {
        out->state = DIAG_FEW;
        return;
    }
    for (int i = 0; i < 2 * m->n; i++) {
        lines += m->place[i] & OUT;
    }
    unclear |= lines == 0 && j.of_cell > log(DIAG_NOISE) && cells_count(m, j.of_cell) == 0;
    out->slow = unclear ? cells_count(m, log(DIAG_RATIO_FEW)) : disorder(&j);
    if (out->slow == 0) {
        lines_say(&j);
        for (int i = 0; i < m->n * m->n; i++) {
            if (is_slow_cell(&j, i / m->n, i % m->n)) {
                cell_say(&j, i / m->n, i % m->n);
            }
        }
    }
    out->state = out->slow ? DIAG_UNCLEAR : out->findings ? DIAG_FOUND : DIAG_CLEAN;
}
