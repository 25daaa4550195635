/*
 * What a case has found, on its way from the verdict to the operator's line and to those that
 * subscribed. r2_verdict.c fills it; service thread, on its stack.
 */
#ifndef R2_FINDING_H
#define R2_FINDING_H

#include <stdbool.h>

#include "core/r2_inst.h"
#include "probe/probe_line.h"
#include "probe/probe_verdict.h"
#include "r2_locate.h"
#include "r2_verdict.h"
#include "r2_verdict_evidence.h"

struct r2_finding {
    struct probe_verdict v;
    enum probe_code code;
    struct probe_report report; /* of what is blamed; for unknown, of our NIC */
    int known;                  /* the report names a subject */
    struct r2_evidence evidence;
    char how[160], to[80];
    char line[PROBE_LINE_SIZE], brief[PROBE_SHORT_SIZE];
    struct r2_undecided
        revises; /* announced: an earlier verdict about the same fault, which named suspects only */
};

static inline bool r2_blame_is_remote(enum probe_blame blame)
{
    return blame == PROBE_BLAME_REMOTE_NIC || blame == PROBE_BLAME_REMOTE_LINK;
}

/* Fills how, to, line and brief from the rest and from the connections as they stand: no gate is
 * held, each is visited. */
void r2_finding_write_lines(struct r2_inst *inst, const struct r2_case *k, struct r2_finding *f);
/* The fact on_cause (r2_notify.h). Returns its id, 0 unless it may be revised. */
uint32_t r2_finding_announce(struct r2_inst *inst, const struct r2_case *k,
                             const struct r2_finding *f);

#endif
