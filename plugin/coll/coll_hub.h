/*
 * The hubs of a process: one for each communicator whose ncclUniqueId it has made (place_meet.h),
 * with a job each (place_job.h) once a rank has spoken. What ranks send comes in by notes over the
 * out-of-band channel, and goes out to them; a rank of this process is no exception.
 *
 * Threads: coll_hub_key() any; all others the control thread. Nothing blocks.
 */
#ifndef COLL_HUB_H
#define COLL_HUB_H

#include "oob/r2_oob.h"
#include "place/place_job.h"

struct coll_hubs;

struct coll_hub_conf {
    struct place_job_conf job;
    struct r2_oob *oob;
    /* ncclGetUniqueId: 0, and @id is a new one. */
    int (*id_make)(uint8_t id[PLACE_ID_BYTES]);
};

/* NULL: out of memory. The caller frees it by coll_hubs_free(), before @conf->oob ends. */
struct coll_hubs *coll_hubs_new(const struct coll_hub_conf *conf);
void coll_hubs_free(struct coll_hubs *hubs);

/* A key for an id that is made now; 0: out of memory. Ids that no rank ever speaks of cost 80 bytes
 * each. */
uint64_t coll_hub_key(struct coll_hubs *hubs);

/* @note has come from @peer, of a kind that ranks send. NULL, or what is wrong with it. */
const char *coll_hub_take(struct coll_hubs *hubs, struct r2_oob_peer *peer,
                          const struct place_note *note, uint64_t now);

/* The channel to @peer is lost; @refused: and its process seems to be gone. */
void coll_hub_down(struct coll_hubs *hubs, const struct r2_oob_peer *peer, bool refused,
                   uint64_t now);

/* Does what is due, sends what is to be sent; returns when to call it again, UINT64_MAX: when
 * something has come. */
uint64_t coll_hub_turn(struct coll_hubs *hubs, uint64_t now);

/* Of the first hub that has a job, for the log and tests; NULL: there is none. */
const struct place_job *coll_hub_job(const struct coll_hubs *hubs, uint64_t key);

#endif
