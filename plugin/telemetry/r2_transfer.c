#include "r2_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "r2_latency.h"

struct r2_transfer {
    struct r2_band band[R2_BAND_SIZES];
    /* Times by CLOCK_REALTIME, taken once: a row that stays the same is not written anew. */
    struct {
        uint64_t at, at_real, since, since_real;
    } stamp[R2_BAND_SIZES];
    int changed;  /* since its row was written */
    uint32_t row; /* from 1; 0: none was */
};

static void stamps_follow(const struct r2_report *r, struct r2_transfer *t, int size)
{
    const struct r2_band *b = &t->band[size];

    if (t->stamp[size].at != b->last.at) {
        t->changed = 1;
        t->stamp[size].at = b->last.at;
        t->stamp[size].at_real = r2_report_real(r, b->last.at);
    }
    if (t->stamp[size].since != b->since) {
        t->changed = 1;
        t->stamp[size].since = b->since;
        t->stamp[size].since_real = r2_report_real(r, b->since);
    }
}

void r2_transfer_take(struct r2_comm *c)
{
    struct r2_latency_one one[R2_LATENCY_RECENT];
    struct r2_peer *peer = c->peer;
    int n = c->timed.sample && peer ? r2_latency_take(c, one) : 0;
    uint64_t now;

    if (n > 0 && peer->transfer == NULL) {
        peer->transfer = calloc(1, sizeof(*peer->transfer)); /* NULL: the next ones */
    }
    if (n == 0 || peer->transfer == NULL) {
        return;
    }
    now = r2_now(c->inst);
    peer->transfer->changed = 1;
    for (int i = 0; i < n; i++) {
        r2_band_note(&peer->transfer->band[one[i].size], one[i].ns, now);
    }
}

/* --- announcements --- */

static const char *ms(uint64_t ns, char *out, size_t room)
{
    snprintf(out, room, "%.*f ms", ns < 10000000 ? 2 : 1, (double)ns / 1e6);
    return out;
}

static int64_t us_of(uint64_t ns)
{
    return ns / 1000 > INT64_MAX ? INT64_MAX : (int64_t)(ns / 1000);
}

static void announce(struct r2_report *r, const struct r2_peer *peer, int size,
                     enum r2_band_change change, uint64_t now)
{
    static const char *const what[R2_BAND_CHANGES] = {
        [R2_BAND_SLOWER] = "longer than usual",
        [R2_BAND_FASTER] = "shorter than usual",
        [R2_BAND_BACK] = "as long as usual again",
        [R2_BAND_USUAL] = "as long for ten minutes, which is the usual now"};
    const struct r2_band *b = &peer->transfer->band[size];
    struct r2_event_transfer t = {.size = r2_band_size_name((unsigned)size),
                                  .p50_us = us_of(b->last.p50),
                                  .p99_us = us_of(b->last.p99),
                                  .low_us = -1,
                                  .high_us = -1};
    struct r2_event e = r2_event_empty;
    char text[200], p50[32], p99[32];
    uint64_t low, high;

    r2_band_bounds(b, &low, &high);
    if (high) {
        t.low_us = us_of(low);
        t.high_us = us_of(high);
    }
    snprintf(text, sizeof(text), "transfers to %.39s, size %s, take %s: p50 %s, p99 %s",
             peer->host[0] ? peer->host : "a peer", t.size, what[change],
             ms(b->last.p50, p50, sizeof(p50)), ms(b->last.p99, p99, sizeof(p99)));
    e.kind = R2_EVENT_TRANSFER;
    e.severity = R2_EVENT_INFO;
    e.peer.host = peer->host;
    e.how = r2_band_change_name(change);
    e.text = text;
    e.transfer = &t;
    r2_report_emit(r, &e, now);
}

static void bands_turn(struct r2_report *r, struct r2_peer *peer, uint64_t now)
{
    for (int s = 0; s < R2_BAND_SIZES; s++) {
        unsigned before = peer->transfer->band[s].state;
        enum r2_band_change change;

        if (r2_elapsed(now, r->transfer.since) >= R2_TRANSFER_SPAN) {
            r->transfer.since = now;
            r->transfer.said = 0;
        }
        change = r2_band_turn(&peer->transfer->band[s], now, r->transfer.said >= R2_TRANSFER_MOST);
        if (before != peer->transfer->band[s].state) {
            R2_TRACE("transfers to %.39s, size %s: %s -> %s", peer->host,
                     r2_band_size_name((unsigned)s), r2_band_state_name(before),
                     r2_band_state_name(peer->transfer->band[s].state));
        }
        stamps_follow(r, peer->transfer, s);
        if (change != R2_BAND_NONE) {
            peer->transfer->changed = 1;
            r->transfer.said++;
            announce(r, peer, s, change, now);
        }
    }
}

/* --- rows --- */

static void row_fill(const struct r2_report *r, const struct r2_peer *peer,
                     struct r2_stat_peer *out)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->host, sizeof(out->host), "%.39s", peer->host[0] ? peer->host : "?");
    snprintf(out->address, sizeof(out->address), "%.63s", r->inst->oob->ops->peer_str(peer->oob));
    for (int s = 0; s < R2_BAND_SIZES; s++) {
        const struct r2_band *b = &peer->transfer->band[s];
        struct r2_stat_transfer *t = &out->transfer[s];

        t->times = b->times;
        t->p50_ns = b->last.p50;
        t->p99_ns = b->last.p99;
        t->at = peer->transfer->stamp[s].at_real;
        t->n = b->last.n;
        t->state = b->state;
        t->since = b->state != R2_BAND_LEARNS ? peer->transfer->stamp[s].since_real : 0;
        r2_band_bounds(b, &t->low_ns, &t->high_ns);
    }
}

void r2_transfer_write(struct r2_report *r, struct r2_stat_who *who)
{
    uint64_t now = r2_now(r->inst);
    struct r2_stat_peer row;

    for (struct r2_peer *p = r->inst->index.peers; p; p = p->next) {
        if (p->transfer == NULL) {
            continue;
        }
        bands_turn(r, p, now);
        who->peers_all++;
        if (who->peers == R2_STAT_PEERS) {
            p->transfer->row = 0; /* another one has it */
            continue;
        }
        if (p->transfer->changed || p->transfer->row != who->peers + 1) {
            p->transfer->changed = 0;
            p->transfer->row = who->peers + 1;
            row_fill(r, p, &row);
            r2_stat_put_peer(r->stat, who->peers, &row);
        }
        who->peers++;
    }
}
