/* What a case has found, as text: what was probed from where, the outcome, when. Service thread;
 * nothing blocks. Private to r2_verdict.c and r2_finding.c. */
#ifndef R2_VERDICT_EVIDENCE_H
#define R2_VERDICT_EVIDENCE_H

#include "probe/probe_seen.h"
#include "r2_locate.h"

#define R2_EVIDENCE                                                                                \
    18 /* lines: each end's NIC, its pair and four ports; two other pairs; the process; counters;  \
          what was muted */
#define R2_EVIDENCE_LINE 160

struct r2_evidence {
    char line[R2_EVIDENCE][R2_EVIDENCE_LINE];
    int n;
};

/* Fills @e with the facts of @k; "+1.5 ms" is the time from the fault to when it was seen here. */
void r2_evidence_gather(struct r2_inst *inst, const struct r2_case *k, struct r2_evidence *e);

/* Vantage points of @k that agree with what is found; of 0: none was probed. */
struct probe_seen r2_evidence_seen(const struct r2_case *k, enum probe_code code,
                                   enum probe_blame blame);

/* "up", ... of an enum probe_port; static. */
const char *r2_evidence_port(uint8_t port);
/* The peer's NIC of the pair, as it says; "?": not known. Valid until the pair goes. */
const char *r2_evidence_peer_nic(struct r2_inst *inst, const struct r2_case *k);

#endif
