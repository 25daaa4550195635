/* The same as JSON, in the words of NCCL's RAS: host, pid, cuda_dev. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_json.h"
#include "tools/r2_stat/stat.h"

static void time_put(struct r2_json *j, const char *key, uint64_t ns)
{
    if (ns == 0) {
        r2_json_null(j, key);
    } else {
        r2_json_time(j, key, ns, 3);
    }
}

static void text_put(struct r2_json *j, const char *key, const char *text)
{
    r2_json_text(j, key, text[0] ? text : NULL);
}

static void capacity_put(struct r2_json *j, int64_t all, int64_t up)
{
    r2_json_open(j, "capacity", '[');
    r2_json_int(j, NULL, all);
    r2_json_int(j, NULL, up);
    r2_json_close(j, ']');
}

/* --- times of sends --- */

static void times_put(struct r2_json *j, const struct r2_stat_times *t)
{
    r2_json_uint(j, "samples", t->samples);
    r2_json_uint(j, "mean_ns", stat_mean(t));
    r2_json_uint(j, "p50_ns", t->p50_ns);
    r2_json_uint(j, "p99_ns", t->p99_ns);
    r2_json_uint(j, "p999_ns", t->p999_ns);
}

/* Where each bucket in use begins, ns, and its count. */
static void buckets_put(struct r2_json *j, const struct r2_hist *h)
{
    r2_json_open(j, "buckets", '[');
    for (unsigned i = 0; i < R2_HIST_BUCKETS; i++) {
        if (h->n[i]) {
            r2_json_open(j, NULL, '[');
            r2_json_uint(j, NULL, r2_hist_begin(i));
            r2_json_uint(j, NULL, h->n[i]);
            r2_json_close(j, ']');
        }
    }
    r2_json_close(j, ']');
}

/* @t: quantiles by size; @h: what they are of, NULL where that is not known. */
static void sends_put(struct r2_json *j, const struct r2_stat_times *t, const struct r2_hist *h)
{
    static const char *const size[R2_SEND_SIZES] = {"small", "large"};

    r2_json_open(j, "send_times", '{');
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        if (t[s].samples == 0) {
            r2_json_null(j, size[s]);
            continue;
        }
        r2_json_open(j, size[s], '{');
        times_put(j, &t[s]);
        if (h) {
            buckets_put(j, &h[s]);
        }
        r2_json_close(j, '}');
    }
    r2_json_close(j, '}');
}

static void hist_put(struct r2_json *j, const struct r2_hist *h)
{
    struct r2_stat_times t[R2_SEND_SIZES];

    for (int s = 0; s < R2_SEND_SIZES; s++) {
        r2_stat_times_of(&h[s], &t[s]);
    }
    sends_put(j, t, h);
}

/* Stalls of connections, at failures and without one. */
static void stall_times_put(struct r2_json *j, const struct r2_hist *h)
{
    static const char *const which[R2_STAT_STALLS] = {
        [R2_STAT_STALL_FAULT] = "fault", [R2_STAT_STALL_OTHER] = "no_fault"};

    r2_json_open(j, "stall_times", '{');
    for (int k = 0; k < R2_STAT_STALLS; k++) {
        struct r2_stat_times t;

        r2_stat_times_of(&h[k], &t);
        if (t.samples == 0) {
            r2_json_null(j, which[k]);
            continue;
        }
        r2_json_open(j, which[k], '{');
        times_put(j, &t);
        buckets_put(j, &h[k]);
        r2_json_close(j, '}');
    }
    r2_json_close(j, '}');
}

/* --- NICs --- */

static void nic_put(struct r2_json *j, const struct r2_stat_nic *n)
{
    char guid[24];
    const char *why, *word;
    uint64_t since;

    word = stat_nic_word(n, &why, &since);
    snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)n->guid);
    r2_json_open(j, NULL, '{');
    r2_json_text(j, "device", n->name);
    r2_json_int(j, "port", n->port);
    text_put(j, "pci", n->pci);
    r2_json_text(j, "guid", guid);
    r2_json_gid(j, "gid", n->gid);
    r2_json_int(j, "lid", n->lid);
    r2_json_int(j, "rail", n->rail);
    r2_json_int(j, "speed_mbps", n->speed_mbps);
    r2_json_text(j, "state", word);
    r2_json_text(j, "port_state", r2_stat_nic_state_name(n->state));
    time_put(j, "since", since);
    text_put(j, "why", why);
    r2_json_int(j, "drained", n->drained != 0);
    r2_json_int(j, "sent_bytes", (int64_t)n->sent);
    r2_json_int(j, "received_bytes", (int64_t)n->received);
    r2_json_int(j, "work_requests", (int64_t)n->work_requests);
    r2_json_int(j, "lives_lost", (int64_t)n->lost);
    r2_json_int(j, "stalls", (int64_t)n->stalls);
    r2_json_int(j, "stall_us", (int64_t)(n->stall_ns / 1000));
    time_put(j, "stall_at", n->stall_at);
    r2_json_int(j, "connections", n->over);
    r2_json_int(j, "primary", n->primary);
    r2_json_int(j, "moved", n->moved);
    r2_json_int(j, "only_nic", n->last);
    r2_json_int(j, "last_resort", n->last_resort != 0);
    r2_json_int(j, "fault_at_peer", n->theirs != 0);
    text_put(j, "trouble", n->trouble);
    time_put(j, "trouble_at", n->trouble_at);
    text_put(j, "blamed", n->blamed);
    time_put(j, "blamed_at", n->blamed_at);
    hist_put(j, n->sends);
    r2_json_close(j, '}');
}

/* --- connections --- */

static void conn_put(struct r2_json *j, const struct stat_proc *p, const struct r2_stat_conn *c)
{
    r2_json_open(j, NULL, '{');
    r2_json_int(j, "id", c->id);
    r2_json_text(j, "direction", c->is_send ? "send" : "recv");
    r2_json_text(j, "nic", p->v.nic[c->dev].name);
    r2_json_open(j, "peer", '{');
    r2_json_text(j, "host", c->peer_host);
    text_put(j, "address", c->peer_addr);
    r2_json_close(j, '}');
    r2_json_text(j, "state", c->error ? "ended" : c->standing ? "standing" : "begins");
    text_put(j, "why", c->why);
    r2_json_int(j, "bytes", (int64_t)c->bytes);
    r2_json_int(j, "messages", (int64_t)c->messages);
    r2_json_int(j, "replayed_parts", (int64_t)c->replayed_parts);
    r2_json_int(j, "replayed_bytes", (int64_t)c->replayed_bytes);
    r2_json_int(j, "stall_us", (int64_t)(c->stall_ns / 1000));
    time_put(j, "stall_at", c->stall_at);
    sends_put(j, c->sends, NULL);
    r2_json_open(j, "paths", '[');
    for (int i = 0; i < c->npaths; i++) {
        const struct r2_stat_path *path = &c->path[i];

        r2_json_open(j, NULL, '{');
        r2_json_text(j, "nic", p->v.nic[path->nic].name);
        text_put(j, "peer_nic", path->peer_name);
        r2_json_text(j, "state", r2_stat_path_state_name(path->state));
        r2_json_int(j, "life", path->inc);
        r2_json_int(j, "share_percent", path->share);
        r2_json_int(j, "way", path->way);
        r2_json_int(j, "udp_port", path->udp_port);
        r2_json_int(j, "bytes", (int64_t)path->bytes);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_close(j, '}');
}

/* --- history --- */

static void event_fill(struct r2_json *j, const struct r2_stat_event *e)
{
    time_put(j, "ts", e->when);
    r2_json_int(j, "mono_ns", (int64_t)e->mono);
    r2_json_int(j, "no", (int64_t)e->no);
    r2_json_text(j, "kind", r2_event_kind_name(e->kind));
    r2_json_text(j, "severity", r2_event_severity_name(e->severity));
    text_put(j, "code", e->code);
    text_put(j, "nic", e->nic);
    r2_json_open(j, "peer", '{');
    text_put(j, "host", e->peer_host);
    text_put(j, "device", e->peer_nic);
    r2_json_close(j, '}');
    text_put(j, "cause", e->cause);
    r2_json_known(j, "stall_us", e->stall_ns < 0 ? -1 : e->stall_ns / 1000);
    r2_json_known(j, "replayed_bytes", e->replayed_bytes);
    r2_json_int(j, "connections", e->connections);
    capacity_put(j, e->capacity_all, e->capacity_up);
    r2_json_text(j, "text", e->text);
}

void stat_json_event(const struct stat_proc *p, const struct r2_stat_event *e)
{
    struct r2_json j;

    r2_json_begin_file(&j, stdout);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "schema", "r2.history/1");
    r2_json_text(&j, "host", p->v.who.host);
    r2_json_int(&j, "pid", p->v.who.pid);
    event_fill(&j, e);
    r2_json_close(&j, '}');
    putchar('\n');
}

/* --- processes --- */

static void who_put(struct r2_json *j, const struct stat_proc *p)
{
    const struct r2_stat_who *w = &p->v.who;
    char digest[16];

    snprintf(digest, sizeof(digest), "%08x", w->digest);
    r2_json_text(j, "host", w->host);
    r2_json_int(j, "pid", w->pid);
    r2_json_known(j, "cuda_dev", w->cuda_dev);
    r2_json_text(j, "command", w->command);
    r2_json_text(j, "version", w->version);
    r2_json_text(j, "digest", digest);
    time_put(j, "start", w->start);
    time_put(j, "updated", w->updated);
    capacity_put(j, stat_proc_nics(p), w->capacity_up);
    r2_json_int(j, "faults", (int64_t)w->faults);
    r2_json_int(j, "switches", (int64_t)w->switches);
    r2_json_int(j, "failbacks", (int64_t)w->failbacks);
    r2_json_int(j, "drains", (int64_t)w->drains);
    r2_json_int(j, "giveups", (int64_t)w->giveups);
    r2_json_int(j, "verdicts", (int64_t)w->verdicts);
    r2_json_int(j, "replayed_bytes", (int64_t)w->replayed_bytes);
    r2_json_int(j, "stall_max_us", (int64_t)(w->stall_max_ns / 1000));
    r2_json_int(j, "stalls", (int64_t)w->stalls);
    r2_json_int(j, "stalls_max_us", (int64_t)(w->stalls_max_ns / 1000));
    stall_times_put(j, w->stall_times);
    r2_json_int(j, "registrations_kept", (int64_t)w->kept);
    r2_json_int(j, "events_lost", (int64_t)w->events_lost);
    r2_json_int(j, "oob_strangers", (int64_t)w->oob_strangers);
    r2_json_int(j, "oob_bad_frames", (int64_t)w->oob_bad_frames);
    r2_json_int(j, "oob_bad_messages", (int64_t)w->oob_bad_messages);
    r2_json_int(j, "connections_not_listed",
                w->conns_all > (uint32_t)p->v.conns ? w->conns_all - (uint32_t)p->v.conns : 0);
    r2_json_int(j, "of_one_moment", p->v.whole);
}

/* Over all its NICs. */
static void proc_sends_put(struct r2_json *j, const struct stat_proc *p)
{
    struct r2_hist all[R2_SEND_SIZES];

    memset(all, 0, sizeof(all));
    for (uint32_t i = 0; i < p->v.who.nics; i++) {
        for (int s = 0; s < R2_SEND_SIZES; s++) {
            r2_hist_add(&all[s], &p->v.nic[i].sends[s]);
        }
    }
    hist_put(j, all);
}

/* Processes that sends go to: how long that takes now, by size. */
static void transfer_put(struct r2_json *j, const char *key, const struct r2_stat_transfer *t)
{
    if (t->at == 0) {
        r2_json_null(j, key);
        return;
    }
    r2_json_open(j, key, '{');
    r2_json_uint(j, "timed", t->times);
    r2_json_uint(j, "samples", t->n);
    time_put(j, "at", t->at);
    r2_json_uint(j, "p50_ns", t->p50_ns);
    r2_json_uint(j, "p99_ns", t->p99_ns);
    if (t->high_ns) {
        r2_json_open(j, "band_ns", '[');
        r2_json_uint(j, NULL, t->low_ns);
        r2_json_uint(j, NULL, t->high_ns);
        r2_json_close(j, ']');
    } else {
        r2_json_null(j, "band_ns");
    }
    r2_json_text(j, "state", r2_band_state_name(t->state));
    time_put(j, "since", t->since);
    r2_json_close(j, '}');
}

static void peers_put(struct r2_json *j, const struct stat_proc *p)
{
    r2_json_open(j, "peers", '[');
    for (uint32_t i = 0; i < p->v.who.peers; i++) {
        const struct r2_stat_peer *peer = &p->v.peer[i];

        if (peer->host[0] == '\0') {
            continue;
        }
        r2_json_open(j, NULL, '{');
        r2_json_text(j, "host", peer->host);
        text_put(j, "address", peer->address);
        r2_json_open(j, "transfer", '{');
        for (unsigned s = 0; s < R2_BAND_SIZES; s++) {
            transfer_put(j, r2_band_size_name(s), &peer->transfer[s]);
        }
        r2_json_close(j, '}');
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_int(j, "peers_not_listed",
                p->v.who.peers_all > p->v.who.peers ? p->v.who.peers_all - p->v.who.peers : 0);
}

static void proc_put(struct r2_json *j, const struct stat_proc *p)
{
    r2_json_open(j, NULL, '{');
    who_put(j, p);
    proc_sends_put(j, p);
    peers_put(j, p);
    r2_json_open(j, "nics", '[');
    for (uint32_t i = 0; i < p->v.who.nics; i++) {
        if (p->v.nic[i].name[0]) {
            nic_put(j, &p->v.nic[i]);
        }
    }
    r2_json_close(j, ']');
    r2_json_open(j, "connections", '[');
    for (int i = 0; i < p->v.conns; i++) {
        conn_put(j, p, &p->v.conn[i]);
    }
    r2_json_close(j, ']');
    r2_json_open(j, "history", '[');
    for (int i = 0; i < p->v.events; i++) {
        r2_json_open(j, NULL, '{');
        event_fill(j, &p->v.event[i]);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_close(j, '}');
}

static void job_put(struct r2_json *j, struct stat_proc *const *p, int n)
{
    const struct r2_stat_who *w = &p[0]->v.who;

    r2_json_open(j, NULL, '{');
    r2_json_text(j, "user", stat_user(p[0]->uid));
    r2_json_int(j, "uid", (int64_t)p[0]->uid);
    text_put(j, "scheduler", w->scheduler);
    text_put(j, "id", w->job);
    text_put(j, "step", w->step);
    r2_json_open(j, "processes", '[');
    for (int i = 0; i < n; i++) {
        proc_put(j, p[i]);
    }
    r2_json_close(j, ']');
    r2_json_close(j, '}');
}

void stat_json(const struct stat_found *f)
{
    char host[256] = "";
    struct timespec ts;
    struct r2_json j;

    gethostname(host, sizeof(host) - 1);
    clock_gettime(CLOCK_REALTIME, &ts);
    r2_json_begin_file(&j, stdout);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "schema", "r2.stat/1");
    r2_json_text(&j, "host", host);
    time_put(&j, "timestamp", (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
    r2_json_open(&j, "run_dirs", '[');
    for (int i = 0; i < f->dirs; i++) {
        r2_json_text(&j, NULL, f->dir[i]);
    }
    r2_json_close(&j, ']');
    r2_json_int(&j, "files_not_read", f->unread);
    r2_json_open(&j, "jobs", '[');
    for (int i = 0, n; i < f->procs; i += n) {
        n = stat_job_procs(f, i);
        job_put(&j, &f->proc[i], n);
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    putchar('\n');
}
