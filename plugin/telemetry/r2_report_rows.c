/* The records of the statistics file, from counters that are there anyway (r2_report_int.h). */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_seam.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "r2_latency.h"
#include "r2_report_int.h"
#include "r2_transfer.h"

#define AT_A_TIME 64 /* connections */

_Static_assert(R2_STAT_NICS >= IB_MAX_NICS && R2_STAT_PATHS >= IB_MAX_PATHS, "room");
_Static_assert((int)R2_STAT_NIC_UP == IB_NIC_UP && (int)R2_STAT_NIC_GONE == IB_NIC_GONE &&
                   (int)R2_STAT_PATH_UP == FO_UP && (int)R2_STAT_PATH_FENCED == FO_FENCED,
               "states are the same");

/* --- connections --- */

static void paths_fill(const struct r2_comm *c, struct r2_stat_conn *out)
{
    out->bytes = c->seen.bytes;
    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];
        struct r2_stat_path *o = &out->path[p];

        snprintf(o->peer_name, sizeof(o->peer_name), "%.23s", c->far.nic[p]);
        o->bytes = r2_report_bytes(path);
        o->inc = path->inc;
        o->nic = path->nic;
        o->peer_nic = path->peer_nic;
        o->state = c->seen.path[p].state;
        o->share = c->seen.path[p].share;
        if (o->state == R2_STAT_PATH_UP) { /* else its queue pair may be in the making */
            o->way = path->way;
            o->udp_port = path->udp_port;
        }
        out->bytes += c->seen.path[p].folded ? 0 : o->bytes;
    }
}

static void times_fill(const struct r2_comm *c, struct r2_stat_conn *out)
{
    struct r2_hist h[R2_SEND_SIZES];

    r2_latency_read(c, h);
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        r2_stat_times_of(&h[s], &out->sends[s]);
    }
}

static void conn_fill(const struct r2_comm *c, struct r2_stat_conn *out)
{
    memset(out, 0, sizeof(*out));
    out->id = c->id;
    out->is_send = (uint8_t)c->is_send;
    out->dev = (uint8_t)c->dev;
    out->npaths = (uint8_t)c->conn.npaths;
    out->standing = (uint8_t)r2_report_is_standing(c);
    out->error = c->seen.error;
    snprintf(out->why, sizeof(out->why), "%s", c->seen.why);
    snprintf(out->peer_host, sizeof(out->peer_host), "%.39s", c->far.host);
    if (c->peer) {
        snprintf(out->peer_addr, sizeof(out->peer_addr), "%.63s",
                 c->inst->oob->ops->peer_str(c->peer->oob));
    }
    paths_fill(c, out);
    if (c->tx) {
        out->messages = IB_RLX_GET(c->tx->sposted);
    } else if (c->rx) {
        out->messages = r2_report_word(&c->rx->count.messages);
    }
    out->replayed_parts = c->seen.retransmitted_parts;
    out->replayed_bytes = c->seen.retransmitted_bytes;
    out->stall_ns = c->seen.stall_ns;
    out->stall_at = c->seen.stall_at;
    if (c->timed.sample) {
        times_fill(c, out);
    }
}

static int record_take(struct r2_report *r, struct r2_comm *c)
{
    for (uint32_t w = 0; w < R2_STAT_CONNS / 64; w++) {
        if (~r->record[w]) {
            uint32_t i = 64 * w + (uint32_t)__builtin_ctzll(~r->record[w]);

            r->record[w] |= 1ull << (i % 64);
            r->records = i + 1 > r->records ? i + 1 : r->records;
            c->seen.record = i + 1;
            return 1;
        }
    }
    return 0;
}

static void record_free(struct r2_report *r, struct r2_comm *c)
{
    static const struct r2_stat_conn none;
    uint32_t i = c->seen.record - 1;

    if (c->seen.record == 0) {
        return;
    }
    c->seen.record = 0;
    r->rows.lacking = r->rows.lacking ? 2 : 0;
    r->record[i / 64] &= ~(1ull << (i % 64));
    if (r->stat) {
        r2_stat_put_conn(r->stat, i, &none);
    }
}

void r2_report_row_due(struct r2_report *r, struct r2_comm *c)
{
    if (r->stat == NULL || c->seen.row_prev) {
        return;
    }
    c->seen.row_next = NULL;
    c->seen.row_prev = r->rows.last;
    *r->rows.last = c;
    r->rows.last = &c->seen.row_next;
}

static void row_over(struct r2_report *r, struct r2_comm *c)
{
    if (c->seen.row_prev) {
        *c->seen.row_prev = c->seen.row_next;
        *(c->seen.row_next ? &c->seen.row_next->seen.row_prev : &r->rows.last) = c->seen.row_prev;
        c->seen.row_prev = NULL;
    }
}

void r2_report_row_free(struct r2_report *r, struct r2_comm *c)
{
    row_over(r, c);
    record_free(r, c);
}

static void conn_write(struct r2_report *r, struct r2_comm *c)
{
    struct r2_stat_conn rec;

    r2_report_why(r, c);
    r2_report_count_state(r, c);
    r2_transfer_take(c);
    if (c->seen.record == 0 && !record_take(r, c)) {
        r->rows.lacking = r->rows.lacking ? r->rows.lacking : 1;
        return;
    }
    conn_fill(c, &rec);
    if (!r2_stat_put_conn(r->stat, c->seen.record - 1, &rec)) {
        record_free(r, c);
    }
}

void r2_report_rows_look(struct r2_report *r)
{
    for (struct r2_comm *c = r2_comms_stirred(r->inst); c; c = c->list.stirred_next) {
        r2_report_count_moved(r, c);
        r2_report_row_due(r, c);
    }
}

/* Those that found no record free have their turn as some are. */
static void rows_lacking(struct r2_report *r)
{
    if (r->rows.lacking < 2) {
        return;
    }
    r->rows.lacking = 0;
    for (struct r2_comm *c = r2_comm_first(r->inst); c; c = c->list.all_next) {
        if (c->seen.record == 0) {
            r2_report_row_due(r, c);
        }
    }
}

static bool has_lost(const struct r2_comm *c)
{
    bool lost = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        lost |= c->seen.path[p].stood && c->seen.path[p].state != FO_UP;
    }
    return lost && !c->seen.closing;
}

/*
 * Some at a time: what fails meanwhile waits for this thread. Why a path is down may become known
 * without a step of its connection: that one has a turn again and again.
 */
static void conns_write(struct r2_report *r, struct r2_stat_who *who)
{
    struct r2_comm *first = NULL;

    rows_lacking(r);
    for (int left = AT_A_TIME; left > 0 && r->rows.first && r->rows.first != first; left--) {
        struct r2_comm *c = r->rows.first;

        row_over(r, c);
        conn_write(r, c);
        if (has_lost(c)) {
            r2_report_row_due(r, c);
            first = first ? first : c;
        }
    }
    who->conns_all = r2_comm_count(r->inst);
    who->conns = r->records;
}

/* --- NICs --- */

/* What there is to say of a NIC that is up and drained: not why it is up. */
static void drain_notes(const struct r2_inst *inst, int nic, struct r2_stat_nic *out)
{
    const char *why = r2_drain_why(inst, nic);

    snprintf(out->why, sizeof(out->why), "%.47s%s", why[0] ? why : "by the administrator",
             out->over ? "; still in use" : "");
}

static void nic_fill(const struct r2_report *r, int i, struct r2_stat_nic *out)
{
    const struct r2_event_nic id = r2_report_nic_of(r, i);
    const struct ib_nic *nic = &r->inst->nics.nic[i];
    const struct r2_report_nic *n = &r->nic[i];

    snprintf(out->name, sizeof(out->name), "%.23s", nic->name);
    snprintf(out->device, sizeof(out->device), "%.23s", nic->dev_name);
    snprintf(out->pci, sizeof(out->pci), "%.23s", id.pci ? id.pci : "");
    snprintf(out->why, sizeof(out->why), "%s", n->why);
    snprintf(out->trouble, sizeof(out->trouble), "%s", n->trouble);
    snprintf(out->blamed, sizeof(out->blamed), "%s", n->blamed);
    out->guid = nic->guid;
    out->since = n->since;
    out->trouble_at = n->trouble_at;
    out->blamed_at = n->blamed_at;
    out->sent = n->sent;
    out->received = n->received;
    out->work_requests = n->wrs;
    out->over = n->over;
    out->primary = n->primary;
    out->moved = n->moved;
    out->last = n->last;
    out->theirs = n->moved > 0 && n->ours == 0;
    out->lost = r->inst->share.incarnations_lost[i];
    out->stalls = n->stalls;
    out->stall_ns = n->stall_ns;
    out->stall_at = n->stall_at;
    out->rail = nic->rail;
    out->speed_mbps = (uint32_t)nic->speed_mbps;
    out->port = nic->port;
    out->last_resort = nic->last;
    out->state = (uint8_t)n->state;
    out->drained = (r->inst->drain.nics >> i) & 1;
    if (out->drained && n->state == IB_NIC_UP) {
        drain_notes(r->inst, i, out);
    } else if (nic->last && n->state == IB_NIC_UP) {
        snprintf(out->why, sizeof(out->why), "last resort");
    }
    out->lid = id.lid;
    memcpy(out->gid, id.gid, sizeof(out->gid)); /* as it may be shown */
    r2_latency_read_nic(r->inst, i, out->sends);
}

void r2_report_nics_fill(const struct r2_report *r, struct r2_stat_nic row[IB_MAX_NICS])
{
    memset(row, 0, IB_MAX_NICS * sizeof(row[0]));
    for (int i = 0; i < r->inst->nics.count; i++) {
        nic_fill(r, i, &row[i]);
    }
}

static void nics_write(struct r2_report *r)
{
    struct r2_stat_nic row[IB_MAX_NICS];

    r2_report_nics_fill(r, row);
    for (int i = 0; i < r->inst->nics.count; i++) {
        r2_stat_put_nic(r->stat, (unsigned)i, &row[i]);
    }
    r2_report_traffic_look(r, row);
}

/* --- the process --- */

/* To the library that runs communicators in another order of ranks, where it is there. */
static void seam_tell(const struct r2_report *r)
{
    const struct r2_inst *inst = r->inst;
    const struct r2_seam *seam = r2_seam_find();
    unsigned nics = (unsigned)(inst->nics.count - inst->nics.last_count), mbps = 0, used = 0;

    for (unsigned i = 0; seam != NULL && i < nics; i++) {
        unsigned mb = (unsigned)inst->nics.nic[i].speed_mbps / 8;

        mbps = mb > mbps ? mb : mbps;
        used += r->nic[i].primary > 0;
    }
    if (seam != NULL) {
        seam->nics(nics, (unsigned)__builtin_popcount(r2_report_good(r)), used, mbps);
    }
}

static void who_fill(const struct r2_report *r, struct r2_stat_who *who)
{
    const struct r2_event_source *s = &r->src;
    struct r2_oob_counters oob;
    struct ib_mr_stats mrs;

    memset(who, 0, sizeof(*who));
    snprintf(who->command, sizeof(who->command), "%s", s->command);
    snprintf(who->host, sizeof(who->host), "%s", s->host);
    snprintf(who->version, sizeof(who->version), "%s", s->version);
    snprintf(who->scheduler, sizeof(who->scheduler), "%s", s->scheduler);
    snprintf(who->job, sizeof(who->job), "%s", s->job);
    snprintf(who->step, sizeof(who->step), "%s", s->step);
    who->pid = s->pid;
    who->start = r->start;
    who->updated = r2_report_real(r, r2_now(r->inst));
    who->digest = s->digest;
    who->cuda_dev = s->cuda_dev;
    who->nics = (uint32_t)r->inst->nics.count;
    who->capacity_up = (uint32_t)__builtin_popcount(r2_report_usable(r));
    seam_tell(r);
    who->history = r->history;
    who->faults = r->sum.faults;
    who->switches = r->sum.switches;
    who->failbacks = r->sum.failbacks;
    who->drains = r->sum.drains;
    who->giveups = r->sum.giveups;
    who->verdicts = r->sum.verdicts;
    who->replayed_bytes = r->sum.replayed_bytes;
    who->stall_max_ns = r->sum.stall_max_ns;
    who->stalls = r->sum.stalls;
    who->stalls_max_ns = r->sum.stalls_max_ns;
    for (int i = 0; i < R2_STAT_STALLS; i++) {
        r2_hist_read(&r->stall_times[i], &who->stall_times[i]);
    }
    who->events_lost = r->lost;
    r->inst->oob->ops->counters(r->inst->oob, &oob);
    who->oob_strangers = oob.strangers;
    who->oob_bad_frames = oob.bad_frames;
    who->oob_bad_messages = r->inst->refused.bad_messages;
    ib_mr_cache_stats(r->inst->mem.mrs, &mrs);
    who->kept = mrs.kept + atomic_load_explicit(&r->inst->nics.kept, memory_order_relaxed);
}

void r2_report_rows_write(struct r2_report *r)
{
    struct r2_stat_who who;

    if (r->stat == NULL) {
        return;
    }
    who_fill(r, &who);
    r2_stat_begin(r->stat);
    conns_write(r, &who);
    r2_transfer_write(r, &who);
    nics_write(r); /* with the reasons that connections were found to have */
    r2_stat_put_who(r->stat, &who);
    r2_stat_end(r->stat);
}

/* A cause that was cut ends in a '~'. */
static void cause_put(char *out, size_t room, const struct r2_event *e)
{
    int n = snprintf(out, room, "%s%s%s", e->how ? e->how : "", e->detail ? ": " : "",
                     e->detail ? e->detail : "");

    if (n >= (int)room) {
        out[room - 2] = '~';
    }
}

void r2_report_event_put(struct r2_report *r, const struct r2_event *e)
{
    struct r2_stat_event rec;

    r->history++;
    if (r->stat == NULL) {
        return;
    }
    memset(&rec, 0, sizeof(rec));
    rec.no = r->history;
    rec.when = e->when_ns;
    rec.mono = e->mono_ns;
    rec.kind = (uint8_t)e->kind;
    rec.severity = (uint8_t)e->severity;
    rec.connections = e->connections > 0 ? (uint32_t)e->connections : 0;
    rec.stall_ns = e->stall_us >= 0 ? e->stall_us * 1000 : -1;
    rec.replayed_bytes = e->replayed_bytes;
    rec.capacity_all = e->capacity.all;
    rec.capacity_up = e->capacity.up;
    snprintf(rec.code, sizeof(rec.code), "%.15s", e->code ? e->code : "");
    snprintf(rec.nic, sizeof(rec.nic), "%.23s", e->nic.device ? e->nic.device : "");
    snprintf(rec.peer_host, sizeof(rec.peer_host), "%.39s", e->peer.host ? e->peer.host : "");
    snprintf(rec.peer_nic, sizeof(rec.peer_nic), "%.23s", e->peer.device ? e->peer.device : "");
    cause_put(rec.cause, sizeof(rec.cause), e);
    snprintf(rec.text, sizeof(rec.text), "%.255s", e->text ? e->text : "");
    r2_stat_put_event(r->stat, &rec);
}
