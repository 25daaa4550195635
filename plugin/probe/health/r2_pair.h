/*
 * NIC pairs: one of our NICs and one of a peer process's, with the probe queue pair between them
 * (docs/health.md). All calls are made on the service thread; none blocks.
 */
#ifndef R2_PAIR_H
#define R2_PAIR_H

#include <stdbool.h>

#include "core/r2_inst.h"
#include "probe/probe_load.h"
#include "probe/probe_qp.h"
#include "r2_tail.h"
#include "r2_ways.h"

enum r2_pair_state {
    R2_PAIR_NEW,
    R2_PAIR_BUILD,   /* job: the queue pair is being made */
    R2_PAIR_OPEN,    /* INIT: waits for the peer's address */
    R2_PAIR_JOIN,    /* job: being connected */
    R2_PAIR_JOINED,  /* RTS; can be probed once the peer is known to be connected, too */
    R2_PAIR_BROKEN,  /* could not be made or connected */
    R2_PAIR_DEAD,    /* did not answer */
    R2_PAIR_DESTROY, /* job: being taken down, to be made anew or for good */
    R2_PAIR_STATES
};

/* Who waits for a pair's answer. */
enum r2_probation_who {
    R2_PROBATION_PATH = 1, /* some path wants to return */
    R2_PROBATION_MEND = 2, /* the peer, and no queue pair could be made */
};

enum r2_probation_state {
    R2_PROBATION_REST, /* between attempts, or none is wanted */
    R2_PROBATION_TRY,  /* its queue pair is made, if need be */
    R2_PROBATION_PROBED,
    R2_PROBATION_STATES
};

/* Return of a pair; times in ns, real time. r2_probation.c */
struct r2_probation {
    enum r2_probation_state state;
    uint8_t interest;      /* enum r2_probation_who */
    uint8_t urgent;        /* ... of a connection that has no path left */
    uint8_t theirs;        /* the peer wants it: one attempt */
    unsigned answers;      /* when it was probed */
    unsigned misses;       /* attempts that came to nothing */
    uint64_t at;           /* the next attempt, when its turn comes */
    uint64_t tried_at;     /* the latest began; 0: its turn is the next one */
    uint64_t silent_since; /* the first that came to nothing began, since it answered last; 0: none
                              did */
    uint64_t deadline;     /* of the attempt */
    uint64_t rest;         /* the pause after an attempt for which no queue pair could be made */
    uint64_t busy_at;      /* its job is with the worker since then; 0: it is not */
    uint64_t good_since,
        good_last; /* first and last of the present row of answers; since 0: none */
    uint64_t used_at, hold;
    unsigned incarnations; /* of paths that returned over it so far */
};

struct r2_pace;

/* The making of its queue pairs; r2_pair.c */
struct r2_pair_build {
    enum r2_pair_state state;
    int rc;            /* of the job */
    uint8_t again;     /* to be made anew */
    uint8_t plain;     /* no queue pair for messages beside it */
    uint64_t at, wait; /* back-off of attempts to make it anew; ns, real time */
};

/* What its two ends announce to each other of their queue pairs; r2_pair_announce.c. All of it is
 * as the last message left it: the state that follows is r2_pair_ready(). */
struct r2_pair_announce {
    uint32_t peer_inc; /* the peer's incarnation that we are connected to; 0: none */
    uint32_t peer_for; /* ours that it is connected to */
    uint32_t heard;    /* the latest of the peer's; 0: none */
    uint32_t
        heard_for;   /* ... and the one of ours that it is connected to, as far as it has announced;
                        0 */
    uint8_t answer;  /* the peer wants our state */
    uint8_t inquire; /* the peer is to say whether its end is in order */
    uint8_t back;    /* our NIC has come back: to be announced */
    uint8_t owes, works; /* the peer waits for the report that a probe of ours was answered which
                            was posted since it asked; one was */
    uint64_t owes_since; /* watch's clock */
    struct r2_repeat repeat; /* real time */
};

enum r2_probe_state {
    R2_PROBE_IDLE,
    R2_PROBE_OUT,    /* posted, and no verdict depends on the answer */
    R2_PROBE_COUNTS, /* a missing answer is evidence, once the peer's process has confirmed that its
                        end is in order */
    R2_PROBE_TIMED,  /* ... it has: the time for an answer runs */
    R2_PROBE_GOOD,   /* ... and the peer's own probe has been answered since */
    R2_PROBE_STATES
};

/* The probe that is out, and what the ones before brought; times on the watch's clock.
 * r2_pair_probe.c */
struct r2_pair_probe {
    enum r2_probe_state state;
    uint8_t greeted;    /* posted once since the pair became ready */
    uint8_t check;      /* it is out because the peer requested it */
    uint8_t late;       /* ... and was posted again late: its time is no measure of the queues */
    uint8_t announced;  /* the state has been requested of the peer's process since the one that
                           counts was posted */
    uint8_t anew;       /* posted again, on a new queue pair; until one is answered */
    uint8_t silent;     /* this end gave the present incarnation up for silence */
    uint8_t unanswered; /* one that counts ended with its queue pair, and none has been answered
                           since */
    unsigned loops;     /* probes that our NIC's loop had answered when the state became GOOD */
    uint64_t requested_at, checked_at, suspect_at, post_at;
    uint64_t from;      /* of the one that counts: since when the answer may be expected */
    uint64_t limit;     /* ... within which */
    uint64_t wanted;    /* limit of the one to post as soon as the pair is ready; 0: none */
    uint64_t silent_at; /* when either end gave the pair up for silence last; 0: never */
    uint64_t last_ok;   /* last answer of this queue pair; 0: none */
    uint64_t slowest;   /* longest answer time, fading */
    uint64_t brisk;     /* ... since the post that was answered: no lost packet is in it */
    unsigned posted;
    unsigned answers;               /* counts probes that were answered */
    struct probe_track here, there; /* what became known since it was posted; r2_load.c */
};

/* Of the queue pair for messages; r2_inband.c */
struct r2_pair_carried {
    uint8_t
        opened; /* a job of this pair has opened its NIC's pool, or has found that it cannot be */
    uint32_t peer_qpn, peer_psn; /* 0: it has none */
    uint32_t qpn; /* of ours, from the end of the job that made it to that of the one that destroyed
                     it; 0 */
    uint64_t heard_at, sent_at;  /* real time, ns; 0: never */
    uint32_t messages;           /* of the peer's, by any way, when ... */
    uint64_t mend_at, mend_wait; /* back-off of attempts to mend it, until one has carried a
                                    message; ns, real time */
    unsigned taken; /* ... its NIC had taken none of these messages: so many of its buffers are in
                       use */
};

struct r2_pair {
    struct ib_job job; /* first */
    struct r2_pair *next, **prev;
    struct r2_pair *peer_next;              /* of the same peer */
    struct r2_pair *hash_next, **hash_prev; /* by peer and NICs, as long as it has a peer */
    struct r2_inst *inst;
    struct r2_peer *peer; /* NULL: gone, the pair goes when its job is back */
    uint8_t nic, peer_nic;
    uint8_t avoid; /* others blame a part of it, and it has not answered here; r2_gossip.c */
    uint32_t inc;  /* our incarnation */
    struct probe_qp qp;
    struct ib_inband_qp inband; /* for messages, beside the probe's: made and destroyed with it */
    struct {
        struct ib_path_addr addr;
        struct probe_qp_alt alt; /* of the probe's second way, and the two */
        uint64_t guid;           /* node GUID, port, name; 0 and "": not heard */
        uint8_t port;
        char name[FO_NIC_NAME];
    } far; /* the peer's NIC, as it announces it */
    struct r2_pair_build build;
    struct r2_pair_announce announce;
    struct r2_pair_probe probe;
    struct r2_pair_carried carried;
    struct r2_probation probation;
    struct r2_pair_tail tail;
    struct r2_pair_ways ways;
    struct r2_pace *pace; /* how fast it carries; r2_slow.c. NULL: not looked at. Freed with it */
};

/* A probe is out. */
static inline bool r2_pair_is_probing(const struct r2_pair *pair)
{
    return pair->probe.state != R2_PROBE_IDLE;
}
/* ... and a missing answer to it is evidence. */
static inline bool r2_pair_is_judged(const struct r2_pair *pair)
{
    return pair->probe.state >= R2_PROBE_COUNTS;
}

/* A connection's paths stand: their pairs are made, or made anew where they failed. */
void r2_pairs_want(struct r2_comm *c);
/* Finds it, or begins to make it. NULL when out of memory. */
struct r2_pair *r2_pair_want(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic);
/* The same; one that is made now is, with @plain, for probes alone. */
struct r2_pair *r2_pair_meet(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic,
                             int plain);
/* Nobody waits for its answer any more. */
void r2_pair_fail(struct r2_pair *pair);
/* Made anew where it failed; announced again where the peer may not know it. */
void r2_pair_renew(struct r2_pair *pair);
/* NULL: there is none, or no peer. */
struct r2_pair *r2_pair_find(const struct r2_inst *inst, const struct r2_peer *peer, int nic,
                             int peer_nic);
void r2_pair_on_probe(struct r2_inst *inst, struct r2_peer *peer, const struct fo_probe *m);
/* The peer is going: its pairs, too. */
void r2_pairs_drop(struct r2_peer *peer);
/*
 * Instance is being destroyed; the workers have stopped, but for those of the devices in
 * @still_running: ib_workers_destroy(). Pairs on these stay as they are.
 */
void r2_pairs_free(struct r2_inst *inst, uint64_t still_running);

/*
 * Another process of this host (@who) had no answer over the same two ports for @silent ns, while
 * its peer's end was in order: the incarnations here end, too, unless this pair has answered since.
 */
void r2_pair_on_silent_report(struct r2_pair *pair, uint64_t silent, const char *who);

/* Both ends are connected: it can be probed. */
int r2_pair_ready(const struct r2_pair *pair);
/* The peer, which may have given its queue pair up without a message, makes it anew then. */
void r2_pair_inquire(struct r2_pair *pair);
/*
 * Posts a probe, unless one that counts is out. No answer within @limit ns (0: nobody waits) ends
 * every incarnation over the pair. A pair without a working queue pair gets a new one first. Does
 * not end incarnations itself: the caller may be inside a gate.
 */
void r2_pair_send_probe(struct r2_pair *pair, uint64_t clock, uint64_t limit);

/* Announcements; returns the next deadline (real time). */
uint64_t r2_pairs_announce(struct r2_inst *inst, uint64_t now);
/* Polls for answers, and decides; returns what there is to poll for next, on any pair. */
enum r2_pairs_want {
    R2_PAIRS_NOTHING,
    R2_PAIRS_TICKS, /* a probe is out, or a way is suspected */
    R2_PAIRS_SOON,  /* ... a probe whose answer is waited for, or timed */
};
enum r2_pairs_want r2_pairs_watch(struct r2_inst *inst, uint64_t clock);

#endif
