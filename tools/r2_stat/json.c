/* The same as JSON, in the words of NCCL's RAS: host, pid, cuda_dev. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/r2_perf/json.h"
#include "tools/r2_stat/stat.h"

static void time_put(struct json *j, const char *key, uint64_t ns)
{
    time_t s = (time_t)(ns / 1000000000);
    char text[64];
    struct tm tm;
    size_t n;

    if (ns == 0 || gmtime_r(&s, &tm) == NULL) {
        json_null_put(j, key);
        return;
    }
    n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof(text) - n, ".%03uZ", (unsigned)(ns / 1000000 % 1000));
    json_text_put(j, key, text);
}

static void text_put(struct json *j, const char *key, const char *text)
{
    json_text_put(j, key, text[0] ? text : NULL);
}

static void known_put(struct json *j, const char *key, int64_t value)
{
    if (value < 0) {
        json_null_put(j, key);
    } else {
        json_int_put(j, key, value);
    }
}

static void capacity_put(struct json *j, int64_t all, int64_t up)
{
    json_list_start(j, "capacity");
    json_int_put(j, NULL, all);
    json_int_put(j, NULL, up);
    json_list_end(j);
}

/* --- NICs --- */

static void gid_put(struct json *j, const uint8_t gid[16])
{
    char text[48];
    int n = 0;

    for (int i = 0; i < 16; i++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%02x", i && i % 2 == 0 ? ":" : "",
                      gid[i]);
    }
    json_text_put(j, "gid", text);
}

static void nic_put(struct json *j, const struct r2_stat_nic *n)
{
    char guid[24];
    const char *why, *word;
    uint64_t since;

    word = stat_nic_word(n, &why, &since);
    snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)n->guid);
    json_object_start(j, NULL);
    json_text_put(j, "device", n->name);
    json_int_put(j, "port", n->port);
    text_put(j, "pci", n->pci);
    json_text_put(j, "guid", guid);
    gid_put(j, n->gid);
    json_int_put(j, "lid", n->lid);
    json_int_put(j, "rail", n->rail);
    json_int_put(j, "speed_mbps", n->speed_mbps);
    json_text_put(j, "state", word);
    json_text_put(j, "port_state", r2_stat_nic_state_name(n->state));
    time_put(j, "since", since);
    text_put(j, "why", why);
    json_int_put(j, "drained", n->drained != 0);
    json_int_put(j, "sent_bytes", (int64_t)n->sent);
    json_int_put(j, "received_bytes", (int64_t)n->received);
    json_int_put(j, "work_requests", (int64_t)n->work_requests);
    json_int_put(j, "lives_lost", (int64_t)n->lost);
    json_int_put(j, "stalls", (int64_t)n->stalls);
    json_int_put(j, "stall_us", (int64_t)(n->stall_ns / 1000));
    time_put(j, "stall_at", n->stall_at);
    json_int_put(j, "connections", n->over);
    json_int_put(j, "primary", n->primary);
    json_int_put(j, "moved", n->moved);
    json_int_put(j, "only_nic", n->last);
    json_int_put(j, "fault_at_peer", n->theirs != 0);
    text_put(j, "trouble", n->trouble);
    time_put(j, "trouble_at", n->trouble_at);
    text_put(j, "blamed", n->blamed);
    time_put(j, "blamed_at", n->blamed_at);
    json_object_end(j);
}

/* --- connections --- */

static void conn_put(struct json *j, const struct stat_proc *p, const struct r2_stat_conn *c)
{
    json_object_start(j, NULL);
    json_int_put(j, "id", c->id);
    json_text_put(j, "direction", c->is_send ? "send" : "recv");
    json_text_put(j, "nic", p->v.nic[c->dev].name);
    json_object_start(j, "peer");
    json_text_put(j, "host", c->peer_host);
    text_put(j, "address", c->peer_addr);
    json_object_end(j);
    json_text_put(j, "state", c->error ? "ended" : c->standing ? "standing" : "begins");
    text_put(j, "why", c->why);
    json_int_put(j, "bytes", (int64_t)c->bytes);
    json_int_put(j, "messages", (int64_t)c->messages);
    json_int_put(j, "replayed_parts", (int64_t)c->replayed_parts);
    json_int_put(j, "replayed_bytes", (int64_t)c->replayed_bytes);
    json_int_put(j, "stall_us", (int64_t)(c->stall_ns / 1000));
    time_put(j, "stall_at", c->stall_at);
    json_list_start(j, "paths");
    for (int i = 0; i < c->npaths; i++) {
        const struct r2_stat_path *path = &c->path[i];

        json_object_start(j, NULL);
        json_text_put(j, "nic", p->v.nic[path->nic].name);
        text_put(j, "peer_nic", path->peer_name);
        json_text_put(j, "state", r2_stat_path_state_name(path->state));
        json_int_put(j, "life", path->inc);
        json_int_put(j, "share_percent", path->share);
        json_int_put(j, "bytes", (int64_t)path->bytes);
        json_object_end(j);
    }
    json_list_end(j);
    json_object_end(j);
}

/* --- history --- */

static void event_fill(struct json *j, const struct r2_stat_event *e)
{
    time_put(j, "ts", e->when);
    json_int_put(j, "mono_ns", (int64_t)e->mono);
    json_int_put(j, "no", (int64_t)e->no);
    json_text_put(j, "kind", r2_event_kind_name(e->kind));
    json_text_put(j, "severity", r2_event_severity_name(e->severity));
    text_put(j, "code", e->code);
    text_put(j, "nic", e->nic);
    json_object_start(j, "peer");
    text_put(j, "host", e->peer_host);
    text_put(j, "device", e->peer_nic);
    json_object_end(j);
    text_put(j, "cause", e->cause);
    known_put(j, "stall_us", e->stall_ns < 0 ? -1 : e->stall_ns / 1000);
    known_put(j, "replayed_bytes", e->replayed_bytes);
    json_int_put(j, "connections", e->connections);
    capacity_put(j, e->capacity_all, e->capacity_up);
    json_text_put(j, "text", e->text);
}

void stat_json_event(const struct stat_proc *p, const struct r2_stat_event *e)
{
    struct json j;

    json_init(&j, stdout);
    json_object_start(&j, NULL);
    json_text_put(&j, "schema", "r2.history/1");
    json_text_put(&j, "host", p->v.who.host);
    json_int_put(&j, "pid", p->v.who.pid);
    event_fill(&j, e);
    json_object_end(&j);
    putchar('\n');
}

/* --- processes --- */

static void who_put(struct json *j, const struct stat_proc *p)
{
    const struct r2_stat_who *w = &p->v.who;
    char digest[16];

    snprintf(digest, sizeof(digest), "%08x", w->digest);
    json_text_put(j, "host", w->host);
    json_int_put(j, "pid", w->pid);
    known_put(j, "cuda_dev", w->cuda_dev);
    json_text_put(j, "command", w->command);
    json_text_put(j, "version", w->version);
    json_text_put(j, "digest", digest);
    time_put(j, "start", w->start);
    time_put(j, "updated", w->updated);
    capacity_put(j, w->nics, w->capacity_up);
    json_int_put(j, "faults", (int64_t)w->faults);
    json_int_put(j, "switches", (int64_t)w->switches);
    json_int_put(j, "failbacks", (int64_t)w->failbacks);
    json_int_put(j, "drains", (int64_t)w->drains);
    json_int_put(j, "giveups", (int64_t)w->giveups);
    json_int_put(j, "verdicts", (int64_t)w->verdicts);
    json_int_put(j, "replayed_bytes", (int64_t)w->replayed_bytes);
    json_int_put(j, "stall_max_us", (int64_t)(w->stall_max_ns / 1000));
    json_int_put(j, "stalls", (int64_t)w->stalls);
    json_int_put(j, "stalls_max_us", (int64_t)(w->stalls_max_ns / 1000));
    json_int_put(j, "registrations_kept", (int64_t)w->kept);
    json_int_put(j, "events_lost", (int64_t)w->events_lost);
    json_int_put(j, "oob_strangers", (int64_t)w->oob_strangers);
    json_int_put(j, "oob_bad_frames", (int64_t)w->oob_bad_frames);
    json_int_put(j, "oob_bad_messages", (int64_t)w->oob_bad_messages);
    json_int_put(j, "connections_not_listed",
                 w->conns_all > (uint32_t)p->v.conns ? w->conns_all - (uint32_t)p->v.conns : 0);
    json_int_put(j, "of_one_moment", p->v.whole);
}

static void proc_put(struct json *j, const struct stat_proc *p)
{
    json_object_start(j, NULL);
    who_put(j, p);
    json_list_start(j, "nics");
    for (uint32_t i = 0; i < p->v.who.nics; i++) {
        if (p->v.nic[i].name[0]) {
            nic_put(j, &p->v.nic[i]);
        }
    }
    json_list_end(j);
    json_list_start(j, "connections");
    for (int i = 0; i < p->v.conns; i++) {
        conn_put(j, p, &p->v.conn[i]);
    }
    json_list_end(j);
    json_list_start(j, "history");
    for (int i = 0; i < p->v.events; i++) {
        json_object_start(j, NULL);
        event_fill(j, &p->v.event[i]);
        json_object_end(j);
    }
    json_list_end(j);
    json_object_end(j);
}

static void job_put(struct json *j, struct stat_proc *const *p, int n)
{
    const struct r2_stat_who *w = &p[0]->v.who;

    json_object_start(j, NULL);
    json_text_put(j, "user", stat_user(p[0]->uid));
    json_int_put(j, "uid", (int64_t)p[0]->uid);
    text_put(j, "scheduler", w->scheduler);
    text_put(j, "id", w->job);
    text_put(j, "step", w->step);
    json_list_start(j, "processes");
    for (int i = 0; i < n; i++) {
        proc_put(j, p[i]);
    }
    json_list_end(j);
    json_object_end(j);
}

void stat_json(const struct stat_found *f)
{
    char host[256] = "";
    struct timespec ts;
    struct json j;

    gethostname(host, sizeof(host) - 1);
    clock_gettime(CLOCK_REALTIME, &ts);
    json_init(&j, stdout);
    json_object_start(&j, NULL);
    json_text_put(&j, "schema", "r2.stat/1");
    json_text_put(&j, "host", host);
    time_put(&j, "timestamp", (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
    json_list_start(&j, "run_dirs");
    for (int i = 0; i < f->dirs; i++) {
        json_text_put(&j, NULL, f->dir[i]);
    }
    json_list_end(&j);
    json_int_put(&j, "files_not_read", f->unread);
    json_list_start(&j, "jobs");
    for (int i = 0, n; i < f->procs; i += n) {
        for (n = 1; i + n < f->procs && stat_same_job(f->proc[i], f->proc[i + n]); n++) {
        }
        job_put(&j, &f->proc[i], n);
    }
    json_list_end(&j);
    json_object_end(&j);
    putchar('\n');
}
