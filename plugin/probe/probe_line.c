#include "probe_line.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DAY_MS    86400000ull
#define VALUE_MAX 160

/* clang-format off */
static const struct probe_code_info codes[PROBE_CODES] = {
    {"R2-000", "not known",                  "unknown",               "read-the-log",          "NONE",            PROBE_INFO},
    {"R2-N01", "device gone",                "nic",                   "drain-after-job",       "RESTART_BM",      PROBE_CRITICAL},
    {"R2-N02", "NIC or driver hangs",        "nic",                   "drain-after-job",       "COMPONENT_RESET", PROBE_CRITICAL},
    {"R2-L01", "port down",                  "port-or-cable",         "check-link",            "CONTACT_SUPPORT", PROBE_CRITICAL},
    {"R2-L02", "cable or switch port",       "cable-or-switch-port",  "drain-after-job",       "CONTACT_SUPPORT", PROBE_CRITICAL},
    {"R2-F01", "path between two NICs",      "path",                  "check-switches",        "CONTACT_SUPPORT", PROBE_WARNING},
    {"R2-F02", "plane or switch",            "plane",                 "check-switches",        "CONTACT_SUPPORT", PROBE_CRITICAL},
    {"R2-F03", "pair failed, part unknown",  "unknown",               "check-suspects",        "CONTACT_SUPPORT", PROBE_WARNING},
    {"R2-P01", "process gone",               "process",               "restart-job",           "RESTART_APP",     PROBE_CRITICAL},
    {"R2-P02", "process or channel silent",  "process-or-channel",    "check-process",         "NONE",            PROBE_WARNING},
    {"R2-P03", "host dead or cut off",       "host",                  "check-host",            "RESTART_BM",      PROBE_CRITICAL},
    {"R2-G01", "pair answers: slow or over", "none",                  "watch",                 "NONE",            PROBE_INFO},
    {"R2-G02", "slow beside the others",     "nic-or-path",           "check-nic-and-path",    "CONTACT_SUPPORT", PROBE_WARNING},
    {"R2-O01", "out-of-band channel lost",   "oob-channel",           "check-oob-network",     "NONE",            PROBE_WARNING},
    {"R2-C01", "option cannot be obeyed",    "configuration",         "correct-option",        "RESTART_APP",     PROBE_CRITICAL},
    {"R2-F04", "one of the ways is silent",  "way",                   "check-switches",        "CONTACT_SUPPORT", PROBE_WARNING},
    {"R2-H01", "held up by a process",       "process",               "look-at-process",       "NONE",            PROBE_WARNING},
    {"R2-S01", "slow way to a host",         "path-or-host",          "check-path-and-host",   "NONE",            PROBE_WARNING},
};
/* clang-format on */

static const char *const fates[PROBE_FATES] = {
    [PROBE_FATE_CONTINUES] = "continues",
    [PROBE_FATE_WAITS] = "waits",
    [PROBE_FATE_ENDS] = "ends",
};

static const char *const suspect_names[PROBE_BLAME_UNKNOWN] = {
    [PROBE_BLAME_NONE] = "nothing",
    [PROBE_BLAME_LOCAL_NIC] = "our-nic",
    [PROBE_BLAME_LOCAL_LINK] = "our-link",
    [PROBE_BLAME_REMOTE_NIC] = "its-nic",
    [PROBE_BLAME_REMOTE_LINK] = "its-link",
    [PROBE_BLAME_PATH] = "path",
    [PROBE_BLAME_PEER] = "peer",
};

const struct probe_code_info *probe_code_info(enum probe_code c)
{
    return &codes[(unsigned)c < PROBE_CODES ? c : PROBE_CODE_NONE];
}

const char *probe_severity_name(enum probe_severity s)
{
    static const char *const names[PROBE_SEVERITIES] = {"info", "warning", "critical"};

    return names[(unsigned)s < PROBE_SEVERITIES ? s : PROBE_INFO];
}

static enum probe_code peer_code(const struct probe_facts *f)
{
    if (f->peer == PROBE_ERROR) {
        return PROBE_CODE_P01;
    }
    return f->direct == PROBE_OK || f->others == PROBE_OK ? PROBE_CODE_P02 : PROBE_CODE_P03;
}

enum probe_code probe_code_of(const struct probe_facts *f, const struct probe_verdict *v)
{
    const struct probe_end *e =
        v->blame == PROBE_BLAME_LOCAL_NIC || v->blame == PROBE_BLAME_LOCAL_LINK ? &f->local
                                                                                : &f->remote;

    switch (v->blame) {
    case PROBE_BLAME_NONE:
        return PROBE_CODE_G01;
    case PROBE_BLAME_LOCAL_NIC:
    case PROBE_BLAME_REMOTE_NIC:
        return e->port == PROBE_PORT_GONE ? PROBE_CODE_N01 : PROBE_CODE_N02;
    case PROBE_BLAME_LOCAL_LINK:
    case PROBE_BLAME_REMOTE_LINK:
        return e->port == PROBE_PORT_DOWN ? PROBE_CODE_L01 : PROBE_CODE_L02;
    case PROBE_BLAME_PATH:
        /* Auxiliary ports that answer leave these two NICs alone with it. */
        return f->local.aux == PROBE_OK || f->remote.aux == PROBE_OK ? PROBE_CODE_F01
                                                                     : PROBE_CODE_F02;
    case PROBE_BLAME_PEER:
        return peer_code(f);
    default:
        return PROBE_CODE_F03;
    }
}

/* Text so far; what does not fit any more is left out whole. */
struct out {
    char *buf;
    size_t size, len;
};

__attribute__((format(printf, 2, 3))) static int out_add(struct out *o, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(o->buf + o->len, o->size - o->len, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= o->size - o->len) {
        o->buf[o->len] = '\0';
        return 0;
    }
    o->len += (size_t)n;
    return 1;
}

static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '%' && c != '"' && c != '\\' && c != '=';
}

/* @s as a value of at most @max bytes (below VALUE_MAX), in @to. */
static const char *value_of(char to[VALUE_MAX + 1], const char *s, size_t max)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0, whole = 0;

    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;

        if (n + (is_plain(c) ? 1 : 3) > max) {
            to[whole++] = '~';
            to[whole] = '\0';
            return to;
        }
        if (is_plain(c)) {
            to[n++] = (char)c;
        } else {
            to[n++] = '%';
            to[n++] = hex[c >> 4];
            to[n++] = hex[c & 15];
        }
        if (n < max) {
            whole = n; /* room for the mark behind it */
        }
    }
    to[n] = '\0';
    return to;
}

static int known(const char *s)
{
    return s != NULL && *s != '\0';
}

static void add_text(struct out *o, const char *key, const char *s, size_t max)
{
    char value[VALUE_MAX + 1];

    if (known(s)) {
        out_add(o, " %s=%s", key, value_of(value, s, max));
    }
}

static void add_peer(struct out *o, const struct probe_line *l)
{
    char host[VALUE_MAX + 1], nic[VALUE_MAX + 1];

    if (known(l->peer_host) && known(l->peer_nic)) {
        out_add(o, " peer=%s:%s", value_of(host, l->peer_host, 48), value_of(nic, l->peer_nic, 32));
    } else {
        add_text(o, "peer", known(l->peer_host) ? l->peer_host : l->peer_nic, 48);
    }
}

static void add_suspects(struct out *o, uint8_t suspects)
{
    const char *before = " suspects=";

    for (enum probe_blame b = PROBE_BLAME_NONE; b < PROBE_BLAME_UNKNOWN; b++) {
        if (suspects & 1u << b) {
            out_add(o, "%s%s", before, suspect_names[b]);
            before = ",";
        }
    }
}

static void add_time(struct out *o, const char *before, uint64_t ms)
{
    unsigned t = (unsigned)(ms % DAY_MS);

    if (ms != 0) {
        out_add(o, "%s%02u:%02u:%02u.%03uZ", before, t / 3600000, t / 60000 % 60, t / 1000 % 60,
                t % 1000);
    }
}

static void add_of(struct out *o, const char *key, unsigned n, unsigned of)
{
    if (of != 0) {
        out_add(o, " %s=%u/%u", key, n, of);
    }
}

int probe_line_full(char *buf, const struct probe_line *l)
{
    const struct probe_code_info *c = probe_code_info(l->code);
    char host[VALUE_MAX + 1], nic[VALUE_MAX + 1];
    struct out o = {.buf = buf, .size = PROBE_LINE_SIZE};

    out_add(&o, "%s host=%s nic=%s", c->name, value_of(host, known(l->host) ? l->host : "-", 48),
            value_of(nic, known(l->nic) ? l->nic : "-", 32));
    add_peer(&o, l);
    if (l->rail1 != 0) {
        out_add(&o, " rail=%u", l->rail1 - 1);
    }
    add_text(&o, "pci", l->pci, 16);
    out_add(&o, " blame=%s", l->blame ? l->blame : c->blame);
    if (l->code == PROBE_CODE_F03) {
        add_suspects(&o, l->suspects);
    }
    if (l->revises != PROBE_CODE_NONE) {
        out_add(&o, " revises=%s", probe_code_info(l->revises)->name);
        add_time(&o, "@", l->revises_ms);
    }
    add_time(&o, " since=", l->since_ms);
    add_text(&o, "how", l->how, VALUE_MAX);
    add_text(&o, "flow", l->flow, 95);
    add_text(&o, "back", l->back, 95);
    add_of(&o, "seen_by", l->seen_by, l->seen_of);
    if (l->stall_us != 0) {
        out_add(&o, " stall=%" PRIu64 ".%03ums", l->stall_us / 1000,
                (unsigned)(l->stall_us % 1000));
    }
    if (l->moved != 0) {
        out_add(&o, " moved=%u", l->moved);
    }
    add_text(&o, "to", l->to, 80);
    add_of(&o, "capacity", l->capacity, l->capacity_of);
    add_text(&o, "job", l->job, 48);
    add_text(&o, "fate", l->fate < PROBE_FATES ? fates[l->fate] : NULL, 16);
    out_add(&o, " do=%s", l->action ? l->action : c->action);
    return (int)o.len;
}

/* Whom the short form is about, in at most @room bytes (22 at least, by the limits of the texts).
 */
static void short_name(char to[VALUE_MAX + 1], const struct probe_line *l, size_t room)
{
    char host[VALUE_MAX + 1], nic[VALUE_MAX + 1];
    struct out o = {.buf = to, .size = VALUE_MAX + 1};
    size_t left;

    if (!l->elsewhere || !known(l->host) || !known(l->nic)) {
        value_of(to, known(l->nic) ? l->nic : known(l->host) ? l->host : "-", room);
        return;
    }
    left = strlen(value_of(host, l->host, VALUE_MAX)) + 1;
    value_of(nic, l->nic, left < room / 2 ? room - left : room / 2);
    value_of(host, l->host, room - 1 - strlen(nic));
    out_add(&o, "%s:%s", host, nic);
}

int probe_line_short(char *buf, const struct probe_line *l)
{
    const struct probe_code_info *c = probe_code_info(l->code);
    const char *fate = l->fate < PROBE_FATES ? fates[l->fate] : NULL;
    char name[VALUE_MAX + 1], action[32], what[PROBE_SHORT_SIZE] = "", left[32] = "";
    struct out o = {.buf = buf, .size = PROBE_SHORT_SIZE};

    snprintf(action, sizeof(action), "; %s", l->action ? l->action : c->action);
    for (char *p = action; *p != '\0'; p++) {
        *p = *p == '-' ? ' ' : *p;
    }
    short_name(name, l,
               PROBE_SHORT_SIZE - 1 - strlen(c->name) - 2 - strlen(c->text) - strlen(action));
    if (fate != NULL) {
        snprintf(what, sizeof(what), "; job %s", fate);
    }
    if (l->capacity_of != 0) {
        snprintf(left, sizeof(left), "%s%u/%u", fate != NULL ? " at " : "; ", l->capacity,
                 l->capacity_of);
    }
    if (!out_add(&o, "%s %s %s%s%s%s", c->name, name, c->text, what, left, action) &&
        !out_add(&o, "%s %s %s%s%s", c->name, name, c->text, what, action)) {
        out_add(&o, "%s %s %s%s", c->name, name, c->text, action);
    }
    return (int)o.len;
}
