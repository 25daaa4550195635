#include "tools/r2_perf/util.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void util_memory_end(size_t n, size_t size)
{
    fprintf(stderr, "%s: no memory for %zu x %zu bytes\n", program_invocation_short_name, n, size);
    exit(PERF_INTERNAL);
}

void *util_mem_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) {
        util_memory_end(n, size);
    }
    return p;
}

void *util_mem_resize(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        util_memory_end(n, size);
    }
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) {
        util_memory_end(n, size);
    }
    return q;
}

char *util_str_copy(const char *s)
{
    if (!s) {
        return NULL;
    }
    size_t n = strlen(s) + 1;
    return memcpy(util_mem_alloc(n, 1), s, n);
}

char *util_str_format(const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = util_mem_alloc((size_t)(n < 0 ? 0 : n) + 1, 1);
    vsnprintf(s, (size_t)(n < 0 ? 0 : n) + 1, fmt, again);
    va_end(again);
    return s;
}

/* A non-negative finite number at the start of @text; @end is what follows it. */
static bool util_number_parse(const char *text, double *value, const char **end)
{
    if (!text || (!isdigit((unsigned char)*text) && *text != '.')) {
        return false;
    }
    char *stop;
    errno = 0;
    *value = strtod(text, &stop);
    *end = stop;
    return stop != text && errno == 0 && isfinite(*value) && *value >= 0;
}

bool util_size_parse(const char *text, size_t *bytes)
{
    double v;
    const char *end;
    if (!util_number_parse(text, &v, &end)) {
        return false;
    }
    double unit = 1;
    switch (tolower((unsigned char)*end)) {
    case '\0':
        break;
    case 'k':
        unit = 1024.0;
        end++;
        break;
    case 'm':
        unit = 1024.0 * 1024;
        end++;
        break;
    case 'g':
        unit = 1024.0 * 1024 * 1024;
        end++;
        break;
    default:
        return false;
    }
    if (*end || v * unit >= 9e15) {
        return false;
    }
    *bytes = (size_t)(v * unit);
    return true;
}

bool util_time_parse(const char *text, uint64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"m", 60e9}, {"h", 3600e9}};
    double v;
    const char *end;
    if (!util_number_parse(text, &v, &end)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (!strcmp(end, units[i].unit) && v * units[i].ns < 9e18) {
            *ns = (uint64_t)(v * units[i].ns);
            return true;
        }
    }
    return false;
}

bool util_int_parse(const char *text, long lo, long hi, long *value)
{
    char *end;
    errno = 0;
    long v = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || v < lo || v > hi) {
        return false;
    }
    *value = v;
    return true;
}

uint64_t util_machine_id(void)
{
    char text[128] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f) {
        size_t n = fread(text, 1, 64, f);
        text[n] = '\0';
        fclose(f);
    }
    gethostname(text + strlen(text), sizeof(text) - strlen(text) - 1);
    uint64_t h = 1;
    for (const char *p = text; *p; p++) {
        h = util_hash64(h ^ (uint64_t)(unsigned char)*p);
    }
    return h;
}
