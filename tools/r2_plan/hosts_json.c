/* What r2_stat --json has printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_plan/hosts.h"
#include "tools/shared/sources.h"

/* What is known of the process and the NIC that values are of: the writer has a fixed order
 * (tools/r2_stat/json.c), in which a process begins with its host and a NIC with its device. */
struct printed {
    struct hosts *h;
    int at;
    bool has_process, is_begun;
    bool has_state, is_bad; /* of a NIC the state is known; of one it was not */
    char host[HOSTS_NAME];
    int64_t pid;
    struct host_job job;
    struct host_nic nic;
};

static void process_begin(struct printed *p)
{
    if (p->has_process && !p->is_begun) {
        p->is_begun = true;
        hosts_begin(p->h, p->at, true, p->host, p->pid, &p->job);
    }
}

static void nic_end(struct printed *p)
{
    if (p->nic.name[0]) {
        p->is_bad |= !p->has_state;
        hosts_nic(p->h, &p->nic);
    }
    p->has_state = false;
    memset(&p->nic, 0, sizeof(p->nic));
}

static void process_end(struct printed *p)
{
    process_begin(p);
    nic_end(p);
    p->has_process = p->is_begun = false;
}

/* null is no text. */
static const char *text_of(const char *text)
{
    return strcmp(text, "null") == 0 ? "" : text;
}

/* A number that cannot be below 0, or above @most. */
static uint64_t count_of(const char *text, uint64_t most)
{
    uint64_t n = text[0] == '-' ? 0 : strtoull(text, NULL, 10);

    return n < most ? n : most;
}

static void take_job(struct printed *p, const char *key, const char *text)
{
    if (strcmp(key, "user") == 0) {
        process_end(p);
        memset(&p->job, 0, sizeof(p->job));
        p->job.uid = -1;
    } else if (strcmp(key, "uid") == 0) {
        p->job.uid = (int64_t)count_of(text, UINT32_MAX);
    } else if (strcmp(key, "id") == 0) {
        process_end(p);
        snprintf(p->job.id, sizeof(p->job.id), "%.63s", text_of(text));
    }
}

static void take_process(struct printed *p, const char *key, const char *text)
{
    if (strcmp(key, "host") == 0) {
        process_end(p);
        p->has_process = true;
        p->pid = -1;
        p->job.command[0] = '\0';
        snprintf(p->host, sizeof(p->host), "%.63s", text_of(text));
    } else if (strcmp(key, "pid") == 0) {
        p->pid = (int64_t)count_of(text, INT64_MAX);
    } else if (strcmp(key, "command") == 0) {
        snprintf(p->job.command, sizeof(p->job.command), "%.31s", text_of(text));
    }
}

static uint8_t port_state_of(const char *text)
{
    for (unsigned s = 0; s < R2_STAT_NIC_STATES; s++) {
        if (strcmp(text, r2_stat_nic_state_name(s)) == 0) {
            return (uint8_t)s;
        }
    }
    return R2_STAT_NIC_DOWN; /* nothing to count on */
}

static void take_nic(struct printed *p, const char *key, const char *text)
{
    struct host_nic *n = &p->nic;

    process_begin(p);
    if (strcmp(key, "device") == 0) {
        nic_end(p);
        snprintf(n->name, sizeof(n->name), "%.23s", text_of(text));
        n->rail = -1;
    } else if (strcmp(key, "port") == 0) {
        n->port = (int)count_of(text, 255);
    } else if (strcmp(key, "rail") == 0) {
        n->rail = text[0] == '-' ? -1 : (int)count_of(text, 1000);
    } else if (strcmp(key, "speed_mbps") == 0) {
        n->mbps = (uint32_t)count_of(text, UINT32_MAX);
    } else if (strcmp(key, "port_state") == 0) {
        n->state = port_state_of(text);
        p->has_state = true;
    } else if (strcmp(key, "why") == 0) {
        snprintf(n->why, sizeof(n->why), "%.127s", text_of(text));
    } else if (strcmp(key, "drained") == 0) {
        n->is_drained = count_of(text, 1) != 0;
    } else if (strcmp(key, "connections") == 0) {
        n->over = count_of(text, UINT32_MAX);
    } else if (strcmp(key, "moved") == 0) {
        n->moved = count_of(text, UINT32_MAX);
    } else if (strcmp(key, "last_resort") == 0) {
        n->is_last_resort = count_of(text, 1) != 0;
    } else if (strcmp(key, "fault_at_peer") == 0) {
        n->is_theirs = count_of(text, 1) != 0;
    }
}

static void take_peer(struct printed *p, const char *key, const char *text)
{
    process_begin(p);
    if (strcmp(key, "host") == 0) {
        hosts_peer(p->h, text);
    }
}

static void value_take(void *arg, const char *path, const char *text)
{
    static const struct {
        const char *begin;
        void (*take)(struct printed *p, const char *key, const char *text);
    } parts[] = {{"jobs.processes.peers.", take_peer},
                 {"jobs.processes.nics.", take_nic},
                 {"jobs.processes.connections.peer.", take_peer},
                 {"jobs.processes.", take_process},
                 {"jobs.", take_job}};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t n = strlen(parts[i].begin);

        if (strncmp(path, parts[i].begin, n) == 0) {
            parts[i].take(arg, path + n, text);
            return;
        }
    }
}

int hosts_json(struct hosts *h, int at, const char *text)
{
    struct printed p = {.h = h, .at = at, .job = {.uid = -1}};
    int rc = sources_json_walk(text, value_take, &p);

    process_end(&p);
    return p.is_bad ? -1 : rc;
}
