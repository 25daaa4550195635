#include "r2_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put(struct r2_json *j, const char *text, size_t len)
{
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

        if (c == '"' || c == '\\') {
            esc[0] = '\\';
            esc[1] = (char)c;
            put(j, esc, 2);
        } else if (c < 0x20) {
            put(j, esc, (size_t)snprintf(esc, sizeof(esc), "\\u%04x", c));
        } else {
            put(j, c < 0x7f ? text : "?", 1);
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

void r2_json_begin(struct r2_json *j, char *out, size_t room)
{
    *j = (struct r2_json){.out = out, .room = room, .over = room == 0};
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
    lead(j, key);
    if (text) {
        quote(j, text);
    } else {
        put(j, "null", 4);
    }
}

void r2_json_int(struct r2_json *j, const char *key, int64_t value)
{
    char text[24];

    lead(j, key);
    put(j, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, value));
}

void r2_json_uint(struct r2_json *j, const char *key, uint64_t value)
{
    char text[24];

    lead(j, key);
    put(j, text, (size_t)snprintf(text, sizeof(text), "%" PRIu64, value));
}

void r2_json_null(struct r2_json *j, const char *key)
{
    r2_json_text(j, key, NULL);
}

size_t r2_json_end(struct r2_json *j)
{
    if (j->over) {
        return 0;
    }
    j->out[j->n] = '\0';
    return j->n;
}
