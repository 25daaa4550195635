/*
 * What a process knows of the health of the job's NICs, and which neighbour has not been told yet (docs/design-probe.md). Pure: no clock, no
 * malloc; the owner's thread only.
 *
 * Neighbours are numbered by the owner, 0 to PROBE_NEWS_NEIGHBOURS - 1; those beyond are not told (the owner says so once).
 */
#ifndef PROBE_NEWS_H
#define PROBE_NEWS_H

#include <stdint.h>

#define PROBE_NEWS_MAX        256
#define PROBE_NEWS_NEIGHBOURS 256
#define PROBE_NEWS_HOST       40
#define PROBE_NEWS_NIC        24

/* What the word is about: a NIC's port {guid, port, 0, 0}; the path between two {a, pa, b, pb}, the smaller (guid, port) first; a process
 * {uuid[0], 255, uuid[1], 255}. */
struct probe_subject {
    uint64_t a, b;
    uint8_t pa, pb;
};

struct probe_word {
    struct probe_subject subject;
    uint64_t version;                 /* grows with every change of what is said of the subject */
    uint64_t origin;                  /* of the process that said it: breaks ties */
    uint64_t since_ms;                /* CLOCK_REALTIME of the fault, by the origin's clock; for people */
    uint8_t blame;                    /* enum probe_blame; NONE: good again */
    uint8_t confidence;
    uint8_t gid[16];                  /* of the NIC blamed; zero: not known */
    char host[PROBE_NEWS_HOST], nic[PROBE_NEWS_NIC];
};

struct probe_news_entry {
    struct probe_word word;
    uint64_t untold[PROBE_NEWS_NEIGHBOURS / 64]; /* bit per neighbour */
    uint64_t used;                               /* order of the last change */
    uint8_t held;
};

struct probe_news {
    struct probe_news_entry entry[PROBE_NEWS_MAX];
    uint64_t present[PROBE_NEWS_NEIGHBOURS / 64]; /* neighbours */
    uint64_t turn;
    uint64_t known, stale, evicted;               /* counters: repeated, older, dropped for room */
};

void probe_news_init(struct probe_news *n);

/*
 * Takes up @w, which neighbour @from said (-1: found out here, or heard on this host). 1: it is new, and every other neighbour is to be told; 0:
 * known, or older than what is known. @from is taken to know it in either case when the versions are equal; told ours when its is older. A full table drops the oldest word that is good again, else
 * the oldest. Whether @w makes sense (names terminated, blame in range) is the caller's to check.
 */
int probe_news_put(struct probe_news *n, const struct probe_word *w, int from);
/* A word of our own about @subject: its version is one more than what is known. Returns it through @w, ready for put. */
void probe_news_next_version(const struct probe_news *n, struct probe_word *w);
/* NULL: nothing is known. */
const struct probe_word *probe_news_find(const struct probe_news *n, const struct probe_subject *s);
/* The i-th entry that is held, for walks; NULL when @i is beyond or free. 0 <= i < PROBE_NEWS_MAX. */
const struct probe_word *probe_news_at(const struct probe_news *n, int i);

/* A neighbour has come: it is to be told every word that is bad now. It has gone. */
void probe_news_join(struct probe_news *n, int neighbour);
void probe_news_leave(struct probe_news *n, int neighbour);

/* The next word at or behind *i that @neighbour has not confirmed, NULL for none; *i goes behind it. Begin with *i = 0. */
const struct probe_word *probe_news_untold(const struct probe_news *n, int neighbour, int *i);
/* @neighbour has confirmed this version of the subject, or a later one. */
void probe_news_told(struct probe_news *n, int neighbour, const struct probe_subject *s, uint64_t version, uint64_t origin);

#endif
