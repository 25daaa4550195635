/*
 * A library that flushes a queue pair of its own accord, before any fence has moved it (bnxt_re: at
 * a QP event, and behind the first error completion), while the device has the work in hand still.
 * Behind race_rig.h or relay_rig.h.
 */
#ifndef EARLY_FLUSH_H
#define EARLY_FLUSH_H

/* Of S's path 0: so many sends, from message @seq on, are flushed by the library alone. */
static struct {
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
    struct ibv_cq *cq;
    enum ib_wr_kind kind;
    uint64_t seq;
    int left;
} flush;

static inline int poll_cq_flush(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    int got = 0;

    for (; cq == flush.cq && flush.left && got < n; got++, flush.left--) {
        uint32_t code = wc[got].vendor_err; /* bnxt_re_poll_flush_wcs() does not write it */

        wc[got] = (struct ibv_wc){.wr_id = ib_wr_id(flush.kind, 0, flush.seq++),
                                  .status = IBV_WC_WR_FLUSH_ERR,
                                  .vendor_err = code};
    }
    return got ? got : flush.poll_cq(cq, n, wc);
}

/* The event of a queue pair has reached S's library, which has it in ERR by itself. */
static inline void library_flushes(enum ib_wr_kind kind, uint64_t first, int n)
{
    const struct ib_path *path = &comm(0)->conn.path[0];
    struct ibv_context_ops *ops = &rig->side[0].inst->nics.nic[path->nic].ctx->ops;

    flush.poll_cq = ops->poll_cq;
    flush.cq = path->cq;
    flush.kind = kind;
    flush.seq = first;
    flush.left = n;
    ops->poll_cq = poll_cq_flush;
}

#endif
