/*
 * When a checkpoint is due: the host is down to its last NIC, or somebody holds the job up. An
 * event, and the program of NCCL_R2_ON_EVENT (r2_hook.h).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "r2_hook.h"
#include "r2_report_int.h"

/* One per reason: 1 once, until it is over and R2_HOOK_PAUSE_NS has passed. Pure. */
static int is_new(struct r2_report_advice *a, uint64_t now)
{
    if (a->holds) {
        return 0;
    }
    a->holds = 1;
    if (a->said_at && r2_elapsed(now, a->said_at) < R2_HOOK_PAUSE_NS) {
        return 0;
    }
    a->said_at = now;
    return 1;
}

/* Processes of one job on one host, with one program, agree on which of them runs it. */
static void key_make(const struct r2_report *r, const char *reason, char *out, size_t room)
{
    const struct r2_event_source *s = &r->src;
    const char *program = r->inst->cfg.on_event;
    uint32_t h = r2_fnv_add(R2_FNV_BASIS, s->host, strlen(s->host) + 1);

    h = r2_fnv_add(h, s->scheduler, strlen(s->scheduler) + 1);
    h = r2_fnv_add(h, s->job, strlen(s->job) + 1);
    h = r2_fnv_add(h, s->step, strlen(s->step) + 1);
    h = r2_fnv_add(h, program, strlen(program));
    snprintf(out, room, "%s:%08x", reason, h);
}

static void advise(struct r2_report *r, const char *reason, const char *peer, const char *text,
                   uint64_t now)
{
    const char *program = r->inst->cfg.on_event;
    struct r2_event e = r2_event_empty;
    char line[R2_HOOK_LINE], key[64];
    struct r2_hook_run run;
    int rc;

    e.kind = R2_EVENT_CHECKPOINT;
    e.severity = R2_EVENT_WARNING;
    e.how = reason;
    e.peer.host = peer;
    e.action = "checkpoint";
    e.text = text;
    r2_report_emit(r, &e, now);
    if (program[0] != '/' || !r->inst->env.threads) {
        return;
    }
    key_make(r, reason, key, sizeof(key));
    run = (struct r2_hook_run){.program = program,
                               .reason = reason,
                               .line = line,
                               .len = r2_event_line(line, sizeof(line), &r->src, &e, r->seq),
                               .dir = r->inst->share.run_dir,
                               .key = key,
                               .env = r->env};
    rc = r2_hook_start(&run);
    if (rc != 0) {
        R2_WARN("NCCL_R2_ON_EVENT=%s cannot be run: %s", program, strerror(rc));
    }
}

void r2_report_advise_nics(struct r2_report *r, uint64_t now)
{
    int all = r->inst->nics.count - r->inst->nics.last_count;
    int up = __builtin_popcount(r2_report_usable(r));
    char text[96];

    if (up > 1) {
        r->had_more = 1;
        r->advice[R2_ADVICE_LAST_NIC].holds = 0;
    } else if (r->had_more && is_new(&r->advice[R2_ADVICE_LAST_NIC], now)) {
        snprintf(text, sizeof(text), "%d of %d NICs left: a checkpoint is due", up, all);
        advise(r, "last-nic", NULL, text, now);
    }
}

/* @conns connections go over @nic, or others of its kind, as their last resort. */
static void advise_resort(struct r2_report *r, struct r2_report_advice *a, uint32_t conns,
                          const struct ib_nic *nic, uint64_t now)
{
    const char *what = nic->last ? "RDMA path" : "NIC of their own kind";
    char text[160];

    if (conns == 0) {
        if (a->holds && r->conns.standing > 0) { /* the end of the last connection is no return */
            R2_INFO("last resort: no connection goes over %s any more",
                    nic->last ? nic->name : "an RDMA NIC of another kind");
        }
        a->holds = 0;
        return;
    }
    if (!a->holds) {
        R2_WARN(
            "last resort: no %s is left to %u of %u connections: they go on over %s (%s%s%d Mb/s), which is for a checkpoint, not for training",
            what, conns, r->conns.standing, nic->last ? "TCP" : nic->name,
            nic->last ? nic->name : "", nic->last ? ", " : "", nic->speed_mbps);
    }
    if (is_new(a, now)) {
        snprintf(text, sizeof(text),
                 "%u of %u connections go over %.40s, no %s is left: a checkpoint is due", conns,
                 r->conns.standing, nic->last ? "TCP" : nic->name, what);
        advise(r, "last-resort", NULL, text, now);
    }
}

void r2_report_advise_last(struct r2_report *r, uint64_t now)
{
    const struct ib_nics *nics = &r->inst->nics;
    const struct ib_nic *most = &nics->nic[0]; /* of RDMA, over which most go */
    uint32_t aside = 0;

    for (int i = 0; i < nics->count - nics->last_count; i++) {
        aside += r->nic[i].aside;
        most = r->nic[i].aside > r->nic[most->index].aside ? &nics->nic[i] : most;
    }
    if (nics->count > nics->last_count) {
        advise_resort(r, &r->advice[R2_ADVICE_ASIDE], aside, most, now);
    }
    if (nics->last_count) {
        advise_resort(r, &r->advice[R2_ADVICE_LAST_RESORT], r->conns.resort,
                      &nics->nic[nics->count - 1], now);
    }
}

void r2_report_advise_hang(struct r2_report *r, const char *host, int over, uint64_t now)
{
    char text[128];

    if (over) {
        r->advice[R2_ADVICE_HANG].holds = 0;
    } else if (is_new(&r->advice[R2_ADVICE_HANG], now)) {
        snprintf(text, sizeof(text), "%.63s holds the job up: a checkpoint is due", host);
        advise(r, "hang", host, text, now);
    }
}

void r2_report_advise_open(struct r2_report *r)
{
    const struct r2_config *cfg = &r->inst->cfg;

    if (cfg->on_event[0] == '/') {
        r->env = r2_hook_env_copy();
    }
    if (cfg->on_event[0] && cfg->on_event[0] != '/') {
        R2_WARN("NCCL_R2_ON_EVENT=%s is not an absolute path: it is not run", cfg->on_event);
    } else if (cfg->on_event[0] && access(cfg->on_event, X_OK) != 0) {
        R2_WARN("NCCL_R2_ON_EVENT=%s: %s", cfg->on_event, strerror(errno));
    }
}
