/*
 * What the suites of health reports share: what each of two processes knows of NICs, and is told.
 */
#ifndef GOSSIP_WORLD_H
#define GOSSIP_WORLD_H

#include "probe/probe_gossip.h"
#include "probe/probe_verdict.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/diagnosis/r2_verdict.h"
#include "probe/health/r2_loopback.h"
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#define RIG  static __attribute__((unused))
#define FAST QUIET_RC, "NCCL_R2_LOOK=60000"

RIG struct r2_inst *inst_of(int side)
{
    return rig->side[side].inst;
}

RIG const struct probe_report *known(int side, int of, int nic)
{
    struct probe_subject s = r2_subject_nic(inst_of(of), nic);

    return probe_gossip_find(inst_of(side)->diagnosis.gossip, &s);
}

RIG int knows(int side, int of, int nic, enum probe_blame blame)
{
    const struct probe_report *w = known(side, of, nic);

    return w && w->blame == blame;
}

RIG int tell(int side, struct probe_report *w)
{
    int fresh;

    rig_enter(&rig->side[side]);
    fresh = r2_gossip_publish(inst_of(side), w);
    rig_kick(&rig->side[side]);
    return fresh;
}

RIG void blame(int side, int of, int nic, enum probe_blame what)
{
    struct probe_report w = {.subject = r2_subject_nic(inst_of(of), nic),
                             .blame = (uint8_t)what,
                             .confidence = 80,
                             .host = "elsewhere",
                             .nic = "nic"};

    tell(side, &w);
}

RIG int told_all(struct rig *r)
{
    for (int s = 0; s < 2; s++) {
        int i = 0;

        if (r->side[s].comm->peer->gossip.no >= 0 &&
            probe_gossip_unsent(r->side[s].inst->diagnosis.gossip, r->side[s].comm->peer->gossip.no,
                                &i)) {
            return 0;
        }
    }
    return 1;
}

RIG int lose_first(struct rig *r, int from, int type, union fo_body *body)
{
    (void)from;
    (void)body;
    return !((type == FO_MSG_REPORT || type == FO_MSG_REPORT_OK) && r->filter_count++ < 5);
}

RIG int line_is_there(struct rig *r)
{
    return strstr(r->last_warn[0], "R2-") || strstr(r->last_warn[1], "R2-");
}

/* @text at either end. */
RIG void line_has(const char *text)
{
    ck_assert_msg(strstr(rig->last_warn[0], text) || strstr(rig->last_warn[1], text),
                  "no '%s' in '%s' nor '%s'", text, rig->last_warn[0], rig->last_warn[1]);
}

#endif
