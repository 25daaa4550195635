/*
 * What the processes of a job announce to each other about its NICs (docs/diagnosis.md, "Gossip"):
 * the shell of probe/probe_gossip. Service thread; nothing blocks.
 */
#ifndef R2_GOSSIP_H
#define R2_GOSSIP_H

#include <stdbool.h>

#include "probe/probe_gossip.h"

struct r2_subscriber;
struct r2_inst;
struct r2_comm;
struct r2_peer;
struct r2_pair;
struct fo_report_ok;

/* At most so many reports go to one peer at a time; the others once these are confirmed. */
#define R2_GOSSIP_AT_ONCE 16

/* Allocates the table. -1: out of memory. */
int r2_gossip_open(struct r2_inst *inst);
void r2_gossip_close(struct r2_inst *inst);

/* join: there is a connection to the peer process, on @host: it is notified, too. leave: the peer
 * goes. */
void r2_gossip_join(struct r2_inst *inst, struct r2_peer *peer, const char *host);
void r2_gossip_leave(struct r2_inst *inst, struct r2_peer *peer);

/*
 * This process found out about @w->subject; version and origin are filled in here. 1: that is new
 * to the job as far as is known here; 0: it is known already.
 */
int r2_gossip_publish(struct r2_inst *inst, struct probe_report *w);
/* Nothing is wrong with it any more, if anything was known to be. 1: something was. */
int r2_gossip_clear(struct r2_inst *inst, const struct probe_subject *s);

/* From a peer, unpacked. */
void r2_gossip_on_report(struct r2_inst *inst, struct r2_peer *peer, const struct probe_report *w);
void r2_gossip_on_ok(struct r2_inst *inst, struct r2_peer *peer, const struct fo_report_ok *m);
/* From another process of this host, checked. */
void r2_gossip_heard(struct r2_inst *inst, const struct probe_report *w, const char *who);

/* What is unanswered is repeated; returns the next deadline (real time, ns). */
uint64_t r2_gossip_send(struct r2_inst *inst, struct r2_peer *peer, uint64_t now);

/*
 * Bit per path of @c: by reports of others one of its NICs, or the way between them, is a bad
 * choice, and the pair has not answered here since. New work goes elsewhere if it can.
 */
uint32_t r2_gossip_avoid(const struct r2_comm *c);
/* Subscribes to on_pair: for a pair that has answered here, reports of others do not count. */
extern const struct r2_subscriber r2_gossip_subscriber;

/* Whether something about @pair is known to be bad. */
int r2_gossip_blamed(const struct r2_pair *pair);
/* At whose end what is to blame lies. */
enum r2_gossip_place {
    R2_GOSSIP_HERE,
    R2_GOSSIP_THERE, /* the peer's NIC, its process or host */
    R2_GOSSIP_BETWEEN
};
/*
 * What is known to be bad and explains that @pair carries nothing; of several the first place of
 * the enum. NULL: nothing is. Valid until the next report.
 */
const struct probe_report *r2_gossip_reason(const struct r2_pair *pair,
                                            enum r2_gossip_place *place);
/* Whether that port, or its NIC, is. */
bool r2_gossip_port_is_blamed(const struct r2_inst *inst, uint64_t guid, uint8_t port);
/* Whether @peer's process, or its host, is. */
int r2_gossip_peer_blamed(const struct r2_inst *inst, const struct r2_peer *peer);
/* Whether @s concerns @pair: one of its NICs, the way between them, or the peer's
 * process. */
int r2_gossip_about(const struct probe_subject *s, const struct r2_pair *pair);

/* Subjects. */
struct probe_subject r2_subject_nic(const struct r2_inst *inst, int nic);
struct probe_subject r2_subject_remote(const struct r2_pair *pair);
struct probe_subject r2_subject_path(const struct r2_inst *inst, const struct r2_pair *pair);
struct probe_subject r2_subject_process(const struct r2_inst *inst, const struct r2_peer *peer);

#endif
