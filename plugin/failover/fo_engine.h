/*
 * Settlement of the incarnations of one connection's paths (protocol section 5): which records go
 * to the peer, when an incarnation is closed, when parts are retransmitted, when a quarantine ends,
 * when the connection gives up.
 *
 * Guarded by the connection's gate. fo_fault(), fo_fail(), fo_fail_peer() and fo_check_bye() are
 * called on NCCL's thread, too (from the transport's error branch, and by isend, irecv and test);
 * fo_stop_posting(), fo_abort() and fo_unhalted() by its close and dereg; the rest by the service
 * thread. All that is sent to the peer is sent in fo_step() and the fo_on_* functions. Nothing
 * blocks.
 *
 * fo_engine.c has states and faults, fo_settle.c what is sent and settled step by step, fo_on.c the
 * peer's records, fo_live.c what a dead incarnation may still bring, fo_vain.c those that carry
 * nothing.
 */
#ifndef FO_ENGINE_H
#define FO_ENGINE_H

#include <stdbool.h>

#include "base/r2_status.h"
#include "control/fo_proto.h"
#include "fo_incarnation.h"
#include "ib_transport/ib_fence.h"
#include "ib_transport/ib_recv.h"
#include "ib_transport/ib_send.h"
#include "probe/probe_line.h"

struct fo_path {
    enum fo_state state;
    struct ib_fence fence;
    struct ib_fault_info why;
    uint64_t down_since;
    uint64_t send_at; /* next repetition of what is unanswered */
    uint64_t interval;
    uint64_t acked_at_down;    /* tells whether anything has moved since */
    uint64_t quarantine_until; /* R: the quarantine of a soft fence, or of GPU memory (P17), ends
                            then; UINT64_MAX: only with proof; 0: no quarantine */
    uint64_t stopped_at;       /* ns, when peer_stopped became known */
    uint8_t peer_stopped;      /* the peer is known to post nothing on it any more */
    uint8_t peer_soft;         /* the peer's fence was soft */
    uint8_t snapshot;          /* S: FENCED is here, kept in snap until our own fence has ended */
    uint8_t settled;           /* S: FENCED is applied. R: SETTLED has come */
    uint8_t lost;              /* S: the ledger lacks what was reported done (NCCL_R2_ACK=cqe) */
    uint8_t again;             /* R: S repeats DOWN: FENCED is to be sent again */
    uint8_t soft;              /* our fence is soft, and has not been proved hard since */
    uint8_t peer_reason; /* enum ib_fault: its port or device has failed, or that is rehearsed, as
                            the peer announces; else NONE */
    uint8_t tail_lost;   /* the peer has ended it for IB_FAULT_TAIL or IB_FAULT_WAY */
    uint8_t live_known;  /* R: S has announced what the incarnation may still bring (P35) */
    struct fo_fenced *snap;
    /*
     * Parts that the incarnation may still bring to R. S: as it went DOWN; never changed, and what
     * S announces. R: the same, as S has announced it before the close; where S had not, the ledger
     * of the close, which S's report is compared with when it comes.
     */
    struct r2_parts live;
};

/* What the engine needs of its surroundings. */
struct fo_ops {
    void *arg;
    void (*emit)(void *arg, enum fo_type type,
                 const union fo_body *body); /* service thread: a record to the peer */
    void (*kick)(void *arg);                 /* any thread: a step is needed soon */
};

enum fo_peer_bye { FO_BYE_NONE, FO_BYE_ORDERLY, FO_BYE_ABORT };

struct fo_conn {
    struct ib_conn *conn;
    struct ib_send *tx; /* one of the two is NULL */
    struct ib_recv *rx;
    struct ib_workers *workers;
    const uint64_t
        *worker_alive; /* ns per device, written by the service thread, which is the only reader */
    struct fo_ops ops;
    struct fo_path path[IB_MAX_PATHS];
    uint32_t self, peer; /* numbers of the connection at either end */
    const char *label;   /* for logs: "send 3 n0/fab1 -> n1" */
    struct {
        enum fo_peer_bye peer; /* whether the peer has sent one, and of which kind */
        uint8_t code;   /* enum probe_code: what the peer announces, as long as @error is not set */
        uint64_t total; /* R: S had started all messages below when it closed */
        uint64_t at;    /* ns, when the peer's came */
    } bye;
    int closing;         /* our end is closed: faults are no evidence and are not logged */
    int posting_stopped; /* nothing is posted any more */
    struct {
        uint32_t ends; /* drained paths whose incarnations may end */
        uint64_t wait; /* ns until they are checked again */
    } drain;           /* S */
    int torn_down;     /* the queue pairs are going: no fence is begun or stepped any more */
    uint64_t nopath_since;
    struct {
        uint64_t since; /* no path, or only incarnations on which nothing got through, since then
                           (ns); 0: not so */
        uint64_t at;    /* ... S: as sack was then, R: as acked was; fo_no_progress_since() */
    } no_progress;
    struct {
        uint64_t since; /* incarnations had work under way and ended without having carried any,
                           since the first of them did (ns); 0 */
        uint64_t at;    /* ... as no_progress.at; fo_vain_since() */
    } vain;
    unsigned bug_faults; /* faults that point at a bug rather than at a path */
    enum r2_status
        error; /* != R2_OK: the connection has ended; returned by every call from now on */
    char why[256];
    struct {
        uint8_t code; /* enum probe_code, by the faults of its paths alone; NONE: nothing failed */
        uint8_t theirs;    /* ... and it is the peer's port or device */
        uint8_t peer_code; /* likewise: what the peer announced when it ended */
        uint8_t by_peer;   /* it ended because the peer did, and had a path */
    } cause;               /* with @error */
    char last_fault[160];  /* of the path that went down last, for the reason when none is left */
    uint64_t switches;
};

/* @fc was zeroed; conn, halves, workers, ops, numbers and label are set. Fills the connection's
 * sink. Allocates; -1 when out of memory. */
int fo_conn_init(struct fo_conn *fc);
void fo_conn_free(struct fo_conn *fc);

/* A path is connected, and carries from here on. */
void fo_path_up(struct fo_conn *fc, int p);
/* It will never be, at either end: nothing is to be settled. */
void fo_path_setup_failed(struct fo_conn *fc, int p);
/* It may be up at the peer, but never will be here: it goes down by @info like any other, so that
 * the peer is notified and answers. */
void fo_path_setup_aborted(struct fo_conn *fc, int p, const struct ib_fault_info *info);
/* Whether everything about the present incarnation of (p) is over at this end, so that the next one
 * may begin (P23). */
bool fo_may_return(const struct fo_conn *fc, int p);
/* Messages that have got through: S, acknowledged; R, complete. Grows. */
uint64_t fo_got_through(const struct fo_conn *fc);
/* Since when (ns) there was no path, or only incarnations on which nothing has got through; 0: not
 * so. */
uint64_t fo_no_progress_since(const struct fo_conn *fc);
/* Since when (ns) one incarnation after the other ends without having carried anything, while
 * nothing gets through and none that is up has carried anything either; 0: not so. */
uint64_t fo_vain_since(const struct fo_conn *fc);
/* The next incarnation of (p) begins: conn->path[p] is the new one already, with its number. The
 * only place where a state starts again. */
void fo_incarnation_begin(struct fo_conn *fc, int p);

/* S: R has begun a later incarnation, so the present one is over there: where S has nothing live on
 * it, R's FENCED is not waited for. */
void fo_incarnation_superseded(struct fo_conn *fc, int p);

/* All paths are up or never will be: fewer than NCCL_R2_MIN_NICS end the connection. */
void fo_check_paths(struct fo_conn *fc);

/* A fault was seen or announced: the incarnation goes DOWN and out of conn->up, S's plan is made
 * anew, the fence begins, and a step follows, in which the peer is notified. The first fault wins;
 * later ones of the same incarnation are ignored. Any thread that holds the gate. */
void fo_fault(struct fo_conn *fc, int p, const struct ib_fault_info *info);

/* Does what can be done; returns the time (ns) of the next step, UINT64_MAX for none. */
uint64_t fo_step(struct fo_conn *fc, uint64_t now);

/* Records from the peer. Already unpacked and addressed to this connection. */
void fo_on_down(struct fo_conn *fc, const struct fo_down *m, uint64_t now);
void fo_on_fenced(struct fo_conn *fc, const struct fo_fenced *m, uint64_t now);
void fo_on_settled(struct fo_conn *fc, const struct fo_settled *m, uint64_t now);
void fo_on_bye(struct fo_conn *fc, const struct fo_fenced *m, uint64_t now);
/* R: after S's BYE, receives that can never be filled end the connection: those posted, and @more
 * that NCCL wants to post. */
void fo_check_bye(struct fo_conn *fc, int more);
/* The peer process does not know the connection, or is gone; @what: which, for the log. */
void fo_on_gone(struct fo_conn *fc, const char *what);
/* The peer gave up its NIC @nic, generation @gen: all incarnations over it that began before are
 * over. */
void fo_on_peer_nic_down(struct fo_conn *fc, int nic, uint32_t gen);

/*
 * An administrator wants to see what a failure of these paths does: those that are drained by now
 * and that the connection can do without end as failed ones do, with what is under way. Returns how
 * many. Gate held.
 */
int fo_rehearse(struct fo_conn *fc, uint32_t paths);

/* Our NIC @nic is not usable any more: @fault at each path over it. */
void fo_on_nic_down(struct fo_conn *fc, int nic, enum ib_fault fault);

/*
 * Exactly the paths of @mask are drained: new work avoids them, and the incarnations of those in
 * @ends end once nothing is under way on them (P24). Never the last path, nor below
 * NCCL_R2_MIN_NICS, nor where a receive could be filled over no other path.
 */
void fo_drain(struct fo_conn *fc, uint32_t mask, uint32_t ends);

/* Ends the connection with a reason; the first one stays. Logged once, as a WARN, unless it is
 * being closed. */
void fo_fail(struct fo_conn *fc, enum r2_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The peer has ended, or has been silent, which is known since @at (ns): the connection ends, with
 * @what as its reason, and the last fault where no path is left. */
void fo_fail_peer(struct fo_conn *fc, uint64_t at, const char *what);

/*
 * Nothing is posted any more: NCCL has taken away, or is about to take away, what outstanding
 * requests refer to (close or release with requests outstanding, P27). What still arrives is polled
 * and counts.
 */
void fo_stop_posting(struct fo_conn *fc);

/*
 * The same, and every queue pair that may carry work goes to ERR: a registration taken away is no
 * fence, since the next buffer may have its keys (P27). May be called again.
 */
void fo_abort(struct fo_conn *fc);
/*
 * Bit per path whose NIC may still use the registrations of the connection: its queue pair is not
 * known to have stopped. 0 for a path that never was up, and on a device that is gone, or is FATAL
 * and refuses the move to ERR.
 */
uint32_t fo_unhalted(const struct fo_conn *fc);

/* Fills the ledger part of FENCED and BYE. */
void fo_snapshot(const struct fo_conn *fc, struct fo_fenced *out);

/* Whether jobs of the fences are still with a worker: the connection must not be freed. */
int fo_busy(const struct fo_conn *fc);

#endif
