#include "tools/r2_stat/rates.h"

#include <stdlib.h>

#define RATES_KEPT 1000000000ull /* ns: a process writes more often, unless nothing moves */

struct rates_nic {
    bool is_read;            /* at the look */
    uint64_t sent, received; /* then */
    double out, in;
};

struct rates_proc {
    uid_t uid;
    uint64_t unique, updated;
    bool is_known; /* it has rates */
    struct rates_nic nic[R2_STAT_NICS];
};

static const struct rates_proc *find(const struct rates *r, const struct stat_proc *p)
{
    for (int i = 0; i < r->n; i++) {
        if (r->proc[i].unique == p->unique && r->proc[i].uid == p->uid) {
            return &r->proc[i];
        }
    }
    return NULL;
}

static double rate(uint64_t before, uint64_t now, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0;
}

static void proc_take(struct rates_proc *to, const struct rates_proc *old,
                      const struct stat_proc *p, uint64_t now)
{
    double seconds = old ? (double)(int64_t)(p->v.who.updated - old->updated) / 1e9 : 0;
    bool is_new = seconds > 0;

    if (old && seconds == 0 && now < old->updated + RATES_KEPT) {
        *to = *old;
        return;
    }
    *to = (struct rates_proc){.uid = p->uid,
                              .unique = p->unique,
                              .updated = p->v.who.updated,
                              .is_known = is_new || (old && old->is_known && seconds == 0)};
    for (uint32_t i = 0; i < p->v.who.nics; i++) {
        const struct r2_stat_nic *n = &p->v.nic[i];

        to->nic[i] = (struct rates_nic){
            .is_read = n->name[0] != '\0', .sent = n->sent, .received = n->received};
        if (is_new && old->nic[i].is_read) {
            to->nic[i].out = rate(old->nic[i].sent, n->sent, seconds);
            to->nic[i].in = rate(old->nic[i].received, n->received, seconds);
        }
    }
}

int rates_take(struct rates *r, const struct stat_found *f, uint64_t now)
{
    struct rates_proc *proc = calloc((size_t)f->procs + 1, sizeof(*proc));

    if (proc == NULL) {
        return -1;
    }
    for (int i = 0; i < f->procs; i++) {
        proc_take(&proc[i], find(r, f->proc[i]), f->proc[i], now);
    }
    rates_free(r);
    r->proc = proc;
    r->n = f->procs;
    return 0;
}

void rates_free(struct rates *r)
{
    free(r->proc);
    *r = (struct rates){0};
}

bool rates_get(const struct rates *r, struct stat_proc *const *p, int n,
               const struct r2_stat_nic *nic, double *sent, double *received)
{
    bool is_known = false;

    *sent = *received = 0;
    for (int i = 0; i < n; i++) {
        const struct rates_proc *of = find(r, p[i]);

        for (uint32_t k = 0; of && of->is_known && k < p[i]->v.who.nics; k++) {
            if (stat_nic_is_same(&p[i]->v.nic[k], nic)) {
                *sent += of->nic[k].out;
                *received += of->nic[k].in;
                is_known = true;
            }
        }
    }
    return is_known;
}
