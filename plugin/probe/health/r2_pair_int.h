/* Between the files of r2_pair. Service thread; nothing blocks. */
#ifndef R2_PAIR_INT_H
#define R2_PAIR_INT_H

#include "r2_pair.h"

/* Not answering, or not to be made. */
static inline int r2_pair_failed(const struct r2_pair *pair)
{
    return pair->build.state == R2_PAIR_DEAD || pair->build.state == R2_PAIR_BROKEN;
}

/* The only writer of the state. Refused, with a warning, where the table has no such step. */
void r2_pair_move(struct r2_pair *pair, enum r2_pair_state to);
/* The only writer of the probe's state, likewise; to the state that it has: nothing happens. */
void r2_pair_probe_move(struct r2_pair *pair, enum r2_probe_state to);
/* ... and of its probation's. */
void r2_probation_move(struct r2_pair *pair, enum r2_probation_state to);
/* The pair did not answer: RC is kept from repeating what was posted. */
void r2_pair_give_up(struct r2_pair *pair);
/* Connects the queue pair, which stands in INIT, to @pair->far.addr. */
void r2_pair_join(struct r2_pair *pair);
/* Made anew, now or when its job is back. A probe that is out is posted again on the new one. */
void r2_pair_rebuild(struct r2_pair *pair);
/* The same, with back-off until one has answered: an end that can build none must not keep the
 * other one building. */
void r2_pair_again(struct r2_pair *pair);
/* Its queue pair, which waits for the peer or is connected, is stopped; no evidence of anything. */
void r2_pair_leave(struct r2_pair *pair);
/* Posts a probe. @limit 0: nobody waits for the answer. */
void r2_pair_begin(struct r2_pair *pair, uint64_t clock, uint64_t limit);

#endif
