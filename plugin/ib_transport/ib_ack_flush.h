/*
 * NCCL_R2_ACK=flush (protocol P34): arrivals in the memory of a GPU that are not in the ledger yet,
 * since a read through the NIC that brought them has to come back first. Part of ib_flush, whose
 * lanes do the reading.
 *
 * All functions are called with the connection's gate held, on the data path: no lock, allocation,
 * system call, or log but for what has failed; they never block.
 */
#ifndef IB_ACK_FLUSH_H
#define IB_ACK_FLUSH_H

#include "ib_flush.h"

/* An arrival, in the order of its completion on its path. */
struct ib_unread_part {
    uint64_t seq;
    uint32_t bytes;
    uint8_t k, nparts;
};

/* Of one path, in one incarnation. Counts of arrivals; no more than a receive queue holds are apart
 * (P2).
 */
struct ib_unread {
    uint16_t taken;  /* in the ledger */
    uint16_t back;   /* their read is back */
    uint16_t posted; /* their read is out, or back */
    uint16_t come;
    uint32_t inc;
    uint64_t since; /* ns: when something came back last, or a read could first be posted; 0: none
                       could be yet */
    struct ib_unread_part part[R2_LEDGER_WINDOW];
};

struct ib_ack_flush {
    struct ib_unread path[IB_MAX_PATHS];
    uint64_t parts,
        dropped; /* counters: arrivals that waited; that were dropped with their incarnation */
};

/*
 * An arrival on @p that the ledger would take. R2_LEDGER_NEW: it waits for its read; *wait is 0
 * when it need not, and belongs in the ledger. Else why it cannot be (P7, P9).
 */
enum r2_ledger_result ib_ack_flush_arrival(struct ib_recv *rx, struct ib_path *p, struct ib_imm imm,
                                           uint32_t bytes, int *wait);

/* Posts reads, polls for those that are back. A path whose reads stay away is reported (sink). */
void ib_ack_flush_step(struct ib_recv *rx);

/* The next arrival whose read is back; 0 when there is none. Out of the list with this. */
int ib_ack_flush_next(struct ib_recv *rx, int *path, struct ib_unread_part *part);

/* The incarnation of @p is closed: what waits was never here, and is sent again. */
void ib_ack_flush_closed(struct ib_recv *rx, int p);

#endif
