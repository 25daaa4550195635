#include "r2_verdict.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "probe/probe_verdict.h"
#include "r2_inst.h"
#include "r2_locate.h"
#include "r2_log.h"
#include "r2_news.h"
#include "r2_pair.h"

#define EVIDENCE 6 /* lines */
#define LINE     160

struct finding {
    struct probe_verdict v;
    struct probe_word word;
    int nic;         /* ours, -1: the component blamed is not */
    char evidence[EVIDENCE][LINE];
    int n_evidence;
};

static const char *outcome_name(uint8_t o)
{
    static const char *const name[PROBE_OUTCOMES] = {"not asked", "ok", "error", "no answer"};

    return o < PROBE_OUTCOMES ? name[o] : "?";
}

static const char *port_name(uint8_t p)
{
    static const char *const name[PROBE_PORTS] = {"not known", "up", "down", "gone"};

    return p < PROBE_PORTS ? name[p] : "?";
}

/* --- whom it is about --- */

static const char *peer_nic_name(struct r2_inst *inst, const struct r2_case *k)
{
    const struct r2_pair *pair = k->peer ? r2_pair_find(inst, k->peer, k->nic, k->peer_nic) : NULL;

    return pair && pair->peer_name[0] ? pair->peer_name : "?";
}

static void name_it(struct probe_word *w, const char *host, const char *nic)
{
    memset(w->host, 0, sizeof(w->host)); /* behind the end of the text, too */
    memset(w->nic, 0, sizeof(w->nic));
    snprintf(w->host, sizeof(w->host), "%.*s", PROBE_NEWS_HOST - 1, host);
    snprintf(w->nic, sizeof(w->nic), "%.*s", PROBE_NEWS_NIC - 1, nic);
}

static void about_nic(struct r2_inst *inst, int nic, struct probe_word *w)
{
    struct ib_addr addr;

    w->subject = r2_subject_nic(inst, nic);
    name_it(w, inst->host, inst->nics.nic[nic].name);
    ib_nic_addr_get(&inst->nics, nic, &addr);
    memcpy(w->gid, addr.gid, sizeof(w->gid));
}

/* The word's blame is from the view of its subject. 0: the subject is not known by name. */
static int make_word(struct r2_inst *inst, const struct r2_case *k, enum probe_blame blame, struct probe_word *w)
{
    const struct r2_pair *pair = k->peer && !k->process ? r2_pair_find(inst, k->peer, k->nic, k->peer_nic) : NULL;

    switch (blame) {
    case PROBE_BLAME_LOCAL_NIC:
    case PROBE_BLAME_LOCAL_LINK:
        w->blame = (uint8_t)blame;
        about_nic(inst, k->nic, w);
        return 1;
    case PROBE_BLAME_REMOTE_NIC:
    case PROBE_BLAME_REMOTE_LINK:
        w->blame = blame == PROBE_BLAME_REMOTE_NIC ? PROBE_BLAME_LOCAL_NIC : PROBE_BLAME_LOCAL_LINK;
        if (pair == NULL || pair->peer_guid == 0) {
            return 0;
        }
        w->subject = r2_subject_remote(pair);
        name_it(w, k->peer->host, pair->peer_name);
        memcpy(w->gid, pair->peer_addr.port.gid, sizeof(w->gid));
        return 1;
    case PROBE_BLAME_PATH:
        w->blame = PROBE_BLAME_PATH;
        if (pair == NULL || pair->peer_guid == 0) {
            return 0;
        }
        w->subject = r2_subject_path(inst, pair);
        name_it(w, inst->host, inst->nics.nic[k->nic].name);
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

/* --- evidence --- */

static char *next_line(struct finding *f)
{
    return f->n_evidence < EVIDENCE ? f->evidence[f->n_evidence++] : NULL;
}

static void gather_evidence(struct r2_inst *inst, const struct r2_case *k, struct finding *f)
{
    const struct probe_facts *x = &k->facts;

    if (k->process) {
        snprintf(next_line(f), LINE, "%s %s: %s", k->peer->host, inst->oob->ops->peer_str(k->peer->oob),
                 x->peer == PROBE_ERROR ? "the host refuses its channel" : "its NICs answer, the process says nothing");
        return;
    }
    snprintf(next_line(f), LINE, "%s %s port %s, loop %s, %u other ports %s", inst->host, inst->nics.nic[k->nic].name, port_name(x->local.port),
             outcome_name(x->local.loop), x->local.aux_n, outcome_name(x->local.aux));
    if (k->peer) {
        snprintf(next_line(f), LINE, "%s %s - %s %s %s", inst->host, inst->nics.nic[k->nic].name, k->peer->host, peer_nic_name(inst, k),
                 outcome_name(x->direct));
        snprintf(next_line(f), LINE, "%s %s port %s, loop %s, %u other ports %s", k->peer->host, peer_nic_name(inst, k),
                 port_name(x->remote.port), outcome_name(x->remote.loop), x->remote.aux_n, outcome_name(x->remote.aux));
        snprintf(next_line(f), LINE, "process on %s %s, other NICs between the two %s", k->peer->host, outcome_name(x->peer),
                 outcome_name(x->others));
    }
}

void r2_verdict_say(struct r2_inst *inst, const struct r2_case *k)
{
    struct finding f;
    struct timespec ts;

    memset(&f, 0, sizeof(f));
    f.v = probe_verdict(&k->facts);
    f.nic = f.v.blame == PROBE_BLAME_LOCAL_NIC || f.v.blame == PROBE_BLAME_LOCAL_LINK ? k->nic : -1;
    gather_evidence(inst, k, &f);
    clock_gettime(CLOCK_REALTIME, &ts);
    f.word.since_ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000 - r2_elapsed(r2_now(inst), k->since) / 1000000;
    f.word.confidence = f.v.confidence;
    for (int i = 0; i < f.n_evidence; i++) {
        R2_INFO("case %u: %s", k->id, f.evidence[i]);
    }
    R2_INFO("case %u: %s, suspects %x", k->id, probe_blame_name(f.v.blame), f.v.suspects);
    if (make_word(inst, k, f.v.blame, &f.word) && probe_subject_valid(&f.word.subject) && r2_news_tell(inst, &f.word)) {
        R2_WARN("%s %s: %s", f.word.host, f.word.nic, probe_blame_name(f.v.blame));
    }
}

void r2_verdict_latest(struct r2_inst *inst, char out[R2_VERDICT_BRIEF])
{
    uint64_t now = r2_now(inst);

    pthread_mutex_lock(&inst->lock);
    if (inst->verdict_at && r2_elapsed(now, inst->verdict_at) <= (uint64_t)inst->cfg.t_give_up_ms * 1000000) {
        memcpy(out, inst->verdict_brief, R2_VERDICT_BRIEF);
    } else {
        out[0] = '\0';
    }
    pthread_mutex_unlock(&inst->lock);
}
