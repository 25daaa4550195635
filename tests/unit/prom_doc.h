/* Prometheus' text format as node_exporter's textfile collector takes it: a parser, strict where
 * Prometheus is lenient. */
#ifndef PROM_DOC_H
#define PROM_DOC_H

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METRICS 64
#define SERIES  512

static struct {
    char metric[METRICS][96], type[METRICS][16], help[METRICS][200];
    int samples[METRICS];
    int metrics;
    char series[SERIES][300];
    double value[SERIES];
    int n;
    char why[400];
} doc;

static inline int wrong(const char *what, const char *line)
{
    snprintf(doc.why, sizeof(doc.why), "%s: %.200s", what, line);
    return -1;
}

static inline size_t name_len(const char *p, int is_label)
{
    size_t n = 0;

    while (isalpha((unsigned char)p[n]) || p[n] == '_' || (p[n] == ':' && !is_label) ||
           (n > 0 && isdigit((unsigned char)p[n]))) {
        n++;
    }
    return n;
}

/* "{a="b",...}" at @p; its length, 0: not one. */
static inline size_t labels_len(const char *p)
{
    size_t n = 1;

    for (;;) {
        size_t k = name_len(p + n, 1);

        if (k == 0 || strncmp(p + n + k, "=\"", 2) != 0) {
            return 0;
        }
        for (n += k + 2; p[n] != '"'; n++) {
            if (p[n] == '\0' || (p[n] == '\\' && strchr("\\\"n", p[++n]) == NULL)) {
                return 0;
            }
        }
        n++;
        if (p[n] == '}') {
            return n + 1;
        }
        if (p[n++] != ',') {
            return 0;
        }
    }
}

static inline int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);

    return n > k && strcmp(s + n - k, end) == 0;
}

static inline int help_take(const char *line)
{
    size_t n = name_len(line + 7, 0);

    if (n == 0 || n >= 96 || line[7 + n] != ' ' || line[8 + n] == '\0' || doc.metrics == METRICS) {
        return wrong("no HELP", line);
    }
    if (doc.metrics && doc.samples[doc.metrics - 1] == 0) {
        return wrong("the metric before has no sample", line);
    }
    snprintf(doc.metric[doc.metrics], sizeof(doc.metric[0]), "%.*s", (int)n, line + 7);
    for (int i = 0; i < doc.metrics; i++) {
        if (strcmp(doc.metric[i], doc.metric[doc.metrics]) == 0) {
            return wrong("HELP twice, or samples apart", line);
        }
    }
    doc.metrics++;
    return 0;
}

static inline int type_take(const char *line)
{
    const char *name = doc.metrics ? doc.metric[doc.metrics - 1] : "";
    size_t n = strlen(name);
    char *type = doc.metrics ? doc.type[doc.metrics - 1] : NULL;

    if (n == 0 || strncmp(line + 7, name, n) != 0 || line[7 + n] != ' ' || type[0] ||
        doc.samples[doc.metrics - 1]) {
        return wrong("TYPE not behind its HELP", line);
    }
    snprintf(type, sizeof(doc.type[0]), "%.15s", line + 8 + n);
    if (strcmp(type, "counter") != 0 && strcmp(type, "gauge") != 0 &&
        strcmp(type, "histogram") != 0) {
        return wrong("type", line);
    }
    if (strcmp(type, "histogram") == 0 && !ends_with(name, "_seconds")) {
        return wrong("histograms here are of times", line);
    }
    if (strncmp(name, "r2_", 3) != 0 ||
        (strcmp(type, "counter") == 0) != ends_with(name, "_total")) {
        return wrong("name: prefix r2_, _total on counters and nowhere else", line);
    }
    if (strstr(name, "_ms") || strstr(name, "micro") || strstr(name, "percent") ||
        strstr(name, "_kb") || strstr(name, "_mbps")) {
        return wrong("unit: seconds, bytes, ratios", line);
    }
    return 0;
}

/* What may stand behind the metric's name in a sample of it; 0: not that. */
static inline int suffix_is_right(int m, const char *line, size_t n)
{
    static const char *const of[] = {"_bucket", "_sum", "_count"};
    size_t len = strlen(doc.metric[m]);

    if (n < len || strncmp(line, doc.metric[m], len) != 0) {
        return 0;
    }
    for (int i = 0; i < 3 && strcmp(doc.type[m], "histogram") == 0; i++) {
        if (n - len == strlen(of[i]) && strncmp(line + len, of[i], n - len) == 0) {
            return 1;
        }
    }
    return n == len && doc.type[m][0] && strcmp(doc.type[m], "histogram") != 0;
}

static inline int sample_take(const char *line)
{
    size_t n = name_len(line, 0), k = 0;
    int m = doc.metrics - 1;
    char *end;

    if (m < 0 || !suffix_is_right(m, line, n)) {
        return wrong("a sample that is not behind its HELP and TYPE", line);
    }
    if (line[n] == '{' && (k = labels_len(line + n)) == 0) {
        return wrong("labels", line);
    }
    n += k;
    if (line[n] != ' ' || !(isdigit((unsigned char)line[n + 1])) || n >= sizeof(doc.series[0]) ||
        doc.n == SERIES) {
        return wrong("value", line);
    }
    snprintf(doc.series[doc.n], sizeof(doc.series[0]), "%.*s", (int)n, line);
    doc.value[doc.n] = strtod(line + n + 1, &end);
    if (*end != '\0') {
        return wrong("something behind the value (a timestamp?)", line);
    }
    for (int i = 0; i < doc.n; i++) {
        if (strcmp(doc.series[i], doc.series[doc.n]) == 0) {
            return wrong("the same series twice", line);
        }
    }
    doc.samples[m]++;
    doc.n++;
    return 0;
}

/*
 * Series @i is the first bucket of a histogram: its buckets, bounds rising, counts not falling, end
 * with +Inf; sum and count follow, of the same labels, and the count is that of +Inf. The number of
 * its series; 0: not so.
 */
static inline int histogram_len(int i)
{
    const char *le = strstr(doc.series[i], ",le=\""), *labels = strchr(doc.series[i], '{');
    double bound = -1, count = 0;
    char rest[300], want[320];
    int k = i;

    if (le == NULL || labels == NULL) {
        return 0;
    }
    snprintf(rest, sizeof(rest), "%.*s}", (int)(le - labels), labels);
    for (; k < doc.n && (le = strstr(doc.series[k], "_bucket{")) != NULL; k++) {
        const char *at = strstr(le, ",le=\"");
        double b = at ? strtod(at + 5, NULL) : -1; /* it knows +Inf */

        if (at == NULL || strncmp(le + 7, rest, strlen(rest) - 1) != 0 || b <= bound ||
            doc.value[k] < count) {
            return 0;
        }
        bound = b;
        count = doc.value[k];
        if (strcmp(at, ",le=\"+Inf\"}") == 0) {
            k++;
            break;
        }
    }
    if (k + 2 > doc.n ||
        strcmp(doc.series[k - 1] + strlen(doc.series[k - 1]) - 6, "+Inf\"}") != 0) {
        return 0;
    }
    snprintf(want, sizeof(want), "_sum%s", rest);
    if (!ends_with(doc.series[k], want)) {
        return 0;
    }
    snprintf(want, sizeof(want), "_count%s", rest);
    return ends_with(doc.series[k + 1], want) && doc.value[k + 1] == count ? k + 2 - i : 0;
}

static inline int histograms_check(void)
{
    for (int i = 0, n; i < doc.n; i += n) {
        int is = 0;

        for (int m = 0; m < doc.metrics; m++) {
            is |= strcmp(doc.type[m], "histogram") == 0 &&
                  strncmp(doc.series[i], doc.metric[m], strlen(doc.metric[m])) == 0;
        }
        n = is ? histogram_len(i) : 1;
        if (n == 0) {
            return wrong("histogram", doc.series[i]);
        }
    }
    return 0;
}

/* 0: @in is by the format, and is in `doc`. */
static inline int doc_read(const char *in)
{
    memset(&doc, 0, sizeof(doc));
    while (*in) {
        size_t n = strcspn(in, "\n");
        char line[1024];
        int rc;

        if (in[n] == '\0' || n >= sizeof(line) || n == 0) {
            return wrong("a line that is empty, too long, or not ended", in);
        }
        snprintf(line, sizeof(line), "%.*s", (int)n, in);
        rc = strncmp(line, "# HELP ", 7) == 0   ? help_take(line)
             : strncmp(line, "# TYPE ", 7) == 0 ? type_take(line)
                                                : sample_take(line);
        if (rc != 0) {
            return rc;
        }
        in += n + 1;
    }
    return doc.metrics && doc.samples[doc.metrics - 1] ? histograms_check()
                                                       : wrong("no sample at the end", "");
}

static inline double value_of(const char *series)
{
    for (int i = 0; i < doc.n; i++) {
        if (strcmp(doc.series[i], series) == 0) {
            return doc.value[i];
        }
    }
    ck_abort_msg("no %s", series);
}

#endif
