/*
 * What a process knows of the health of the job's NICs, and which neighbour has not been notified
 * yet (docs/diagnosis.md). Pure: no clock, no malloc; the owner's thread only.
 *
 * (version, origin) orders all reports, of whatever subject, and names each: an origin makes no two
 * reports of one version (probe_gossip_next_version). Of two reports about a subject the later
 * one wins, so they may come late, repeated or out of order. A process accepts each report at most
 * once, and never an older one about a subject after a newer one, also where a full table had to
 * drop reports. So relaying comes to an end in any graph.
 *
 * Neighbours are numbered by the owner, 0 to PROBE_GOSSIP_NEIGHBOURS - 1; those beyond are not
 * notified (the owner logs it once). A number is given again only after probe_gossip_leave().
 */
#ifndef PROBE_GOSSIP_H
#define PROBE_GOSSIP_H

#include <stdint.h>

#define PROBE_GOSSIP_MAX        256
#define PROBE_GOSSIP_NEIGHBOURS 256
#define PROBE_GOSSIP_HOST       40
#define PROBE_GOSSIP_NIC        24
#define PROBE_GOSSIP_PROCESS    255 /* in place of a port: the subject is a process */

#define PROBE_GOSSIP_VERSION_MAX ((1ull << 48) - 1)
/* Reject versions further ahead than this: one bad peer could exhaust the version space of the
 * whole job. */
#define PROBE_GOSSIP_AHEAD_MAX (1ull << 32)

/* What the report is about: a NIC's port {guid, port, 0, 0}; the path between two {a, pa, b, pb},
 * the smaller (guid, port) first; a process {uuid[0], 255, uuid[1], 255}. */
struct probe_subject {
    uint64_t a, b;
    uint8_t pa, pb;
};

struct probe_report {
    struct probe_subject subject;
    uint64_t version;  /* 1 to PROBE_GOSSIP_VERSION_MAX */
    uint64_t origin;   /* of the process that made it: breaks ties */
    uint64_t since_ms; /* CLOCK_REALTIME of the fault, by the origin's clock; for people */
    uint8_t blame; /* enum probe_blame; NONE: good again. Nobody's end in particular: of local and
                      remote the owner uses one */
    uint8_t confidence;                                  /* percent */
    uint8_t gid[16];                                     /* of the NIC blamed; zero: not known */
    char host[PROBE_GOSSIP_HOST], nic[PROBE_GOSSIP_NIC]; /* zeros behind the end of the text */
};

struct probe_gossip_entry {
    struct probe_report report;
    /* Bit per neighbour: is to be notified. Clear: it is not there, or it has or had this report or
     * a later one, or has confirmed it. */
    uint64_t unsent[PROBE_GOSSIP_NEIGHBOURS / 64];
};

struct probe_gossip {
    struct probe_gossip_entry entry[PROBE_GOSSIP_MAX]; /* the first @count are held */
    uint64_t present[PROBE_GOSSIP_NEIGHBOURS / 64];    /* neighbours */
    uint64_t clock;                                    /* largest version met */
    uint64_t floor_version, floor_origin; /* the latest report that was dropped; 0: none was */
    unsigned count;
    uint64_t known, stale, refused,
        evicted; /* counters: repeated, older, not taken for want of room, dropped for it */
};

/* An empty table without neighbours; all zero is the same. */
void probe_gossip_init(struct probe_gossip *n);

/* Whether every field of @w is in range, texts terminated and printable ASCII, the subject of one
 * of the three forms. To be checked of every report that comes from another process before it is
 * put.
 */
int probe_report_is_valid(const struct probe_report *w);
/* Whether @s has one of the three forms and is not all zero. */
int probe_subject_valid(const struct probe_subject *s);

/*
 * Accepts @w, which neighbour @from has sent (-1: found out here, reported on this host, or from a
 * process that has no number). 1: it is new, and every other neighbour is to be notified; 0: known,
 * older than what is known, or not taken. In every case it may be confirmed to its sender, which is
 * sent our report when @w is older and it has not confirmed ours. 1 for a report of another origin
 * may contradict what this process itself found out: it then publishes its own again, as a new
 * version.
 *
 * A full table drops the oldest report that is good again, else the oldest. Not taken is a report
 * that would itself be dropped, one about a subject that is not held and no later than any report
 * that was dropped, and one that is PROBE_GOSSIP_AHEAD_MAX ahead.
 */
int probe_gossip_put(struct probe_gossip *n, const struct probe_report *w, int from);
/* Gives @w the version of a new report: one more than any that was met, so that it wins over all of
 * them, dropped ones included. To be put at once: until then the next one would get the same. */
void probe_gossip_next_version(const struct probe_gossip *n, struct probe_report *w);
/* NULL: nothing is known. Valid until the next put, as all reports returned here. */
const struct probe_report *probe_gossip_find(const struct probe_gossip *n,
                                             const struct probe_subject *s);
/* The i-th report, for walks; NULL when there are no more than @i. */
const struct probe_report *probe_gossip_at(const struct probe_gossip *n, int i);

/*
 * A neighbour has come: it is to be sent every report, those that are good again, too: it may hold
 * an older one of them, and its own reports must be later than all of these. It has gone: nothing
 * is to be sent. A report of it that comes before or after may be put with from = -1 and confirmed.
 */
void probe_gossip_join(struct probe_gossip *n, int neighbour);
void probe_gossip_leave(struct probe_gossip *n, int neighbour);

/* The next report at or behind *i that @neighbour has not confirmed, NULL for none; *i goes behind
 * it. Begin with *i = 0. */
const struct probe_report *probe_gossip_unsent(const struct probe_gossip *n, int neighbour, int *i);
/* @neighbour has confirmed this version of the subject, or a later one. */
void probe_gossip_sent(struct probe_gossip *n, int neighbour, const struct probe_subject *s,
                       uint64_t version, uint64_t origin);

#endif
