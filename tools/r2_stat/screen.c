#include "tools/r2_stat/screen.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MIN 4 /* columns of the NICs' names, as many as the longest has */

static void line_add(struct screen_page *pg, enum screen_colour colour, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void line_put(struct screen_line *l, int columns, enum screen_colour colour,
                     const char *text)
{
    snprintf(l->text, sizeof(l->text), "%.*s", columns, text);
    l->colour = colour;
}

static void line_add(struct screen_page *pg, enum screen_colour colour, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if (pg->lines == pg->room) {
        int room = pg->room ? 2 * pg->room : 64;
        struct screen_line *more = realloc(pg->line, (size_t)room * sizeof(*more));

        if (more == NULL) {
            return;
        }
        pg->line = more;
        pg->room = room;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    line_put(&pg->line[pg->lines++], pg->columns, colour, text);
}

/* Bytes of @text that are put on a line of @columns: up to behind a comma, else a space. */
static int piece_of(const char *text, int columns)
{
    int comma = 0, space = 0;

    if ((int)strlen(text) <= columns) {
        return (int)strlen(text);
    }
    for (int i = 0; i < columns; i++) {
        if (text[i] == ' ') {
            space = i + 1;
            comma = i > 0 && (text[i - 1] == ',' || text[i - 1] == ';') ? i + 1 : comma;
        }
    }
    return comma > columns * 2 / 3 ? comma : space > columns / 2 ? space : columns;
}

/* One text on as many lines as it needs; the second and those behind it begin at @indent. */
static void text_add(struct screen_page *pg, enum screen_colour colour, int indent,
                     const char *text)
{
    int at = 0, n;

    indent = indent > pg->columns / 2 ? 2 : indent;
    do {
        n = piece_of(text, pg->columns - at > 0 ? pg->columns - at : 1);
        line_add(pg, colour, "%*s%.*s", at, "", n, text);
        text += n;
        text += n < pg->columns - at ? 0 : strspn(text, " ");
        at = indent;
    } while (*text);
}

/* All lines of @text; frees it. */
static void lines_add(struct screen_page *pg, enum screen_colour colour, int indent, char *text)
{
    char *next;

    for (char *p = text; p && *p; p = next) {
        next = strchr(p, '\n');
        if (next) {
            *next++ = '\0';
        }
        text_add(pg, colour, indent, p);
        colour = indent ? colour : SCREEN_PLAIN; /* a job's first line is its head */
    }
    free(text);
}

/* --- NICs --- */

static enum screen_colour colour_of(const struct r2_stat_nic *n)
{
    return n->state != R2_STAT_NIC_UP ? SCREEN_BAD
           : n->drained               ? SCREEN_NOTE
           : n->moved                 ? SCREEN_WARN
                                      : SCREEN_PLAIN;
}

static const char *rate_text(bool is_known, double rate, char *out, size_t room)
{
    if (is_known) {
        return stat_bytes(rate < 0x1p64 ? (uint64_t)rate : UINT64_MAX, out, room);
    }
    snprintf(out, room, "-");
    return out;
}

struct nic_total {
    double sent, received;
    bool is_known;
};

static void nic_row(struct screen_page *pg, const struct rates *r, struct stat_proc *const *p,
                    int n, const struct stat_nic *s, int name, struct nic_total *all)
{
    char out[24], in[24], text[160], reason[100];
    enum screen_colour colour = colour_of(&s->n);
    const char *why, *word;
    double sent, received;
    bool is_known = rates_get(r, p, n, &s->n, &sent, &received);
    uint64_t at;
    int columns;

    word = stat_nic_word(&s->n, &why, &at);
    stat_why_text(why, reason, sizeof(reason));
    columns = snprintf(text, sizeof(text), "%-*s %-7.7s %8s %8s %5u %5u  ", name, s->n.name, word,
                       rate_text(is_known, sent, out, sizeof(out)),
                       rate_text(is_known, received, in, sizeof(in)), s->n.over, s->n.moved);
    all->sent += sent;
    all->received += received;
    all->is_known = all->is_known || is_known;
    if (columns + (int)strlen(reason) <= pg->columns || colour == SCREEN_PLAIN) {
        line_add(pg, colour, "%s%s", text, reason);
    } else {
        line_add(pg, colour, "%s", text);
        line_add(pg, colour, "%*s%s", name + 1, "", reason);
    }
}

static void nics_add(struct screen_page *pg, const struct rates *r, struct stat_proc *const *p,
                     int n)
{
    struct stat_nic nic[R2_STAT_NICS];
    int nics = stat_nics(p, n, nic), name = NAME_MIN;
    struct nic_total all = {0};
    char sent[24], received[24];

    for (int i = 0; i < nics; i++) {
        int length = (int)strlen(nic[i].n.name);

        name = length > name ? length : name;
    }
    line_add(pg, SCREEN_HEAD, "%-*s %-7s %8s %8s %5s %5s  %s", name, "NIC", "STATE", "OUT/s",
             "IN/s", "CONNS", "MOVED", "WHY");
    for (int i = 0; i < nics; i++) {
        nic_row(pg, r, p, n, &nic[i], name, &all);
    }
    if (nics > 1) {
        line_add(pg, SCREEN_PLAIN, "%-*s %-7s %8s %8s", name, "all", "",
                 rate_text(all.is_known, all.sent, sent, sizeof(sent)),
                 rate_text(all.is_known, all.received, received, sizeof(received)));
    }
}

/* --- what keys add --- */

static void conns_add(struct screen_page *pg, struct stat_proc *const *p, int n)
{
    char bytes[24], peer[80], paths[1024];

    line_add(pg, SCREEN_PLAIN, "%s", "");
    line_add(pg, SCREEN_HEAD, "%-4s %-12s %-20s %9s  %s", "DIR", "NIC", "PEER", "BYTES", "PATHS");
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < p[i]->v.conns; k++) {
            const struct r2_stat_conn *c = &p[i]->v.conn[k];
            int at;
            bool is_lost = false;

            for (int j = 0; j < c->npaths; j++) {
                is_lost = is_lost || c->path[j].state > R2_STAT_PATH_UP;
            }
            snprintf(peer, sizeof(peer), "%s/%s", c->peer_host,
                     c->path[0].peer_name[0] ? c->path[0].peer_name : "?");
            at = snprintf(paths, sizeof(paths), "%-4s %-12.12s %-20.20s %9s  ",
                          c->is_send ? "send" : "recv", p[i]->v.nic[c->dev].name, peer,
                          stat_bytes(c->bytes, bytes, sizeof(bytes)));
            if (c->error) {
                snprintf(paths + at, sizeof(paths) - (size_t)at, "ended: %s", c->why);
            } else if (!c->standing) {
                snprintf(paths + at, sizeof(paths) - (size_t)at, "begins");
            } else {
                stat_paths_text(p[i], c, paths + at, sizeof(paths) - (size_t)at);
            }
            text_add(pg, c->error ? SCREEN_BAD : is_lost ? SCREEN_WARN : SCREEN_PLAIN, 15, paths);
        }
    }
}

static void history_add(struct screen_page *pg, struct stat_proc *const *p, int n)
{
    int lines;
    struct stat_line *line = stat_lines_of(p, n, &lines);

    line_add(pg, SCREEN_PLAIN, "%s", "");
    if (lines == 0) {
        line_add(pg, SCREEN_PLAIN, "nothing has happened");
    } else {
        line_add(pg, SCREEN_HEAD, "HISTORY, newest first");
    }
    for (int i = lines - 1; i >= 0; i--) {
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);

        if (out) {
            stat_event_row(out, "", line[i].p, line[i].e);
            fclose(out);
            lines_add(pg,
                      line[i].e->severity == R2_EVENT_CRITICAL  ? SCREEN_BAD
                      : line[i].e->severity == R2_EVENT_WARNING ? SCREEN_WARN
                                                                : SCREEN_PLAIN,
                      13, text);
        }
    }
    free(line);
}

static void times_add(struct screen_page *pg, struct stat_proc *const *p, int n)
{
    struct stat_nic nic[R2_STAT_NICS];
    int nics = stat_nics(p, n, nic);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out) {
        stat_print_sends(out, nic, nics);
        fclose(out);
        lines_add(pg, SCREEN_PLAIN, 2, text);
    }
}

static void job_add(struct screen_page *pg, const struct screen_view *v, const struct rates *r,
                    struct stat_proc *const *p, int n)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out) {
        stat_job_head(out, p, n);
        fclose(out);
        lines_add(pg, SCREEN_HEAD, 0, text);
    }
    nics_add(pg, r, p, n);
    if (v->more.conns) {
        conns_add(pg, p, n);
    }
    if (v->more.sends) {
        times_add(pg, p, n);
    }
    if (v->more.history) {
        history_add(pg, p, n);
    }
}

/* --- all --- */

#define HELP_KEYS 7 /* lines, the first ones */
static const char *const help[] = {
    "q           quit",
    "c  h  l     connections, history, how long sends take: show them or not",
    "p           pause; again: go on",
    "+  -        look less often, more often",
    "j  k        one line down, up; arrows, too",
    "space  b    a page down, up; page keys, too",
    "?           this, and back",
    "",
    "OUT/s and IN/s: bytes of messages a second. CONNS: connections that have a",
    "path over the NIC. MOVED: connections whose path over it is lost.",
    "Red: the NIC is lost. Yellow: connections have left it, for what WHY says.",
    "Cyan: an administrator has taken it out.",
};

static void bars_put(struct screen_page *pg, const struct screen_view *v,
                     const struct stat_found *f, uint64_t now, int seen)
{
    char when[40], where[64] = "", host[64] = "", text[512];
    struct stat_nic nic[R2_STAT_NICS];
    int nics = stat_nics(f->proc, f->procs, nic), jobs = 0, lost = 0, all = 0;

    for (int i = 0; i < f->procs; i += stat_job_procs(f, i)) {
        jobs++;
    }
    for (int i = 0; i < nics; i++) {
        if (!nic[i].n.last_resort) {
            lost += colour_of(&nic[i].n) > SCREEN_NOTE;
            all++;
        }
    }
    if (f->procs) {
        snprintf(host, sizeof(host), "%s", f->proc[0]->v.who.host);
    } else {
        gethostname(host, sizeof(host) - 1);
    }
    if (pg->lines > seen) {
        snprintf(where, sizeof(where), ", lines %d-%d of %d", v->top + 1, v->top + seen, pg->lines);
    }
    snprintf(text, sizeof(text), "%s %s, %s %g s: %d job%s, %d of %d NICs in trouble%s", host,
             stat_time(now, false, when, sizeof(when)),
             v->is_paused ? "paused, else every" : "every", v->seconds, jobs, jobs == 1 ? "" : "s",
             lost, all, where);
    line_put(&pg->bar[0], pg->columns, SCREEN_BAR, text);
    line_put(&pg->bar[1], pg->columns, SCREEN_BAR,
             !v->has_keys
                 ? "interrupt it to end"
                 : "q quit  c connections  h history  l times  p pause  + - interval  ? help");
}

void screen_make(struct screen_page *pg, struct screen_view *v, const struct stat_found *f,
                 const struct rates *r, uint64_t now)
{
    int seen = v->rows > 3 ? v->rows - 2 : 1;

    pg->lines = 0;
    pg->columns = v->columns < 1 ? 1 : v->columns > SCREEN_COLUMNS ? SCREEN_COLUMNS : v->columns;
    for (size_t i = 0; v->is_help && i < sizeof(help) / sizeof(help[0]); i++) {
        text_add(pg, SCREEN_PLAIN, i < HELP_KEYS ? 12 : 0, help[i]);
    }
    for (int i = 0, n; !v->is_help && i < f->procs; i += n) {
        n = stat_job_procs(f, i);
        if (i) {
            line_add(pg, SCREEN_PLAIN, "%s", "");
        }
        job_add(pg, v, r, &f->proc[i], n);
    }
    if (f->procs == 0 && !v->is_help) {
        char text[600];

        stat_none_text(f, text, sizeof(text));
        text_add(pg, SCREEN_PLAIN, 2, text);
    }
    if (f->unread && !v->is_help) {
        char text[800];

        snprintf(text, sizeof(text), "%d file%s could not be read; the first one: %s", f->unread,
                 f->unread == 1 ? "" : "s", f->why);
        text_add(pg, SCREEN_WARN, 2, text);
    }
    v->top = v->top > pg->lines - seen ? pg->lines - seen : v->top;
    v->top = v->top < 0 ? 0 : v->top;
    bars_put(pg, v, f, now, seen < pg->lines - v->top ? seen : pg->lines - v->top);
}

static void line_paint(FILE *out, const struct screen_page *pg, const struct screen_line *l,
                       bool has_colours)
{
    static const char *const with[SCREEN_COLOURS] = {
        [SCREEN_PLAIN] = "",        [SCREEN_BAR] = "\033[7m",   [SCREEN_HEAD] = "\033[1m",
        [SCREEN_NOTE] = "\033[36m", [SCREEN_WARN] = "\033[33m", [SCREEN_BAD] = "\033[1;31m"};
    bool is_told = l->colour <= SCREEN_HEAD || has_colours;

    /* The line is emptied before: behind its last column a terminal would empty that. */
    fprintf(out, "\033[K%s%-*s%s", is_told ? with[l->colour] : "",
            l->colour == SCREEN_BAR ? pg->columns : 0, l->text, "\033[m");
}

void screen_paint(FILE *out, const struct screen_page *pg, const struct screen_view *v)
{
    static const struct screen_line none = {.colour = SCREEN_PLAIN};
    int seen = v->rows > 3 ? v->rows - 2 : 1;

    fputs("\033[H", out);
    line_paint(out, pg, &pg->bar[0], v->has_colours);
    for (int i = v->top; i < v->top + seen && v->rows > 1; i++) {
        fputs("\r\n", out);
        line_paint(out, pg, i < pg->lines ? &pg->line[i] : &none, v->has_colours);
    }
    if (v->rows > 2) {
        fputs("\r\n", out);
        line_paint(out, pg, &pg->bar[1], v->has_colours);
    }
}

void screen_free(struct screen_page *pg)
{
    free(pg->line);
    memset(pg, 0, sizeof(*pg));
}
