/* What r2_stat --json has printed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/r2_diag/figures.h"
#include "tools/shared/sources.h"

/* What is known of the process, the peer and the connection that values are of: the writer has a
 * fixed order (tools/r2_stat/json.c), in which each of them begins with the key named here. */
struct printed {
    struct figures *f;
    int is_wanted, is_begun;
    char job[128], host[FIGURES_NAME], peer[FIGURES_NAME], nic[32];
    uint64_t updated;
    int has_conn;
    struct figures_conn conn;
    struct r2_stat_transfer transfer;
};

static uint64_t number_of(const char *text)
{
    return text[0] == '-' ? 0 : strtoull(text, NULL, 10);
}

/* 2026-11-27T04:00:00.123Z as ns of CLOCK_REALTIME; 0: it is none. */
static uint64_t time_of(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    time_t at = end ? timegm(&tm) : 0;

    if (end == NULL || at <= 0) {
        return 0;
    }
    return (uint64_t)at * 1000000000 + (uint64_t)(*end == '.' ? atof(end) * 1e9 : 0);
}

/* With the first value behind those of the process itself. */
static void process_begin(struct printed *r)
{
    if (!r->is_begun) {
        r->is_begun = 1;
        r->is_wanted = figures_begin(r->f, r->host, r->job, r->updated);
    }
}

static void connection_end(struct printed *r)
{
    if (r->has_conn && r->is_wanted) {
        figures_connection(r->f, &r->conn);
    }
    r->has_conn = 0;
    memset(&r->conn, 0, sizeof(r->conn));
}

static void take_process(struct printed *r, const char *key, const char *text)
{
    if (strcmp(key, "host") == 0) {
        connection_end(r);
        r->is_begun = r->is_wanted = 0;
        r->updated = 0;
        snprintf(r->host, sizeof(r->host), "%.63s", text);
    } else if (strcmp(key, "updated") == 0) {
        r->updated = time_of(text);
    } else if (strcmp(key, "peers_not_listed") == 0) {
        process_begin(r);
        r->f->hidden += r->is_wanted ? (uint32_t)number_of(text) : 0;
    }
}

/* @key: "host", "transfer.16K.p50_ns" */
static void take_peer(struct printed *r, const char *key, const char *text)
{
    static const char begin[] = "transfer.";
    const char *what;

    process_begin(r);
    if (strcmp(key, "host") == 0) {
        snprintf(r->peer, sizeof(r->peer), "%.63s", text);
        return;
    }
    if (strncmp(key, begin, sizeof(begin) - 1) != 0) {
        return;
    }
    key += sizeof(begin) - 1;
    what = strchr(key, '.');
    if (what == NULL) {
        return; /* null */
    }
    what++;
    if (strcmp(what, "timed") == 0) {
        memset(&r->transfer, 0, sizeof(r->transfer));
    } else if (strcmp(what, "samples") == 0) {
        r->transfer.n = (uint32_t)number_of(text);
    } else if (strcmp(what, "at") == 0) {
        r->transfer.at = time_of(text);
    } else if (strcmp(what, "p50_ns") == 0) {
        r->transfer.p50_ns = number_of(text);
    } else if (strcmp(what, "p99_ns") == 0) {
        r->transfer.p99_ns = number_of(text);
    } else if (strcmp(what, "state") == 0 && r->is_wanted) { /* the last of them */
        for (unsigned s = 0; s < R2_BAND_SIZES; s++) {
            const char *size = r2_band_size_name(s);

            if (strncmp(key, size, strlen(size)) == 0 && key[strlen(size)] == '.') {
                figures_transfer(r->f, r->peer, s, &r->transfer);
            }
        }
    }
}

static void take_nic(struct printed *r, const char *key, const char *text)
{
    process_begin(r);
    if (strcmp(key, "device") == 0) {
        snprintf(r->nic, sizeof(r->nic), "%.23s", text);
    } else if (strcmp(key, "rail") == 0 && r->is_wanted) {
        figures_nic(r->f, r->nic, atoi(text));
    }
}

static void take_path(struct printed *r, const char *key, const char *text)
{
    struct figures_conn *c = &r->conn;

    if (strcmp(key, "nic") == 0) {
        c->paths += c->paths < R2_STAT_PATHS;
        snprintf(c->path[c->paths - 1].nic, sizeof(c->path[0].nic), "%.23s", text);
        c->path[c->paths - 1].peer_nic[0] = '\0';
        c->path[c->paths - 1].bytes = 0;
    } else if (c->paths > 0 && strcmp(key, "peer_nic") == 0 && strcmp(text, "null") != 0) {
        snprintf(c->path[c->paths - 1].peer_nic, sizeof(c->path[0].peer_nic), "%.23s", text);
    } else if (c->paths > 0 && strcmp(key, "bytes") == 0) {
        c->path[c->paths - 1].bytes = number_of(text);
    }
}

static void take_sends(struct figures_conn *c, const char *key, const char *text)
{
    unsigned size = strncmp(key, "large.", 6) == 0 ? R2_SEND_LARGE : R2_SEND_SMALL;

    if (strncmp(key, "large.", 6) != 0 && strncmp(key, "small.", 6) != 0) {
        return;
    }
    key += 6;
    if (strcmp(key, "samples") == 0) {
        c->sends[size].samples = number_of(text);
    } else if (strcmp(key, "p50_ns") == 0) {
        c->sends[size].p50 = number_of(text);
    } else if (strcmp(key, "p99_ns") == 0) {
        c->sends[size].p99 = number_of(text);
    }
}

static void take_connection(struct printed *r, const char *key, const char *text)
{
    process_begin(r);
    if (strcmp(key, "id") == 0) {
        connection_end(r);
        r->has_conn = 1;
    } else if (strcmp(key, "direction") == 0) {
        r->conn.is_send = strcmp(text, "send") == 0;
    } else if (strcmp(key, "peer.host") == 0) {
        snprintf(r->conn.peer_host, sizeof(r->conn.peer_host), "%.63s", text);
    } else if (strncmp(key, "send_times.", 11) == 0) {
        take_sends(&r->conn, key + 11, text);
    } else if (strncmp(key, "paths.", 6) == 0) {
        take_path(r, key + 6, text);
    }
}

static void value_take(void *arg, const char *path, const char *text)
{
    static const struct {
        const char *begin;
        void (*take)(struct printed *r, const char *key, const char *text);
    } parts[] = {{"jobs.processes.peers.", take_peer},
                 {"jobs.processes.nics.", take_nic},
                 {"jobs.processes.connections.", take_connection},
                 {"jobs.processes.history.", NULL},
                 {"jobs.processes.", take_process}};
    struct printed *r = arg;

    if (strcmp(path, "jobs.id") == 0) {
        snprintf(r->job, sizeof(r->job), "%.100s", strcmp(text, "null") ? text : "");
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t n = strlen(parts[i].begin);

        if (strncmp(path, parts[i].begin, n) == 0) {
            if (parts[i].take) {
                parts[i].take(r, path + n, text);
            }
            return;
        }
    }
}

int figures_json(struct figures *f, const char *text)
{
    struct printed r = {.f = f};
    int rc = sources_json_walk(text, value_take, &r);

    connection_end(&r);
    return rc;
}
