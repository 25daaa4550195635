#include "r2_slow_whose.h"

#include <stdio.h>
#include <string.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "base/r2_time.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_verdict.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_pair.h"
#include "probe/probe_line.h"
#include "r2_slow.h"

#define CLAIM_NS (BALANCE_WHOSE_FRESH / 6) /* two or three may be lost */
#define BLAME    "nic-cable-or-port"
#define ACTION   "check-link"

static uint32_t host_of(const struct r2_peer *peer)
{
    return r2_fnv_add(R2_FNV_BASIS, peer->host, strlen(peer->host));
}

/* What this process says to @but of NIC @nic. A way that is suspected is none that is well; nor is
 * one that was slow when it carried last, of which after a rest nobody has spoken yet. */
static enum balance_word own_word(const struct r2_slow_whose *w, struct r2_inst *inst, int nic,
                                  const struct r2_peer *but, uint64_t now)
{
    if (balance_whose_has_others(&w->nic[nic], host_of(but), now)) {
        return BALANCE_WORD_OTHERS;
    }
    for (const struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->peer && pair->nic == nic && strcmp(pair->peer->host, but->host) != 0 &&
            r2_slow_state(pair) != BALANCE_SLOW_NO) {
            return BALANCE_WORD_OTHERS;
        }
    }
    return r2_load_has_moved(inst, nic, but->host, BALANCE_WHOSE_FRESH) ? BALANCE_WORD_WELL
                                                                        : BALANCE_WORD_ALONE;
}

static void word_send(const struct r2_slow_whose *w, struct r2_pair *pair, uint8_t flags,
                      uint64_t now)
{
    enum balance_word word = own_word(w, pair->inst, pair->nic, pair->peer, now);
    union fo_body b = {.load = {.nic = pair->nic, .peer_nic = pair->peer_nic, .flags = flags}};

    b.load.flags |= (uint8_t)((word == BALANCE_WORD_OTHERS ? FO_LOAD_OTHERS : 0) |
                              (word == BALANCE_WORD_WELL ? FO_LOAD_WELL : 0) |
                              (w->nic[pair->nic].ours ? FO_LOAD_ITSELF : 0));
    r2_peer_emit(pair->inst, pair->peer, FO_MSG_LOAD, &b);
}

void r2_slow_whose_claim(struct r2_slow_whose *w, struct r2_pair *pair, struct r2_slow_claim *c,
                         uint64_t now)
{
    if (pair->peer->host[0] == '\0') {
        return; /* it has not said its name: nobody to tell apart */
    }
    balance_whose_slow(&w->nic[pair->nic], host_of(pair->peer), now);
    if (c->at == 0 || r2_elapsed(now, c->at) >= CLAIM_NS) {
        c->at = now;
        word_send(w, pair, FO_LOAD_SLOW, now);
    }
}

/* What the NIC at the other end has said of itself, or takes back: the line and the event. Our NIC
 * is not what is slow. */
static void theirs(struct r2_pair *pair, bool is_theirs)
{
    struct r2_inst *inst = pair->inst;
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_G02);
    const char *there = pair->far.name[0] ? pair->far.name : "its NIC";
    char brief[PROBE_SHORT_SIZE];
    struct probe_line l = {.code = PROBE_CODE_G02,
                           .host = is_theirs ? pair->peer->host : inst->self.host,
                           .nic = is_theirs ? there : inst->nics.nic[pair->nic].name,
                           .elsewhere = is_theirs,
                           .fate = PROBE_FATE_CONTINUES,
                           .action = is_theirs ? ACTION : NULL};
    struct r2_cause v = {.code = info->name,
                         .blame = is_theirs ? "peer-nic" : info->blame,
                         .severity = PROBE_INFO,
                         .nic = pair->nic,
                         .peer_host = pair->peer->host,
                         .peer_nic = there,
                         .how = is_theirs ? "said-by-its-host" : "taken-back-by-its-host",
                         .brief = brief};

    probe_line_short(brief, &l);
    R2_INFO("R2-G02: %s on %s %s; %s here is slow to it", there, pair->peer->host,
            is_theirs ? "is slow itself, it says" : "does not say any more that it is slow itself",
            inst->nics.nic[pair->nic].name);
    R2_NOTIFY(inst, on_cause, inst, &v);
}

static enum balance_word word_of(uint8_t flags)
{
    return flags & FO_LOAD_OTHERS ? BALANCE_WORD_OTHERS
           : flags & FO_LOAD_WELL ? BALANCE_WORD_WELL
                                  : BALANCE_WORD_ALONE;
}

void r2_slow_whose_on(struct r2_slow_whose *w, struct r2_pair *pair, struct r2_slow_claim *c,
                      uint8_t flags, uint64_t now)
{
    const struct r2_peer *peer = pair->peer;
    bool is_theirs = (flags & FO_LOAD_ITSELF) != 0;

    if (peer->host[0] == '\0' || strcmp(peer->host, pair->inst->self.host) == 0) {
        return;
    }
    if (flags & FO_LOAD_SLOW) {
        balance_whose_told(&w->nic[pair->nic], host_of(peer), word_of(flags), now);
        word_send(w, pair, FO_LOAD_WORD, now);
        return;
    }
    balance_whose_word(&w->nic[pair->nic], host_of(peer), word_of(flags), now);
    if (c && c->at && c->is_theirs != is_theirs &&
        (!is_theirs || own_word(w, pair->inst, pair->nic, peer, now) == BALANCE_WORD_WELL)) {
        c->is_theirs = is_theirs;
        theirs(pair, is_theirs);
    }
}

/* --- saying it --- */

static const char *name_of(const struct r2_inst *inst, uint32_t host)
{
    for (const struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->peer && host_of(pair->peer) == host) {
            return pair->peer->host;
        }
    }
    return "host-left";
}

static void report(struct r2_inst *inst, int n, const struct balance_whose *w)
{
    const struct ib_nic *nic = &inst->nics.nic[n];
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_G02);
    const char *pci = nic->pci_path ? strrchr(nic->pci_path, '/') : NULL;
    char how[128], line[PROBE_LINE_SIZE], brief[PROBE_SHORT_SIZE];
    struct probe_line l = {.code = PROBE_CODE_G02,
                           .host = inst->self.host,
                           .nic = nic->name,
                           .pci = pci ? pci + 1 : NULL,
                           .how = how,
                           .job = inst->self.job,
                           .rail1 = (unsigned)nic->rail + 1,
                           .blame = BLAME,
                           .action = ACTION,
                           .fate = PROBE_FATE_CONTINUES};
    struct r2_cause v = {.code = info->name,
                         .blame = BLAME,
                         .severity = info->severity,
                         .nic = n,
                         .how = how,
                         .action = ACTION,
                         .recommend = info->recommend,
                         .brief = brief};

    if (!w->ours) {
        snprintf(brief, sizeof(brief), "%s %.22s: not known to be slow itself any more", info->name,
                 nic->name);
        v.severity = PROBE_INFO;
        v.blame = info->blame;
        v.how = "taken-back";
        v.action = v.recommend = NULL;
        R2_INFO("%s", brief);
        R2_NOTIFY(inst, on_cause, inst, &v);
        return;
    }
    snprintf(how, sizeof(how), "slow-for:%.39s,%.39s", name_of(inst, w->hosts[0]),
             name_of(inst, w->hosts[1]));
    v.since_ns = w->from;
    l.since_ms = r2_verdict_time(inst, w->from);
    probe_line_full(line, &l);
    probe_line_short(brief, &l);
    R2_WARN("%s", line);
    R2_NOTIFY(inst, on_cause, inst, &v);
}

void r2_slow_whose_step(struct r2_slow_whose *w, struct r2_inst *inst, uint64_t now)
{
    for (int i = 0; i < inst->nics.count; i++) {
        if (balance_whose_step(&w->nic[i], now)) {
            report(inst, i, &w->nic[i]);
        }
    }
}
