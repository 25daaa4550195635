/*
 * What an instance has: its connections and the peers at their other ends; and how a connection or
 * the service thread gets its turn. Nothing blocks but for inst->lock, which is held for a few
 * instructions.
 */
#ifndef R2_REGISTRY_H
#define R2_REGISTRY_H

#include "r2_inst.h"

/* Any thread. The service thread takes a turn. */
void r2_inst_wake(void *inst);
/* Any thread. The service thread steps @comm in its next turn. */
void r2_comm_kick(void *comm);
/* Service thread. Those that are kicked by now are this turn's; who is kicked later is the next
 * one's.
 */
void r2_comms_kicked(struct r2_inst *inst);
/* Service thread. One of this turn, no longer kicked; NULL: no more. */
struct r2_comm *r2_comm_kicked(struct r2_inst *inst);

/*
 * Any thread that holds the gate of @comm, whose conn.awake was 0: it is awake from the service
 * thread's next r2_comms_awake() on. No lock; no system call, unless the service thread sleeps,
 * which the first one that wakes ends.
 */
void r2_comm_wake(void *comm);
/* Service thread, gate held. @c rests again. expecting: the same, of one that has receives open: it
 * is found by r2_comms_expecting(). */
void r2_comm_rest(struct r2_comm *c);
void r2_comm_rest_expecting(struct r2_comm *c);
/* Service thread. The first of those awake, by list.awake_next; the others have nothing under way.
 */
struct r2_comm *r2_comms_awake(struct r2_inst *inst);
/*
 * Service thread. sleep: none is awake, and the first one that wakes from here on gives the thread
 * a turn; false: one is. turn: it is in one.
 */
bool r2_comms_sleep(struct r2_inst *inst);
void r2_comms_turn(struct r2_inst *inst);
/*
 * Service thread. The first of those that are awake, or were at some time since the ports were last
 * checked, by list.stirred_next: of no other one have the counters moved. looked: the turn is over;
 * if it has checked the ports (@look), those that rest now are on the list no more.
 */
struct r2_comm *r2_comms_stirred(struct r2_inst *inst);
void r2_comms_looked(struct r2_inst *inst, int look);
/* Service thread. The first of those that rest with receives open, likewise; what arrives wakes
 * them, since it is acknowledged. */
struct r2_comm *r2_comms_expecting(struct r2_inst *inst);

/* Any thread. Numbers @c and enters it in the tables; @c->inst is set. */
void r2_comm_enter(struct r2_comm *c);
/* Service thread. Takes @c out of them, and of its peer's. */
void r2_comm_unlink(struct r2_comm *c);
/* Service thread. The process at the other end of @c is @peer, of which @c holds a reference; once.
 */
void r2_comm_join(struct r2_comm *c, struct r2_peer *peer);
/* Service thread. The receiving end of what @peer numbers @src; NULL: there is none. */
struct r2_comm *r2_comm_from(struct r2_inst *inst, const struct r2_peer *peer, uint32_t src);
/* Any thread. NULL: there is none of that number. Only the service thread, which alone frees
 * connections, may use what it returns. */
struct r2_comm *r2_comm_find(struct r2_inst *inst, uint32_t id);
/* Any thread. Head of the list of all connections: new ones come in at the head and only the
 * service thread takes one out, so it may walk on from here without the lock. */
struct r2_comm *r2_comm_first(struct r2_inst *inst);
/* Any thread. How many there are. */
unsigned r2_comm_count(struct r2_inst *inst);
/* Any thread. Numbers @l and enters it; takes it out again. */
void r2_listen_enter(struct r2_listen *l);
void r2_listen_unlink(struct r2_listen *l);
/* Must hold inst->lock. NULL: there is none of that number. */
struct r2_listen *r2_listen_find(const struct r2_inst *inst, uint32_t id);
/* Service thread. 1: no thread of NCCL uses @c, nor will any from now on: it can be freed. 0: not
 * now. */
int r2_comm_leaves(struct r2_comm *c);

/* Service thread. @peer is found by r2_peer_find() from here on; until it is left out again. */
void r2_peer_enter(struct r2_inst *inst, struct r2_peer *peer);
void r2_peer_unlink(struct r2_inst *inst, struct r2_peer *peer);
/* Service thread. NULL: no connection to that process. */
struct r2_peer *r2_peer_find(struct r2_inst *inst, struct r2_oob_peer *oob);
/* Service thread. What the process calls its NIC @nic, by what it said when a connection was set
 * up; NULL: no connection to it has a path over that one. Lives as long as the connection. */
const char *r2_peer_nic_name(const struct r2_peer *peer, unsigned nic);
/* Service thread, no gate held. Whether its end is the end of some connection: not one that had
 * closed in order. */
bool r2_peer_is_missed(const struct r2_peer *peer);
/* Service thread. Adds a record to the message that gathers for @peer; what is full is handed to
 * inst->above.post first (P30). */
void r2_peer_emit(struct r2_inst *inst, struct r2_peer *peer, enum fo_type type,
                  const union fo_body *body);
/* Service thread. Every peer is to be notified that our NIC is down (P29). */
void r2_peers_nic_down(struct r2_inst *inst, int nic);

#endif
