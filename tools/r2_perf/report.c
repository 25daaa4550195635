#include "tools/r2_perf/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/r2_perf/type.h"
#include "tools/r2_perf/util.h"

/* The nccl-tests whose output this is equal to. */
#define REPORT_COMPATIBLE   "2.19.6"
#define REPORT_JSON_VERSION 3

extern char **environ;

static void report_now(char *text, size_t bytes)
{
    time_t now = time(NULL);
    struct tm tm;
    strftime(text, bytes, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
}

void report_number_format(double value, int width, char *text)
{
    char wide[400];
    int n = width + 1;
    for (int decimals = 2; decimals >= 0 && n > width; decimals--) {
        n = snprintf(wide, sizeof(wide), "%*.*f", width, decimals, value);
    }
    if (n > width) {
        snprintf(wide, sizeof(wide), "%*.*e", width, width >= 7 ? 1 : 0, value);
    }
    memcpy(text, wide, (size_t)width);
    text[width] = '\0';
}

/* Only what concerns us goes into a file that people pass around: environments hold secrets. */
static void report_json_env(struct r2_json *j)
{
    static const char *const prefixes[] = {"NCCL_",   "R2_PERF_",   "SLURM_JOB",
                                           "SLURM_N", "SLURM_STEP", "OMPI_COMM_"};
    r2_json_open(j, "env", '[');
    for (char **e = environ; *e; e++) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            if (!strncmp(*e, prefixes[i], strlen(prefixes[i])) &&
                strncmp(*e, "R2_PERF_CHILD=", 14)) {
                r2_json_text(j, NULL, *e);
                break;
            }
        }
    }
    r2_json_close(j, ']');
}

void report_bool_json(struct r2_json *j, const char *key, bool value)
{
    r2_json_text(j, key, value ? "true" : "false");
}

static FILE *report_json_file(const char *path)
{
    char *name = util_str_copy(path);
    FILE *f = fopen(name, "wx");
    for (int i = 0; !f && errno == EEXIST; i++) {
        free(name);
        name = util_str_format("%s.%d", path, i);
        f = fopen(name, "wx");
    }
    if (f) {
        printf("# Writing JSON output to %s\n", name);
    } else {
        printf("# skipping json output; %s not accessible\n", name);
    }
    free(name);
    return f;
}

static void report_json_open(struct report *r)
{
    FILE *f = report_json_file(r->o->json);
    char now[64];
    if (!f) {
        return;
    }
    r->has_json = true;
    r2_json_begin_file(&r->json, f);
    r2_json_open(&r->json, NULL, '{');
    r2_json_int(&r->json, "version", REPORT_JSON_VERSION);
    report_now(now, sizeof(now));
    r2_json_text(&r->json, "start_time", now);
    r2_json_open(&r->json, "args", '[');
    for (int i = 0; i < r->o->argc; i++) {
        r2_json_text(&r->json, NULL, r->o->argv[i]);
    }
    r2_json_close(&r->json, ']');
    report_json_env(&r->json);
    r2_json_int(&r->json, "nccl_version", 0);
}

static void report_json_config(struct report *r, const struct report_device *devices, int n)
{
    const struct opts *o = r->o;
    struct r2_json *j = &r->json;
    r2_json_open(j, "config", '{');
    r2_json_int(j, "nthreads", 1);
    r2_json_int(j, "ngpus", 1);
    r2_json_int(j, "minimum_bytes", (int64_t)o->min_bytes);
    r2_json_int(j, "maximum_bytes", (int64_t)o->max_bytes);
    if (o->step_factor > 1) {
        r2_json_int(j, "step_factor", o->step_factor);
    } else {
        r2_json_int(j, "step_bytes", (int64_t)o->step_bytes);
    }
    r2_json_int(j, "warmup_iters", o->warmup);
    r2_json_int(j, "iterations", o->iters);
    r2_json_int(j, "aggregated_iterations", o->agg);
    r2_json_int(j, "validation", o->check);
    r2_json_int(j, "graph", 0);
    report_bool_json(j, "blocking_collectives", o->blocking);
    report_bool_json(j, "per_iter_timing", o->per_iter);
    r2_json_int(j, "per_iter_skip", o->per_skip);
    report_bool_json(j, "parallel_init", false);
    r2_json_open(j, "devices", '[');
    for (int i = 0; i < n; i++) {
        const struct report_device *d = &devices[i];
        r2_json_open(j, NULL, '{');
        r2_json_int(j, "rank", d->rank);
        r2_json_int(j, "group", d->group);
        r2_json_int(j, "pid", d->pid);
        r2_json_text(j, "hostname", d->host);
        r2_json_int(j, "device", d->device);
        r2_json_text(j, "device_hex", d->bus);
        r2_json_text(j, "device_info", d->info);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_close(j, '}');
}

void report_open(struct report *r, const struct opts *o, const struct report_device *devices, int n)
{
    memset(r, 0, sizeof(*r));
    r->o = o;
    if (o->json) {
        report_json_open(r);
    }
    bool factor = o->step_factor > 1;
    printf("# nccl-tests version %s nccl-headers=%d nccl-library=%d\n", REPORT_COMPATIBLE, 0, 0);
    printf("# Collective test starting: %s_perf\n", algo_info_get(o->op)->name);
    printf(
        "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
        "validation: %d graph: %d unalign: %d\n",
        1, 1, o->min_bytes, o->max_bytes, factor ? (size_t)o->step_factor : o->step_bytes,
        factor ? "factor" : "bytes", o->warmup, o->iters, o->agg, o->check, 0, o->unalign);
    static const char *const blocking[] = {
        "wait and barrier after each inner iteration (-m) ",
        "wait after each inner iteration (-m), no barrier ",
        "wait and barrier after each outer iteration (-n); time excludes barrier "};
    if (o->blocking) {
        printf("# Blocking Enabled: %s\n", blocking[o->blocking - 1]);
    }
    printf("#\n# Using devices\n");
    for (int i = 0; i < n; i++) {
        printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", devices[i].rank,
               devices[i].group, devices[i].pid, devices[i].host, devices[i].device, devices[i].bus,
               devices[i].info);
    }
    if (r->has_json) {
        report_json_config(r, devices, n);
    }
}

static void report_header_line(const struct opts *o, const char *const names[2][4],
                               const char *first, const char *second, const char *stamp)
{
    printf("# %10s  %12s  %8s  %6s  %6s", first, second, names[0][0], names[0][1], names[0][2]);
    for (int half = 0; half < 2; half++) {
        printf("  %7s  %6s  %6s  %6s", names[1][0], names[1][1], names[1][2], names[1][3]);
        if (o->per_iter) {
            bool title = names[1][3][0] == '#';
            printf("  %7s  %7s  %7s  %7s", title ? "i_min" : "(us)", title ? "i_max" : "(us)",
                   title ? "i_p99" : "(us)", title ? "i_cv%" : "(%)");
        }
    }
    printf(" %*s\n", o->timestamps ? 19 : 0, o->timestamps ? stamp : "");
}

void report_header_print(struct report *r)
{
    static const char *const titles[2][4] = {{"type", "redop", "root", ""},
                                             {"time", "algbw", "busbw", "#wrong"}};
    static const char *const units[2][4] = {{"", "", "", ""}, {"(us)", "(GB/s)", "(GB/s)", ""}};
    printf(
        "#\n# %10s  %12s  %8s  %6s  %6s%s\n", "", "", "", "", "",
        r->o->per_iter
            ? "              out-of-place (+ per-iteration)                                in-place (+ "
              "per-iteration)"
            : "           out-of-place                       in-place          ");
    report_header_line(r->o, titles, "size", "count", "timestamp");
    report_header_line(r->o, units, "(B)", "(elements)", "%Y-%m-%d %H:%M:%S");
    fflush(stdout);
    if (r->has_json) {
        r2_json_open(&r->json, "results", '[');
        r->in_results = true;
    }
}

static int report_real_compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

struct report_spread {
    double min, max, mean, p50, p95, p99, deviation;
};

static void report_spread_get(const double *times, int n, struct report_spread *s)
{
    double *sorted = util_mem_alloc((size_t)n, sizeof(*sorted)), sum = 0, square = 0;
    memcpy(sorted, times, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), report_real_compare);
    for (int i = 0; i < n; i++) {
        sum += sorted[i];
    }
    s->mean = sum / n;
    for (int i = 0; i < n; i++) {
        square += (sorted[i] - s->mean) * (sorted[i] - s->mean);
    }
    int last = n - 1, i95 = (n * 95 + 99) / 100 - 1, i99 = (n * 99 + 99) / 100 - 1;
    s->deviation = sqrt(square / n);
    s->min = sorted[0];
    s->max = sorted[last];
    s->p50 = sorted[n / 2];
    s->p95 = sorted[i95 < last ? i95 : last];
    s->p99 = sorted[i99 < last ? i99 : last];
    free(sorted);
}

static void report_json_spread(struct r2_json *j, const char *key, const struct report_cell *c,
                               int skip, const struct report_spread *s)
{
    r2_json_open(j, key, '{');
    r2_json_int(j, "skipped_iterations", skip);
    r2_json_real(j, "min_us", s->min * 1e6);
    r2_json_real(j, "max_us", s->max * 1e6);
    r2_json_real(j, "avg_us", s->mean * 1e6);
    r2_json_real(j, "p50_us", s->p50 * 1e6);
    r2_json_real(j, "p95_us", s->p95 * 1e6);
    r2_json_real(j, "p99_us", s->p99 * 1e6);
    r2_json_real(j, "stdev_us", s->deviation * 1e6);
    r2_json_real(j, "cv_pct", s->mean > 0 ? s->deviation / s->mean * 100 : 0);
    r2_json_open(j, "times_us", '[');
    for (int i = 0; i < c->ntimes; i++) {
        r2_json_real(j, NULL, c->times[i] * 1e6);
    }
    r2_json_close(j, ']');
    if (c->nranks > 1) {
        r2_json_open(j, "per_process_max_times_us", '[');
        for (int p = 0; p < c->nranks; p++) {
            r2_json_open(j, NULL, '[');
            for (int i = 0; i < c->ntimes; i++) {
                r2_json_real(j, NULL,
                             c->rank_times[(size_t)p * (size_t)c->ntimes + (size_t)i] * 1e6);
            }
            r2_json_close(j, ']');
        }
        r2_json_close(j, ']');
    }
    r2_json_close(j, '}');
}

static void report_spread_print(struct report *r, const struct report_cell *c, const char *key)
{
    struct report_spread s;
    char text[4][16];
    int skip = r->o->per_skip;
    report_spread_get(c->times + skip, c->ntimes - skip, &s);
    double values[4] = {s.min * 1e6, s.max * 1e6, s.p99 * 1e6,
                        s.mean > 0 ? s.deviation / s.mean * 100 : 0};
    for (int i = 0; i < 4; i++) {
        report_number_format(values[i], 7, text[i]);
        printf("  %7s", text[i]);
    }
    if (r->has_json) {
        report_json_spread(&r->json, key, c, skip, &s);
    }
}

static void report_cell_json(struct r2_json *j, const struct report_cell *c, const char *key)
{
    if (!c->made) {
        r2_json_null(j, key);
        return;
    }
    r2_json_open(j, key, '{');
    r2_json_real(j, "time", c->seconds * 1e6);
    r2_json_real(j, "alg_bw", c->algbw);
    r2_json_real(j, "bus_bw", c->busbw);
    if (c->checked) {
        r2_json_real(j, "nwrong", (double)c->wrong);
    } else {
        r2_json_null(j, "nwrong");
    }
    r2_json_close(j, '}');
}

static void report_cell_print(struct report *r, const struct report_cell *c, bool in_place)
{
    char time_text[16] = "N/A", alg[16] = "N/A", bus[16] = "N/A";
    if (c->made) {
        report_number_format(c->seconds * 1e6, 7, time_text);
        report_number_format(c->algbw, 6, alg);
        report_number_format(c->busbw, 6, bus);
        r->busbw_sum += c->busbw;
        r->busbw_n++;
        r->bad_rows += c->wrong > 0;
    }
    if (c->made && c->checked) {
        printf("  %7s  %6s  %6s  %6g", time_text, alg, bus, (double)c->wrong);
    } else {
        printf("  %7s  %6s  %6s    N/A", time_text, alg, bus);
    }
    if (r->has_json) {
        report_cell_json(&r->json, c, in_place ? "in_place" : "out_of_place");
    }
    if (r->o->per_iter && c->made) {
        report_spread_print(r, c, in_place ? "in_place_per_iter" : "out_of_place_per_iter");
    } else if (r->o->per_iter) {
        printf("  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
    }
}

void report_row_print(struct report *r, const struct report_row *row)
{
    char root[16];
    snprintf(root, sizeof(root), "%6i", row->root);
    printf("%12zu  %12zu  %8s  %6s  %6s", row->size, row->count, row->type, row->redop, root);
    if (r->has_json) {
        r2_json_open(&r->json, NULL, '{');
        r2_json_int(&r->json, "size", (int64_t)row->size);
        r2_json_int(&r->json, "count", (int64_t)row->count);
        r2_json_text(&r->json, "type", row->type);
        r2_json_text(&r->json, "redop", row->redop);
        r2_json_text(&r->json, "root", root);
    }
    report_cell_print(r, &row->out, false);
    report_cell_print(r, &row->in, true);
    if (r->o->timestamps) {
        char now[32];
        report_now(now, sizeof(now));
        printf("%21s", now);
    }
    printf("\n");
    fflush(stdout);
    if (r->has_json) {
        r2_json_int(&r->json, "actual_iterations", row->iters);
        r2_json_text(&r->json, "experiment_name", "");
        r2_json_close(&r->json, '}');
    }
}

static void report_json_footer(struct r2_json *j, uint64_t bad, double mean, double wanted,
                               const char *error)
{
    r2_json_close(j, ']');
    r2_json_open(j, "out_of_bounds", '{');
    r2_json_int(j, "count", (int64_t)bad);
    report_bool_json(j, "okay", bad == 0);
    r2_json_close(j, '}');
    r2_json_open(j, "average_bus_bandwidth", '{');
    r2_json_real(j, "bandwidth", mean);
    r2_json_text(j, "okay", wanted < 0 ? "unchecked" : mean >= wanted * 0.9 ? "true" : "false");
    r2_json_close(j, '}');
    r2_json_open(j, "errors", '[');
    if (error) {
        r2_json_text(j, NULL, error);
    }
    r2_json_close(j, ']');
}

int report_footer_print(struct report *r, const char *error)
{
    const char *text = getenv("NCCL_TESTS_MIN_BW");
    double wanted = text ? atof(text) : -1, mean = r->busbw_n ? r->busbw_sum / r->busbw_n : 0;
    bool slow = wanted >= 0 && mean < wanted * 0.9;
    printf("# %-20s : %d %s\n", "Out of bounds values", (int)r->bad_rows,
           r->bad_rows ? "FAILED" : "OK");
    printf("# %-20s : %g %s\n", "Avg bus bandwidth", mean,
           wanted < 0 ? ""
           : slow     ? "FAILED"
                      : "OK");
    printf("#\n# Collective test concluded: %s_perf\n#\n", algo_info_get(r->o->op)->name);
    if (error) {
        printf("# error: %s\n", error);
    } else {
        printf("\n");
    }
    fflush(stdout);
    if (r->has_json) {
        r->in_results = false;
        report_json_footer(&r->json, r->bad_rows, mean, wanted, error);
    }
    return r->bad_rows || slow ? PERF_RESULT : PERF_OK;
}

void report_close(struct report *r, const char *error)
{
    char now[64];
    if (!r->has_json) {
        return;
    }
    if (r->in_results) { /* the run ended there */
        r2_json_close(&r->json, ']');
    }
    if (error) {
        r2_json_open(&r->json, "errors", '[');
        r2_json_text(&r->json, NULL, error);
        r2_json_close(&r->json, ']');
    }
    report_now(now, sizeof(now));
    r2_json_text(&r->json, "end_time", now);
    r2_json_close(&r->json, '}');
    fputc('\n', r->json.f);
    if (fclose(r->json.f) != 0) {
        fprintf(stderr, "%s: the JSON file is incomplete: %s\n", program_invocation_short_name,
                strerror(errno));
    }
    r->has_json = false;
}
