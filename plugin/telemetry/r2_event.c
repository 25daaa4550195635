#include "r2_event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/r2_fsize.h"
#include "base/r2_json.h"
#include "base/r2_rundir.h"

const struct r2_event r2_event_empty = {.error.wc_status = -1,
                                        .error.vendor_err = -1,
                                        .error.err = -1,
                                        .detected_us = -1,
                                        .stall_us = -1,
                                        .replayed_bytes = -1,
                                        .connections = -1,
                                        .capacity.all = -1,
                                        .capacity.up = -1,
                                        .confidence = -1};

const char *r2_event_kind_name(unsigned kind)
{
    static const char *const names[R2_EVENT_KINDS] = {
        "none",  "fault", "switch", "verdict", "failback",   "drain",   "giveup",
        "start", "stop",  "news",   "stall",   "checkpoint", "transfer"};

    return kind < R2_EVENT_KINDS ? names[kind] : "?";
}

const char *r2_event_severity_name(unsigned severity)
{
    static const char *const names[R2_EVENT_SEVERITIES] = {"info", "warning", "critical"};

    return severity < R2_EVENT_SEVERITIES ? names[severity] : "?";
}

/* --- the line --- */

static void put_source(struct r2_json *j, const struct r2_event_source *src)
{
    r2_json_text(j, "host", src->host);
    if (src->job[0]) {
        r2_json_open(j, "job", '{');
        r2_json_text(j, "scheduler", src->scheduler);
        r2_json_text(j, "id", src->job);
        if (src->step[0]) {
            r2_json_text(j, "step", src->step);
        }
        r2_json_close(j, '}');
    } else {
        r2_json_null(j, "job");
    }
    r2_json_int(j, "pid", src->pid);
    r2_json_known(j, "cuda_dev", src->cuda_dev);
}

static void put_text(struct r2_json *j, const char *key, const char *text)
{
    if (text && text[0]) {
        r2_json_text(j, key, text);
    }
}

static void put_nic(struct r2_json *j, const struct r2_event_nic *nic)
{
    char text[24];

    if (nic->device == NULL) {
        return;
    }
    r2_json_open(j, "nic", '{');
    r2_json_text(j, "device", nic->device);
    r2_json_int(j, "port", nic->port);
    if (nic->pci) {
        r2_json_text(j, "pci", nic->pci);
    }
    put_text(j, "netdev", nic->netdev);
    put_text(j, "fw", nic->fw);
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)nic->guid);
    r2_json_text(j, "guid", text);
    r2_json_gid(j, "gid", nic->gid);
    r2_json_int(j, "lid", nic->lid);
    r2_json_int(j, "rail", nic->rail);
    r2_json_close(j, '}');
}

static void put_known(struct r2_json *j, const char *key, int64_t value)
{
    if (value >= 0) {
        r2_json_int(j, key, value);
    }
}

static void put_cause(struct r2_json *j, const struct r2_event *e)
{
    if (e->how == NULL) {
        return;
    }
    r2_json_open(j, "cause", '{');
    r2_json_text(j, "how", e->how);
    put_text(j, "detail", e->detail);
    put_known(j, "wc_status", e->error.wc_status);
    put_known(j, "vendor_err", e->error.vendor_err);
    put_known(j, "errno", e->error.err);
    r2_json_close(j, '}');
}

static void put_revises(struct r2_json *j, const struct r2_event *e)
{
    if (e->revises.code == NULL) {
        return;
    }
    r2_json_open(j, "revises", '{');
    r2_json_text(j, "code", e->revises.code);
    if (e->revises.seq) {
        r2_json_uint(j, "seq", e->revises.seq);
    }
    r2_json_close(j, '}');
}

static void put_counters(struct r2_json *j, const struct r2_event *e)
{
    if (e->counters.n == 0) {
        return;
    }
    r2_json_open(j, "counters_delta", '{');
    for (int i = 0; i < e->counters.n; i++) {
        r2_json_uint(j, e->counters.name[i], e->counters.by[i]);
    }
    r2_json_close(j, '}');
}

static void put_figures(struct r2_json *j, const struct r2_event *e)
{
    put_known(j, "detected_us", e->detected_us);
    put_known(j, "stall_us", e->stall_us);
    put_known(j, "replayed_bytes", e->replayed_bytes);
    put_known(j, "connections", e->connections);
    if (e->capacity.all >= 0) {
        r2_json_open(j, "capacity", '[');
        r2_json_int(j, NULL, e->capacity.all);
        r2_json_int(j, NULL, e->capacity.up);
        r2_json_close(j, ']');
    }
    put_counters(j, e);
    put_known(j, "confidence", e->confidence);
    if (e->n_evidence > 0) {
        r2_json_open(j, "evidence", '[');
        for (int i = 0; i < e->n_evidence; i++) {
            r2_json_text(j, NULL, e->evidence[i]);
        }
        r2_json_close(j, ']');
    }
    put_text(j, "action", e->action);
    put_text(j, "recommend", e->recommend);
}

static void put_sum(struct r2_json *j, const struct r2_event_sum *s)
{
    r2_json_open(j, "summary", '{');
    r2_json_uint(j, "faults", s->faults);
    r2_json_uint(j, "switches", s->switches);
    r2_json_uint(j, "failbacks", s->failbacks);
    r2_json_uint(j, "drains", s->drains);
    r2_json_uint(j, "giveups", s->giveups);
    r2_json_uint(j, "verdicts", s->verdicts);
    r2_json_uint(j, "replayed_bytes", s->replayed_bytes);
    r2_json_uint(j, "stall_max_us", s->stall_max_ns / 1000);
    r2_json_uint(j, "stalls", s->stalls);
    r2_json_uint(j, "stalls_max_us", s->stalls_max_ns / 1000);
    r2_json_close(j, '}');
}

static void put_transfer(struct r2_json *j, const struct r2_event_transfer *t)
{
    r2_json_open(j, "transfer", '{');
    r2_json_text(j, "size", t->size);
    r2_json_int(j, "p50_us", t->p50_us);
    r2_json_int(j, "p99_us", t->p99_us);
    if (t->high_us >= 0) {
        r2_json_open(j, "band_us", '[');
        r2_json_int(j, NULL, t->low_us);
        r2_json_int(j, NULL, t->high_us);
        r2_json_close(j, ']');
    }
    r2_json_close(j, '}');
}

size_t r2_event_line(char *out, size_t room, const struct r2_event_source *src,
                     const struct r2_event *e, uint64_t seq)
{
    char digest[16];
    struct r2_json j;
    size_t n;

    r2_json_begin(&j, out, room);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "schema", R2_EVENT_SCHEMA);
    r2_json_time(&j, "ts", e->when_ns, 9);
    r2_json_uint(&j, "mono_ns", e->mono_ns);
    r2_json_text(&j, "boot_id", src->boot_id);
    r2_json_uint(&j, "seq", seq);
    put_source(&j, src);
    r2_json_text(&j, "kind", r2_event_kind_name(e->kind));
    r2_json_text(&j, "severity", r2_event_severity_name(e->severity));
    put_text(&j, "code", e->code);
    put_text(&j, "blame", e->blame);
    if (e->since_ns) {
        r2_json_time(&j, "since", e->since_ns, 9);
    }
    put_revises(&j, e);
    put_nic(&j, &e->nic);
    if ((e->peer.host && e->peer.host[0]) || (e->peer.device && e->peer.device[0])) {
        r2_json_open(&j, "peer", '{');
        put_text(&j, "host", e->peer.host);
        put_text(&j, "device", e->peer.device);
        r2_json_close(&j, '}');
    }
    put_cause(&j, e);
    put_figures(&j, e);
    if (e->kind == R2_EVENT_START) {
        r2_json_text(&j, "command", src->command);
        r2_json_text(&j, "version", src->version);
        snprintf(digest, sizeof(digest), "%08x", src->digest);
        r2_json_text(&j, "digest", digest);
    }
    if (e->transfer) {
        put_transfer(&j, e->transfer);
    }
    if (e->sum) {
        put_sum(&j, e->sum);
    }
    put_text(&j, "text", e->text);
    r2_json_close(&j, '}');
    n = r2_json_end(&j);
    if (n == 0 || n + 2 > room) {
        return 0;
    }
    out[n] = '\n';
    out[n + 1] = '\0';
    return n + 1;
}

/* --- the file --- */

int r2_event_path(const char *dir, uid_t uid, char *out, size_t len)
{
    int n = snprintf(out, len, "%s/nccl-net-r2.%u.events.ndjson", dir, (unsigned)uid);

    return n < 0 || (size_t)n >= len ? -1 : 0;
}

int r2_event_file_init(struct r2_event_file *f, const char *path, uint64_t max)
{
    *f = (struct r2_event_file){.fd = -1, .uid = geteuid(), .max = max};
    if (strlen(path) + sizeof(".1") > sizeof(f->path)) {
        return -1;
    }
    snprintf(f->path, sizeof(f->path), "%s", path);
    return 0;
}

void r2_event_file_close(struct r2_event_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    f->fd = -1;
    f->broken = 0;
}

static int open_file(struct r2_event_file *f, char *why, size_t why_len)
{
    f->fd =
        open(f->path,
             O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (f->fd < 0) {
        snprintf(why, why_len, "%s: %s", f->path, strerror(errno));
        return -1;
    }
    if (!r2_rundir_file_safe(f->fd, f->path, f->uid, why, why_len)) {
        r2_event_file_close(f);
        return -1;
    }
    return 0;
}

/* Whether the name still means the file that is open: another process may have turned it over. */
static bool is_current(const struct r2_event_file *f, struct stat *open_st)
{
    struct stat named;

    return fstat(f->fd, open_st) == 0 && lstat(f->path, &named) == 0 &&
           named.st_ino == open_st->st_ino && named.st_dev == open_st->st_dev;
}

/*
 * The file becomes FILE.1. Only who holds its lock renames it, and only while the name means it: so
 * of several processes that find it full one does it, and nobody renames the new file. Who does not
 * get the lock goes on without, until the file is twice as full (@must): whoever holds the lock may
 * stand still for long. Should that one stand just before its rename, what is in FILE.1 is lost
 * when it goes on; without @must all lines would be lost until then. 0: the file is closed, and its
 * name may be opened again. -1: the lock is held (not with @must), or errno.
 */
static int turn_over(struct r2_event_file *f, int must)
{
    char old[sizeof(f->path) + 2];
    struct stat st;
    int err = 0;

    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0 && !must) {
        return -1;
    }
    snprintf(old, sizeof(old), "%s.1", f->path);
    if (is_current(f, &st) && rename(f->path, old) != 0 && errno != ENOENT) {
        err = errno;
    }
    r2_event_file_close(f); /* and with it the lock */
    errno = err;
    return err ? -1 : 0;
}

static int append(struct r2_event_file *f, const char *lines, size_t len, char *why, size_t why_len)
{
    struct r2_fsize guard;
    struct stat st;
    ssize_t n;

    if (f->fd >= 0 && !is_current(f, &st)) {
        r2_event_file_close(f);
    }
    if (f->fd < 0 && open_file(f, why, why_len) != 0) {
        return -1;
    }
    if (fstat(f->fd, &st) == 0 && st.st_size > 0 && (uint64_t)st.st_size + len > f->max) {
        int must = (uint64_t)st.st_size + len > 2 * f->max;

        if (turn_over(f, must) != 0 && must) {
            snprintf(why, why_len, "%s is full and cannot be turned over: %s", f->path,
                     strerror(errno));
            return -1;
        }
        if (f->fd < 0 && open_file(f, why, why_len) != 0) {
            return -1;
        }
    }
    r2_fsize_begin(&guard);
    if (f->broken && write(f->fd, "\n", 1) == 1) {
        f->broken = 0;
    }
    n = write(f->fd, lines, len);
    r2_fsize_end(&guard);
    if (n != (ssize_t)len) {
        f->broken |= n > 0;
        snprintf(why, why_len, "%s: %s", f->path,
                 n < 0 ? strerror(errno) : "no room for a whole line");
        return -1;
    }
    return 0;
}

int r2_event_append(struct r2_event_file *f, const char *lines, size_t len, char *why,
                    size_t why_len)
{
    int rc = append(f, lines, len, why, why_len);

    f->written += rc == 0;
    f->failed += rc != 0;
    return rc;
}
