/*
 * Which component broke (docs/diagnosis.md): cases, the facts they gather at both ends, what is
 * announced about the verdict. Service thread; nothing blocks. Nothing waits for a verdict:
 * incarnations have ended, and traffic has moved, before a case is opened.
 */
#ifndef R2_LOCATE_H
#define R2_LOCATE_H

#include <stdbool.h>

#include "control/fo_proto.h"
#include "probe/probe_verdict.h"

struct r2_subscriber;
struct r2_inst;
struct r2_comm;
struct r2_peer;
struct r2_pair;

#define R2_CASES     16
#define R2_CASE_AUX  FO_LOCATE_AUX /* other remote ports that are probed */
#define R2_CASE_MORE 2             /* other NIC pairs of the same two processes */

enum r2_case_state {
    R2_CASE_FREE,
    R2_CASE_PROBING, /* own facts are being gathered */
    R2_CASE_WAITING, /* own facts are complete, the peer's are not */
    R2_CASE_HELD,    /* they fit more than one component: a late report, or another case, may still
                        settle it;    or the pair is probed once more */
    R2_CASE_DECIDED, /* announced; kept for a while, to answer the peer */
    R2_CASE_STATES
};

/* A NIC pair that is probed for a case. It may go meanwhile: found again by its names. */
struct r2_case_probe {
    struct r2_peer *peer;
    uint8_t nic, peer_nic;
    uint8_t peer_port; /* of the remote NIC, with guid */
    uint64_t guid;
    char host[FO_HOST_NAME]; /* a copy: the peer may go before the case does */
    uint8_t outcome;         /* enum probe_outcome, once ended */
    uint8_t ended;
    uint8_t alone;    /* it was probed and has not answered since, but its process has not confirmed
                         either that its end is in order */
    unsigned answers; /* of the pair, when it was probed */
    uint64_t at;      /* real time, ns: when its end was seen; 0: not yet */
};

struct r2_case {
    enum r2_case_state state;
    struct r2_peer *peer;
    uint8_t nic, peer_nic;
    uint8_t process;   /* about the peer's process, not about a pair */
    uint8_t peer_port; /* of the remote NIC, with peer_guid; 0: not known */
    uint64_t peer_guid;
    enum ib_fault fault;
    uint32_t id;     /* ours */
    uint64_t since;  /* real time, ns: it was opened */
    uint64_t silent; /* ns: for so long its work had stood still then */
    uint64_t opened; /* watch's clock */
    struct {
        uint32_t id;       /* 0: not known */
        uint8_t first;     /* the peer has opened one and reports first */
        uint8_t heard;     /* the peer has reported something */
        uint8_t complete;  /* ... and all that it will find out */
        uint8_t in_facts;  /* its report is in the facts */
        uint8_t requested; /* the peer has requested ours */
        uint64_t until;    /* its report is waited for until then */
        uint64_t at;       /* real time, ns: when it came; 0: not yet */
        struct fo_locate report;
    } theirs; /* the peer's case of it */
    struct {
        uint64_t own;  /* own facts are gathered until then */
        uint64_t held; /* HELD: announced then */
        uint64_t kept; /* DECIDED: kept until then */
    } until;
    struct {
        uint64_t at, interval; /* real time, ns */
    } send;
    uint8_t found; /* enum probe_blame; DECIDED */
    struct {
        unsigned incarnations; /* probation.incarnations of the pair when it was opened */
        unsigned repeats;      /* cases before it on this pair, one after the other */
        unsigned muted;        /* incidents between the case before and this one that had none of
                                  their own */
        unsigned muted_next;   /* ... and since this one */
    } before;
    struct {
        unsigned probes;
        uint64_t at; /* real time, ns: when its outcome was seen; 0: not yet */
    } loopback;
    struct {
        uint8_t on;       /* the pair is probed once more, or was to the end of the case */
        unsigned answers; /* its count before */
    } confirm;
    struct {
        struct r2_case_probe direct, aux[R2_CASE_AUX], more[R2_CASE_MORE];
        uint8_t n_aux, n_more;
    } probes;
    struct probe_facts facts;
};

/* Since when there is the fault, as far as is known here; real time, ns. */
static inline uint64_t r2_case_since(const struct r2_case *k)
{
    return k->since > k->silent ? k->since - k->silent : 0;
}

/* Allocates the cases. -1: out of memory. Freed with the instance. */
int r2_locate_init(struct r2_inst *inst);

/* Something ended an incarnation of path @p of @c; gate held. */
void r2_locate_lost(struct r2_comm *c, int p);
/* Whether @pair has a case that was opened at @since (watch's clock) or later. */
bool r2_locate_has_case(const struct r2_pair *pair, uint64_t since);
/* Work requests over @pair have had no completion for @ns, and no incarnation ends by that: a case
 * of it, if there is room. No decided one goes for it: a hundred such pairs would have cases in
 * turn for as long as they are silent. */
void r2_locate_silent(struct r2_pair *pair, uint64_t ns);
/* The peer's host refuses the channel; or its process has been silent for long while its NIC
 * answers. */
void r2_locate_peer(struct r2_inst *inst, struct r2_peer *peer, enum probe_outcome process);
/* A record of that process has come again. */
void r2_locate_speaks(struct r2_inst *inst, struct r2_peer *peer);
/* A path over that pair has returned; of the two ends only the receiver's counts for how long the
 * pair answers. */
void r2_locate_back(struct r2_inst *inst, const struct r2_peer *peer, int nic, int peer_nic);
/* A report of the peer's about one of its cases. */
void r2_locate_on(struct r2_inst *inst, struct r2_peer *peer, const struct fo_locate *m);
/* The peer is going. */
void r2_locate_drop(struct r2_inst *inst, const struct r2_peer *peer);

/* Our NIC failed, which needs no probe, or is back; a pair answers again, for as long as it
 * must; a peer's process is silent; the cases' own turns. */
extern const struct r2_subscriber r2_locate_subscriber;

#endif
