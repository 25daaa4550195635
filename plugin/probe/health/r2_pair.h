/*
 * NIC pairs: one of our NICs and one of a peer process's, with the probe queue pair between them
 * (docs/health.md). All calls are made on the service thread; none blocks.
 */
#ifndef R2_PAIR_H
#define R2_PAIR_H

#include "core/r2_inst.h"
#include "probe/probe_load.h"
#include "probe/probe_qp.h"

enum r2_pair_state {
    R2_PAIR_NEW,
    R2_PAIR_BUILD,   /* job: the queue pair is being made */
    R2_PAIR_OPEN,    /* INIT: waits for the peer's address */
    R2_PAIR_JOIN,    /* job: being connected */
    R2_PAIR_JOINED,  /* RTS; may ask once the peer is known to be connected, too */
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

/* Return of a pair; times in ns, real time. r2_probation.c */
struct r2_probation {
    uint8_t interest; /* enum r2_probation_who */
    uint8_t urgent;   /* ... of a connection that has no path left */
    uint8_t theirs;   /* the peer wants it: one attempt */
    uint8_t trying;   /* an attempt is under way: its queue pair is made, if need be, and asked */
    uint8_t asked;
    unsigned answers;      /* when it was asked */
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
    unsigned lives; /* of paths that returned over it so far */
};

struct r2_pace;

struct r2_pair {
    struct ib_job job; /* first */
    struct r2_pair *next;
    struct r2_inst *inst;
    struct r2_peer *peer; /* NULL: gone, the pair goes when its job is back */
    uint8_t nic, peer_nic;
    uint8_t again;   /* to be made anew */
    uint8_t back;    /* our NIC has come back: to be told */
    uint8_t answer;  /* the peer asked to be told our state */
    uint8_t inquire; /* the peer is to say whether its end is in order */
    uint8_t plain;   /* no queue pair for messages beside it */
    enum r2_pair_state state;
    struct probe_qp qp;
    struct ib_path_addr peer_addr;
    struct ib_inband_qp
        inband; /* for messages, beside the probe's: lives and dies with it; r2_inband.c */
    uint8_t inband_opened; /* a job of this pair has opened its NIC's pool, or has found that it
                              cannot be */
    uint32_t peer_inband_qpn, peer_inband_psn; /* 0: it has none */
    struct {
        uint32_t qpn; /* of inband, from the end of the job that made it to that of the one that
                         destroyed it; 0 */
        uint64_t heard_at, sent_at;  /* real time, ns; 0: never */
        uint32_t words;              /* of the peer's, by any way, when ... */
        uint64_t mend_at, mend_wait; /* back-off of attempts to mend it, until one has carried a
                                        message; ns, real time */
        unsigned taken; /* ... its NIC had taken none of these messages: so many of its buffers are
                           in use */
    } carried;
    uint64_t
        peer_guid; /* of the peer's NIC, as it says: node GUID, port, name; 0 and "": not heard */
    uint8_t peer_port;
    char peer_name[FO_NIC_NAME];
    int rc;                           /* of the job */
    uint32_t inc, peer_inc, peer_for; /* our incarnation; the peer's that we are connected to; ours
                                         that it is connected to */
    uint32_t heard;                   /* the latest of the peer's; 0: none */
    uint32_t
        heard_for; /* ... and the one of ours that it is connected to, as far as it has said; 0 */
    uint64_t silent_at; /* watch's clock, when either end gave it up for silence last; 0: never */
    uint8_t silent;     /* ... ours, the present incarnation */
    uint8_t unanswered; /* a question that counts ended with its queue pair, and none has been
                           answered since */
    uint8_t avoid;      /* others blame a part of it, and it has not answered here */
    uint64_t say_at, say_interval; /* ns, real time */
    uint8_t greeted;               /* asked once since it became ready */
    uint64_t again_at, again_wait; /* back-off of attempts to make it anew; ns, real time */
    /* asking; times on the watch's clock */
    uint8_t asking, verdict; /* a probe is out; its failure counts */
    uint8_t check;           /* it is out because the peer asks */
    uint8_t late;            /* ... and was put again: its time says nothing of the queues */
    uint8_t said;            /* its process has been asked since the question that counts was put */
    uint8_t in_order;   /* the peer's process has said so of its end since the question that counts
                           was put */
    uint8_t works;      /* ... and that its own question has been answered since then */
    unsigned loops;     /* questions that our NIC's loop had answered by then */
    uint8_t anew;       /* ours has been put again, to a new queue pair; until one is answered */
    uint8_t owes, tell; /* the peer waits for such a word; there is one to say */
    uint64_t asked_at, checked_at, suspect_at, post_at;
    uint64_t from; /* of the question that counts: since when the answer may be expected */
    struct probe_track here, there; /* ... what became known since; r2_load.c */
    uint64_t limit;                 /* of the question that counts */
    uint64_t last_ok;               /* last answer of this queue pair; 0: none */
    uint64_t wanted;  /* limit of the question to put as soon as it is ready; 0: none */
    uint64_t slowest; /* longest answer time, fading */
    unsigned posted;
    unsigned answers; /* counts questions that were answered */
    struct r2_probation heal;
    struct r2_pace *pace; /* how fast it carries; r2_slow.c. NULL: not looked at. Freed with it */
};

/* A connection's paths stand: their pairs are made, or made anew where they failed. */
void r2_pairs_want(struct r2_comm *c);
/* Finds it, or begins to make it. NULL when out of memory. */
struct r2_pair *r2_pair_want(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic);
/* The same; one that is made now is, with @plain, for questions alone. */
struct r2_pair *r2_pair_meet(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic,
                             int plain);
/* Nobody waits for its answer any more. */
void r2_pair_fail(struct r2_pair *pair);
/* Made anew where it failed; said again where the peer may not know it. */
void r2_pair_renew(struct r2_pair *pair);
struct r2_pair *r2_pair_find(const struct r2_inst *inst, const struct r2_peer *peer, int nic,
                             int peer_nic);
void r2_pair_on_probe(struct r2_inst *inst, struct r2_peer *peer, const struct fo_probe *m);
/* The peer is going: its pairs, too. */
void r2_pairs_drop(struct r2_inst *inst, const struct r2_peer *peer);
/*
 * Instance is being destroyed; the workers have stopped, but for those of the devices in
 * @still_running: ib_workers_destroy(). Pairs on these stay as they are.
 */
void r2_pairs_free(struct r2_inst *inst, uint64_t still_running);

/*
 * Another process of this host (@who) had no answer over the same two ports for @silent ns, while
 * its peer's end was in order: the lives here end, too, unless this pair has answered since.
 */
void r2_pair_told_silent(struct r2_pair *pair, uint64_t silent, const char *who);

/* Both ends are connected: it can be asked. */
int r2_pair_ready(const struct r2_pair *pair);
/* The peer, which may have given its queue pair up without a word, makes it anew then. */
void r2_pair_inquire(struct r2_pair *pair);
/*
 * Asks, unless that is under way. No answer within @limit ns (0: nobody waits) ends every life over
 * the pair. A pair without a working queue pair gets a new one first. Does not end lives itself:
 * the caller may be inside a gate.
 */
void r2_pair_ask(struct r2_pair *pair, uint64_t clock, uint64_t limit);

/* Announcements; returns the next deadline (real time). */
uint64_t r2_pairs_say(struct r2_inst *inst, uint64_t now);
/* Answers and verdicts. Returns whether an answer is to be looked for soon. */
int r2_pairs_watch(struct r2_inst *inst, uint64_t clock);

#endif
