/*
 * Inside of the TCP device; for tcpdev*.c only.
 *
 * tcpdev --- queue pairs, by number --- sends, receives, arrivals that wait for a receive
 *        \-- memory, by key; GPUs, by ordinal
 *        \-- streams: dialled ones carry the requests of our queue pairs, accepted ones those of
 *            the peers'
 *
 * One lock for all of it. The engine's thread holds it while it moves bytes between memory and its
 * own buffers, at most TCPDEV_CHUNK of them, and not while it waits, writes to a socket or copies
 * memory of a GPU; so a call of verbs waits for some ten microseconds at most (one that ends what a
 * socket takes or a copy of a GPU's memory is for: until that is over), and what it has changed (a
 * queue pair in ERR, a key taken away) holds from its return on. Streams are the engine's alone:
 * others know them as the owner of a list of queue pairs with something to send. What a struct
 * below does not say otherwise of is under the lock.
 */
#ifndef TCPDEV_INT_H
#define TCPDEV_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tcpdev.h"
#include "tcpdev_addr.h"
#include "tcpdev_frame.h"

#define TCPDEV_INLINE    64
#define TCPDEV_MAX_WR    16384
#define TCPDEV_MAX_CQE   (1 << 20)
#define TCPDEV_MAX_QP    65536
#define TCPDEV_MAX_MR    (1 << 20)
#define TCPDEV_BUCKETS   4096
#define TCPDEV_GPUS      64
#define TCPDEV_VENDOR    0x546350u /* vendor_err of what this device completes with an error */
#define TCPDEV_TX_ROOM   (4 * (TCPDEV_CHUNK + TCPDEV_FRAME_SIZE))
#define TCPDEV_RX_ROOM   (64 << 10)
#define TCPDEV_REDIAL_NS 20000000ull /* behind a stream that broke */
#define TCPDEV_DIRECTS   8           /* pieces of a stream that go from where they lie */
#define TCPDEV_URGENT    512 /* a message up to this size goes before the chunks of larger ones */

struct tcpdev;
struct tcpdev_stream;

/* Memory of a GPU can be copied over these lanes. */
struct tcpdev_gpu {
    struct tcpdev_lanes lanes; /* const once @opened */
    bool opened;               /* under tcpdev_gpus.lock */
    _Atomic bool broken;       /* a copy may run for ever: its piece is never used again */
};

/* What copies are for, while one runs without the device's lock, and who waits for its end. */
struct tcpdev_gpus {
    pthread_mutex_t lock; /* while one is opened */
    struct tcpdev_gpu place[TCPDEV_GPUS];
    /* under the device's lock */
    struct tcpdev_qp *busy_qp;
    struct tcpdev_mr *busy_mr;
    pthread_cond_t copied;
};

struct tcpdev_mr {
    struct ibv_mr base; /* first */
    int access;
    struct tcpdev_gpu *gpu; /* NULL: memory of the host */
    bool dead;              /* allows nothing any more */
    bool stuck;             /* a copy may still use it: it is never taken away */
};

struct tcpdev_cq {
    struct ibv_cq base; /* first */
    struct ibv_wc *ring;
    uint32_t room;           /* entries, a power of two */
    _Atomic uint32_t pushed; /* release by who holds the lock; acquire by who polls without it */
    uint32_t polled;         /* under the lock */
};

struct tcpdev_send {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    bool signaled, is_inline;
    uint32_t imm, len, lkey, rkey;
    uint64_t local, remote;
    uint8_t data[TCPDEV_INLINE];
};

/* A message with immediate data that waits for its receive. */
struct tcpdev_arrival {
    uint32_t msn, imm, len;
};

struct tcpdev_qp {
    struct ibv_qp base; /* first */
    struct tcpdev *dev;
    struct tcpdev_qp *next_hash;
    int access;
    bool all_signaled;
    struct {
        bool leaving; /* it goes to ERR, or away, when a copy for it has ended */
        bool stuck;   /* a copy may still write for it: it stands still, and is never fenced */
    } end;

    /* where the other end is; from RTR on */
    struct {
        union tcpdev_at at;
        uint8_t secret[TCPDEV_SECRET_SIZE];
        uint32_t qpn;
    } far;

    /* requester: a ring of a power of two; done <= sent <= posted, counted without end */
    struct {
        struct tcpdev_send *ring;
        uint32_t room, max, posted, sent, done;
    } sq;
    uint32_t sent_off; /* of the message that is being sent */
    uint64_t
        reached; /* sent and sent_off, as far as they ever came: sending again is no progress */
    uint32_t first_msn; /* number of message 0 */
    uint64_t budget_ns; /* without progress for so long: the peer is lost */
    uint64_t since;     /* ns: last progress, while something is out */
    uint64_t retry_at;  /* ns: not before; 0: now */
    struct tcpdev_stream *stream;
    struct tcpdev_qp *next_ready;
    bool is_ready; /* in a list of its stream, or waits for one in dev->orphans */
    struct tcpdev_qp *next_active, **link_active; /* dev->active: something is out */

    /* responder */
    struct {
        uint64_t *ring; /* their wr_id: no receive here has memory of its own */
        uint32_t room, max, posted, taken;
    } rq;
    struct tcpdev_arrival *arrivals;
    uint32_t arrivals_room, arrived, taken;
    uint32_t next_msn, next_off; /* what is expected */
    uint32_t acked_msn;          /* the one behind the last that is done */
    struct tcpdev_stream *asker; /* the stream its requests came by last */
    struct tcpdev_qp *next_ack;
    struct {
        bool due, lost; /* in the list of @asker; it was, of a stream that is no more */
    } ack;
};

/* Payload that goes to the socket from where it lies. */
struct tcpdev_direct {
    size_t at, len; /* of its room in the buffer */
    const uint8_t *from;
    struct tcpdev_qp *qp;
    struct tcpdev_mr *mr;
    uint32_t msn;
};

/* What is to be written: head .. tail of @bytes. The engine's thread alone, but for what is under
 * the lock: pieces that have only their room in it, in order, and the room itself. */
struct tcpdev_out {
    uint8_t *bytes;
    size_t head, tail, room;
    struct tcpdev_direct direct[TCPDEV_DIRECTS];
    int directs;
    struct tcpdev_stream *next, **link; /* in tcpdev_outs.list, while there are any */
};

/* Under the lock. */
struct tcpdev_outs {
    struct tcpdev_stream *list, *busy; /* @busy: its socket takes bytes, without the lock */
    pthread_cond_t written;
};

/* Engine's thread alone, but for what says otherwise. */
enum tcpdev_stream_state {
    TCPDEV_CONNECTING,
    TCPDEV_HELLO, /* the other's hello is awaited */
    TCPDEV_PROOF, /* the other's proof is awaited */
    TCPDEV_UP,
    TCPDEV_DEAD,
    TCPDEV_STREAM_STATES
};

struct tcpdev_stream {
    struct tcpdev_stream *next;
    struct tcpdev *dev;
    int fd;
    enum tcpdev_stream_state state;
    bool dialled;
    uint64_t serial; /* streams of a device are counted: the larger, the later */
    bool wants_out;  /* EPOLLOUT is asked for */
    uint64_t since;  /* ns: begin of its state, while it is not UP */
    union tcpdev_at peer;
    uint8_t secret[TCPDEV_SECRET_SIZE]; /* of the listener */
    uint8_t hello[TCPDEV_HELLO_SIZE];   /* ours */
    struct tcpdev_keys keys;
    uint64_t sent, taken; /* frames */

    struct tcpdev_out out;
    uint8_t in[TCPDEV_RX_ROOM];
    size_t in_head, in_tail;
    /* the frame whose payload is being taken */
    struct tcpdev_frame frame;
    uint32_t frame_left, frame_got;
    bool in_frame, frame_refused;

    /* under the lock: queue pairs with something to send, small messages first */
    struct tcpdev_qp *ready[2], **ready_end[2];
    struct tcpdev_qp *acks, **acks_end;
};

struct tcpdev {
    struct ibv_device device; /* first */
    struct ibv_context ctx;
    struct tcpdev_params params;
    pthread_mutex_t lock;
    uint16_t port; /* that it listens on */
    int listen_fd, epoll_fd, wake_fd;
    pthread_t thread;
    bool running; /* the thread is there */
    _Atomic bool stopping;
    _Atomic bool asleep; /* it waits: wake_fd wakes it */
    struct tcpdev_stream *streams;
    struct tcpdev_qp *qps[TCPDEV_BUCKETS];
    uint32_t qp_count, last_qpn;
    struct tcpdev_qp *orphans; /* have something to send and no stream yet */
    struct tcpdev_qp *active;
    struct tcpdev_mr **mrs;
    uint32_t mr_room, mr_count, mr_next;
    uint64_t seed; /* of keys and numbers */
    struct {
        double left;  /* bytes that may go now */
        uint64_t at;  /* ns */
    } tokens;         /* of the rate */
    uint64_t wake_at; /* ns: the engine has something to do then */
    bool is_held;     /* the rate has no room, until @wake_at */
    uint64_t serials;
    uint64_t listen_at; /* ns: accepts again; 0: it does */
    struct tcpdev_gpus gpu;
    struct tcpdev_outs outs;
};

static inline struct tcpdev *tcpdev_of(struct ibv_context *ctx)
{
    return (struct tcpdev *)((char *)ctx - offsetof(struct tcpdev, ctx));
}

/* Whether @ctx is the device's. */
bool tcpdev_has(const struct ibv_context *ctx);
uint64_t tcpdev_now(void);
uint64_t tcpdev_random(struct tcpdev *d);
/* Rings the engine if it waits. Any thread. */
void tcpdev_wake(struct tcpdev *d);

/* tcpdev_mem.c: memory and completions. Lock held, but for the calls of verbs. */
struct ibv_mr *tcpdev_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access);
int tcpdev_dereg_mr(struct ibv_mr *mr);
/* The memory, if @key allows @access to these bytes; NULL. @len is not 0. */
struct tcpdev_mr *tcpdev_mem_find(const struct tcpdev *d, uint32_t key, uint64_t addr, uint32_t len,
                                  int access);
/* Whether @key allows @access to these bytes. */
bool tcpdev_mem_is_allowed(const struct tcpdev *d, uint32_t key, uint64_t addr, uint32_t len,
                           int access);
struct ibv_cq *tcpdev_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                struct ibv_comp_channel *ch, int vector);
int tcpdev_destroy_cq(struct ibv_cq *cq);
int tcpdev_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
void tcpdev_cq_push(struct ibv_cq *cq, const struct ibv_wc *wc);

/* tcpdev_gpu.c. Lock held, but for the first and the last two. */
/* The GPU of [@addr, @addr + @len), ready to be copied from and to; NULL with errno. May block. */
struct tcpdev_gpu *tcpdev_gpu_of(struct tcpdev *d, const void *addr, size_t len);
/*
 * The engine's thread alone. Copies up to TCPDEV_CHUNK bytes on behalf of @q, and releases the lock
 * meanwhile: all but @q and @m may be others behind it. False, NULL: it failed; @m allows nothing
 * any more. What is read stays until the next copy of that GPU.
 */
bool tcpdev_gpu_write(struct tcpdev_qp *q, struct tcpdev_mr *m, void *to, const void *from,
                      uint32_t len);
const void *tcpdev_gpu_read(struct tcpdev_qp *q, struct tcpdev_mr *m, const void *from,
                            uint32_t len);
/* Until no copy is for @q or @m (NULL: none). EIO: one may write for ever. May block, by
 * TCPDEV_COPY_NS and half of it at most; releases the lock. */
int tcpdev_gpu_wait(struct tcpdev *d, struct tcpdev_qp *q, struct tcpdev_mr *m);
void tcpdev_gpu_setup(struct tcpdev *d);
void tcpdev_gpu_end(struct tcpdev *d);

/* tcpdev_qp.c. Lock held, but for the calls of verbs. */
struct ibv_qp *tcpdev_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int tcpdev_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int tcpdev_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init);
int tcpdev_destroy_qp(struct ibv_qp *qp);
int tcpdev_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int tcpdev_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct tcpdev_qp *tcpdev_qp_find(struct tcpdev *d, uint32_t qpn);
/* No byte is read or written for it any more: it goes, the process does, or it stands still. */
static inline bool tcpdev_qp_ends(const struct tcpdev_qp *q)
{
    return q->end.leaving || q->end.stuck ||
           atomic_load_explicit(&q->dev->stopping, memory_order_relaxed);
}
/* To ERR: the first send that is out fails with @status, all others are flushed. */
void tcpdev_qp_fail(struct tcpdev_qp *q, enum ibv_wc_status status);
/* All messages up to @msn are done at the other end; reads but for @msn, where that is a response,
 * are done when their bytes are here. */
void tcpdev_qp_acked(struct tcpdev_qp *q, uint32_t msn, bool is_response);
/* It has something to send: into the list of its stream. */
void tcpdev_qp_ready(struct tcpdev_qp *q);
void tcpdev_qp_active(struct tcpdev_qp *q, bool on);
/* Its stream is no more: what is out goes again, by another. */
void tcpdev_qp_rewind(struct tcpdev_qp *q, uint64_t now, uint64_t wait_ns);
/* A message with immediate data is whole. -1: no room for what waits for receives. */
int tcpdev_qp_arrive(struct tcpdev_qp *q, const struct tcpdev_arrival *a);
/* Arrivals take the receives that are there; what is done then is owed an ACK. */
void tcpdev_qp_match(struct tcpdev_qp *q);
/* It has something done that its requester does not know: into the list of the stream. */
void tcpdev_qp_owe(struct tcpdev_qp *q);
/* Its requests come by stream @s from now on, which its ACKs take. */
void tcpdev_qp_asker(struct tcpdev_qp *q, struct tcpdev_stream *s);

/* tcpdev_frames.c: requests out, frames in. Lock held. */
/* Builds what fits of the stream's lists into its buffer; whether there was anything. */
bool tcpdev_fill(struct tcpdev_stream *s, uint64_t now);
/* A frame's head has come. NULL; or what is wrong, and the stream ends. */
const char *tcpdev_take(struct tcpdev_stream *s, const struct tcpdev_frame *f);
/* Where the next payload bytes of the frame go. */
struct tcpdev_place {
    uint8_t *to; /* NULL: nowhere, they are dropped */
    struct tcpdev_qp *qp;
    struct tcpdev_mr *mr;
};
struct tcpdev_place tcpdev_take_place(struct tcpdev_stream *s);
/* What it said turned out to be impossible. */
void tcpdev_take_refuse(struct tcpdev_stream *s, struct tcpdev_qp *q);
/* All payload of the frame is there. */
void tcpdev_take_end(struct tcpdev_stream *s);

/*
 * tcpdev_copy.c: as a NIC writes: bytes in the order of their addresses, and each aligned word of 8
 * at once. Who polls memory for an acknowledgement, a CTS or the flag of a line (NCCL's LL and
 * LL128 protocols) finds what stands before it, and never half a word; memcpy() and the kernel's
 * copies promise neither. @from: memory that nobody else writes. Any thread.
 */
void tcpdev_copy_in_order(uint8_t *to, const uint8_t *from, size_t n);

/* tcpdev_stream.c; the engine's thread alone. */
/* A stream over @fd, which it has from here on; NULL: it could not be, and @fd is closed. */
struct tcpdev_stream *tcpdev_stream_new(struct tcpdev *d, int fd, bool dialled);
/* The one writer of its state; whether the move is legal. */
bool tcpdev_stream_move(struct tcpdev_stream *s, enum tcpdev_stream_state to, const char *why);
/* It is DEAD: what it carried goes over another. */
void tcpdev_stream_fail(struct tcpdev_stream *s, const char *why);
/* Frees those that are DEAD; @all: each. */
void tcpdev_streams_reap(struct tcpdev *d, bool all);
void tcpdev_stream_hello(struct tcpdev_stream *s);
/* What has come; what is to go. */
void tcpdev_stream_read(struct tcpdev_stream *s);
void tcpdev_stream_work(struct tcpdev_stream *s);

/* tcpdev_out.c. Lock held, and not released, but for what says otherwise. */
/* Puts a frame's head, and room for its payload, behind what is to be written; NULL: no memory. */
uint8_t *tcpdev_stream_put(struct tcpdev_stream *s, const struct tcpdev_frame *f);
/* Bytes without a frame. The engine's thread alone, without the lock, while there are no frames. */
bool tcpdev_out_bytes(struct tcpdev_stream *s, const void *bytes, size_t len);
/* So much waits that no request is read. Without the lock. */
bool tcpdev_out_is_long(const struct tcpdev_stream *s);
/* The payload of the last frame put goes from where it lies. False: it is to be copied. */
bool tcpdev_out_direct(struct tcpdev_stream *s, const struct tcpdev_direct *p);
/* What waits of @q or of @m (NULL: of none) is copied: nobody reads their memory any more. Not
 * while a socket takes it: tcpdev_out_wait(). */
void tcpdev_out_settle(struct tcpdev *d, const struct tcpdev_qp *q, const struct tcpdev_mr *m);
/* Until no socket takes memory of @q or @m (both NULL: any), and settles. Releases the lock. For
 * any thread but the engine's, which marks first that nothing more of them is to begin. Blocks for
 * one call of a socket that does not wait. */
void tcpdev_out_wait(struct tcpdev *d, const struct tcpdev_qp *q, const struct tcpdev_mr *m);
/* Messages of @q up to @msn are done: what is sent of them once more is not read from their
 * memory. The engine's thread alone. */
void tcpdev_out_acked(struct tcpdev_qp *q, uint32_t msn);
/* Its stream is no more. */
void tcpdev_out_drop(struct tcpdev_stream *s);
/* Writes what the socket takes. The engine's thread alone; takes the lock. */
void tcpdev_out_write(struct tcpdev_stream *s);
void tcpdev_out_setup(struct tcpdev *d);
void tcpdev_out_end(struct tcpdev *d);

/* tcpdev_engine.c */
int tcpdev_engine_start(struct tcpdev *d);
/* Ends the thread and all streams, and the device with them: for models and tests. */
void tcpdev_engine_stop(struct tcpdev *d);
/* tcpdev.c: the devices there are, from 0 on, then NULL. */
struct tcpdev *tcpdev_get(int i);
/* It is no more. */
void tcpdev_forget(struct tcpdev *d);
static inline size_t tcpdev_stream_waiting(const struct tcpdev_stream *s)
{
    return s->out.tail - s->out.head;
}

#endif
