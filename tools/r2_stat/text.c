/* The tables, 100 columns wide. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/r2_stat/stat.h"

#define WIDTH     99 /* columns; a comma may follow */
#define WHY_ALONE 13 /* columns before a reason that has a line of its own */

const char *stat_bytes(uint64_t bytes, char *out, size_t room)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    int u = 0;

    while (v >= 999.95 && u < 6) {
        v /= 1000;
        u++;
    }
    snprintf(out, room, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

const char *stat_time(uint64_t ns, bool fraction, char *out, size_t room)
{
    time_t s = (time_t)(ns / 1000000000), now = time(NULL);
    struct tm tm, today;
    size_t n;

    if (ns == 0 || localtime_r(&s, &tm) == NULL || localtime_r(&now, &today) == NULL) {
        snprintf(out, room, "-");
        return out;
    }
    if (fraction) {
        bool here = tm.tm_yday == today.tm_yday && tm.tm_year == today.tm_year;

        n = strftime(out, room, here ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm);
        snprintf(out + n, room - n, ".%03u", (unsigned)(ns / 1000000 % 1000));
    } else {
        strftime(out, room,
                 tm.tm_yday == today.tm_yday && tm.tm_year == today.tm_year ? "%H:%M:%S"
                                                                            : "%b %d %H:%M",
                 &tm);
    }
    return out;
}

static const char *stall_text(uint64_t ns, char *out, size_t room)
{
    if (ns == 0) {
        snprintf(out, room, "-");
    } else {
        snprintf(out, room, "%.*f ms", ns < 100000000 ? 2 : 0, (double)ns / 1e6);
    }
    return out;
}

/* --- NICs --- */

/* A verdict without the NIC, whose row it is, and without what follows from it. */
void stat_why_text(const char *why, char *out, size_t room)
{
    size_t code = strcspn(why, " ");
    const char *what = why + code + strspn(why + code, " ");

    what += strcspn(what, " ");
    if (stat_is_verdict(why) && *what) {
        snprintf(out, room, "%.*s%.*s", (int)code, why, (int)strcspn(what, ";"), what);
    } else {
        snprintf(out, room, "%s", why);
    }
}

static void nic_row(const struct stat_nic *s)
{
    const struct r2_stat_nic *n = &s->n;
    char since[32], sent[24], received[24], text[100];
    const char *why, *word;
    uint64_t at;
    int columns;

    word = stat_nic_word(n, &why, &at);
    stat_why_text(why, text, sizeof(text));
    columns =
        printf("%-12s %-7s %-12s %8s %8s %5u %5u %5" PRIu64, n->name, word,
               stat_time(at, false, since, sizeof(since)), stat_bytes(n->sent, sent, sizeof(sent)),
               stat_bytes(n->received, received, sizeof(received)), n->over, n->moved, n->lost);
    if (columns + 2 + (int)strlen(text) <= WIDTH) {
        printf("  %s\n", text);
    } else {
        printf("\n%*s%.*s\n", WHY_ALONE, "", WIDTH - WHY_ALONE, text);
    }
}

void stat_job_head(FILE *out, struct stat_proc *const *p, int n)
{
    const struct r2_stat_who *w = &p[0]->v.who;
    uint64_t faults = 0, switches = 0, failbacks = 0, giveups = 0, replayed = 0, stall = 0;
    uint64_t stalls = 0, stalls_max = 0;
    uint64_t strangers = 0, frames = 0, messages = 0, kept = 0;
    char when[32], bytes[24], ms[24];

    for (int i = 0; i < n; i++) {
        const struct r2_stat_who *o = &p[i]->v.who;

        faults += o->faults;
        switches += o->switches;
        failbacks += o->failbacks;
        giveups += o->giveups;
        replayed += o->replayed_bytes;
        strangers += o->oob_strangers;
        frames += o->oob_bad_frames;
        messages += o->oob_bad_messages;
        kept += o->kept;
        stall = o->stall_max_ns > stall ? o->stall_max_ns : stall;
        stalls += o->stalls;
        stalls_max = o->stalls_max_ns > stalls_max ? o->stalls_max_ns : stalls_max;
    }
    fprintf(out, "%s%s%s%s, user %s, host %s, %d process%s since %s\n", w->job[0] ? "job " : "",
            w->job[0] ? w->scheduler : w->command, w->job[0] ? " " : "", w->job,
            stat_user(p[0]->uid), w->host, n, n == 1 ? "" : "es",
            stat_time(w->start, false, when, sizeof(when)));
    if (faults || giveups) {
        fprintf(out,
                "faults %" PRIu64 ", switches %" PRIu64 ", failbacks %" PRIu64 ", gave up %" PRIu64
                ", longest stall %s, posted again %s\n",
                faults, switches, failbacks, giveups, stall_text(stall, ms, sizeof(ms)),
                stat_bytes(replayed, bytes, sizeof(bytes)));
    }
    if (stalls) {
        fprintf(out, "stalls without a fault %" PRIu64 ", longest %s\n", stalls,
                stall_text(stalls_max, ms, sizeof(ms)));
    }
    if (kept) {
        fprintf(out, "registrations kept %" PRIu64 ": a driver did not let go of memory\n", kept);
    }
    if (strangers || frames || messages) {
        fprintf(out,
                "out-of-band channel: strangers %" PRIu64 ", bad frames %" PRIu64
                ", bad messages %" PRIu64 "\n",
                strangers, frames, messages);
    }
}

static void job_nics(struct stat_proc *const *p, int n, bool sends)
{
    struct stat_nic nic[R2_STAT_NICS];
    int nics = stat_nics(p, n, nic);

    printf("%-12s %-7s %-12s %8s %8s %5s %5s %5s  %s\n", "NIC", "STATE", "SINCE", "SENT",
           "RECEIVED", "CONNS", "MOVED", "LOST", "WHY");
    for (int i = 0; i < nics; i++) {
        nic_row(&nic[i]);
    }
    if (sends) {
        stat_print_sends(stdout, nic, nics);
        stat_print_peers(p, n);
    }
}

/* --- connections --- */

/* What a receiver's path is used for only its sender knows: what came over it tells. */
static void path_text(const struct stat_proc *p, const struct r2_stat_conn *c,
                      const struct r2_stat_path *path, char *out, size_t room)
{
    const char *name = p->v.nic[path->nic].name;
    bool same = path->peer_name[0] == '\0' || strcmp(name, path->peer_name) == 0;
    size_t n = (size_t)snprintf(out, room, "%.23s%s%.23s", name, same ? "" : ">",
                                same ? "" : path->peer_name);
    char bytes[24];

    if (path->state != R2_STAT_PATH_UP) {
        snprintf(out + n, room - n, " %s", path->state == R2_STAT_PATH_NONE ? "never" : "down");
    } else if (path->share) {
        snprintf(out + n, room - n, " %u%%", path->share);
    } else if (!c->is_send && path->bytes) {
        snprintf(out + n, room - n, " %s", stat_bytes(path->bytes, bytes, sizeof(bytes)));
    } else {
        snprintf(out + n, room - n, " ready");
    }
    if (path->way) {
        n = strlen(out);
        snprintf(out + n, room - n, " way %u", path->way);
    }
}

void stat_paths_text(const struct stat_proc *p, const struct r2_stat_conn *c, char *out,
                     size_t room)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < c->npaths && n < room; i++) {
        char text[80];

        path_text(p, c, &c->path[i], text, sizeof(text));
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", text);
    }
}

/* Its paths, on as many lines as they need. */
static void paths_row(const struct stat_proc *p, const struct r2_stat_conn *c)
{
    int column = 0;

    for (int i = 0; i < c->npaths; i++) {
        char text[80];

        path_text(p, c, &c->path[i], text, sizeof(text));
        if (column > 0 && column + 2 + (int)strlen(text) > WIDTH) {
            printf(",\n");
            column = 0;
        }
        column += column == 0 ? printf("%15s%s", "", text) : printf(", %s", text);
    }
    putchar('\n');
}

static void conn_row(const struct stat_proc *p, const struct r2_stat_conn *c, bool sends)
{
    char bytes[24], stall[24], again[24], peer[80];

    snprintf(peer, sizeof(peer), "%s/%s", c->peer_host,
             c->path[0].peer_name[0] ? c->path[0].peer_name : "?");
    printf("%8" PRId64 " %5u %-4s %-10.10s %-18.18s %9s %9" PRIu64 " %9s %9s%s\n", p->v.who.pid,
           c->id, c->is_send ? "send" : "recv", p->v.nic[c->dev].name, peer,
           stat_bytes(c->bytes, bytes, sizeof(bytes)), c->messages,
           stall_text(c->stall_ns, stall, sizeof(stall)),
           c->replayed_bytes ? stat_bytes(c->replayed_bytes, again, sizeof(again)) : "-",
           c->error      ? " ended"
           : c->standing ? ""
                         : " begins");
    if (c->error) {
        printf("%15s%.84s\n", "", c->why);
    } else if (c->standing) {
        paths_row(p, c);
    }
    if (sends) {
        stat_print_sends_of(c);
    }
}

static void job_conns(struct stat_proc *const *p, int n, bool sends)
{
    printf("\n%8s %5s %-4s %-10s %-18s %9s %9s %9s %9s\n", "PID", "ID", "DIR", "NIC", "PEER",
           "BYTES", "MESSAGES", "STALL", "AGAIN");
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < p[i]->v.conns; k++) {
            conn_row(p[i], &p[i]->v.conn[k], sends);
        }
        if (p[i]->v.who.conns_all > (uint32_t)p[i]->v.conns) {
            printf("%8" PRId64 " and %u more, for which there was no room\n", p[i]->v.who.pid,
                   p[i]->v.who.conns_all - (uint32_t)p[i]->v.conns);
        }
    }
}

/* --- history --- */

void stat_event_row(FILE *out, const char *host, const struct stat_proc *p,
                    const struct r2_stat_event *e)
{
    char when[40];

    fprintf(out, "%s %s%s%" PRId64 " %-10s %s%s%s\n", stat_time(e->when, true, when, sizeof(when)),
            host, host[0] ? " " : "", p->v.who.pid, r2_event_kind_name(e->kind), e->code,
            e->code[0] ? " " : "", e->text);
}

void stat_print_event(const struct stat_proc *p, const struct r2_stat_event *e)
{
    stat_event_row(stdout, p->v.who.host, p, e);
}

static int line_compare(const void *a, const void *b)
{
    const struct stat_line *x = a, *y = b;

    if (x->e->when != y->e->when) {
        return x->e->when < y->e->when ? -1 : 1;
    }
    return x->e->no < y->e->no ? -1 : x->e->no > y->e->no;
}

struct stat_line *stat_lines_of(struct stat_proc *const *p, int n, int *lines)
{
    struct stat_line *line = calloc((size_t)n * R2_STAT_HISTORY, sizeof(*line));

    *lines = 0;
    for (int i = 0; line && i < n; i++) {
        for (int k = 0; k < p[i]->v.events; k++) {
            line[(*lines)++] = (struct stat_line){p[i], &p[i]->v.event[k]};
        }
    }
    if (*lines) {
        qsort(line, (size_t)*lines, sizeof(*line), line_compare);
    }
    return line;
}

static void job_history(struct stat_proc *const *p, int n)
{
    int lines;
    struct stat_line *line = stat_lines_of(p, n, &lines);

    puts(lines ? "" : "\nnothing has happened");
    for (int i = 0; i < lines; i++) {
        stat_event_row(stdout, "", line[i].p, line[i].e);
    }
    free(line);
}

/* --- all --- */

void stat_none_text(const struct stat_found *f, char *out, size_t room)
{
    bool is_root = geteuid() == 0;
    size_t n =
        (size_t)snprintf(out, room, "no job of %s%s uses the plugin on this host; looked in ",
                         is_root ? "any user" : "user ", is_root ? "" : stat_user(geteuid()));

    for (int i = 0; i < f->dirs && n < room; i++) {
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", f->dir[i]);
    }
}

void stat_print_none(const struct stat_found *f)
{
    char text[4096];

    stat_none_text(f, text, sizeof(text));
    puts(text);
}

void stat_print(const struct stat_found *f, struct stat_more more)
{
    for (int i = 0, n; i < f->procs; i += n) {
        n = stat_job_procs(f, i);
        if (i) {
            putchar('\n');
        }
        stat_job_head(stdout, &f->proc[i], n);
        job_nics(&f->proc[i], n, more.sends);
        if (more.conns) {
            job_conns(&f->proc[i], n, more.sends);
        }
        if (more.history) {
            job_history(&f->proc[i], n);
        }
    }
    if (f->procs == 0) {
        stat_print_none(f);
    }
    if (f->unread) {
        fflush(stdout);
        fprintf(stderr, "r2_stat: %d file%s could not be read; the first one: %s\n", f->unread,
                f->unread == 1 ? "" : "s", f->why);
    }
}
