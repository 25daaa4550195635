/* What belongs together: incarnations of many connections that ended for one reason, until they
 * have moved on (r2_report_int.h). */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_policy.h"
#include "probe/health/r2_stall.h"
#include "probe/health/r2_watch.h"
#include "r2_report_int.h"

#define JOIN        R2_MS(1000) /* what fails later over the same NIC is another case */
#define QUIET       R2_MS(50) /* stragglers: a case is complete when nothing came to it for so long */
#define BACK_QUIET  R2_MS(300)
#define BACK_LONG   R2_MS(2000)
#define STALL_WARN  R2_MS(60000) /* between two warnings about one NIC */
#define SWITCH_LONG R2_MS(10000) /* it is said by then with what is known */

/* Words of a cause; the rank of what tells most. */
static const struct {
    const char *name;
    uint8_t rank;
} causes[IB_FAULT_COUNT] = {
    [IB_FAULT_NONE] = {"?", 0},
    [IB_FAULT_WC] = {"cqe", 3},
    [IB_FAULT_CALL] = {"call", 4},
    [IB_FAULT_PORT] = {"port_event", 6},
    [IB_FAULT_DEVICE] = {"fatal", 7},
    [IB_FAULT_QP] = {"qp_event", 3},
    [IB_FAULT_PEER] = {"peer", 1},
    [IB_FAULT_PEER_NIC] = {"peer", 2},
    [IB_FAULT_DATA] = {"data", 3},
    [IB_FAULT_SETUP] = {"setup", 1},
    [IB_FAULT_CLOSE] = {"close", 0},
    [IB_FAULT_ADMIN] = {"admin", 5},
    [IB_FAULT_SILENT] = {"stall", 5},
    [IB_FAULT_UNDELIVERED] = {"stall", 4},
    [IB_FAULT_STALL] = {"stall", 4},
    [IB_FAULT_TAIL] = {"stall", 4},
    [IB_FAULT_REHEARSAL] = {"rehearsal", 5},
    [IB_FAULT_WAY] = {"stall", 4},
};

static struct r2_report_case *case_of(struct r2_report *r, uint32_t no)
{
    for (int i = 0; no && i < R2_REPORT_CASES; i++) {
        if (r->cas[i].no == no) {
            return &r->cas[i];
        }
    }
    return NULL;
}

/* The open one of this kind over @nic, else a new one; NULL when there are too many, which is
 * counted. */
static struct r2_report_case *case_get(struct r2_report *r, enum r2_event_kind kind, int nic,
                                       uint64_t now)
{
    struct r2_report_case *found = NULL;

    for (int i = 0; i < R2_REPORT_CASES; i++) {
        struct r2_report_case *k = &r->cas[i];

        if (k->no && k->kind == kind && k->nic == nic && r2_elapsed(now, k->began) < JOIN) {
            k->last = now;
            return k;
        }
        found = k->no == 0 ? k : found;
    }
    if (found == NULL) {
        r->lost++;
        return NULL;
    }
    r->case_no += r->case_no == UINT32_MAX ? 2 : 1; /* never 0 */
    *found = (struct r2_report_case){
        .no = r->case_no, .kind = kind, .nic = nic, .began = now, .last = now};
    return found;
}

/* A text that is the same for all of a case, or "several". */
static void common(char *text, size_t room, uint8_t *known, const char *one)
{
    if (*known == 0) {
        snprintf(text, room, "%s", one);
        *known = 1;
    } else if (*known == 1 && strncmp(text, one, room - 1) != 0) {
        text[0] = '\0';
        *known = 2;
    }
}

static void peer_note(struct r2_report_case *k, const struct r2_comm *c, int p)
{
    common(k->peer_host, sizeof(k->peer_host), &k->hosts, c->far.host);
    common(k->peer_nic, sizeof(k->peer_nic), &k->devices, c->far.nic[p]);
}

static void detail_note(struct r2_report_case *k, const struct ib_fault_info *i)
{
    if (k->detail[0] && causes[i->fault].rank <= causes[k->info.fault].rank) {
        return;
    }
    k->info = *i;
    if (i->fault == IB_FAULT_WC) {
        snprintf(k->detail, sizeof(k->detail), "completion status %d, vendor_err 0x%x",
                 i->wc_status, (unsigned)i->vendor_err);
    } else if (i->fault == IB_FAULT_CALL) {
        snprintf(k->detail, sizeof(k->detail), "call failed: %s", strerror(i->err));
    } else {
        snprintf(k->detail, sizeof(k->detail), "%s", ib_fault_name(i->fault));
    }
}

static uint32_t nics_up(const struct r2_comm *c)
{
    uint32_t nics = 0;

    for (uint32_t m = ib_conn_carrying(&c->conn, c->conn.up); m; m &= m - 1) {
        nics |= 1u << c->conn.path[__builtin_ctz(m)].nic;
    }
    return nics;
}

/* --- stalls: of the sender, who knows what has not arrived, and of the receiver, who has to keep
 * it from NCCL --- */

static void stall_begin(struct r2_comm *c, int p, struct r2_report_case *k)
{
    const struct fo_path *fp = &c->fo.path[p];
    uint64_t silent, from = fp->down_since;

    if (!c->is_send || c->seen.stall_from || c->tx->sposted == c->tx->sack) {
        return;
    }
    silent = r2_watch_silence(c, p);
    if (silent > R2_MS(c->inst->cfg.t_suspect_ms) / 2) { /* less is within the ticks of the watch */
        from -= silent < from ? silent : from;
    }
    c->seen.stall_from = from;
    c->seen.stall_mark = fp->acked_at_down;
    c->seen.stall_case = k->no;
    k->stalls++;
    k->waited++;
    k->detect_ns = fp->down_since - from > k->detect_ns ? fp->down_since - from : k->detect_ns;
    if (c->inst->telemetry.report->stalling++ == 0) {
        c->inst->telemetry.report->stall_since = r2_now(c->inst);
    }
}

static void stall_end(struct r2_comm *c)
{
    struct r2_report *r = c->inst->telemetry.report;
    struct r2_report_case *k = case_of(r, c->seen.stall_case);

    c->seen.stall_from = 0;
    r->stalling--;
    if (k) {
        k->stalls--;
    }
}

/* @c has waited for @ns, up to @now. */
static void stall_count(struct r2_comm *c, struct r2_report_case *k, uint64_t ns, uint64_t now)
{
    struct r2_report *r = c->inst->telemetry.report;

    if (k && ns > k->stall_ns) {
        k->stall_ns = ns;
    }
    r2_hist_note(&r->stall_times[R2_STAT_STALL_FAULT], ns);
    r->sum.stall_max_ns = ns > r->sum.stall_max_ns ? ns : r->sum.stall_max_ns;
    c->seen.stall_ns = ns;
    c->seen.stall_at = r2_report_real(r, now);
}

/* The quarantine of (@p) is over, or its connection is. */
static void quarantine_end(struct r2_comm *c, int p, uint64_t now)
{
    struct r2_report_case *k = case_of(c->inst->telemetry.report, c->seen.path[p].quarantined);

    if (k) {
        k->stalls--;
        k->last = now;
        k->waited += c->seen.path[p].kept;
    }
    if (c->seen.path[p].kept) {
        stall_count(c, k, r2_elapsed(now, c->fo.path[p].down_since), now);
    }
    c->seen.path[p].quarantined = 0;
    c->seen.path[p].kept = 0;
}

void r2_report_case_quarantine(struct r2_comm *c, int p)
{
    uint32_t no = c->seen.path[p].lost;
    struct r2_report_case *k = case_of(c->inst->telemetry.report, no);
    int held = c->fo.path[p].quarantine_until && ib_recv_quarantined(c->rx, p) > 0;

    if (held && c->seen.path[p].quarantined == 0 && no) {
        c->seen.path[p].quarantined = no;
        if (k) {
            k->stalls++;
        }
    }
    if (c->seen.path[p].quarantined && held) {
        c->seen.path[p].kept |= ib_recv_is_kept(c->rx, p);
    } else if (c->seen.path[p].quarantined) {
        quarantine_end(c, p, r2_now(c->inst));
    }
}

void r2_report_case_stall(struct r2_comm *c, uint64_t now)
{
    struct r2_report *r = c->inst->telemetry.report;
    uint64_t acked, ns;
    struct r2_report_case *k;

    if (c->seen.stall_from == 0) {
        return;
    }
    acked = IB_RLX_GET(c->tx->sack);
    if (acked <= c->seen.stall_mark && acked != IB_RLX_GET(c->tx->sposted)) {
        return;
    }
    ns = r2_elapsed(now, c->seen.stall_from);
    k = case_of(r, c->seen.stall_case);
    stall_count(c, k, ns, now);
    stall_end(c);
}

/* --- what happens to connections --- */

static bool is_drain(const struct r2_comm *c, int p)
{
    const struct fo_path *fp = &c->fo.path[p];

    /* S has ended what R knows to be drained */
    return fp->why.fault == IB_FAULT_ADMIN ||
           (fp->why.fault == IB_FAULT_PEER && fp->peer_reason != IB_FAULT_REHEARSAL &&
            r2_drain_has(c, p));
}

/* As far as it is known here: a rehearsal is one at either end. */
static struct ib_fault_info why_of(const struct r2_comm *c, int p)
{
    struct ib_fault_info why = c->fo.path[p].why;

    if (why.fault == IB_FAULT_PEER && c->fo.path[p].peer_reason == IB_FAULT_REHEARSAL) {
        why.fault = IB_FAULT_REHEARSAL;
    }
    return why;
}

static bool has_case(const struct r2_comm *c, uint32_t no)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        if (c->seen.path[p].fault == no) {
            return 1;
        }
    }
    return 0;
}

void r2_report_case_lost(struct r2_comm *c, int p)
{
    struct r2_report *r = c->inst->telemetry.report;
    struct ib_fault_info why = why_of(c, p);
    int drain = is_drain(c, p), nic = c->conn.path[p].nic;
    struct r2_report_case *k =
        case_get(r, drain ? R2_EVENT_DRAIN : R2_EVENT_SWITCH, nic, r2_now(c->inst));

    if (k == NULL) {
        return;
    }
    if (!has_case(c, k->no)) {
        k->conns++;
        k->stranded += c->conn.up == 0;
    }
    k->pending++;
    k->to |= nics_up(c);
    c->seen.path[p].fault = k->no;
    c->seen.path[p].lost = drain ? 0 : k->no;
    peer_note(k, c, p);
    detail_note(k, &why);
    r2_stall_drop(c, p);
    if (!drain) {
        stall_begin(c, p, k);
        snprintf(r->nic[nic].trouble, sizeof(r->nic[nic].trouble), "%s: %.80s",
                 causes[k->info.fault].name, k->detail);
        r->nic[nic].trouble_at = r2_report_real(r, k->began);
    }
}

void r2_report_case_settled(struct r2_comm *c, int p)
{
    struct r2_report_case *k = case_of(c->inst->telemetry.report, c->seen.path[p].fault);
    uint64_t retransmitted =
        c->tx ? c->tx->count.retransmitted_bytes - c->seen.retransmitted_bytes : 0;

    c->seen.path[p].fault = 0;
    c->seen.retransmitted_bytes += retransmitted;
    c->seen.retransmitted_parts = c->tx ? c->tx->count.retransmitted_parts : 0;
    c->inst->telemetry.report->sum.replayed_bytes += retransmitted;
    if (k) {
        k->pending--;
        k->retransmitted += retransmitted;
        k->to |= nics_up(c);
    }
}

void r2_report_case_back(struct r2_comm *c, int p)
{
    struct r2_report_case *k = case_get(c->inst->telemetry.report, R2_EVENT_FAILBACK,
                                        c->conn.path[p].nic, r2_now(c->inst));

    if (k) {
        k->conns++;
        k->last = r2_now(c->inst);
        peer_note(k, c, p);
    }
}

void r2_report_stall(struct r2_comm *c, int p, uint64_t ns, int over)
{
    struct r2_report *r = c->inst->telemetry.report;
    int nic = c->conn.path[p].nic;
    struct r2_report_case *k;

    if (r == NULL || r->stopped) {
        return;
    }
    r->nic[nic].stall_ns = ns;
    r->nic[nic].stall_at = r2_report_real(r, r2_now(c->inst));
    r->changed = 1;
    if (!over) {
        return;
    }
    r->nic[nic].stalls++;
    r2_hist_note(&r->stall_times[R2_STAT_STALL_OTHER], ns);
    r->sum.stalls_max_ns = ns > r->sum.stalls_max_ns ? ns : r->sum.stalls_max_ns;
    k = case_get(r, R2_EVENT_STALL, nic, r2_now(c->inst));
    if (k) {
        k->conns++;
        k->stall_ns = ns > k->stall_ns ? ns : k->stall_ns;
        peer_note(k, c, p);
    }
}

void r2_report_case_giveup(struct r2_comm *c)
{
    struct r2_report_case *k =
        case_get(c->inst->telemetry.report, R2_EVENT_GIVEUP, c->dev, r2_now(c->inst));

    if (k && k->conns++ == 0) {
        snprintf(k->detail, sizeof(k->detail), "%.120s", c->seen.why);
    }
    if (k) {
        common(k->peer_host, sizeof(k->peer_host), &k->hosts, c->far.host);
    }
}

void r2_report_case_comm_over(struct r2_comm *c)
{
    for (int p = 0; p < IB_MAX_PATHS; p++) {
        struct r2_report_case *k = case_of(c->inst->telemetry.report, c->seen.path[p].fault);

        c->seen.path[p].fault = 0;
        if (k) {
            k->pending--;
        }
        if (c->seen.path[p].quarantined) {
            c->seen.path[p].kept = 0; /* who ends it does not wait for it */
            quarantine_end(c, p, r2_now(c->inst));
        }
    }
    if (c->seen.stall_from) {
        stall_end(c);
    }
}

/* --- saying --- */

static void nic_names(const struct r2_report *r, uint32_t nics, char *out, size_t room)
{
    size_t n = 0;

    out[0] = '\0';
    if (__builtin_popcount(nics) > 3) {
        snprintf(out, room, "%d NICs", __builtin_popcount(nics));
        return;
    }
    for (; nics && n < room; nics &= nics - 1) {
        n += (size_t)snprintf(out + n, room - n, "%s%.23s", n ? "," : "",
                              r->inst->nics.nic[__builtin_ctz(nics)].name);
    }
}

static struct r2_event event_of(const struct r2_report *r, const struct r2_report_case *k)
{
    struct r2_event e = r2_event_empty;

    e.kind = k->kind;
    e.nic = r2_report_nic_of(r, k->nic);
    e.peer.host = k->peer_host;
    e.peer.device = k->peer_nic;
    e.connections = k->conns;
    if (k->kind == R2_EVENT_SWITCH || k->kind == R2_EVENT_DRAIN) {
        e.how = causes[k->info.fault].name;
        e.detail = k->detail;
        e.error.wc_status = k->info.fault == IB_FAULT_WC ? k->info.wc_status : -1;
        e.error.vendor_err = k->info.fault == IB_FAULT_WC ? k->info.vendor_err : -1;
        e.error.err = k->info.fault == IB_FAULT_CALL ? k->info.err : -1;
    }
    return e;
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void report_fault(struct r2_report *r, struct r2_report_case *k)
{
    struct r2_event e = event_of(r, k);
    char text[256];

    k->reported = 1;
    snprintf(text, sizeof(text), "%.23s: %s, %u connection%s%s", e.nic.device, k->detail, k->conns,
             plural(k->conns), k->stranded ? ", no path left for some" : "");
    e.kind = R2_EVENT_FAULT;
    e.severity = k->stranded ? R2_EVENT_CRITICAL : R2_EVENT_WARNING;
    e.detected_us = k->detect_ns ? (int64_t)(k->detect_ns / 1000) : -1;
    e.text = text;
    r2_report_emit(r, &e, k->began);
}

/* For who reads along, r2_perf for one (tools/r2_perf/log.c reads this text): the same figure as
 * the event's. */
static void log_switch(const struct r2_report *r, const struct r2_report_case *k, const char *to)
{
    char stall[40] = "nothing waited";

    if (k->stalls) {
        snprintf(stall, sizeof(stall), "%u still wait", k->stalls);
    } else if (k->waited) {
        snprintf(stall, sizeof(stall), "stall %llu us", (unsigned long long)(k->stall_ns / 1000));
    }
    R2_INFO("switch: %s, %u connection%s to %s, %s, %llu bytes again, began %llu us ago",
            r->inst->nics.nic[k->nic].name, k->conns, plural(k->conns), to[0] ? to : "other paths",
            stall, (unsigned long long)k->retransmitted,
            (unsigned long long)(r2_elapsed(r2_now(r->inst), k->began) / 1000));
}

static void report_switch(struct r2_report *r, const struct r2_report_case *k)
{
    struct r2_event e = event_of(r, k);
    char text[256], to[96], stall[40] = "nothing waited";

    nic_names(r, k->to & ~(1u << k->nic), to, sizeof(to));
    if (k->kind == R2_EVENT_DRAIN) {
        snprintf(text, sizeof(text), "%.23s: %u connection%s left it for %s", e.nic.device,
                 k->conns, plural(k->conns), to[0] ? to : "others");
    } else {
        if (k->stalls) {
            snprintf(stall, sizeof(stall), "%u still wait%s", k->stalls, k->stalls == 1 ? "s" : "");
        } else if (k->waited) {
            snprintf(stall, sizeof(stall), "stall %.2f ms", (double)k->stall_ns / 1e6);
        }
        snprintf(text, sizeof(text), "%.23s: %u connection%s to %s, %s, %llu bytes again",
                 e.nic.device, k->conns, plural(k->conns), to[0] ? to : "other paths", stall,
                 (unsigned long long)k->retransmitted);
        log_switch(r, k, to);
        e.stall_us = (int64_t)(k->stall_ns / 1000);
    }
    e.replayed_bytes = (int64_t)k->retransmitted;
    e.text = text;
    r2_report_emit(r, &e, k->last);
}

static void report_back(struct r2_report *r, const struct r2_report_case *k)
{
    struct r2_event e = event_of(r, k);
    char text[256];

    snprintf(text, sizeof(text), "%.23s: %u connection%s it again", e.nic.device, k->conns,
             k->conns == 1 ? " uses" : "s use");
    e.text = text;
    r2_report_emit(r, &e, k->last);
}

static void report_stall(struct r2_report *r, const struct r2_report_case *k)
{
    struct r2_report_nic *n = &r->nic[k->nic];
    struct r2_event e = event_of(r, k);
    char text[256], code[R2_STAT_STALL_CODE];
    bool is_told =
        r2_stat_stall_code(n->blamed, n->blamed_at, k->stall_ns, r2_report_real(r, k->last), code);

    snprintf(text, sizeof(text),
             "%.23s: %u connection%s stood still for %.2f ms%s%s%s%.23s, and went on%s%s",
             e.nic.device, k->conns, plural(k->conns), (double)k->stall_ns / 1e6,
             k->peer_host[0] ? ", to " : "", k->peer_host, k->peer_nic[0] ? ":" : "", k->peer_nic,
             is_told ? "; why: " : " without a fault", code);
    e.severity = R2_EVENT_WARNING;
    e.how = "stall";
    e.detail = "work requests without completion";
    e.stall_us = (int64_t)(k->stall_ns / 1000);
    e.text = text;
    r2_report_emit(r, &e, k->last);
    if (n->stall_warned == 0 || r2_elapsed(k->last, n->stall_warned) >= STALL_WARN) {
        n->stall_warned = k->last;
        R2_WARN("%s", text);
    } else {
        R2_INFO("%s", text);
    }
}

static void report_giveup(struct r2_report *r, const struct r2_report_case *k)
{
    struct r2_event e = event_of(r, k);
    char text[256];

    snprintf(text, sizeof(text), "%u connection%s ended: %s", k->conns, plural(k->conns),
             k->detail);
    e.severity = R2_EVENT_CRITICAL;
    e.how = "giveup";
    e.detail = k->detail;
    e.text = text;
    r2_report_emit(r, &e, k->began);
}

static bool is_complete(const struct r2_report_case *k, uint64_t now)
{
    return (k->pending == 0 && k->stalls == 0 && r2_elapsed(now, k->last) >= QUIET) ||
           r2_elapsed(now, k->began) >= SWITCH_LONG;
}

void r2_report_cases_step(struct r2_report *r, uint64_t now, int all)
{
    for (int i = 0; i < R2_REPORT_CASES; i++) {
        struct r2_report_case *k = &r->cas[i];

        if (k->no == 0) {
            continue;
        }
        if (k->kind == R2_EVENT_GIVEUP) {
            report_giveup(r, k);
            k->no = 0;
        } else if (k->kind == R2_EVENT_STALL) {
            if (all || r2_elapsed(now, k->last) >= QUIET) {
                report_stall(r, k);
                k->no = 0;
            }
        } else if (k->kind == R2_EVENT_FAILBACK) {
            if (all || r2_elapsed(now, k->last) >= BACK_QUIET ||
                r2_elapsed(now, k->began) >= BACK_LONG) {
                report_back(r, k);
                k->no = 0;
            }
        } else {
            /* a rehearsal is none: the administrator hears of the switch */
            if (!k->reported && k->kind == R2_EVENT_SWITCH && k->info.fault != IB_FAULT_REHEARSAL) {
                report_fault(r, k);
            }
            if (all || is_complete(k, now)) {
                if (k->conns > k->stranded) { /* else it goes on nowhere */
                    report_switch(r, k);
                }
                k->no = 0;
            }
        }
    }
}
