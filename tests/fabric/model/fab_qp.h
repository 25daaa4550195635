/*
 * Queue pairs of the reliable connection service, receive queues and shared receive queues.
 *
 * Requester (fab_qp_req.c): work requests become packets with consecutive 24-bit numbers;
 * cumulative acknowledgements complete them in order; a time-out or a NAK goes back to the oldest
 * unacknowledged packet. Responder (fab_qp_resp.c): takes only the packet with the expected number;
 * older ones are acknowledged again and not executed, younger ones refused once with a NAK. What it
 * accepts goes into the receive pipe (fab_pipe.h). States (fab_qp_state.c): checked against the
 * attributes that verbs demand for each move.
 */
#ifndef FAB_QP_H
#define FAB_QP_H

#include "fab_cq.h"
#include "fab_mr.h"
#include "fab_nic.h"
#include "fab_pipe.h"

/* A receive work request. Its slot is free again when its completion was polled. */
struct fab_rwqe {
    struct fab_rwqe *next;
    uint64_t wr_id;
    uint64_t length; /* sum of the pieces */
    bool told;       /* the library has made up its flush; the device has it still */
    uint32_t nsge;
    struct ibv_sge sge[];
};

struct fab_rq {
    uint8_t *mem;
    uint32_t size, max_sge;
    uint32_t used;   /* slots posted and not yet polled */
    uint32_t queued; /* of these, not yet taken by a message */
    struct fab_rwqe *free, *head, *tail;
};

struct fab_srq {
    struct fab_pd *pd;
    void *user;
    struct fab_rq rq;
    uint32_t limit; /* 0: not armed */
    uint32_t refs;
};

/* A send work request. */
struct fab_wqe {
    struct fab_item item; /* its completion, in the send pipe */
    struct fab_qp *qp;
    uint64_t index; /* position since the last RESET */
    uint64_t wr_id;
    uint64_t length;
    uint64_t raddr;
    uint32_t rkey, imm;
    uint32_t psn, npkts; /* set when it is started */
    uint32_t rd_got;     /* read: response packets taken */
    int opcode;          /* enum ibv_wr_opcode */
    int flags;           /* enum ibv_send_flags */
    int status;          /* of its completion */
    int local_error; /* enum ibv_wc_status found before sending; it completes with it when its turn
                        comes */
    uint32_t nsge;
    uint8_t *inl; /* inline data, length bytes; NULL: gathered from sge when sent */
    struct ibv_sge sge[];
};

struct fab_qp {
    struct fab_nic *nic;
    struct fab_ctx *ctx;
    struct fab_pd *pd;
    struct fab_cq *scq, *rcq;
    struct fab_srq *srq;
    void *user;
    uint32_t qpn;
    enum ibv_qp_state state;
    uint64_t linger_until; /* in ERR: the device takes packets until then */
    struct ibv_qp_cap cap;
    bool sig_all;
    struct fab_qp *hash_next, *nic_next, **nic_prev;
    struct fab_qp *tx_next, *tx_prev;
    bool tx_on;
    bool tx_loop;      /* while tx_on: connected to its own port */
    uint64_t eng_last; /* the engine's: when its last packet arrives */

    struct ibv_qp_attr attr;    /* as modified */
    struct fab_addr self, peer; /* places at the time of INIT->RTR */
    uint32_t dest_qpn;
    uint16_t sport; /* UDP source port or source LID of all its packets, set at INIT->RTR */
    uint16_t dlid;  /* ... destination LID; 0: not InfiniBand, or a router's choice */
    bool ece_told;
    uint32_t ece; /* told, then in use */

    /* Requester. Indices count work requests since RESET: freed <= done <= cur <= posted. */
    uint8_t *sq_mem;
    uint32_t sq_stride;
    uint64_t sq_freed, sq_done, sq_cur, sq_posted;
    uint32_t cur_pkt;          /* next packet of the work request at sq_cur */
    uint32_t next_psn;         /* of the next work request to be started */
    uint32_t una_psn, max_psn; /* oldest unacknowledged; one past the highest ever sent */
    uint32_t since_ackreq;
    uint32_t reads_out; /* reads started and not complete */
    uint32_t retry_left, rnr_left;
    bool rewound; /* went back and nothing was acknowledged since */
    bool rnr_wait;
    bool sqd_drained;
    bool send_stuck;        /* fault: the requester does nothing more until RESET */
    struct fab_timer timer; /* retransmission, or the wait after a receiver-not-ready */
    struct fab_pipe *spipe;

    /* Responder */
    struct fab_rq rq;
    uint32_t epsn;
    bool nak_sent; /* one sequence NAK per gap */
    bool comm_est;
    enum { FAB_RX_IDLE, FAB_RX_SEND, FAB_RX_WRITE } rx_op;
    struct fab_rwqe *rx_recv; /* taken by the send in progress */
    uint64_t rx_off, rx_len;
    uint64_t rx_addr;
    uint32_t rx_key;
    struct fab_pipe *rpipe;
    struct fab_pkt *rd_head, *rd_tail; /* reads being answered */
    uint32_t reads_in,
        dup_reads_in; /* reads accepted and not completely answered; of these, answered again */
    bool ack_due;
    uint8_t ack_syn;
    uint32_t ack_psn;
    bool tx_turn;
};

/* ---- front-end side: errno values, 0 for success ---- */

/*
 * Creates a queue pair in RESET; @init as for ibv_create_qp with the CQs and the SRQ given as model
 * objects. Only IBV_QPT_RC (else EOPNOTSUPP). EINVAL: a capability beyond the device's limits. cap
 * is exactly what was asked for. May allocate.
 */
struct fab_qp_init {
    struct fab_cq *scq, *rcq;
    struct fab_srq *srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type type;
    int sig_all;
    void *user;
};
int fab_qp_init(struct fab_qp *qp, struct fab_pd *pd, const struct fab_qp_init *init);
/* Never waits for DMA; takes the completions of @qp out of its CQs. Succeeds on dead contexts. */
void fab_qp_fini(struct fab_qp *qp);
/* EINVAL: not a move of the state machine, a required attribute missing, one that the move does not
 * allow, a value out of range. */
int fab_qp_modify(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask);
void fab_qp_query(struct fab_qp *qp, struct ibv_qp_attr *attr);
/* As verbs have it: an errno value; nothing blocks. */
int fab_qp_ece_query(struct fab_qp *qp, struct ibv_ece *ece);
int fab_qp_ece_set(struct fab_qp *qp, const struct ibv_ece *ece);
/* On an error *@bad is the first work request not taken. ENOMEM: queue full. EINVAL: state, opcode,
 * too many pieces, too much inline. */
int fab_qp_post_send(struct fab_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fab_qp_post_recv(struct fab_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

int fab_srq_init(struct fab_srq *srq, struct fab_pd *pd, const struct ibv_srq_attr *attr,
                 void *user);
int fab_srq_fini(struct fab_srq *srq); /* EBUSY while queue pairs use it */
int fab_srq_modify(struct fab_srq *srq, const struct ibv_srq_attr *attr, int mask);
int fab_srq_post(struct fab_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- inside the model ---- */

/* fab_rq.c */
int fab_rq_init(struct fab_rq *rq, uint32_t size, uint32_t max_sge);
void fab_rq_fini(struct fab_rq *rq);
void fab_rq_reset(struct fab_rq *rq);
int fab_rq_post(struct fab_rq *rq, const struct ibv_recv_wr *wr); /* ENOMEM, EINVAL */
struct fab_rwqe *fab_rq_take(struct fab_rq *rq);                  /* NULL: empty */
void fab_rq_release(struct fab_rq *rq, struct fab_rwqe *w);
static inline struct fab_rq *fab_qp_rq(struct fab_qp *qp)
{
    return qp->srq ? &qp->srq->rq : &qp->rq;
}

/* fab_qp_state.c */
void fab_qp_error(struct fab_qp *qp); /* to ERR; flushes */
void fab_qp_fatal(struct fab_qp *qp,
                  enum ibv_event_type type); /* the same, with an event of this QP */

/* fab_qp_post.c */
static inline struct fab_wqe *fab_qp_wqe(struct fab_qp *qp, uint64_t index)
{
    return (struct fab_wqe *)(qp->sq_mem + (size_t)(index % qp->cap.max_send_wr) * qp->sq_stride);
}

/* fab_qp_cqe.c: completions, called by the pipes */
void fab_qp_send_cqe(struct fab_qp *qp, const struct fab_wqe *w, enum ibv_wc_status status);
void fab_qp_recv_cqe(struct fab_qp *qp, struct fab_rwqe *r, enum ibv_wc_status status, uint32_t len,
                     const struct fab_hdr *h);
void fab_qp_flush_sends(struct fab_qp *qp);
void fab_qp_flush_recvs(struct fab_qp *qp);
void fab_qp_make_up_recvs(
    struct fab_qp *qp); /* the library flushes what the device may still take */
static inline bool fab_nic_makes_up(const struct fab_nic *nic)
{
    return nic->provider == FAB_PROVIDER_BNXT || nic->provider == FAB_PROVIDER_IONIC;
}
static inline bool fab_qp_lingers(const struct fab_qp *qp)
{
    return qp->state == IBV_QPS_ERR && fab_now(qp->nic->eng) < qp->linger_until;
}

/* fab_qp_req.c: the requester. tx: 1 sent, 0 nothing to send, -1 no room */
void fab_qp_kick(struct fab_qp *qp);
int fab_qp_req_tx(struct fab_qp *qp);
void fab_qp_req_ack(struct fab_qp *qp, const struct fab_hdr *h);
void fab_qp_req_read(struct fab_qp *qp, struct fab_pkt *pkt); /* takes @pkt */
void fab_qp_req_timer(struct fab_timer *t);
void fab_qp_req_fail(struct fab_qp *qp, enum ibv_wc_status status);
void fab_qp_req_resume(struct fab_qp *qp); /* after a hang */

/* fab_qp_resp.c: the responder */
void fab_qp_resp_rx(struct fab_qp *qp, struct fab_pkt *pkt); /* takes @pkt */
int fab_qp_resp_tx(struct fab_qp *qp);
void fab_qp_resp_read(struct fab_qp *qp,
                      struct fab_pkt *pkt); /* a read request came out of the pipe */
void fab_qp_resp_reset(struct fab_qp *qp);

#endif
