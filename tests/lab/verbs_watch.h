/*
 * verbs_watch: two processes with one RC queue pair between them, and everything that verbs reports
 * when something below breaks. A plain verbs program: the same binary runs on rdma-core and on the
 * software fabric's drop-in library.
 *
 *   verbs_watch.c   options, the loop
 *   verbs_link.c    device, queue pair, exchange over TCP
 *   verbs_data.c    writes, receives, completions
 *   verbs_look.c    what is asked or told apart from completions: events, port, GID, device list,
 *                   state
 *   verbs_note.c    observations and how they are printed
 *   verbs_end.c     the end of a queue pair: state, ERR and markers, destroy
 *
 * One thread. Times are CLOCK_MONOTONIC ns. Functions that return int give 0 or an errno value
 * unless they say otherwise.
 */
#ifndef VERBS_WATCH_H
#define VERBS_WATCH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "plugin/base/r2_time.h"

#define VW_NSEC_MS R2_NS_PER_MS
#define VW_TICK_NS (10 * VW_NSEC_MS) /* how often port, GID and queue pair state are asked for */
#define VW_LIST_NS (500 * VW_NSEC_MS)
#define VW_BLOCK_S                                                                                 \
    20u /* a verbs call that takes longer is reported as blocked, and ends the program */
#define VW_NOTES    64
#define VW_MARKS    8
#define VW_NAME_MAX 48

struct vw_opts {
    const char *listen_at, *connect_to; /* ADDR:PORT, one of them */
    const char *dev;                    /* NULL: the first */
    const char *fault_cmd;  /* run by sh at fault_after of traffic; NULL: marks come from stdin or
                               the peer */
    int ib_port, gid_index; /* gid_index -1: the last IPv4 one */
    int mtu;                /* bytes; 0: the port's active one */
    int timeout, retry, rnr, label;
    uint32_t size, depth;
    bool recv_only;
    uint64_t pace_ns; /* the window is filled this often; 0: whenever a write is done */
    uint64_t observe_ns, limit_ns, stall_ns, fault_after_ns;
};

/* What one end tells the other. */
struct vw_peer {
    union ibv_gid gid;
    uint32_t qpn, psn, rkey, mtu, size, depth;
    uint64_t addr;
};

/* One direction's progress. */
struct vw_flow {
    uint64_t posted, ok, failed;
    uint64_t last_ok; /* time of the last success; of the start before the first */
    uint64_t before;  /* successes before the first mark */
    uint64_t gap_ns,
        gap_at; /* longest pause between successes that ended after the first mark, and its start */
    bool stopped;
};

enum vw_kind {
    VW_WC,
    VW_EVENT,
    VW_PORT,
    VW_GID,
    VW_DEVICE,
    VW_QP,
    VW_CALL,
    VW_PROGRESS,
    VW_PEER,
    VW_SEQ
};

struct vw_note {
    enum vw_kind kind;
    char what[VW_NAME_MAX];
    uint64_t first, last, since_ok; /* since_ok: ns from the last success to the first occurrence */
    uint32_t count, order;
};

struct vw_mark {
    char name[VW_NAME_MAX];
    uint64_t at;
};

/* Lines that come in; fd -1: no more. */
struct vw_words {
    int fd;
    char line[256];
    uint32_t len;
};

struct vw {
    struct vw_opts o;
    struct ibv_context *ctx;
    struct ibv_comp_channel *chan;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    uint8_t *buf; /* depth slots to send from, then depth slots to receive into */
    union ibv_gid gid;
    struct vw_peer peer;
    int tcp;                              /* -1 once the peer closed it */
    struct vw_words said, typed, ordered; /* of the peer, on standard input, by the fault command */

    uint64_t start, fill_next;
    struct vw_flow send, recv;
    uint32_t next_imm;         /* expected */
    bool send_over, recv_over; /* an error ended that direction */
    struct vw_note note[VW_NOTES];
    uint32_t notes;
    struct vw_mark mark[VW_MARKS];
    uint32_t marks;
    uint32_t port_state, gid_errno, qp_state; /* as last seen; port_state above 255: 256 + errno */
    bool listed, gid_same;
    uint64_t list_next;
    bool ended, peer_done;
    int fault_pid, fault_go; /* 0: no fault command; -1: it was told */
};

uint64_t vw_now(void);

/* ---- verbs_link.c: blocks; what went wrong is on stderr ---- */

/* Opens device, queues and memory. -1 on failure. */
int vw_open(struct vw *w);
/* Connects to the peer over TCP and brings the queue pair to RTS, receives posted. -1 on failure.
 */
int vw_connect(struct vw *w);
/* One line to the peer; a closed connection is no error here. */
void vw_tell(struct vw *w, const char *line);

/* ---- verbs_data.c: never blocks ---- */

int vw_recv_post(struct vw *w, uint32_t slot);
/* Posts as many writes as the depth allows. */
void vw_send_fill(struct vw *w);
/* Takes every completion there is. */
void vw_poll(struct vw *w);
/* Notes flows that have paused for too long. */
void vw_stall_check(struct vw *w, uint64_t now);

/* ---- verbs_look.c ---- */

/* First look: what is normal. Nothing is noted. */
void vw_look_init(struct vw *w);
/* Takes the asynchronous events that are there. Blocks: no. */
void vw_events(struct vw *w);
/* Port, GID, state and, now and then, the device list. The calls are those of libibverbs and may
 * enter the kernel. */
void vw_look(struct vw *w, uint64_t now);

/* ---- verbs_note.c ---- */

/* An observation; the first of its kind and words is printed at once. */
void vw_note(struct vw *w, enum vw_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, of something that was so since @at. */
void vw_note_at(struct vw *w, enum vw_kind kind, uint64_t at, const char *what);
/* The first mark is the fault. @tell: the peer is told. A name that exists already changes nothing.
 */
void vw_mark(struct vw *w, const char *name, uint64_t at, bool tell);
/* Marks, totals of all observations in the order of their first occurrence, flows. */
void vw_notes_print(struct vw *w);
const char *vw_status_name(int wc_status);
const char *vw_errno_name(int errnum); /* "EIO" */
const char *vw_event_name(int event_type);
const char *vw_state_name(int qp_state);

/* From here until the next call, SIGALRM after VW_BLOCK_S says that @what blocks, and ends the
 * program; NULL: no more.
 */
void vw_guard(const char *what);

/* ---- verbs_end.c ---- */

/* State, move to ERR, markers, destroy; prints one line. Blocks up to some seconds. */
void vw_end(struct vw *w);

#endif
