/*
 * The receiver's half of a connection: CTS, arrivals into the ledger, acknowledgement (protocol P3,
 * P5-P11, P14).
 *
 * ib_recv.c has receives, arrivals and their done; ib_recv_ctl.c what is written to S;
 * ib_quarantine.c what holds a done back.
 *
 * All functions are called with the connection's gate held and never block. The data path takes no
 * lock, allocates nothing, makes no system call and logs nothing on success; but the first post
 * behind a rest of the whole process writes to the service thread's eventfd (ib_conn_stir()).
 */
#ifndef IB_RECV_H
#define IB_RECV_H

#include <stdbool.h>

#include "ib_path.h"
#include "r2_ledger.h"

struct ib_flush;

struct ib_rmsg {
    uint64_t seq;
    uint8_t *data;
    struct ib_mr *mr;
    uint32_t size; /* capacity */
    uint32_t tag;
    uint32_t cts_incarnation; /* of the path the CTS was last written on */
    uint8_t cts_path;
    uint8_t cts_out; /* written on a path that was up */
    uint8_t n, index;
    uint8_t
        quarantined_by; /* bit per path: a softly fenced incarnation may still write here (P18) */
    uint8_t from;       /* bit per path: parts arrived over it; for flush */
    uint8_t gpu;        /* needs a flush: the memory of a GPU, or NCCL_R2_FLUSH=always */
};

/* Every so many control writes one is signaled, to get their slots back. */
#define IB_CTL_SIGNAL 16

/* Keys of a registration by path, 0 beyond the last one; of its version alone. */
struct ib_keys {
    uint64_t version; /* UINT64_MAX: of none */
    union {
        uint32_t rkey[IB_MAX_PATHS];
        uint64_t word[IB_MAX_PATHS / 2]; /* as they stand in a CTS */
    };
    uint64_t reserved[3]; /* so that the place of an entry is a shift */
};
_Static_assert(sizeof(struct ib_keys) == 64, "a power of two");
#define IB_KEYS 4 /* registrations that take turns: NCCL has one for each of its protocols */

struct ib_recv {
    struct ib_conn *conn;
    struct r2_ledger ledger;
    uint8_t hot;     /* paths polled in every progress */
    uint8_t seen;    /* paths that brought some of the last @heard arrivals */
    uint8_t carried; /* paths that ever had data, in any incarnation; for flush */
    uint8_t idle;    /* empty turns since the last sweep */
    uint16_t heard;
    union {
        struct {
            uint8_t cts_pending;    /* some CTS is not out */
            uint8_t unread_pending; /* @unread may not be 0 */
        };
        uint16_t pending; /* either: one check in every progress */
    };
    uint32_t unread;         /* arrivals that wait for a read through their NIC (P34) */
    uint8_t signal;          /* the next control write is signaled whatever the count */
    uint8_t posting_stopped; /* no CTS is written any more: buffers and registrations of open
                                receives may be gone */
    uint8_t quarantining;    /* bit per path: softly fenced, and S may still post on it, so that
                                new receives are quarantined, too (P18) */
    uint8_t ctl_path;        /* path of CTS and acks; IB_MAX_PATHS when none is up */
    uint64_t ack_sent;       /* largest acked written on a path that is still up */
    uint64_t ack_owed_since; /* ns; 0: none owed */
    uint64_t ack_seen;       /* acked when it was last checked whether one is due */
    struct {
        uint64_t opened; /* receives */
        uint64_t wanted,
            met; /* bytes that receives were opened for, and those of them that are complete */
        uint64_t largest; /* bytes of the largest receive since none was open */
    } load;               /* IB_RLX; probe_load.h */
    struct {
        uint64_t messages; /* IB_RLX */
        uint64_t duplicates, bad_arrivals, ghosts, acks_alone, cts_rewritten;
    } count;
    /* Of an incarnation that is DOWN: what S announces that it may still bring (P35). NULL: not
     * yet, or it is closed */
    const struct r2_parts *live[IB_MAX_PATHS];
    struct ib_keys keys[IB_KEYS];
    struct ibv_send_wr wr; /* of a control write; what differs is filled in by who posts */
    struct ibv_sge sge;
    struct ib_rmsg msg[R2_LEDGER_WINDOW];
    struct ib_flush *flush; /* NULL: no NIC here reaches the memory of a GPU */
};

/* @ctl_src: what control writes are sent from; stays the caller's, as long as @rx. */
void ib_recv_init(struct ib_recv *rx, struct ib_conn *conn, struct ib_ctl_src *ctl_src);

/* Opens @n receives as one group and writes their CTS, over a path that is up; one that the queue
 * pair refuses is written later. Buffers and @mrs stay until the done. Returns the first seq,
 * UINT64_MAX when there is no room or no path. */
uint64_t ib_recv_start(struct ib_recv *rx, int n, void *const *data, const size_t *sizes,
                       const int *tags, struct ib_mr *const *mrs);

/* Polls arrivals, writes CTS and acknowledgements that are due. Path errors climb by the sink. */
void ib_recv_progress(struct ib_recv *rx);
/* ... and then whether the group, @n receives from @first, may be reported done, as by
 * ib_recv_done(), and is the oldest one: groups are reported in order. It is retired then. */
int ib_recv_test(struct ib_recv *rx, uint64_t first, int n, int *sizes);

/*
 * Control writes are unsignaled and NCCL may not be calling: if the last one got lost, nobody would
 * ever see its error completion, or there is none. Polls @p; when unsignaled writes are out, one
 * more is written, signaled. Returns how many work requests have been waiting for a completion that
 * is due (0: all is confirmed, or that signaled write has just been posted).
 */
int ib_recv_confirm(struct ib_recv *rx, int p);

/* Writes the acknowledgement behind everything on path @p, signaled, where a slot is free: as
 * ib_send_tail_probe() it makes a lost last packet known. The path is up. */
void ib_recv_tail_probe(struct ib_recv *rx, int p);

/*
 * S does not know the acknowledgements that its NIC acknowledged: they are written once more, on
 * every path, since that NIC may have lost them behind its own acknowledgement.
 */
void ib_recv_send_acks(struct ib_recv *rx);
/* The same for the CTS of open receives from seq @from on. */
void ib_recv_cts_again(struct ib_recv *rx, uint64_t from);

/* Whether @seq may be reported done (P6), alone; then fills @size if not NULL. */
static inline int ib_recv_one_done(const struct ib_recv *rx, uint64_t seq, int *size)
{
    unsigned slot = (unsigned)(seq % R2_LEDGER_WINDOW);

    if (!r2_ledger_complete(&rx->ledger, seq) || rx->msg[slot].quarantined_by) {
        return 0;
    }
    if (size) {
        *size = (int)rx->ledger.entry[slot].bytes;
    }
    return 1;
}

/* ib_recv_done() of a group of several. */
int ib_recv_group_done(const struct ib_recv *rx, uint64_t first, int n, int *sizes);
/* Whether the oldest group, @n receives from @first, may be reported done (P6); fills @sizes if not
 * NULL. */
static inline int ib_recv_done(const struct ib_recv *rx, uint64_t first, int n, int *sizes)
{
    return __builtin_expect(n == 1, 1) ? ib_recv_one_done(rx, first, sizes)
                                       : ib_recv_group_done(rx, first, n, sizes);
}

/* The done was reported. Groups are reported in order. */
static inline void ib_recv_retire(struct ib_recv *rx, int n)
{
    r2_ledger_retire(&rx->ledger, (unsigned)n);
}

/* Paths that parts of seq came over, as long as its slot is not used again. */
static inline uint8_t ib_recv_from(const struct ib_recv *rx, uint64_t seq)
{
    return rx->msg[seq % R2_LEDGER_WINDOW].from;
}

/* Whether an open receive refers to @mr. */
int ib_recv_uses(const struct ib_recv *rx, const struct ib_mr *mr);

/* --- for failover --- */

/* Polls the CQ of @p; good arrivals enter the ledger while the incarnation is open, markers are
 * noted in the path. 0, or -1 when polling fails. */
int ib_recv_drain(struct ib_recv *rx, int p);

/* @p is not up any more: acks written there count as not written, the CTS of its incarnation are
 * written elsewhere (P11, P14). */
void ib_recv_path_down(struct ib_recv *rx, int p);

/*
 * S has announced what the incarnation of @p, which is DOWN, may still bring (P35): any other
 * arrival on it breaks the protocol. @live stays the caller's, and as it is, until
 * ib_recv_live_over().
 */
void ib_recv_live(struct ib_recv *rx, int p, const struct r2_parts *live);
/* The incarnation of @p is closed, and its quarantines are set: rx->live is not read any more.
 */
void ib_recv_live_over(struct ib_recv *rx, int p);

/*
 * A soft fence of @p: what is open is quarantined, and what is opened until S is known to have
 * stopped (ib_recv_quarantine_peer_stopped), because S may answer a new CTS over the dead
 * incarnation as long as it does not know that it is over. Where S has announced what the
 * incarnation may still bring, only that is quarantined. ib_recv_quarantine_end() ends the
 * quarantine.
 */
void ib_recv_quarantine(struct ib_recv *rx, int p);
/* S's report @live comes after the close, when the ledger was @had: the quarantine for @p ends for
 * messages of which @live has no part that @had lacks. */
void ib_recv_quarantine_only(struct ib_recv *rx, int p, const struct r2_parts *live,
                             const struct r2_parts *had);
/* How many messages are quarantined for @p. */
int ib_recv_quarantined(const struct ib_recv *rx, int p);
/* Whether one of those has all its parts: nothing but a quarantine keeps it from NCCL. */
bool ib_recv_is_kept(const struct ib_recv *rx, int p);
void ib_recv_quarantine_peer_stopped(struct ib_recv *rx, int p);
void ib_recv_quarantine_end(struct ib_recv *rx, int p);

/*
 * The same for memory of a GPU alone (P17): what a NIC wrote before its fence may still be on its
 * way over PCIe. gpu: what is open is quarantined. only: of what is quarantined the rest is let
 * go. Both return how many messages are quarantined.
 */
int ib_recv_quarantine_gpu(struct ib_recv *rx, int p);
int ib_recv_quarantine_gpu_only(struct ib_recv *rx, int p);

/* Chooses the path of CTS and acks anew from conn->up; the paths may be others. */
void ib_recv_replan(struct ib_recv *rx);

#endif
