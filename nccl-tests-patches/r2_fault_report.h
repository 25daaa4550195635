/*
 * What r2_fault.h has measured, in words and as JSON. Lines begin with "# r2 ", after nccl-tests'
 * own, without the words that scripts look for in nccl-tests' output.
 *
 * Iterations are judged by the faults that fired: one that had ended before the first is "before",
 * one that began R2_FAULT_SETTLE_S after the last had been done is "after", the others are
 * "during".
 */
#ifndef R2_FAULT_REPORT_H
#define R2_FAULT_REPORT_H

enum r2_phase { R2_BEFORE, R2_DURING, R2_AFTER };

static inline enum r2_phase r2_iteration_phase(const struct r2_iteration *it)
{
    const struct r2_fault *last = NULL;

    for (int i = 0; i < r2_fault_all.n; i++) {
        if (r2_fault_all.fault[i].fired) {
            last = &r2_fault_all.fault[i];
        }
    }
    if (last == NULL || it->start_s + it->sec <= r2_fault_all.fault[0].fired_s) {
        return R2_BEFORE;
    }
    return it->start_s >= last->fired_s + last->took_s + R2_FAULT_SETTLE_S ? R2_AFTER : R2_DURING;
}

static inline double r2_rate_of(const struct r2_measurement *m, enum r2_phase phase)
{
    double sum = 0;
    size_t n = 0;

    for (size_t i = 0; i < m->n; i++) {
        if (r2_iteration_phase(&m->it[i]) == phase) {
            sum += m->it[i].sec;
            n++;
        }
    }
    return n > 0 && sum > 0 ? m->busbw_1s * (double)n / sum : NAN;
}

static inline struct r2_rates r2_rates_of(const struct r2_measurement *m)
{
    struct r2_rates r;

    r.before = r2_rate_of(m, R2_BEFORE);
    r.during = r2_rate_of(m, R2_DURING);
    r.after = r2_rate_of(m, R2_AFTER);
    return r;
}

static inline int r2_double_compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

/* Median of the iterations of a phase, of all for @phase < 0; NaN: there is none. */
static inline double r2_median_of(const struct r2_measurement *m, int phase)
{
    double *sec = (double *)malloc((m->n + 1) * sizeof(*sec)), median = NAN;
    size_t n = 0;

    if (sec == NULL) {
        return NAN;
    }
    for (size_t i = 0; i < m->n; i++) {
        if (phase < 0 || (int)r2_iteration_phase(&m->it[i]) == phase) {
            sec[n++] = m->it[i].sec;
        }
    }
    qsort(sec, n, sizeof(*sec), r2_double_compare);
    if (n > 0) {
        median = sec[n / 2];
    }
    free(sec);
    return median;
}

/* The longest iteration that ended in [@from_s, @to_s); NULL: none. */
static inline const struct r2_iteration *r2_longest_in(const struct r2_measurement *m,
                                                       double from_s, double to_s)
{
    const struct r2_iteration *longest = NULL;

    for (size_t i = 0; i < m->n; i++) {
        double end = m->it[i].start_s + m->it[i].sec;

        if (end >= from_s && end < to_s && (longest == NULL || m->it[i].sec > longest->sec)) {
            longest = &m->it[i];
        }
    }
    return longest;
}

/* What fault @i cost: the longest iteration that ended after it and before the next, beyond the
 * median of those before any. */
static inline double r2_stall_of(const struct r2_measurement *m, int i,
                                 const struct r2_iteration **it)
{
    const struct r2_fault *f = &r2_fault_all.fault[i];
    double to = i + 1 < r2_fault_all.n && f[1].fired ? f[1].fired_s : INFINITY;

    *it = f->fired ? r2_longest_in(m, f->fired_s, to) : NULL;
    return *it ? (*it)->sec - r2_median_of(m, R2_BEFORE) : NAN;
}

static inline void r2_number_print(FILE *out, const char *format, double x, const char *unknown)
{
    if (isfinite(x)) {
        fprintf(out, format, x);
    } else {
        fputs(unknown, out);
    }
}

static inline void r2_fault_print(FILE *out, int i)
{
    const struct r2_fault *f = &r2_fault_all.fault[i];
    const struct r2_iteration *it;
    double stall;

    if (!f->fired) {
        fprintf(out, "# r2 fault %d at %.3f s not fired: %.*s\n", i + 1, f->at_s,
                (int)strcspn(f->command, "\n"), f->command);
        return;
    }
    fprintf(out, "# r2 fault %d at %.3f s (command took %.1f ms, status %d): %.*s\n", i + 1,
            f->fired_s, f->took_s * 1e3, f->status, (int)strcspn(f->command, "\n"), f->command);
    if (r2_fault_all.nm == 0) {
        return;
    }
    stall = r2_stall_of(&r2_fault_all.m[0], i, &it);
    if (it != NULL) {
        fprintf(out, "# r2 stall after fault %d: ", i + 1);
        r2_number_print(out, "%.3f ms", stall * 1e3, "unknown, no iteration before it");
        fprintf(out, ", iteration %zu of %.3f ms\n", (size_t)(it - r2_fault_all.m[0].it),
                it->sec * 1e3);
    }
}

static inline void r2_phases_print(FILE *out, const struct r2_measurement *m)
{
    struct r2_rates r = r2_rates_of(m);

    r2_number_print(out, "# r2 busbw before %.4g", r.before, "# r2 busbw before unknown");
    r2_number_print(out, " during %.4g", r.during, " during unknown");
    r2_number_print(out, " after %.4g GB/s", r.after, " after unknown");
    if (isfinite(r.before) && isfinite(r.after)) {
        fprintf(out, ", after is %.1f %% of before", r.after / r.before * 100);
    }
    fprintf(out, " (during: first fault to %.1f s after the last)\n", R2_FAULT_SETTLE_S);
}

static inline void r2_measurement_print(FILE *out, const struct r2_measurement *m)
{
    const struct r2_iteration *longest = r2_longest_in(m, -INFINITY, INFINITY);

    if (longest == NULL) {
        return;
    }
    fprintf(
        out,
        "# r2 size %zu %s: %zu iterations, median %.1f us, longest stall %.3f ms, iteration %zu of %.3f ms\n",
        m->bytes, m->in_place ? "in place" : "out of place", m->n, r2_median_of(m, -1) * 1e6,
        (longest->sec - r2_median_of(m, -1)) * 1e3, (size_t)(longest - m->it), longest->sec * 1e3);
    if (m == r2_fault_all.m && r2_fault_all.n > 0) {
        r2_phases_print(out, m);
    }
    for (size_t i = 0; i < m->n; i++) {
        fprintf(out, "%s%.1f", i % 16 ? " " : i ? "\n# r2 us: " : "# r2 us: ", m->it[i].sec * 1e6);
    }
    fputc('\n', out);
}

/* Every fault was done, by a command that succeeded, and everything that was measured is known.
 * After r2_fault_stop. */
static inline int r2_fault_all_done(void)
{
    if (r2_fault_all.failed) {
        return 0;
    }
    for (int i = 0; i < r2_fault_all.n; i++) {
        if (!r2_fault_all.fault[i].fired || r2_fault_all.fault[i].status != 0) {
            return 0;
        }
    }
    return 1;
}

static inline void r2_fault_text_print(FILE *out)
{
    fprintf(out, "# r2 checked %lld operations, %lld elements wrong%s\n", r2_fault_all.checked,
            r2_fault_all.wrong, r2_fault_all.wrong ? ": FAILED" : "");
    if (r2_fault_all.failed) {
        fprintf(out, "# r2 out of memory: not all iterations are known\n");
    }
    for (int i = 0; i < r2_fault_all.n; i++) {
        r2_fault_print(out, i);
    }
    for (size_t i = 0; i < r2_fault_all.nm; i++) {
        r2_measurement_print(out, &r2_fault_all.m[i]);
    }
}

static inline void r2_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(out, "\\u%04x", c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}

static inline void r2_json_real(FILE *out, const char *key, double x, const char *behind)
{
    fprintf(out, "\"%s\":", key);
    r2_number_print(out, "%.9g", x, "null");
    fputs(behind, out);
}

static inline void r2_fault_json_one(FILE *out, int i)
{
    const struct r2_fault *f = &r2_fault_all.fault[i];
    const struct r2_iteration *it = NULL;
    double stall = r2_fault_all.nm ? r2_stall_of(&r2_fault_all.m[0], i, &it) : NAN;

    fprintf(out, "%s{\"command\":", i ? "," : "");
    r2_json_text(out, f->command);
    fprintf(out, ",\"fired\":%s,\"status\":%d,", f->fired ? "true" : "false", f->status);
    r2_json_real(out, "at_s", f->at_s, ",");
    r2_json_real(out, "fired_s", f->fired ? f->fired_s : NAN, ",");
    r2_json_real(out, "took_ms", f->fired ? f->took_s * 1e3 : NAN, ",");
    r2_json_real(out, "stall_ms", stall * 1e3, "}");
}

static inline void r2_measurement_json(FILE *out, size_t k)
{
    const struct r2_measurement *m = &r2_fault_all.m[k];
    const struct r2_iteration *longest = r2_longest_in(m, -INFINITY, INFINITY);
    struct r2_rates r = r2_rates_of(m);

    fprintf(out, "%s{\"size\":%zu,\"in_place\":%s,", k ? "," : "", m->bytes,
            m->in_place ? "true" : "false");
    r2_json_real(out, "median_us", r2_median_of(m, -1) * 1e6, ",");
    r2_json_real(out, "longest_us", longest ? longest->sec * 1e6 : NAN, ",\"busbw\":{");
    r2_json_real(out, "before", r.before, ",");
    r2_json_real(out, "during", r.during, ",");
    r2_json_real(out, "after", r.after, "},\"start_s\":[");
    for (size_t i = 0; i < m->n; i++) {
        fprintf(out, "%s%.6f", i ? "," : "", m->it[i].start_s);
    }
    fputs("],\"times_us\":[", out);
    for (size_t i = 0; i < m->n; i++) {
        fprintf(out, "%s%.1f", i ? "," : "", m->it[i].sec * 1e6);
    }
    fputs("]}", out);
}

static inline void r2_fault_json_print(FILE *out)
{
    fprintf(out,
            "{\"r2\":{\"schema\":\"r2_nccl_tests/"
            "1\",\"checked_operations\":%lld,\"wrong\":%lld,\"complete\":%s,\"faults\":[",
            r2_fault_all.checked, r2_fault_all.wrong, r2_fault_all_done() ? "true" : "false");
    for (int i = 0; i < r2_fault_all.n; i++) {
        r2_fault_json_one(out, i);
    }
    fputs("],\"measurements\":[", out);
    for (size_t i = 0; i < r2_fault_all.nm; i++) {
        r2_measurement_json(out, i);
    }
    fputs("]}}\n", out);
}

/*
 * The end: no more faults; the lines on stdout, the file. Rank 0's main thread.
 * 0, or -1: a fault was not done, its command failed, or the file could not be written; that is no
 * measurement with this fault.
 */
static inline int r2_fault_report(void)
{
    FILE *out;
    int rc;

    r2_fault_stop();
    r2_fault_text_print(stdout);
    fflush(stdout);
    rc = r2_fault_all_done() ? 0 : -1;
    if (r2_fault_all.json == NULL) {
        return rc;
    }
    out = fopen(r2_fault_all.json, "w");
    if (out != NULL) {
        r2_fault_json_print(out);
    }
    if (out == NULL || ferror(out) || fclose(out) != 0) {
        fprintf(stderr, "%s: %s\n", r2_fault_all.json, strerror(errno));
        return -1;
    }
    return rc;
}

#endif
