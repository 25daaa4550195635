#include "tools/r2_plan/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/stat_nic.h"

#define PEER_NAME 39 /* bytes of its name that a peer is known by (struct r2_stat_peer) */

/* What others wrote goes to a terminal. @least: the first character that stays. */
static void text_clean(char *text, char least)
{
    for (char *c = text; *c; c++) {
        *c = *c < least || *c > 0x7e ? '?' : *c;
    }
}

/* Names are words: no blank is in them. */
static void name_copy(char *out, size_t room, const char *name)
{
    snprintf(out, room, "%s", name);
    text_clean(out, '!');
}

static void fault_note(struct hosts *h, enum hosts_fault fault, const char *a, const char *b)
{
    if (h->fault == HOSTS_WELL) {
        h->fault = fault;
        name_copy(h->what[0], HOSTS_NAME, a);
        name_copy(h->what[1], HOSTS_NAME, b);
    }
    h->now = NULL;
}

/* Room for one more of @size bytes. False: out of memory, or @most are there. */
static bool grow(void **all, int n, int *room, size_t size)
{
    int more = *room ? 2 * *room : 8;
    void *p;

    if (n < *room) {
        return true;
    }
    p = realloc(*all, (size_t)more * size);
    if (p == NULL) {
        return false;
    }
    *all = p;
    *room = more;
    return true;
}

/* --- processes --- */

static struct host *host_find(const struct hosts *h, const char *name)
{
    for (int i = 0; i < h->hosts; i++) {
        if (strcmp(h->host[i]->name, name) == 0) {
            return h->host[i];
        }
    }
    return NULL;
}

/* NULL: noted. */
static struct host *host_add(struct hosts *h, int at, const char *name)
{
    struct host *host;

    if (h->hosts == PLANNER_NODES) {
        fault_note(h, HOSTS_MANY, name, "");
        return NULL;
    }
    host = calloc(1, sizeof(*host));
    if (host != NULL) {
        host->nic = calloc(HOSTS_NICS, sizeof(*host->nic));
    }
    if (host == NULL || host->nic == NULL ||
        !grow((void **)&h->host, h->hosts, &h->room, sizeof(h->host[0]))) {
        if (host) {
            free(host->nic);
        }
        free(host);
        fault_note(h, HOSTS_MEMORY, "", "");
        return NULL;
    }
    snprintf(host->name, sizeof(host->name), "%s", name);
    host->at = at;
    h->host[h->hosts++] = host;
    return host;
}

/* Without a number, jobs are told apart by user and command, as r2_stat does. */
static bool is_same_job(const struct host_job *a, const struct host_job *b)
{
    if (a->uid >= 0 && b->uid >= 0 && a->uid != b->uid) {
        return false;
    }
    return strcmp(a->id, b->id) == 0 && (a->id[0] || strcmp(a->command, b->command) == 0);
}

/* What is read of @host from @at was not read before. */
static bool is_first(struct hosts *h, const struct host *host, int at, bool is_all, int64_t pid)
{
    int other = host->at != at && (is_all || host->is_all) ? host->at : -1;

    for (int i = 0; i < host->processes && other < 0; i++) {
        other = host->process[i].pid == pid ? host->process[i].at : -1;
    }
    if (other < 0) {
        return true;
    }
    if (h->fault == HOSTS_WELL) {
        h->where[0] = other < at ? other : at; /* over ssh, in any order */
        h->where[1] = other < at ? at : other;
    }
    fault_note(h, HOSTS_TWICE, host->name, "");
    return false;
}

void hosts_begin(struct hosts *h, int at, bool is_all, const char *text, int64_t pid,
                 const struct host_job *of)
{
    struct host_job job = *of;
    char name[HOSTS_NAME];
    struct host *host;

    h->now = NULL;
    if (h->fault != HOSTS_WELL || (h->wanted && strcmp(h->wanted, job.id) != 0)) {
        return;
    }
    text_clean(job.id, '!');
    text_clean(job.command, ' ');
    if (!h->is_begun) {
        h->job = job;
        h->is_begun = true;
    }
    if (!is_same_job(&h->job, &job)) {
        fault_note(h, HOSTS_JOBS, h->job.id[0] ? h->job.id : h->job.command,
                   job.id[0] ? job.id : job.command);
        return;
    }
    name_copy(name, sizeof(name), text[0] ? text : "?");
    host = host_find(h, name);
    if (host == NULL) {
        host = host_add(h, at, name);
    } else if (!is_first(h, host, at, is_all, pid)) {
        return;
    }
    if (host == NULL) {
        return;
    }
    if (!grow((void **)&host->process, host->processes, &host->room, sizeof(host->process[0]))) {
        fault_note(h, HOSTS_MEMORY, "", "");
        return;
    }
    host->is_all |= is_all;
    host->process[host->processes++] = (struct host_process){pid, at};
    h->now = host;
}

/* As far as its state is concerned. */
static struct r2_stat_nic state_of(const struct host_nic *n)
{
    return (struct r2_stat_nic){.state = n->state,
                                .drained = n->is_drained,
                                .over = n->over > 0,
                                .moved = n->moved > 0,
                                .theirs = n->is_theirs};
}

static void nic_join(struct host_nic *to, const struct host_nic *n)
{
    struct r2_stat_nic a = state_of(to), b = state_of(n);
    struct host_nic was = *to;

    if (stat_nic_badness(&b) > stat_nic_badness(&a)) {
        *to = *n; /* for its words */
    }
    to->over = was.over + n->over;
    to->moved = was.moved + n->moved;
    to->is_drained = was.is_drained || n->is_drained;
    to->is_theirs = (was.moved == 0 || was.is_theirs) && (n->moved == 0 || n->is_theirs);
    to->mbps = was.mbps ? was.mbps : n->mbps;
}

void hosts_nic(struct hosts *h, const struct host_nic *nic)
{
    struct host *host = h->now;
    struct host_nic n = *nic;

    if (host == NULL || n.name[0] == '\0' || n.is_last_resort) {
        return;
    }
    name_copy(n.name, sizeof(n.name), nic->name);
    text_clean(n.why, ' ');
    for (int i = 0; i < host->nics; i++) {
        if (strcmp(host->nic[i].name, n.name) == 0 && host->nic[i].port == n.port) {
            nic_join(&host->nic[i], &n);
            return;
        }
    }
    if (host->nics == HOSTS_NICS) {
        fault_note(h, HOSTS_MANY, host->name, "NICs");
        return;
    }
    host->nic[host->nics++] = n;
}

void hosts_peer(struct hosts *h, const char *text)
{
    char name[HOSTS_NAME];

    if (h->now == NULL || text[0] == '\0' || strcmp(text, "null") == 0) {
        return;
    }
    name_copy(name, PEER_NAME + 1, text);
    for (int i = h->peers - 1; i >= 0; i--) { /* connections to one host follow each other */
        if (strcmp(h->peer[i], name) == 0) {
            return;
        }
    }
    if (!grow((void **)&h->peer, h->peers, &h->peer_room, sizeof(h->peer[0]))) {
        fault_note(h, HOSTS_MEMORY, "", "");
        return;
    }
    snprintf(h->peer[h->peers++], HOSTS_NAME, "%s", name);
}

static void view_nic(struct hosts *h, const struct r2_stat_nic *from)
{
    struct host_nic n = {.port = from->port,
                         .rail = from->rail,
                         .mbps = from->speed_mbps,
                         .over = from->over,
                         .moved = from->moved,
                         .state = from->state,
                         .is_drained = from->drained != 0,
                         .is_last_resort = from->last_resort != 0,
                         .is_theirs = from->theirs != 0};
    const char *why;
    uint64_t since;

    stat_nic_word(from, &why, &since);
    snprintf(n.name, sizeof(n.name), "%s", from->name);
    snprintf(n.why, sizeof(n.why), "%s", why);
    hosts_nic(h, &n);
}

void hosts_view(struct hosts *h, int at, const struct r2_stat_view *v)
{
    struct host_job job = {.uid = -1};

    snprintf(job.id, sizeof(job.id), "%s", v->who.job);
    snprintf(job.command, sizeof(job.command), "%s", v->who.command);
    hosts_begin(h, at, false, v->who.host, v->who.pid, &job);
    for (uint32_t i = 0; i < v->who.nics; i++) {
        view_nic(h, &v->nic[i]);
    }
    for (uint32_t i = 0; i < v->who.peers; i++) {
        hosts_peer(h, v->peer[i].host);
    }
    for (int i = 0; i < v->conns; i++) {
        hosts_peer(h, v->conn[i].peer_host);
    }
}

/* --- what was read --- */

static int by_source(const void *a, const void *b)
{
    const struct host *x = *(struct host *const *)a, *y = *(struct host *const *)b;

    return x->at != y->at ? x->at - y->at : strverscmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct host_nic *x = a, *y = b;
    int d = strverscmp(x->name, y->name);

    return d ? d : x->port - y->port;
}

void hosts_sort(struct hosts *h)
{
    for (int i = 0; i < h->hosts; i++) {
        qsort(h->host[i]->nic, (size_t)h->host[i]->nics, sizeof(struct host_nic), by_name);
    }
    if (h->hosts > 0) {
        qsort(h->host, (size_t)h->hosts, sizeof(h->host[0]), by_source);
    }
}

const char *host_nic_word(const struct host_nic *n)
{
    struct r2_stat_nic state = state_of(n);
    const char *why;
    uint64_t since;

    return stat_nic_word(&state, &why, &since);
}

bool host_nic_is_usable(const struct host_nic *n)
{
    return n->state == R2_STAT_NIC_UP && !n->is_drained &&
           (n->over > 0 || n->moved == 0 || n->is_theirs);
}

int host_usable(const struct host *host)
{
    int n = 0;

    for (int i = 0; i < host->nics; i++) {
        n += host_nic_is_usable(&host->nic[i]);
    }
    return n;
}

bool hosts_is_missing(const struct hosts *h, int at)
{
    for (int i = 0; i < h->hosts; i++) {
        if (strncmp(h->host[i]->name, h->peer[at], PEER_NAME) == 0) {
            return false;
        }
    }
    return true;
}

void hosts_free(struct hosts *h)
{
    for (int i = 0; i < h->hosts; i++) {
        free(h->host[i]->nic);
        free(h->host[i]->process);
        free(h->host[i]);
    }
    free(h->host);
    free(h->peer);
}
