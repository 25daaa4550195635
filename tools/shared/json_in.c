#include "tools/shared/json_in.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DEPTH 16

struct reader {
    const char *p;
    json_in_take_t take;
    void *arg;
    char path[JSON_IN_PATH];
    char text[JSON_IN_TEXT];
    int depth;
};

static int value_read(struct reader *r);

static void blanks(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r') {
        r->p++;
    }
}

static int is_next(struct reader *r, char c)
{
    blanks(r);
    if (*r->p != c) {
        return 0;
    }
    r->p++;
    return 1;
}

/* --- strings --- */

static void byte_put(char *out, size_t room, size_t *n, unsigned c)
{
    if (*n + 1 < room) {
        out[(*n)++] = (char)c;
    }
}

/* As UTF-8; half of a surrogate pair is '?'. */
static void rune_put(char *out, size_t room, size_t *n, unsigned c)
{
    if (c >= 0xd800 && c <= 0xdfff) {
        c = '?';
    }
    if (*n + 4 > room) {
        return; /* whole, or not at all */
    }
    if (c < 0x80) {
        byte_put(out, room, n, c);
    } else if (c < 0x800) {
        byte_put(out, room, n, 0xc0 | c >> 6);
        byte_put(out, room, n, 0x80 | (c & 0x3f));
    } else {
        byte_put(out, room, n, 0xe0 | c >> 12);
        byte_put(out, room, n, 0x80 | (c >> 6 & 0x3f));
        byte_put(out, room, n, 0x80 | (c & 0x3f));
    }
}

/* Behind "\u". */
static int hex_read(struct reader *r, unsigned *c)
{
    *c = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)*r->p)) {
            return -1;
        }
        *c = *c * 16 + (unsigned)(isdigit((unsigned char)*r->p)
                                      ? *r->p - '0'
                                      : tolower((unsigned char)*r->p) - 'a' + 10);
        r->p++;
    }
    return 0;
}

static int escape_read(struct reader *r, char *out, size_t room, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = *r->p ? strchr(from, *r->p) : NULL;
    unsigned c;

    if (at) {
        byte_put(out, room, n, (unsigned char)to[at - from]);
        r->p++;
        return 0;
    }
    if (*r->p++ != 'u' || hex_read(r, &c) != 0 || c == 0) {
        return -1;
    }
    rune_put(out, room, n, c);
    return 0;
}

static int string_read(struct reader *r, char *out, size_t room)
{
    size_t n = 0;

    while (*r->p != '"') {
        unsigned c = (unsigned char)*r->p++;

        if (c < 0x20) {
            return -1; /* the end, too */
        }
        if (c != '\\') {
            byte_put(out, room, &n, c);
        } else if (escape_read(r, out, room, &n) != 0) {
            return -1;
        }
    }
    r->p++;
    out[n] = '\0';
    return 0;
}

/* --- the rest --- */

static int word_read(struct reader *r)
{
    size_t n = strspn(r->p, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");

    if (n == 0 || n >= sizeof(r->text)) {
        return -1;
    }
    memcpy(r->text, r->p, n);
    r->text[n] = '\0';
    r->p += n;
    if (r->text[0] == '-' || isdigit((unsigned char)r->text[0])) {
        return strspn(r->text, "+-.0123456789eE") == n ? 0 : -1;
    }
    return strcmp(r->text, "true") == 0 || strcmp(r->text, "false") == 0 ||
                   strcmp(r->text, "null") == 0
               ? 0
               : -1;
}

static int object_read(struct reader *r)
{
    size_t end = strlen(r->path);
    char key[64];

    if (is_next(r, '}')) {
        return 0;
    }
    do {
        if (!is_next(r, '"') || string_read(r, key, sizeof(key)) != 0 || !is_next(r, ':')) {
            return -1;
        }
        snprintf(r->path + end, sizeof(r->path) - end, "%s%s", end ? "." : "", key);
        if (value_read(r) != 0) {
            return -1;
        }
        r->path[end] = '\0';
    } while (is_next(r, ','));
    return is_next(r, '}') ? 0 : -1;
}

static int array_read(struct reader *r)
{
    if (is_next(r, ']')) {
        return 0;
    }
    do {
        if (value_read(r) != 0) {
            return -1;
        }
    } while (is_next(r, ','));
    return is_next(r, ']') ? 0 : -1;
}

static int value_read(struct reader *r)
{
    int rc;

    if (r->depth == DEPTH) {
        return -1;
    }
    r->depth++;
    if (is_next(r, '{')) {
        rc = object_read(r);
    } else if (is_next(r, '[')) {
        rc = array_read(r);
    } else {
        rc = is_next(r, '"') ? string_read(r, r->text, sizeof(r->text)) : word_read(r);
        if (rc == 0) {
            r->take(r->arg, r->path, r->text);
        }
    }
    r->depth--;
    return rc;
}

int json_in_walk(const char *line, json_in_take_t take, void *arg)
{
    struct reader r = {.p = line, .take = take, .arg = arg};

    blanks(&r);
    if (*r.p != '{' || value_read(&r) != 0) {
        return -1;
    }
    blanks(&r);
    return *r.p == '\0' ? 0 : -1;
}
