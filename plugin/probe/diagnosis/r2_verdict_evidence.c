#include "r2_verdict_evidence.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "probe/health/r2_counters.h"
#include "probe/health/r2_pair.h"

_Static_assert(R2_EVIDENCE >= 2 * (2 + R2_CASE_AUX) + R2_CASE_MORE + 3, "room for all");

static const char *outcome_name(uint8_t o)
{
    static const char *const name[PROBE_OUTCOMES] = {"not probed", "ok", "error", "no answer"};

    return o < PROBE_OUTCOMES ? name[o] : "?";
}

const char *r2_evidence_port(uint8_t p)
{
    static const char *const name[PROBE_PORTS] = {"not known", "up", "down", "gone"};

    return p < PROBE_PORTS ? name[p] : "?";
}

/* The name of a peer's NIC: of the announcement of its pair with ours, which a NIC that breaks
 * early never makes, else of the set-up of a connection. NULL: not known. */
static const char *nic_of(const struct r2_inst *inst, const struct r2_peer *peer, int nic,
                          int peer_nic)
{
    const struct r2_pair *pair = r2_pair_find(inst, peer, nic, peer_nic);

    return pair && pair->far.name[0] ? pair->far.name : r2_peer_nic_name(peer, (unsigned)peer_nic);
}

const char *r2_evidence_peer_nic(struct r2_inst *inst, const struct r2_case *k)
{
    const char *name = k->peer ? nic_of(inst, k->peer, k->nic, k->peer_nic) : NULL;

    return name ? name : "?";
}

static void put(struct r2_evidence *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct r2_evidence *e, const char *fmt, ...)
{
    va_list ap;

    if (e->n == R2_EVIDENCE) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(e->line[e->n++], R2_EVIDENCE_LINE, fmt, ap);
    va_end(ap);
}

struct when {
    char text[32];
};

static struct when when(const struct r2_case *k, uint64_t at)
{
    struct when w = {""};

    if (at) {
        snprintf(w.text, sizeof(w.text), " at +%.1f ms",
                 (double)r2_elapsed(at, r2_case_since(k)) / 1e6);
    }
    return w;
}

/* A port by the name that its host gives it, where a process on it has said one; else by its
 * numbers. */
static void port_of(const struct r2_inst *inst, uint64_t guid, uint8_t port, char *out, size_t room)
{
    for (int i = 0; guid && i < inst->nics.count; i++) {
        if (inst->nics.nic[i].guid == guid && inst->nics.nic[i].port == port) {
            snprintf(out, room, "%s %s", inst->self.host, inst->nics.nic[i].name);
            return;
        }
    }
    for (const struct r2_pair *pair = inst->index.pairs; guid && pair; pair = pair->next) {
        if (pair->peer && pair->far.guid == guid && pair->far.port == port && pair->far.name[0]) {
            snprintf(out, room, "%s %s", pair->peer->host, pair->far.name);
            return;
        }
    }
    snprintf(out, room, "port %u of %016llx", port, (unsigned long long)guid);
}

static void put_own_probe(const struct r2_inst *inst, const struct r2_case *k,
                          const struct r2_case_probe *a, struct r2_evidence *e)
{
    const char *name = a->peer ? nic_of(inst, a->peer, a->nic, a->peer_nic) : NULL;
    char to[80];

    if (name) {
        snprintf(to, sizeof(to), "%s %s", a->host[0] ? a->host : a->peer->host, name);
    } else {
        port_of(inst, a->guid, a->peer_port, to, sizeof(to));
    }
    put(e, "%s %s to %s: %s%s", inst->self.host, inst->nics.nic[a->nic].name, to,
        outcome_name(a->outcome), when(k, a->at).text);
}

/* What the peer has found: its own times are not known, but when its report came. */
static void put_peer_report(struct r2_inst *inst, const struct r2_case *k, struct r2_evidence *e)
{
    const char *nic = r2_evidence_peer_nic(inst, k);
    char to[80];

    if (!k->theirs.in_facts) {
        put(e, "%s %s: %s", k->peer->host, nic,
            k->theirs.heard ? "its report is not complete" : "no report");
        return;
    }
    put(e, "%s %s, its own report%s: port %s, loop %s", k->peer->host, nic,
        when(k, k->theirs.at).text, r2_evidence_port(k->facts.remote.port),
        outcome_name(k->facts.remote.loop));
    put(e, "%s %s to %s %s: %s", k->peer->host, nic, inst->self.host, inst->nics.nic[k->nic].name,
        outcome_name(k->theirs.report.direct));
    for (int i = 0; i < k->theirs.report.n_aux; i++) {
        port_of(inst, k->theirs.report.aux[i].guid, k->theirs.report.aux[i].port, to, sizeof(to));
        put(e, "%s %s to %s: %s", k->peer->host, nic, to,
            outcome_name(k->theirs.report.aux[i].outcome));
    }
}

/* Those that have grown, as many as have room. */
static void put_counters(const struct r2_inst *inst, const struct r2_case *k, struct r2_evidence *e)
{
    const struct ib_counters *start, *last;
    char list[R2_EVIDENCE_LINE - 64] = "";
    size_t len = 0;

    if (!r2_counters_get(inst, k->nic, k->since, &start, &last)) {
        return;
    }
    for (int i = 0; i < IB_COUNTERS; i++) {
        uint64_t by = ib_counters_grown(start, last, i);
        int n = by ? snprintf(list + len, sizeof(list) - len, "%s%s +%llu", len ? ", " : "",
                              ib_counters_name(i), (unsigned long long)by)
                   : 0;

        if ((size_t)n >= sizeof(list) - len) {
            list[len] = '\0';
            break;
        }
        len += (size_t)n;
    }
    put(e, "%s %s, since its first connection: %s", inst->self.host, inst->nics.nic[k->nic].name,
        len ? list : "no error counter has grown");
}

void r2_evidence_gather(struct r2_inst *inst, const struct r2_case *k, struct r2_evidence *e)
{
    e->n = 0;
    if (k->process) {
        put(e, "%s %s: %s", k->peer->host, inst->oob->ops->peer_str(k->peer->oob),
            k->facts.peer == PROBE_ERROR ? "the host refuses its channel"
                                         : "its NICs answer, the process does not");
        return;
    }
    put(e, "%s %s: port %s, loop %s%s", inst->self.host, inst->nics.nic[k->nic].name,
        r2_evidence_port(k->facts.local.port), outcome_name(k->facts.local.loop),
        when(k, k->loopback.at).text);
    if (k->peer) {
        put_own_probe(inst, k, &k->probes.direct, e);
        for (int i = 0; i < k->probes.n_aux; i++) {
            put_own_probe(inst, k, &k->probes.aux[i], e);
        }
        put_peer_report(inst, k, e);
        for (int i = 0; i < k->probes.n_more; i++) {
            put_own_probe(inst, k, &k->probes.more[i], e);
        }
        put(e, "process on %s: %s", k->peer->host, outcome_name(k->facts.peer));
    }
    put_counters(inst, k, e);
    if (k->before.muted) {
        put(e, "%u times more it broke on this pair since the case before this one",
            k->before.muted);
    }
}

struct probe_seen r2_evidence_seen(const struct r2_case *k, enum probe_code code,
                                   enum probe_blame blame)
{
    struct probe_seen s = {0, 0};

    probe_seen_add(&s, code, blame, PROBE_POINT_PAIR, k->probes.direct.outcome);
    probe_seen_add(&s, code, blame, PROBE_POINT_NEAR_LOOP, k->facts.local.loop);
    for (int i = 0; i < k->probes.n_aux; i++) {
        probe_seen_add(&s, code, blame, PROBE_POINT_NEAR_AUX, k->probes.aux[i].outcome);
    }
    if (k->theirs.in_facts) {
        probe_seen_add(&s, code, blame, PROBE_POINT_PAIR, k->theirs.report.direct);
        probe_seen_add(&s, code, blame, PROBE_POINT_FAR_LOOP, k->facts.remote.loop);
    }
    for (int i = 0; k->theirs.in_facts && i < k->theirs.report.n_aux; i++) {
        probe_seen_add(&s, code, blame, PROBE_POINT_FAR_AUX, k->theirs.report.aux[i].outcome);
    }
    for (int i = 0; i < k->probes.n_more; i++) {
        probe_seen_add(&s, code, blame, PROBE_POINT_OTHERS, k->probes.more[i].outcome);
    }
    return s;
}
