#include "tools/r2_perf/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void json_string_write(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            fprintf(f, "\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", f);
        } else if (c == '\t') {
            fputs("\\t", f);
        } else if (c < 0x20) {
            fprintf(f, "\\u%04x", c);
        } else {
            fputc(c, f);
        }
    }
    fputc('"', f);
}

static void json_value_begin(struct json *j, const char *key)
{
    if (j->some[j->depth]) {
        fputc(',', j->f);
    }
    j->some[j->depth] = true;
    if (key) {
        json_string_write(j->f, key);
        fputc(':', j->f);
    }
}

static void json_level_open(struct json *j, const char *key, char c)
{
    json_value_begin(j, key);
    fputc(c, j->f);
    j->some[++j->depth] = false;
}

void json_init(struct json *j, FILE *f)
{
    memset(j, 0, sizeof(*j));
    j->f = f;
}

void json_object_start(struct json *j, const char *key)
{
    json_level_open(j, key, '{');
}

void json_object_end(struct json *j)
{
    fputc('}', j->f);
    j->depth--;
}

void json_list_start(struct json *j, const char *key)
{
    json_level_open(j, key, '[');
}

void json_list_end(struct json *j)
{
    fputc(']', j->f);
    j->depth--;
}

void json_text_put(struct json *j, const char *key, const char *text)
{
    if (!text) {
        json_null_put(j, key);
        return;
    }
    json_value_begin(j, key);
    json_string_write(j->f, text);
}

void json_int_put(struct json *j, const char *key, int64_t value)
{
    json_value_begin(j, key);
    fprintf(j->f, "%" PRId64, value);
}

void json_real_put(struct json *j, const char *key, double value)
{
    json_value_begin(j, key);
    if (isfinite(value)) {
        fprintf(j->f, "%.6f", value);
    } else {
        fputs("null", j->f);
    }
}

void json_null_put(struct json *j, const char *key)
{
    json_value_begin(j, key);
    fputs("null", j->f);
}

void json_bool_put(struct json *j, const char *key, bool value)
{
    json_text_put(j, key, value ? "true" : "false");
}
