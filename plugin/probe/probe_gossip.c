#include "probe_gossip.h"

#include <stddef.h>
#include <string.h>

#include "probe_verdict.h"

/* --- reports --- */

static int port_order(uint64_t a, uint8_t pa, uint64_t b, uint8_t pb)
{
    return a != b ? (a < b ? -1 : 1) : (int)pa - (int)pb;
}

int probe_subject_valid(const struct probe_subject *s)
{
    if (s->a == 0 && s->b == 0 && s->pa == 0 && s->pb == 0) {
        return 0;
    }
    if (s->pa == PROBE_GOSSIP_PROCESS || s->pb == PROBE_GOSSIP_PROCESS) {
        return s->pa == s->pb;
    }
    return (s->b == 0 && s->pb == 0) || port_order(s->a, s->pa, s->b, s->pb) < 0;
}

/* Terminated, printable, zeros behind the end: two copies of a report are alike in every byte. */
static int text_valid(const char *text, size_t room)
{
    size_t i = 0;

    while (i < room && text[i] >= 0x20 && text[i] <= 0x7e) {
        i++;
    }
    for (size_t k = i; k < room; k++) {
        if (text[k] != 0) {
            return 0;
        }
    }
    return i < room;
}

int probe_report_is_valid(const struct probe_report *w)
{
    return probe_subject_valid(&w->subject) && w->version > 0 &&
           w->version <= PROBE_GOSSIP_VERSION_MAX && w->blame < PROBE_BLAMES &&
           w->confidence <= 100 && text_valid(w->host, sizeof(w->host)) &&
           text_valid(w->nic, sizeof(w->nic));
}

/* Of two reports, by what names them: <0 the first is older, 0 they are the same, >0 later. */
static int order(uint64_t version, uint64_t origin, uint64_t version2, uint64_t origin2)
{
    return version != version2 ? (version < version2 ? -1 : 1)
           : origin != origin2 ? (origin < origin2 ? -1 : 1)
                               : 0;
}

static int report_order(const struct probe_report *a, const struct probe_report *b)
{
    return order(a->version, a->origin, b->version, b->origin);
}

/* --- the table --- */

static struct probe_gossip_entry *entry_find(const struct probe_gossip *n,
                                             const struct probe_subject *s)
{
    for (unsigned i = 0; i < n->count; i++) {
        const struct probe_subject *e = &n->entry[i].report.subject;

        if (e->a == s->a && e->b == s->b && e->pa == s->pa && e->pb == s->pb) {
            return (struct probe_gossip_entry *)&n->entry[i];
        }
    }
    return NULL;
}

/* What goes first: good again before bad, then the older one. */
static int goes_before(const struct probe_report *a, const struct probe_report *b)
{
    int good_a = a->blame == PROBE_BLAME_NONE, good_b = b->blame == PROBE_BLAME_NONE;

    return good_a != good_b ? good_a : report_order(a, b) < 0;
}

/*
 * A place for a report about a subject that is not held; NULL: it is not taken. What was dropped is
 * not remembered, so a report no later than the latest of these may be one of them, or be older
 * than one about the same subject: taken up, it could go round for ever, or bring back what is
 * over.
 */
static struct probe_gossip_entry *room_make(struct probe_gossip *n, const struct probe_report *w)
{
    struct probe_gossip_entry *first = &n->entry[0];

    if (order(w->version, w->origin, n->floor_version, n->floor_origin) <= 0) {
        return NULL;
    }
    if (n->count < PROBE_GOSSIP_MAX) {
        return &n->entry[n->count++];
    }
    for (unsigned i = 1; i < n->count; i++) {
        if (goes_before(&n->entry[i].report, &first->report)) {
            first = &n->entry[i];
        }
    }
    if (goes_before(w, &first->report)) {
        return NULL;
    }
    if (order(first->report.version, first->report.origin, n->floor_version, n->floor_origin) > 0) {
        n->floor_version = first->report.version;
        n->floor_origin = first->report.origin;
    }
    n->evicted++;
    return first;
}

static int number_valid(int neighbour)
{
    return neighbour >= 0 && neighbour < PROBE_GOSSIP_NEIGHBOURS;
}

static void bit_clear(uint64_t *mask, int bit)
{
    mask[bit / 64] &= ~(1ull << (bit % 64));
}

static void bit_set(uint64_t *mask, int bit)
{
    mask[bit / 64] |= 1ull << (bit % 64);
}

static int bit_get(const uint64_t *mask, int bit)
{
    return mask[bit / 64] >> (bit % 64) & 1;
}

void probe_gossip_init(struct probe_gossip *n)
{
    memset(n, 0, sizeof(*n));
}

int probe_gossip_put(struct probe_gossip *n, const struct probe_report *w, int from)
{
    struct probe_gossip_entry *e = entry_find(n, &w->subject);
    int later = e ? report_order(w, &e->report) : 1;

    if (w->version > n->clock && w->version - n->clock > PROBE_GOSSIP_AHEAD_MAX) {
        n->refused++;
        return 0;
    }
    n->clock = w->version > n->clock ? w->version : n->clock;
    if (later < 0) {
        n->stale++; /* who said it is sent ours as long as it has not confirmed it */
        return 0;
    }
    if (later == 0) {
        n->known++;
    } else {
        e = e ? e : room_make(n, w);
        if (e == NULL) {
            n->refused++;
            return 0;
        }
        e->report = *w;
        memcpy(e->unsent, n->present, sizeof(e->unsent));
    }
    if (number_valid(from)) {
        bit_clear(e->unsent, from);
    }
    return later > 0;
}

void probe_gossip_next_version(const struct probe_gossip *n, struct probe_report *w)
{
    w->version = n->clock < PROBE_GOSSIP_VERSION_MAX ? n->clock + 1 : PROBE_GOSSIP_VERSION_MAX;
}

const struct probe_report *probe_gossip_find(const struct probe_gossip *n,
                                             const struct probe_subject *s)
{
    const struct probe_gossip_entry *e = entry_find(n, s);

    return e ? &e->report : NULL;
}

const struct probe_report *probe_gossip_at(const struct probe_gossip *n, int i)
{
    return i >= 0 && (unsigned)i < n->count ? &n->entry[i].report : NULL;
}

/* --- neighbours --- */

void probe_gossip_join(struct probe_gossip *n, int neighbour)
{
    if (!number_valid(neighbour)) {
        return;
    }
    bit_set(n->present, neighbour);
    for (unsigned i = 0; i < n->count; i++) {
        bit_set(n->entry[i].unsent, neighbour);
    }
}

void probe_gossip_leave(struct probe_gossip *n, int neighbour)
{
    if (!number_valid(neighbour)) {
        return;
    }
    bit_clear(n->present, neighbour);
    for (unsigned i = 0; i < n->count; i++) {
        bit_clear(n->entry[i].unsent, neighbour);
    }
}

const struct probe_report *probe_gossip_unsent(const struct probe_gossip *n, int neighbour, int *i)
{
    if (!number_valid(neighbour)) {
        return NULL;
    }
    while ((unsigned)*i < n->count) {
        const struct probe_gossip_entry *e = &n->entry[(*i)++];

        if (bit_get(e->unsent, neighbour)) {
            return &e->report;
        }
    }
    return NULL;
}

void probe_gossip_sent(struct probe_gossip *n, int neighbour, const struct probe_subject *s,
                       uint64_t version, uint64_t origin)
{
    struct probe_gossip_entry *e = entry_find(n, s);

    if (e && number_valid(neighbour) &&
        order(version, origin, e->report.version, e->report.origin) >= 0) {
        bit_clear(e->unsent, neighbour);
    }
}
