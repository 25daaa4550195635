/*
 * What moves over our NICs, of this process, of this host, and at the peer's end: facts that tell
 * congestion made by other processes from a path that is dead (docs/health.md). Service
 * thread; nothing blocks.
 */
#ifndef R2_LOAD_H
#define R2_LOAD_H

#include <stdbool.h>

#include "core/r2_inst.h"

struct r2_pair;

/* What this process moves over a NIC; r2_load.c */
struct r2_nic_load {
    uint64_t moved, queued, front;          /* bytes; the last two as of the last tick */
    uint64_t moved_at;                      /* ns; 0: never */
    struct r2_host_registry_load published; /* in the host registry */
    struct probe_peak peak;                 /* of all processes of the host */
    uint64_t peak_moved;                    /* @moved when it was checked last */
};

/* What one connection has moved. */
struct r2_load_conn {
    uint64_t moved;                  /* bytes that its peer has acknowledged, or that came in */
    uint64_t seen[IB_MAX_PATHS];     /* of each path, counted so far */
    uint64_t moved_at[IB_MAX_PATHS]; /* when more of them were found last (watch's clock); 0 */
};

/* Allocates one for each NIC. -1: out of memory. Freed with the instance. */
int r2_load_open(struct r2_inst *inst);

/* Each tick of the watch: what the connections have moved since the last one is counted, and
 * written into the host registry. */
void r2_load_step(struct r2_inst *inst, uint64_t now);

/* Bytes that all processes of this host have moved over our NIC; only differences mean something.
 */
uint64_t r2_load_moved(struct r2_inst *inst, int nic, uint64_t now);

/* A probe that counts has been posted over @pair: nothing is known of either end. */
void r2_load_begin(struct r2_pair *pair);
/* ... and is posted again: our NIC is checked, the peer's process is requested to report its own.
 */
void r2_load_tick(struct r2_pair *pair, uint64_t clock);
void r2_load_on(struct r2_inst *inst, struct r2_peer *peer, const struct fo_load *m);
/* Asks @peer's process what its host moves over its NIC @peer_nic; the answer is on_load's. */
void r2_load_request(struct r2_inst *inst, struct r2_peer *peer, uint8_t nic, uint8_t peer_nic);

/* What all processes of both hosts move over the two NICs of a pair from some time on: over ours by
 * our clock, over theirs by theirs. */
struct r2_load_span {
    uint64_t at, moved;     /* here: ns, bytes, at the beginning */
    uint64_t from_at, from; /* there: the first answer; at 0: none */
    uint64_t last_at, last; /* ... and the newest */
    uint64_t best; /* bytes/s, the most that NIC has done, as the newest says; 0: unknown */
};
struct r2_load_rate {
    uint64_t bytes, ns;
};
void r2_load_span_begin(struct r2_load_span *s, struct r2_inst *inst, int nic, uint64_t now);
/* An answer; one that is no newer than another counts for nothing. */
void r2_load_span_take(struct r2_load_span *s, const struct probe_load *l);
/* Over our NIC @nic until @now, and over theirs until the newest answer. False: one of them is not
 * known over @least ns. */
bool r2_load_span_get(const struct r2_load_span *s, struct r2_inst *inst, int nic, uint64_t now,
                      uint64_t least, struct r2_load_rate *here, struct r2_load_rate *there);

/* From when on the silence of @pair is a fault (clock of the watch), by what is known now. */
uint64_t r2_load_deadline(const struct r2_pair *pair, uint64_t clock);
/* When a send of this process between the two NICs of @pair completed last (clock of the watch); 0:
 * none has. */
uint64_t r2_load_done_at(const struct r2_pair *pair);
/* Whether anything moved over our NIC @nic within @ns, between this process and a host that is
 * neither this one nor @but, over a connection that is awake. */
bool r2_load_has_moved(struct r2_inst *inst, int nic, const char *but, uint64_t ns);
/* What was known of both ends, for the log. */
void r2_load_print(const struct r2_pair *pair, uint64_t clock, char *out, size_t len);

#endif
