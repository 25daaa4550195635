/*
 * A pipe is the ordered tail of one half of a queue pair: what the device has accepted but not yet
 * made visible.
 *
 * The receive pipe carries accepted segments on their way to memory, each with the receive
 * completion that follows its bytes, and read requests, which are answered only when the writes
 * before them are in memory. The send pipe carries read responses on their way to memory and send
 * completions. A flush (queue pair in ERR) is an item like the others: it comes last, so when the
 * flushed work requests come out, everything accepted before is in memory. RESET and destroy do not
 * wait: the pipe is cut off from its queue pair, its completions are forgotten, but its DMA still
 * happens.
 *
 * Where packets take ways of their own (cfg.reorder_ns) the segments of plain writes are placed in
 * any order. What is told of a write stays true: it is acknowledged when it and all before it are
 * placed, and a write with immediate, a send, a read and a flush come after every write before
 * them.
 */
#ifndef FAB_PIPE_H
#define FAB_PIPE_H

#include "fab_nic.h"

struct fab_pipe {
    struct fab_timer timer;
    struct fab_nic *nic;
    struct fab_ctx *ctx;
    struct fab_pd *pd;
    struct fab_qp *qp; /* NULL: orphan */
    uint32_t qpn;
    uint32_t busy; /* items inside */
    bool sender;   /* the send pipe of its queue pair */
    bool parked;   /* due, but the device hangs */
    bool running;
    bool failed; /* receiver: a region vanished under accepted data; nothing behind it is executed
                    any more */
    struct fab_item *head, *tail;
    struct fab_item *late; /* plain writes that those behind them overtake; what is no plain write
                              waits for them */
    struct fab_item flush; /* queued at most once */
    bool flush_queued;
    struct fab_pipe *next; /* in nic->orphans */
};

struct fab_pipe *fab_pipe_new(struct fab_qp *qp, bool sender);
/* Drops everything inside at once. */
void fab_pipe_free(struct fab_pipe *p);
/* Appends an item; it takes effect @delay after now, and never before the one in front of it. */
void fab_pipe_put(struct fab_pipe *p, struct fab_item *item, uint64_t delay);
void fab_pipe_flush(struct fab_pipe *p);
/* The queue pair lets go of @p: freed now if it holds no DMA, else when that is done. */
void fab_pipe_orphan(struct fab_pipe *p);
/* Fills @pkt->piece with the places of @pkt->h.len bytes at offset @off of the list. False if it is
 * too short. */
bool fab_pkt_scatter(struct fab_pkt *pkt, const struct ibv_sge *sge, uint32_t nsge, uint64_t off);
/* Notes which regions the keys of @pkt->piece stand for: its bytes go to these, or nowhere. */
void fab_pkt_regions(const struct fab_nic *nic, struct fab_pkt *pkt);
/* The device has stood still for @ns, since @since: what was under way takes that much longer. */
void fab_pipe_shift(struct fab_pipe *p, uint64_t since, uint64_t ns);
/* Goes on after a hang. */
void fab_pipe_unpark(struct fab_pipe *p);

#endif
