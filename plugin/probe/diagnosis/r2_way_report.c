#include "r2_way_report.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_notify.h"
#include "ib_transport/ib_way_port.h"
#include "probe/health/r2_pair.h"
#include "probe/probe_line.h"
#include "r2_verdict.h"

#define ROCE_PORT 4791         /* IBTA annex A17: the UDP destination port */
#define QUIET_NS  R2_MS(10000) /* one warning of a NIC in that time; the others are INFO */

static void print_addr(char *out, size_t room, const uint8_t gid[16], unsigned port)
{
    static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
    bool is_v4 = memcmp(gid, v4, sizeof(v4)) == 0;
    char text[INET6_ADDRSTRLEN];

    if (inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? gid + sizeof(v4) : gid, text, sizeof(text)) ==
        NULL) {
        snprintf(text, sizeof(text), "?");
    }
    snprintf(out, room, is_v4 ? "%s:%u" : "[%s]:%u", text, port);
}

void r2_way_flow(char out[R2_WAY_FLOW], const struct ib_ways *ways, unsigned way,
                 const struct ib_addr *from, const struct ib_addr *to)
{
    char here[R2_WAY_FLOW / 2], there[R2_WAY_FLOW / 2 - 1];

    if (from->link_layer == IBV_LINK_LAYER_INFINIBAND) {
        snprintf(out, R2_WAY_FLOW, "lid:%u>lid:%u", ib_port_way_lid(way, from, to),
                 ib_port_way_lid(way, to, from));
        return;
    }
    print_addr(here, sizeof(here), from->gid,
               ib_way_udp_port(ib_way_label(ways, way, from->gid, to->gid)));
    print_addr(there, sizeof(there), to->gid, ROCE_PORT);
    snprintf(out, R2_WAY_FLOW, "%s>%s", here, there);
}

/* Other NIC pairs of this NIC lose the same spine within moments: one line is enough to go by. */
static bool is_first(struct r2_inst *inst, int nic)
{
    uint64_t *at = &inst->diagnosis.way_at[nic], now = inst->watch.clock;

    if (*at && r2_elapsed(now, *at) < QUIET_NS) {
        return false;
    }
    *at = now ? now : 1;
    return true;
}

static void on_way(struct r2_pair *pair, unsigned way, unsigned good, uint64_t ns)
{
    struct r2_inst *inst = pair->inst;
    const struct ib_nic *nic = &inst->nics.nic[pair->nic];
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_F04);
    const char *pci = nic->pci_path ? strrchr(nic->pci_path, '/') : NULL;
    char flow[R2_WAY_FLOW], back[R2_WAY_FLOW], how[80], line[PROBE_LINE_SIZE],
        brief[PROBE_SHORT_SIZE], evidence[2][R2_WAY_FLOW + 32];
    struct probe_line l = {.code = PROBE_CODE_F04,
                           .host = inst->self.host,
                           .nic = nic->name,
                           .pci = pci ? pci + 1 : NULL,
                           .peer_host = pair->peer->host,
                           .peer_nic = pair->far.name,
                           .how = how,
                           .flow = flow,
                           .back = back,
                           .job = inst->self.job,
                           .rail1 = (unsigned)nic->rail + 1,
                           .fate = PROBE_FATE_CONTINUES};
    struct r2_cause cause = {.code = info->name,
                             .blame = info->blame,
                             .severity = info->severity,
                             .nic = pair->nic,
                             .peer_host = pair->peer->host,
                             .peer_nic = pair->far.name[0] ? pair->far.name : NULL,
                             .since_ns = r2_elapsed(r2_now(inst), ns),
                             .how = how,
                             .confidence = 100,
                             .evidence = {evidence[0], evidence[1]},
                             .n_evidence = 2,
                             .action = info->action,
                             .recommend = info->recommend,
                             .brief = brief};
    struct ib_addr here;

    ib_nic_addr_get(&inst->nics, pair->nic, &here);
    r2_way_flow(flow, inst->nics.ways, way, &here, &pair->far.addr.port);
    r2_way_flow(back, inst->nics.ways, way, &pair->far.addr.port, &here);
    snprintf(how, sizeof(how), "way-%u:silent,way-%u:ok", way, good);
    snprintf(evidence[0], sizeof(evidence[0]), "flow %s does not arrive, or", flow);
    snprintf(evidence[1], sizeof(evidence[1]), "flow %s back does not", back);
    l.since_ms = r2_verdict_time(inst, cause.since_ns);
    probe_line_full(line, &l);
    probe_line_short(brief, &l);
    r2_log_write(is_first(inst, pair->nic) ? R2_LOG_WARN : R2_LOG_INFO, __FILE__, __LINE__, "%s",
                 line);
    R2_NOTIFY(inst, on_cause, inst, &cause);
}

const struct r2_subscriber r2_way_subscriber = {.on_way = on_way};
