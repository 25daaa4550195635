#include "r2_json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

static void put(struct r2_json *j, const char *text, size_t len)
{
    if (j->f) {
        fwrite(text, 1, len, j->f);
        return;
    }
    if (j->over || len >= j->room - j->n) { /* a zero has to follow */
        j->over = 1;
        return;
    }
    memcpy(j->out + j->n, text, len);
    j->n += len;
}

static void quote(struct r2_json *j, const char *text)
{
    put(j, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char esc[8];

        if (c == '"' || c == '\\' || c == '\n' || c == '\t') {
            esc[0] = '\\';
            esc[1] = (char)(c == '\n' ? 'n' : c == '\t' ? 't' : c);
            put(j, esc, 2);
        } else if (c < 0x20) {
            put(j, esc, (size_t)snprintf(esc, sizeof(esc), "\\u%04x", c));
        } else {
            put(j, c < 0x7f || j->f ? text : "?", 1);
        }
    }
    put(j, "\"", 1);
}

static void lead(struct r2_json *j, const char *key)
{
    if (j->comma) {
        put(j, ",", 1);
    }
    j->comma = 1;
    if (key) {
        quote(j, key);
        put(j, ":", 1);
    }
}

/* @text is JSON. */
static void literal(struct r2_json *j, const char *key, const char *text)
{
    lead(j, key);
    put(j, text, strlen(text));
}

void r2_json_begin(struct r2_json *j, char *out, size_t room)
{
    *j = (struct r2_json){.out = out, .room = room, .over = room == 0};
}

void r2_json_begin_file(struct r2_json *j, FILE *f)
{
    *j = (struct r2_json){.f = f};
}

void r2_json_open(struct r2_json *j, const char *key, char bracket)
{
    lead(j, key);
    put(j, &bracket, 1);
    j->comma = 0;
}

void r2_json_close(struct r2_json *j, char bracket)
{
    put(j, &bracket, 1);
    j->comma = 1;
}

void r2_json_text(struct r2_json *j, const char *key, const char *text)
{
    if (text == NULL) {
        r2_json_null(j, key);
        return;
    }
    lead(j, key);
    quote(j, text);
}

void r2_json_int(struct r2_json *j, const char *key, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    literal(j, key, text);
}

void r2_json_uint(struct r2_json *j, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    literal(j, key, text);
}

void r2_json_known(struct r2_json *j, const char *key, int64_t value)
{
    if (value < 0) {
        r2_json_null(j, key);
    } else {
        r2_json_int(j, key, value);
    }
}

void r2_json_real(struct r2_json *j, const char *key, double value)
{
    char text[DBL_MAX_10_EXP + 16];

    snprintf(text, sizeof(text), "%.6f", value);
    literal(j, key, isfinite(value) ? text : "null");
}

void r2_json_bool(struct r2_json *j, const char *key, bool value)
{
    literal(j, key, value ? "true" : "false");
}

void r2_json_null(struct r2_json *j, const char *key)
{
    literal(j, key, "null");
}

void r2_json_time(struct r2_json *j, const char *key, uint64_t ns, int digits)
{
    time_t s = (time_t)(ns / 1000000000);
    char text[64];
    struct tm tm;
    size_t n;

    if (gmtime_r(&s, &tm) == NULL) {
        r2_json_null(j, key);
        return;
    }
    n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof(text) - n, ".%0*uZ", digits,
             (unsigned)(ns % 1000000000) / (digits == 3 ? 1000000 : 1));
    r2_json_text(j, key, text);
}

void r2_json_gid(struct r2_json *j, const char *key, const uint8_t gid[16])
{
    char text[48];
    int n = 0;

    for (int i = 0; i < 16; i++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%02x", i && i % 2 == 0 ? ":" : "",
                      gid[i]);
    }
    r2_json_text(j, key, text);
}

size_t r2_json_end(struct r2_json *j)
{
    if (j->over) {
        return 0;
    }
    j->out[j->n] = '\0';
    return j->n;
}
