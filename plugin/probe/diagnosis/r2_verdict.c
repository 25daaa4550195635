#include "r2_verdict.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "probe/health/r2_counters.h"
#include "probe/health/r2_pair.h"
#include "probe/probe_line.h"
#include "probe/probe_verdict.h"
#include "r2_locate.h"
#include "r2_gossip.h"
#include "r2_finding.h"

#define REVISES_NS                                                                                 \
    10000000000ull /* what is found within that time of an undecided verdict on the same part is   \
                      about the same fault */
#define ENDS_LATE_NS 10000000000ull

/* --- whom it is about --- */

static void name_it(struct probe_report *w, const char *host, const char *nic)
{
    memset(w->host, 0, sizeof(w->host)); /* behind the end of the text, too */
    memset(w->nic, 0, sizeof(w->nic));
    snprintf(w->host, sizeof(w->host), "%.*s", PROBE_GOSSIP_HOST - 1, host);
    snprintf(w->nic, sizeof(w->nic), "%.*s", PROBE_GOSSIP_NIC - 1, nic);
    for (char *p = w->host; *p; p++) {
        *p = (unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e ? '?' : *p;
    }
}

static void about_nic(struct r2_inst *inst, int nic, struct probe_report *w)
{
    struct ib_addr addr;

    w->subject = r2_subject_nic(inst, nic);
    name_it(w, inst->self.host, inst->nics.nic[nic].name);
    ib_nic_addr_get(&inst->nics, nic, &addr);
    ib_nic_gid_show(&inst->nics.nic[nic], addr.gid, w->gid);
}

/* The report's blame is from the view of its subject. 0: the subject is not known by name. */
static int make_report(struct r2_inst *inst, const struct r2_case *k, enum probe_blame blame,
                       struct probe_report *w)
{
    const struct r2_pair *pair =
        k->peer && !k->process ? r2_pair_find(inst, k->peer, k->nic, k->peer_nic) : NULL;

    switch (blame) {
    case PROBE_BLAME_LOCAL_NIC:
    case PROBE_BLAME_LOCAL_LINK:
        w->blame = (uint8_t)blame;
        about_nic(inst, k->nic, w);
        return w->subject.a != 0;
    case PROBE_BLAME_REMOTE_NIC:
    case PROBE_BLAME_REMOTE_LINK:
        w->blame = blame == PROBE_BLAME_REMOTE_NIC ? PROBE_BLAME_LOCAL_NIC : PROBE_BLAME_LOCAL_LINK;
        if (pair == NULL || pair->far.guid == 0) {
            return 0;
        }
        w->subject = r2_subject_remote(pair);
        name_it(w, k->peer->host, pair->far.name);
        ib_nic_gid_show(&inst->nics.nic[pair->nic], pair->far.addr.port.gid, w->gid);
        return 1;
    case PROBE_BLAME_PATH:
        w->blame = PROBE_BLAME_PATH;
        if (pair == NULL || pair->far.guid == 0) {
            return 0;
        }
        w->subject = r2_subject_path(inst, pair);
        name_it(w, inst->self.host, inst->nics.nic[k->nic].name);
        return 1;
    case PROBE_BLAME_PEER:
        w->blame = PROBE_BLAME_PEER;
        w->subject = r2_subject_process(inst, k->peer);
        name_it(w, k->peer->host, "");
        return 1;
    default:
        return 0;
    }
}

/* --- verdicts that follow each other --- */

/* An undecided verdict was said: one that names the component may follow, from another case or a
 * later report. */
static void undecided_put(struct r2_inst *inst, const struct r2_case *k, const struct r2_finding *f,
                          uint32_t id)
{
    inst->diagnosis.verdicts->undecided = (struct r2_undecided){.reported = 1,
                                                                .nic = k->nic,
                                                                .peer_nic = k->peer_nic,
                                                                .peer = k->peer,
                                                                .at = inst->watch.clock,
                                                                .since_ms = f->report.since_ms,
                                                                .id = id};
}

/* The earlier verdict that what is found now is an answer to. */
static struct r2_undecided undecided_find(const struct r2_inst *inst, const struct r2_finding *f)
{
    const struct r2_undecided *u = &inst->diagnosis.verdicts->undecided;
    const struct r2_pair *pair = u->reported && inst->watch.clock - u->at < REVISES_NS
                                     ? r2_pair_find(inst, u->peer, u->nic, u->peer_nic)
                                     : NULL;

    return f->known && pair && r2_gossip_about(&f->report.subject, pair) ? *u
                                                                         : (struct r2_undecided){0};
}

void r2_verdict_forget(struct r2_inst *inst, const struct r2_peer *peer)
{
    if (inst->diagnosis.verdicts->undecided.peer == peer) {
        inst->diagnosis.verdicts->undecided.reported = 0;
    }
}

void r2_verdict_forget_pair(struct r2_inst *inst, const struct r2_peer *peer, int nic, int peer_nic)
{
    const struct r2_undecided *u = &inst->diagnosis.verdicts->undecided;

    if (u->nic == nic && u->peer_nic == peer_nic) {
        r2_verdict_forget(inst, peer);
    }
}

/* @about: NULL where it is about no part. */
static void latest_put(struct r2_inst *inst, enum probe_code code,
                       const char brief[PROBE_SHORT_SIZE], const struct probe_subject *about)
{
    struct r2_found f = {.at = r2_now(inst), .code = (uint8_t)code};

    memcpy(f.brief, brief, PROBE_SHORT_SIZE);
    f.subject = about ? *about : f.subject;
    pthread_mutex_lock(&inst->lock);
    inst->diagnosis.verdicts->found = f;
    pthread_mutex_unlock(&inst->lock);
}

void r2_verdict_over(struct r2_inst *inst, const struct probe_subject *s)
{
    const struct probe_subject *of =
        &inst->diagnosis.verdicts->found.subject; /* written by this thread alone */

    if (of->a == s->a && of->b == s->b && of->pa == s->pa && of->pb == s->pb) {
        pthread_mutex_lock(&inst->lock);
        inst->diagnosis.verdicts->found.over = 1;
        pthread_mutex_unlock(&inst->lock);
    }
}

uint64_t r2_verdict_time(const struct r2_inst *inst, uint64_t ns)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000 -
           r2_elapsed(r2_now(inst), ns) / 1000000;
}

/* The peer opened the case and warns of it; people who look at this host find it, too. No news,
 * which is of parts that are known. */
static void undecided_share(struct r2_inst *inst, const struct r2_case *k,
                            const struct r2_finding *f)
{
    R2_INFO("with %s, which reports it: %s", k->peer->host, f->line);
    undecided_put(inst, k, f, r2_finding_announce(inst, k, f));
    latest_put(inst, f->code, f->brief, NULL);
}

/*
 * The process or host stood still when the case was opened, and has spoken since: its answers are
 * those of one in order, and the silence that the case asks about was its own.
 */
static int stood_still(const struct r2_case *k)
{
    return k->peer->gossip.blamed_until && k->since <= k->peer->gossip.blamed_until;
}

/* The job hears it, and the operator; what is known already is not announced again. */
static void publish(struct r2_inst *inst, const struct r2_case *k, struct r2_finding *f)
{
    enum r2_log_level level =
        probe_code_info(f->code)->severity == PROBE_INFO ? R2_LOG_INFO : R2_LOG_WARN;
    int warns = level == R2_LOG_WARN;

    const struct r2_pair *pair =
        k->peer && !k->process ? r2_pair_find(inst, k->peer, k->nic, k->peer_nic) : NULL;

    int more = pair && (r2_gossip_blamed(pair) || r2_gossip_peer_blamed(inst, k->peer));

    more = more || (pair && f->code == PROBE_CODE_F03 && stood_still(k));
    if (k->peer && f->v.blame == PROBE_BLAME_PEER) {
        k->peer->gossip.blamed = 1;
    }
    if (f->code == PROBE_CODE_F03 && k->theirs.first && !more) {
        undecided_share(inst, k, f);
    }
    if (f->known ? !r2_gossip_publish(inst, &f->report) : k->theirs.first || more) {
        level = R2_LOG_TRACE; /* the other end announces it, or somebody has found out more */
    }
    warns =
        warns && (f->known ||
                  level == R2_LOG_WARN); /* who is notified of an undecided one: undecided_share */
    r2_log_write(level, __FILE__, __LINE__, "%s", f->line);
    for (int i = 0; i < f->evidence.n; i++) {
        r2_log_write(level == R2_LOG_TRACE ? level : R2_LOG_INFO, __FILE__, __LINE__, "%s: %s",
                     probe_code_info(f->code)->name, f->evidence.line[i]);
    }
    if (level != R2_LOG_TRACE) {
        uint32_t id = r2_finding_announce(inst, k, f);

        if (f->code == PROBE_CODE_F03) {
            undecided_put(inst, k, f, id);
        } else if (f->revises.reported) {
            inst->diagnosis.verdicts->undecided.reported = 0; /* revised once */
        }
    }
    if (warns) { /* also what another process has announced first: it is why our connections end */
        latest_put(inst, f->code, f->brief, f->known ? &f->report.subject : NULL);
    }
}

void r2_verdict_channel(struct r2_inst *inst, const struct r2_peer *peer)
{
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_O01);
    struct probe_line l = {.code = PROBE_CODE_O01,
                           .host = peer->host,
                           .job = inst->self.job,
                           .how = "channel:lost",
                           .fate = PROBE_FATE_CONTINUES};
    char line[PROBE_LINE_SIZE], brief[PROBE_SHORT_SIZE], evidence[R2_EVIDENCE_LINE];
    struct r2_cause r = {.code = info->name,
                         .blame = info->blame,
                         .severity = info->severity,
                         .nic = -1,
                         .peer_host = peer->host,
                         .since_ns = peer->channel.lost,
                         .how = l.how,
                         .confidence = 100,
                         .evidence = {evidence},
                         .n_evidence = 1,
                         .action = info->action,
                         .recommend = info->recommend,
                         .brief = brief};

    l.since_ms = r2_verdict_time(inst, peer->channel.lost);
    probe_line_full(line, &l);
    probe_line_short(brief, &l);
    snprintf(evidence, sizeof(evidence), "no channel to %s %s for %llu ms", peer->host,
             inst->oob->ops->peer_str(peer->oob),
             (unsigned long long)(r2_elapsed(r2_now(inst), peer->channel.lost) / 1000000));
    R2_WARN("%s", line);
    R2_INFO("%s: %s", info->name, evidence);
    R2_NOTIFY(inst, on_cause, inst, &r);
    latest_put(inst, PROBE_CODE_O01, brief, NULL);
}

void r2_verdict_announce(struct r2_inst *inst, const struct r2_case *k)
{
    struct r2_finding f;

    memset(&f, 0, sizeof(f));
    f.v = probe_verdict(&k->facts);
    f.code = probe_code_of(&k->facts, &f.v);
    r2_evidence_gather(inst, k, &f.evidence);
    f.known = make_report(inst, k, f.v.blame, &f.report) && probe_subject_valid(&f.report.subject);
    if (f.report.host[0] == '\0' && k->process) {
        name_it(&f.report, inst->oob->ops->peer_str(k->peer->oob),
                ""); /* no connection to it has stood: its address is all that is known */
    } else if (f.report.host[0] == '\0' && k->peer && r2_blame_is_remote(f.v.blame)) {
        const char *nic = r2_peer_nic_name(k->peer, k->peer_nic);

        name_it(&f.report, k->peer->host, nic ? nic : ""); /* its number at most is known */
    } else if (f.report.host[0] == '\0') {
        about_nic(inst, k->nic, &f.report);
    }
    f.report.since_ms = r2_verdict_time(inst, r2_case_since(k));
    f.report.confidence = f.v.confidence;
    f.revises = undecided_find(inst, &f);
    r2_finding_write_lines(inst, k, &f);
    publish(inst, k, &f);
}

int r2_verdict_open(struct r2_inst *inst)
{
    inst->diagnosis.verdicts = calloc(1, sizeof(*inst->diagnosis.verdicts));
    return inst->diagnosis.verdicts ? 0 : -1;
}

struct r2_found r2_verdict_latest(struct r2_inst *inst, uint64_t age)
{
    uint64_t now = r2_now(inst);
    struct r2_found f;

    pthread_mutex_lock(&inst->lock);
    f = inst->diagnosis.verdicts->found;
    pthread_mutex_unlock(&inst->lock);
    return f.at && r2_elapsed(now, f.at) <= age ? f : (struct r2_found){.code = PROBE_CODE_NONE};
}

/* A connection ends after it has waited for GIVE_UP, and somewhat more where a driver hangs: what
 * was found when that began counts. */
static uint64_t age_of(const struct r2_comm *c)
{
    uint64_t give_up = (uint64_t)c->inst->cfg.t_give_up_ms * 1000000;

    return c->fo.cause.by_peer ? give_up : 2 * give_up + ENDS_LATE_NS;
}

void r2_verdict_found(struct r2_comm *c, char out[R2_VERDICT_FOUND])
{
    struct r2_found f = r2_verdict_latest(c->inst, age_of(c));
    uint8_t peer = c->fo.cause.peer_code;

    out[0] = '\0';
    if (c->fo.error == R2_ERR_ARG) {
        return; /* NCCL's own doing */
    }
    if (f.over && (peer != PROBE_CODE_NONE || c->fo.cause.code != PROBE_CODE_NONE)) {
        f = (struct r2_found){.code = PROBE_CODE_NONE};
    }
    if (f.code == PROBE_CODE_NONE && peer == PROBE_CODE_NONE &&
        c->fo.cause.code != PROBE_CODE_NONE) {
        f.code = c->fo.cause.code;
        snprintf(f.brief, sizeof(f.brief), "%s %s%s", probe_code_info(f.code)->name,
                 probe_code_info(f.code)->text, c->fo.cause.theirs ? ", at the other end" : "");
    }
    if (peer != PROBE_CODE_NONE && peer != f.code) {
        snprintf(out, R2_VERDICT_FOUND, "%s %s, says %.40s%s%s", probe_code_info(peer)->name,
                 probe_code_info(peer)->text, c->far.host[0] ? c->far.host : "the peer",
                 f.brief[0] ? "; here " : "", f.brief);
    } else {
        snprintf(out, R2_VERDICT_FOUND, "%s%s", f.brief, f.over ? "; good again since" : "");
    }
    pthread_mutex_lock(&c->inst->lock);
    c->inst->diagnosis.verdicts->ended_code = peer ? peer : f.code;
    pthread_mutex_unlock(&c->inst->lock);
}

uint8_t r2_verdict_ended(struct r2_inst *inst)
{
    uint8_t code;

    pthread_mutex_lock(&inst->lock);
    code = inst->diagnosis.verdicts->ended_code;
    pthread_mutex_unlock(&inst->lock);
    return code;
}
