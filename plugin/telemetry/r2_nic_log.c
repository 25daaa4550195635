#include "r2_nic_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "probe/probe_line.h"
#include "r2_nic_file.h"

#define PENDING 16 /* notes that wait for the file */

struct r2_nic_log {
    char path[512];
    uint32_t job;
    int failed; /* said once */
    int pending;
    struct r2_nic_note note[PENDING];
};

/* Of which job a failure is: the scheduler's, else what was started together on this host. */
static uint32_t job_hash(const struct r2_inst *inst)
{
    char text[128];

    if (inst->self.job[0]) {
        snprintf(text, sizeof(text), "%s", inst->self.job);
    } else {
        snprintf(text, sizeof(text), "session %ld", (long)getsid(0));
    }
    return r2_fnv_add(R2_FNV_BASIS, text, strlen(text));
}

/* Which NICs of this process are to be drained: for whoever reads the log of the job. */
static void advise(const struct r2_inst *inst, const struct r2_nic_log *log)
{
    struct r2_nic_history *h = calloc(1, sizeof(*h));
    char why[700];

    if (h) { /* one that is damaged is empty, and named by who enters something */
        r2_nic_file_read(log->path, geteuid(), h, why, sizeof(why));
    }
    for (uint32_t i = 0; h && i < h->nics; i++) {
        struct r2_nic_judged j;

        r2_nic_history_judge(&h->nic[i], (uint64_t)time(NULL), &j);
        for (int k = 0; k < inst->nics.count && j.verdict == R2_NIC_DRAIN; k++) {
            if (inst->nics.nic[k].guid == h->nic[i].guid &&
                inst->nics.nic[k].port == h->nic[i].port) {
                R2_INFO("NIC %s: %s; r2_ctl drain is advised (r2_stat --nic-history)",
                        inst->nics.nic[k].name, j.why);
            }
        }
    }
    free(h);
}

struct r2_nic_log *r2_nic_log_open(const struct r2_inst *inst)
{
    struct r2_nic_log *log =
        inst->cfg.stats && inst->share.run_dir[0] ? calloc(1, sizeof(*log)) : NULL;

    if (log &&
        r2_nic_file_path(inst->share.run_dir, geteuid(), log->path, sizeof(log->path)) != 0) {
        free(log);
        return NULL;
    }
    if (log) {
        log->job = job_hash(inst);
        advise(inst, log);
    }
    return log;
}

void r2_nic_log_flush(struct r2_inst *inst)
{
    struct r2_nic_log *log = inst->telemetry.nics;
    enum r2_nic_file_result rc;
    char why[700];

    if (log == NULL || log->pending == 0) {
        return;
    }
    rc = r2_nic_file_enter(log->path, geteuid(), log->note, log->pending, why, sizeof(why));
    if (rc == R2_NIC_FILE_BUSY) {
        return;
    }
    log->pending = 0;
    if (rc == R2_NIC_FILE_DAMAGED) {
        R2_WARN("history of NICs: %s, and is %s.bad now", why, log->path);
    } else if (rc == R2_NIC_FILE_FAILED && !log->failed++) {
        R2_WARN("no history of NICs: %s", why);
    }
}

/* Whether @v says that a NIC of ours broke, or carries less than the others. */
static int fact_of(const struct r2_cause *v, enum r2_nic_fact *fact)
{
    static const enum probe_code broke[] = {PROBE_CODE_N01, PROBE_CODE_N02, PROBE_CODE_L01,
                                            PROBE_CODE_L02};

    if (v->nic < 0 || v->code == NULL || v->severity == 0) {
        return 0;
    }
    *fact = v->peer_host ? R2_NIC_SLOW : R2_NIC_SLOW_ITSELF; /* to one peer, or to several */
    if (strcmp(v->code, probe_code_info(PROBE_CODE_G02)->name) == 0) {
        return 1;
    }
    *fact = R2_NIC_FAILED;
    for (size_t i = 0; i < sizeof(broke) / sizeof(broke[0]); i++) {
        if (strcmp(v->code, probe_code_info(broke[i])->name) == 0) {
            return 1;
        }
    }
    return 0;
}

void r2_nic_log_cause(struct r2_inst *inst, const struct r2_cause *v)
{
    struct r2_nic_log *log = inst->telemetry.nics;
    struct r2_nic_note n = {.at = (uint64_t)time(NULL)};
    const struct ib_nic *nic;

    if (log == NULL || !fact_of(v, &n.fact) || inst->nics.nic[v->nic].last ||
        log->pending == PENDING) {
        return;
    }
    nic = &inst->nics.nic[v->nic];
    n.guid = nic->guid;
    n.port = nic->port;
    n.job = log->job;
    snprintf(n.name, sizeof(n.name), "%.23s", nic->dev_name);
    snprintf(n.peer, sizeof(n.peer), "%.39s", v->peer_host ? v->peer_host : "");
    log->note[log->pending++] = n;
}
