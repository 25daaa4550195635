/* What a decided case means, and to whom it goes: the job (gossip), the operator (one WARN line),
 * the history. Service thread; nothing blocks. */
#ifndef R2_VERDICT_H
#define R2_VERDICT_H

#include <stdint.h>

#include "probe/probe_gossip.h"

struct r2_inst;
struct r2_case;
struct r2_peer;
struct r2_comm;

/* Allocates what is remembered of verdicts. -1: out of memory. Freed with the instance. */
int r2_verdict_open(struct r2_inst *inst);

/* Decides by the facts of @k and reports it, unless the job knows it already. */
void r2_verdict_announce(struct r2_inst *inst, const struct r2_case *k);
/* No verdict revises an earlier one about @peer; about that NIC pair of it. */
void r2_verdict_forget(struct r2_inst *inst, const struct r2_peer *peer);
void r2_verdict_forget_pair(struct r2_inst *inst, const struct r2_peer *peer, int nic,
                            int peer_nic);

/* Reports that the channel to @peer is lost, since @peer->channel.lost (R2-O01). It concerns no
 * NIC, and is no gossip: every process has its own channels. */
void r2_verdict_channel(struct r2_inst *inst, const struct r2_peer *peer);

/* The time of day (ms since 1970) of an instant of r2_now(), as lines have it. Any thread. */
uint64_t r2_verdict_time(const struct r2_inst *inst, uint64_t ns);

#define R2_VERDICT_BRIEF 81 /* PROBE_SHORT_SIZE */
/* The latest verdict in short. */
struct r2_found {
    char brief[R2_VERDICT_BRIEF];
    uint64_t at;                  /* ns, 0: none */
    struct probe_subject subject; /* all zero: no part that could be good again */
    uint8_t code;                 /* enum probe_code */
    uint8_t over;                 /* that part is good again */
};
/* The latest verdict that was reported and named suspects only: one that names the component later
 * revises it, unless the pair has been good again since. */
struct r2_undecided {
    uint8_t reported, nic, peer_nic;
    struct r2_peer *peer;
    uint64_t at;       /* watch's clock */
    uint64_t since_ms; /* as reported */
    uint32_t id;       /* as announced */
};

/* What an instance remembers of verdicts. */
struct r2_verdicts {
    struct r2_found found;         /* the latest; written by the service thread, inst->lock */
    struct r2_undecided undecided; /* service thread */
    uint32_t undecided_id;         /* of the latest; service thread */
    uint8_t
        ended_code; /* enum probe_code of the failure that ended a connection last; inst->lock */
};

/* @s is good again: the latest verdict, if it is about that, explains less from now on. Service
 * thread. */
void r2_verdict_over(struct r2_inst *inst, const struct probe_subject *s);

/*
 * What most likely explains that @c ends, or has: the latest verdict in short, unless its part is
 * good again and there is more; else what the peer announced of its end, or what the paths of @c
 * have suffered. Empty: no failure is known. Remembers the code, for ended. Any thread; @c's error
 * is set.
 */
#define R2_VERDICT_FOUND 180
void r2_verdict_found(struct r2_comm *c, char out[R2_VERDICT_FOUND]);
/* The code (enum probe_code) of the failure that a connection of this process ended with last,
 * which others that are aborted for it send to their peers. Any thread. */
uint8_t r2_verdict_ended(struct r2_inst *inst);
/* The latest verdict, if it is not older than @age (ns); else its code is NONE and its text empty.
 * Any thread. */
struct r2_found r2_verdict_latest(struct r2_inst *inst, uint64_t age);

#endif
