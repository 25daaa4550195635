/* What the job knows of the reasons, in the statistics and in the history (r2_report_int.h). */
#include <stdio.h>
#include <string.h>

#include "probe/diagnosis/r2_gossip.h"
#include "probe/diagnosis/r2_way_report.h"
#include "probe/health/r2_cross.h"
#include "probe/health/r2_pair.h"
#include "probe/probe_line.h"
#include "probe/probe_verdict.h"
#include "r2_report_int.h"

#define UNDECIDED "R2-F03 "

static const char *part_of(enum probe_blame b)
{
    switch (b) {
    case PROBE_BLAME_LOCAL_NIC:
        return "NIC";
    case PROBE_BLAME_LOCAL_LINK:
        return "port or cable";
    case PROBE_BLAME_PATH:
        return "path";
    case PROBE_BLAME_PEER:
        return "process or host";
    default:
        return "good again";
    }
}

/* "h1:fab1 port or cable" */
static void report_text(const struct probe_report *w, char *out, size_t room)
{
    snprintf(out, room, "%.*s%s%.*s %s", PROBE_GOSSIP_HOST - 1, w->host, w->nic[0] ? ":" : "",
             PROBE_GOSSIP_NIC - 1, w->nic, part_of((enum probe_blame)w->blame));
}

/*
 * The text says why path @p is down, and *@theirs whether that lies at the peer's end. 0: not
 * known; 1: a failure; 2: none, an administrator's wish. A process that stands still for a moment
 * is not why a path is down whose reason has been found.
 */
static int reason_find(struct r2_comm *c, int p, int *theirs, char *out, size_t room)
{
    const struct ib_path *path = &c->conn.path[p];
    const struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);
    enum r2_gossip_place place = R2_GOSSIP_HERE;
    const struct probe_report *w = pair ? r2_gossip_reason(pair, &place) : NULL;

    if (w && (w->blame != PROBE_BLAME_PEER || !c->seen.path[p].why)) {
        c->seen.path[p].why |= w->blame != PROBE_BLAME_PEER;
        *theirs = place == R2_GOSSIP_THERE;
        if (place == R2_GOSSIP_HERE) {
            snprintf(out, room, "its %s", part_of((enum probe_blame)w->blame));
        } else {
            report_text(w, out, room);
        }
        return 1;
    }
    if (c->peer->drain.nics >> path->peer_nic & 1) {
        *theirs = 1;
        snprintf(out, room, "%.39s:%.23s drained", c->far.host, c->far.nic[p]);
        return 2;
    }
    return 0;
}

/* What was found stays when the report is taken back: the path may be a while in coming. */
void r2_report_why(struct r2_report *r, struct r2_comm *c)
{
    for (int p = 0; p < c->conn.npaths && c->peer; p++) {
        struct r2_report_nic *n = &r->nic[c->conn.path[p].nic];
        char text[sizeof(n->trouble)];
        int theirs = 0, found;

        if (!c->seen.path[p].stood || c->seen.path[p].state == FO_UP) {
            continue;
        }
        found = reason_find(c, p, &theirs, text, sizeof(text));
        if (found) {
            c->seen.path[p].theirs = theirs & 1;
        }
        if (found == 1 && strncmp(n->blamed, UNDECIDED, sizeof(UNDECIDED) - 1) == 0) {
            n->blamed[0] = '\0'; /* somebody knows by now */
        }
        if (found && strcmp(n->trouble, text) != 0) {
            memcpy(n->trouble, text, sizeof(text));
            n->trouble_at = found == 2 || n->trouble_at == 0
                                ? r2_report_real(r, r2_now(r->inst))
                                : n->trouble_at; /* a drain is no case */
        }
    }
}

/*
 * The one of our NICs that @w is about; -1: of none, or of several. *@about: some pair of this
 * process is concerned. A cross pair has a NIC of another rail: it counts where no pair that
 * carries work is concerned.
 */
static int nic_concerned(const struct r2_inst *inst, const struct probe_report *w, int *about)
{
    int nic = -1, carried = 0;

    *about = 0;
    for (const struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        int carries;

        if (pair->peer == NULL || !r2_gossip_about(&w->subject, pair)) {
            continue;
        }
        carries = r2_cross_carries(pair);
        if (carries < carried) {
            continue;
        }
        nic = *about && carries == carried && nic != pair->nic ? -1 : pair->nic;
        carried = carries;
        *about = 1;
    }
    return nic;
}

void r2_report_gossip(struct r2_inst *inst, const struct probe_report *w, enum r2_report_from from,
                      const char *who)
{
    struct r2_report *r = inst->telemetry.report;
    struct r2_event e = r2_event_empty;
    char text[256], part[96], detail[96];
    int about, nic;

    if (r == NULL || from == R2_REPORT_SELF) {
        return;
    }
    nic = nic_concerned(inst, w, &about);
    if (!about) {
        return;
    }
    report_text(w, part, sizeof(part));
    snprintf(text, sizeof(text), "%s, says %.80s", part, who);
    snprintf(detail, sizeof(detail), "said by %.80s", who);
    e.kind = R2_EVENT_NEWS;
    e.nic = r2_report_nic_of(r, nic);
    e.peer.host = w->host;
    e.peer.device = w->nic;
    e.how = "news";
    e.detail = detail;
    e.confidence = w->confidence;
    e.text = text;
    r2_report_emit(r, &e, r2_now(inst));
}

void r2_report_way(struct r2_pair *pair, unsigned way, uint64_t ns, enum r2_report_from from,
                   const char *who)
{
    struct r2_inst *inst = pair->inst;
    struct r2_report *r = inst->telemetry.report;
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_F04);
    struct probe_line l = {.code = PROBE_CODE_F04,
                           .nic = inst->nics.nic[pair->nic].name,
                           .fate = PROBE_FATE_CONTINUES};
    char flow[R2_WAY_FLOW], brief[PROBE_SHORT_SIZE], text[256], detail[96];
    struct r2_event e = r2_event_empty;
    struct ib_addr here;

    if (r == NULL) {
        return;
    }
    ib_nic_addr_get(&inst->nics, pair->nic, &here);
    r2_way_flow(flow, inst->nics.ways, way, &here, &pair->far.addr.port);
    probe_line_short(brief, &l);
    snprintf(r->nic[pair->nic].blamed, sizeof(r->nic[pair->nic].blamed), "%s", brief);
    r->nic[pair->nic].blamed_at = r2_report_real(r, r2_elapsed(r2_now(inst), ns));
    snprintf(text, sizeof(text), "way %u, %s, is silent, says %.80s", way, flow, who);
    snprintf(detail, sizeof(detail), "said by %.80s", who);
    e.kind = R2_EVENT_NEWS;
    e.code = info->name;
    e.blame = info->blame;
    e.nic = r2_report_nic_of(r, pair->nic);
    e.peer.host = pair->peer->host;
    e.peer.device = pair->far.name;
    e.how = "news";
    e.detail = detail;
    e.confidence = 100;
    e.text = text;
    r2_report_emit(r, &e, r2_now(inst));
}
