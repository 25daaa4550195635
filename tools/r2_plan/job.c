#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_plan/tool.h"

void job_begin(struct job *j)
{
    for (int i = 0; i < j->nodes; i++) {
        j->rails[i] = (uint32_t)((1ull << j->nics) - 1);
        j->b[i] = 1;
    }
    j->is_counted = false;
}

static void share_set(struct job *j, int node)
{
    j->b[node] = (double)__builtin_popcount(j->rails[node]) / j->nics;
}

void job_rails_set(struct job *j, int node, uint32_t left)
{
    j->rails[node] = left;
    share_set(j, node);
}

/* --- the list of what is lost --- */

struct list_reader {
    struct job *j;
    const char *at;
    char *why;
    size_t room;
};

static bool refuse(const struct list_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(const struct list_reader *r, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(r->why, r->room, fmt, args);
    va_end(args);
    return false;
}

/* A decimal number of at most six digits; -1: there is none. */
static int number_take(struct list_reader *r)
{
    int value = 0, digits = 0;

    while (r->at[digits] >= '0' && r->at[digits] <= '9' && digits < 6) {
        value = value * 10 + (r->at[digits++] - '0');
    }
    r->at += digits;
    return digits > 0 ? value : -1;
}

static bool names_take(struct list_reader *r, int node)
{
    for (;;) {
        int nic;

        r->at += *r->at == 'n';
        nic = number_take(r);
        if (nic < 0) {
            return refuse(r, "NIC names of node %d are as in n0+n3, not '%s'", node, r->at);
        }
        if (nic >= r->j->nics) {
            return refuse(r, "node %d has no n%d: its %d NICs are n0 to n%d", node, nic, r->j->nics,
                          r->j->nics - 1);
        }
        if (!(r->j->rails[node] & 1u << nic)) {
            return refuse(r, "n%d of node %d is named twice", nic, node);
        }
        r->j->rails[node] &= ~(1u << nic);
        if (*r->at != '+') {
            return true;
        }
        r->at++;
        if (*r->at != 'n') {
            return refuse(r, "NIC names of node %d are as in n0+n3, not '%s'", node, r->at);
        }
    }
}

static bool count_take(struct list_reader *r, int node)
{
    int count = number_take(r);

    if (count < 0) {
        return refuse(r,
                      "after 'node:' comes how many NICs it lost, or their names as in n0+n3, not "
                      "'%s'",
                      r->at);
    }
    if (count > r->j->nics) {
        return refuse(r, "node %d has %d NICs and cannot lose %d", node, r->j->nics, count);
    }
    if (count > 0) {
        r->j->is_counted = true;
    }
    /* Which ones is not known: the first. */
    r->j->rails[node] &= ~(uint32_t)((1ull << count) - 1);
    return true;
}

static bool node_take(struct list_reader *r, bool *seen)
{
    int node = number_take(r);

    if (node < 0) {
        return refuse(r, "what is lost is written NODE:COUNT or NODE:n0+n3, not '%s'", r->at);
    }
    if (node >= r->j->nodes) {
        return refuse(r, "there is no node %d: the %d nodes are 0 to %d", node, r->j->nodes,
                      r->j->nodes - 1);
    }
    if (seen[node]) {
        return refuse(r, "node %d is named twice", node);
    }
    seen[node] = true;
    if (*r->at != ':') {
        return refuse(r, "node %d lacks what it lost: %d:COUNT or %d:n0+n3", node, node, node);
    }
    r->at++;
    if (!(*r->at == 'n' ? names_take(r, node) : count_take(r, node))) {
        return false;
    }
    share_set(r->j, node);
    if (r->j->rails[node] == 0) {
        return refuse(r, "node %d would have no NIC left: no all_reduce can include it", node);
    }
    return true;
}

bool job_lost_read(struct job *j, const char *text, char *why, size_t room)
{
    static bool seen[PLANNER_NODES];
    struct list_reader r = {.j = j, .at = text, .why = why, .room = room};

    memset(seen, 0, sizeof(seen));
    for (;;) {
        if (!node_take(&r, seen)) {
            return false;
        }
        if (*r.at == '\0') {
            return true;
        }
        if (*r.at != ',') {
            return refuse(&r, "'%s' is not understood; a comma comes between nodes", r.at);
        }
        r.at++;
    }
}

/* --- answers --- */

struct planner_facts job_facts(const struct job *j)
{
    return (struct planner_facts){
        .net = {j->nodes, j->gpus, j->nics * j->gbps * 1e9 / 8 / 1e6},
        .bytes = j->bytes,
        .b = j->b,
    };
}

bool answer_find(const struct job *j, struct answer *a)
{
    struct planner_facts f = job_facts(j);
    int bad;

    if (planner_choose(&f, &a->plan, a->seat, a->work, &bad) != 0) {
        return false;
    }
    if (j->rail_only) {
        for (int i = 0; i < j->nodes; i++) {
            a->paper[i] = a->spare[i] = i;
        }
        a->present = planner_ring_width(j->rails, j->nodes, a->spare);
        a->ring = planner_ring_best(j->rails, j->nodes, a->spare, a->order, &a->cover);
        planner_ring_paper(j->rails, j->nodes, a->paper, a->spare);
        a->printed = planner_ring_width(j->rails, j->nodes, a->paper);
    }
    return true;
}

double healthy_us(const struct planner_plan *p)
{
    double ring = p->healthy[PLANNER_RING].us, tree = p->healthy[PLANNER_TREE].us;

    return ring < tree ? ring : tree;
}

/* --- what losing NICs costs --- */

static uint32_t random_take(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

void job_lose_random(struct job *j, int lost, uint64_t *state)
{
    job_begin(j);
    while (lost > 0) {
        int node = (int)random_take(state, (uint32_t)j->nodes);
        uint32_t nic = 1u << random_take(state, (uint32_t)j->nics), left = j->rails[node] & ~nic;

        if (left != j->rails[node] && left != 0) {
            j->rails[node] = left;
            share_set(j, node);
            lost--;
        }
    }
}

static void pattern_make(struct job *j, enum loss_where where, int lost, uint64_t *state)
{
    if (where == LOSS_RANDOM) {
        job_lose_random(j, lost, state);
        return;
    }
    job_begin(j);
    for (int k = 0; k < lost; k++) {
        int node = where == LOSS_EACH ? k : 0;

        j->rails[node] &= j->rails[node] - 1;
        share_set(j, node);
    }
}

bool loss_find(const struct job *job, enum loss_where where, int lost, struct loss *loss)
{
    static struct job j;
    static struct answer a;
    int patterns = where == LOSS_RANDOM ? job->patterns : 1;
    long most = where == LOSS_ONE    ? job->nics - 1
                : where == LOSS_EACH ? (job->nics > 1 ? job->nodes : 0)
                                     : (long)job->nodes * (job->nics - 1);
    uint64_t state = 1;

    *loss = (struct loss){0};
    if (lost > most) {
        return false;
    }
    j = *job;
    j.rail_only = false;
    for (int i = 0; i < patterns; i++) {
        double healthy;

        pattern_make(&j, where, lost, &state);
        if (!answer_find(&j, &a)) {
            return false;
        }
        healthy = healthy_us(&a.plan);
        loss->ring +=
            (a.plan.row[PLANNER_RING].us / a.plan.healthy[PLANNER_RING].us - 1) / patterns;
        loss->nccl += (a.plan.row[a.plan.use].us / healthy - 1) / patterns;
        loss->best += (a.plan.row[a.plan.fastest].us / healthy - 1) / patterns;
    }
    return true;
}
