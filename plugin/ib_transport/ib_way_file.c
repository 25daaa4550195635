#include "ib_way_file.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_fnv.h"

#define BLANKS      " \t\r,"
#define WORD_MAX    63 /* no address with its bits is longer */
#define V4_BITS     96 /* of a mapped address, in front of it */
#define GID_BITS    128
#define PORT_DIGITS 5

/* A line that is being read, and what is wrong with it. */
struct reading {
    const char *p, *end;
    struct ib_way_file_error *e;
    char word[WORD_MAX + 1]; /* cut; what cannot be printed is '?' */
    size_t len;              /* of the whole word */
};

static __attribute__((format(printf, 2, 3))) bool fails(struct reading *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r->e->why, sizeof(r->e->why), fmt, ap);
    va_end(ap);
    return false;
}

static bool is_blank(char c)
{
    return c != '\0' && strchr(BLANKS, c) != NULL;
}

/* The next word of the line; false: there is none. */
static bool word_next(struct reading *r)
{
    r->len = 0;
    while (r->p < r->end && is_blank(*r->p)) {
        r->p++;
    }
    for (; r->p < r->end && !is_blank(*r->p); r->p++) {
        if (r->len < WORD_MAX) {
            r->word[r->len] = *r->p > 0x20 && *r->p < 0x7f ? *r->p : '?';
        }
        r->len++;
    }
    r->word[r->len < WORD_MAX ? r->len : WORD_MAX] = '\0';
    return r->len > 0;
}

/* A number of digits alone up to @end; -1. */
static int number_parse(const char *text, const char *end)
{
    int v = 0;

    if (text == end || end - text > PORT_DIGITS) {
        return -1;
    }
    for (; text < end; text++) {
        if (*text < '0' || *text > '9') {
            return -1;
        }
        v = 10 * v + (*text - '0');
    }
    return v;
}

/* Whether a bit behind the first net->bits is set. */
static bool has_rest(const struct ib_way_net *net)
{
    for (unsigned i = net->bits; i < GID_BITS; i++) {
        if (net->gid[i / 8] >> (7 - i % 8) & 1) {
            return true;
        }
    }
    return false;
}

static bool net_parse(struct reading *r, struct ib_way_net *net)
{
    char address[WORD_MAX + 1];
    const char *slash = strchr(r->word, '/');
    size_t n = slash ? (size_t)(slash - r->word) : strlen(r->word);
    int most = GID_BITS, bits;

    memset(net, 0, sizeof(*net));
    if (strcmp(r->word, "*") == 0) {
        return true;
    }
    memcpy(address, r->word, n);
    address[n] = '\0';
    if (r->len <= WORD_MAX && inet_pton(AF_INET, address, net->gid + V4_BITS / 8) == 1) {
        net->gid[10] = net->gid[11] = 0xff;
        most -= V4_BITS;
    } else if (r->len > WORD_MAX || inet_pton(AF_INET6, address, net->gid) != 1) {
        return fails(r, "'%s' is no address: expected an IP address or GID, ADDRESS/BITS, or *",
                     r->word);
    }
    bits = slash ? number_parse(slash + 1, r->word + r->len) : most;
    if (bits < 0 || bits > most) {
        return fails(r, "'%s': expected 0 to %d bits behind the '/'", r->word, most);
    }
    net->bits = (uint8_t)(bits + GID_BITS - most);
    return !has_rest(net) || fails(r, "'%s' has bits set beyond its first %d", r->word, bits);
}

static bool port_add(struct reading *r, struct ib_way_rule *rule, int port)
{
    for (unsigned i = 0; i < rule->ports; i++) {
        if (rule->port[i] == port) {
            return fails(r, "port %d twice", port);
        }
    }
    if (rule->ports == IB_WAYS_MAX) {
        return fails(r, "more than %d ports", IB_WAYS_MAX);
    }
    rule->port[rule->ports++] = (uint16_t)port;
    return true;
}

/* PORT or FIRST-LAST. */
static bool ports_parse(struct reading *r, struct ib_way_rule *rule)
{
    const char *dash = strchr(r->word, '-'), *end = r->word + strlen(r->word);
    int first = number_parse(r->word, dash ? dash : end);
    int last = dash ? number_parse(dash + 1, end) : first;

    if (first < (int)IB_WAY_PORT_MIN || last < first || last > UINT16_MAX) {
        return fails(
            r, "'%s': expected a port of %u to %u, which is what a flow label makes, or FIRST-LAST",
            r->word, IB_WAY_PORT_MIN, UINT16_MAX);
    }
    for (int port = first; port <= last; port++) {
        if (!port_add(r, rule, port)) {
            return false;
        }
    }
    return true;
}

static uint32_t net_hash(const struct ib_way_net *net)
{
    return r2_fnv_add(r2_fnv_add(R2_FNV_BASIS, net->gid, sizeof(net->gid)), &net->bits, 1);
}

static bool same_net(const struct ib_way_net *a, const struct ib_way_net *b)
{
    return a->bits == b->bits && memcmp(a->gid, b->gid, sizeof(a->gid)) == 0;
}

/* A second rule of the same ends would never count: that is not what was meant. */
static bool is_first(struct reading *r, const struct ib_way_rule *rule, unsigned n)
{
    const struct ib_way_rule *a = &rule[n];

    for (const struct ib_way_rule *b = rule; b < a; b++) {
        if (a->key == b->key &&
            ((same_net(&a->end[0], &b->end[0]) && same_net(&a->end[1], &b->end[1])) ||
             (same_net(&a->end[0], &b->end[1]) && same_net(&a->end[1], &b->end[0])))) {
            return fails(r, "the same two ends as in line %u: a rule holds for both directions",
                         b->line);
        }
    }
    return true;
}

/* The line's rule into rule[*n]; a line without words is none. */
static bool line_parse(struct reading *r, struct ib_way_rule *rule, unsigned *n)
{
    struct ib_way_rule *to = &rule[*n];

    if (!word_next(r)) {
        return true;
    }
    if (*n == IB_WAY_RULES_MAX) {
        return fails(r, "more than %d rules", IB_WAY_RULES_MAX);
    }
    memset(to, 0, sizeof(*to));
    to->line = r->e->line;
    for (int i = 0; i < 2; i++, word_next(r)) {
        if (r->len == 0) {
            return fails(r, "a source without a destination: expected SOURCE DESTINATION PORT...");
        }
        if (!net_parse(r, &to->end[i])) {
            return false;
        }
    }
    for (; r->len; word_next(r)) {
        if (!ports_parse(r, to)) {
            return false;
        }
    }
    if (to->ports == 0) {
        return fails(r, "no port: expected SOURCE DESTINATION PORT...");
    }
    to->key = net_hash(&to->end[0]) + net_hash(&to->end[1]);
    if (!is_first(r, rule, *n)) {
        return false;
    }
    *n += 1;
    return true;
}

int ib_way_file_parse(const char *text, size_t len, struct ib_way_rule *rule,
                      struct ib_way_file_error *e)
{
    const char *end = text + len;
    unsigned n = 0;

    memset(e, 0, sizeof(*e));
    for (const char *line = text, *next; line < end; line = next) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)), *comment;
        struct reading r = {.p = line, .end = newline ? newline : end, .e = e};

        next = newline ? newline + 1 : end;
        comment = memchr(line, '#', (size_t)(r.end - line));
        r.end = comment ? comment : r.end;
        e->line++;
        if (!line_parse(&r, rule, &n)) {
            return -1;
        }
    }
    e->line = 0;
    if (n == 0) {
        snprintf(e->why, sizeof(e->why), "there is no rule in it");
        return -1;
    }
    return (int)n;
}

uint32_t ib_ways_digest(const struct ib_ways *w)
{
    uint32_t h = R2_FNV_BASIS;

    for (unsigned i = 0; i < w->rules; i++) {
        const struct ib_way_rule *r = &w->rule[i];

        for (int k = 0; k < 2; k++) {
            h = r2_fnv_add(h, r->end[k].gid, sizeof(r->end[k].gid));
            h = r2_fnv_add(h, &r->end[k].bits, 1);
        }
        for (unsigned k = 0; k < r->ports; k++) {
            uint8_t b[2] = {(uint8_t)(r->port[k] >> 8), (uint8_t)r->port[k]};

            h = r2_fnv_add(h, b, sizeof(b));
        }
        h = r2_fnv_add(h, &r->ports, 1);
    }
    return w->rules ? h : 0;
}
