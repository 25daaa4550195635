/*
 * Inside of the MPI out-of-band backend; for oob_mpi*.c only. docs/control.md has the whole
 * picture.
 *
 * endpoint (mpi_oob) --- TCP endpoint beneath: has the identity, listens, carries the peers MPI
 * does not reach
 *                    \-- peers, by uuid: each goes by MPI or by TCP, and at most once changes from
 * MPI to TCP by MPI: the channel in use (cur), a dial of ours (dial), one of the peer's (ans)
 *
 * Everything belongs to one thread, as in oob_tcp.h: upcalls only inside progress(), where nothing
 * is freed before reap(). The bytes of hello and frames are those of oob_wire.h, one to an MPI
 * message.
 */
#ifndef OOB_MPI_H
#define OOB_MPI_H

#include <stdbool.h>

#include "oob/oob_mpi_load.h"
#include "oob/oob_wire.h"
#include "oob_mpi_world.h"

#define MPI_QUEUE_MAX     (4u << 20)     /* bytes waiting for one peer */
#define MPI_WINDOW        8              /* messages of one peer that MPI has at a time */
#define MPI_HELLO_TIMEOUT 5000000000ull  /* where the parameters say 0 */
#define MPI_KEEPALIVE     10000000000ull /* the same */
#define MPI_ABSENT        10 /* this part of a keepalive between two turns is no absence */
#define MPI_UNANSWERED    2 /* dials without any answer: no endpoint of this name is in our world */
#define MPI_PEER_BUCKETS  256

/* There is no descriptor to wait on. Polling slows down with the time since something moved,
 * between these. */
#define MPI_POLL_MIN_NS  20000ull
#define MPI_POLL_MAX_NS  1000000ull  /* with a channel */
#define MPI_POLL_IDLE_NS 10000000ull /* without: somebody may dial */

enum mpi_kind {
    MPI_KIND_DIAL = 1,
    MPI_KIND_ANSWER,
    MPI_KIND_FRAME,
    MPI_KIND_REFUSE = WORLD_REFUSE,
    MPI_KIND_FIN
};
/* Payload of the frame in a FIN. */
enum mpi_fin {
    MPI_FIN_CLOSE = 1, /* nobody needs the peer here; it may dial again */
    MPI_FIN_LEAVE,     /* MPI ends here: TCP from now on */
    MPI_FIN_GONE       /* the endpoint ends, and its uuid with it */
};
enum mpi_chan_state {
    MPI_CHAN_NONE,
    MPI_CHAN_HELLO, /* a dial of ours is out */
    MPI_CHAN_AUTH,  /* the other end has yet to prove itself */
    MPI_CHAN_UP,
    MPI_CHAN_STATES
};

struct mpi_chan {
    enum mpi_chan_state state;
    uint8_t by_us;      /* dialled by this end */
    uint8_t own_secret; /* dialled with our secret: we had no name of the peer */
    int source;         /* of an ans: the rank it comes from */
    uint64_t id;        /* chosen by the dialler */
    uint64_t tx_seq, rx_seq;
    uint64_t deadline; /* of everything but UP */
    uint64_t last_rx, last_ping;
    struct oob_keys keys;
    uint8_t hello[OOB_HELLO_SIZE]; /* of a dial of ours */
};

/* Who is not let in. One line each in the log of the process. */
enum mpi_stranger {
    MPI_STRANGER_GARBAGE, /* its first bytes are not of this protocol */
    MPI_STRANGER_UNKNOWN, /* claims a secret that there is not, or to be somebody else */
    MPI_STRANGER_SECRET,  /* its secret is wrong */
    MPI_STRANGERS
};

enum mpi_via { MPI_VIA_MPI, MPI_VIA_TCP };

struct mpi_peer {
    struct mpi_peer *next_all, *next_hash;
    struct mpi_oob *oob;
    struct r2_oob_name name; /* secret valid when @has_name */
    enum mpi_via via;
    int refs;
    uint8_t has_name; /* we were given the name */
    uint8_t was_up;   /* by MPI */
    uint8_t gone;     /* its endpoint has ended */
    uint8_t tcp_ref;  /* @tcp is referenced by us */
    struct r2_oob_peer *tcp;
    int rank; /* -1: not known yet */
    unsigned attempt, unanswered;
    uint64_t dial_at;
    struct mpi_chan cur, dial, ans;
    struct world_out *out, **out_last; /* posted ones first */
    size_t out_bytes;
    int out_posted;
    uint64_t
        out_deadline; /* of the queue of a peer that nobody references and no channel has; 0 none */
    char str[112];
};

struct mpi_oob {
    struct r2_oob base; /* first */
    struct r2_oob_events ev;
    struct r2_env env;
    struct r2_oob_mpi_params params;
    struct r2_oob *tcp;
    struct r2_oob_name name; /* as others see it */
    struct world_box box;
    int epfd;
    uint64_t hello_timeout, keepalive;
    uint64_t now, last_active, last_turn;
    uint8_t in_progress, touched, stopping, leaving, left;
    struct mpi_peer *peers, *hash[MPI_PEER_BUCKETS];
    struct r2_oob_counters count;
    struct oob_logged bad;        /* whose frames were bad */
    uint8_t strangers_logged;     /* bit per enum mpi_stranger */
    uint8_t frame[OOB_FRAME_MAX]; /* being made */
};

#define MPI_INFO_LOG(o, ...)  ((o)->params.log(R2_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__))
#define MPI_TRACE_LOG(o, ...) ((o)->params.log(R2_LOG_TRACE, __FILE__, __LINE__, __VA_ARGS__))
#define MPI_WARN_LOG(o, ...)  ((o)->params.log(R2_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__))

/* oob_mpi.c: progress() is needed without an event. */
void mpi_touch(struct mpi_oob *o);

/* oob_mpi_chan.c. All inside progress only, unless said otherwise. */

/* The only writer of a channel's state; @c is one of @p's. To the state that it has: nothing
 * happens. What is no legal move is logged, and refused. Anywhere. */
void mpi_chan_move(struct mpi_peer *p, struct mpi_chan *c, enum mpi_chan_state to);
/* All three of the peer's are no more. Anywhere. */
void mpi_chan_drop_all(struct mpi_peer *p);
void mpi_chan_message(struct mpi_oob *o, const struct world_in *m);
void mpi_chan_dial(struct mpi_peer *p);
/* A frame for the channel in use; -1 with errno. Anywhere. */
int mpi_chan_put(struct mpi_peer *p, struct mpi_chan *c, enum mpi_kind kind, uint8_t type,
                 const void *msg, size_t len);
/* Says FIN on the channel in use and forgets it. Anywhere. */
void mpi_chan_fin(struct mpi_peer *p, enum mpi_fin code);
/* This end has not looked for @away: that is nobody's silence. */
void mpi_chan_excuse(struct mpi_peer *p, uint64_t away);
/* Timers of the peer's channels; the next one. */
uint64_t mpi_chan_scan(struct mpi_peer *p);

/* oob_mpi_peer.c */
struct mpi_peer *mpi_peer_find(struct mpi_oob *o, const uint64_t uuid[2]);
struct mpi_peer *mpi_peer_create(struct mpi_oob *o, const uint64_t uuid[2], enum mpi_via via);
void mpi_peer_text(struct mpi_peer *p);
void mpi_peer_queue(struct mpi_peer *p, struct world_out *m);
/* Hands to MPI what it takes, frees what is through; how many those are. */
int mpi_peer_pump(struct mpi_peer *p);
/* The queue of a channel that is no more; what MPI has stays with MPI. */
void mpi_peer_drop_queue(struct mpi_peer *p, int all);
/* The channel, or a dial, is lost: tells the owner, plans the next dial. Inside progress only. */
void mpi_peer_lost(struct mpi_peer *p, int refused);
/* MPI does not reach this peer, or no longer. Inside progress only. */
void mpi_peer_to_tcp(struct mpi_peer *p);
void mpi_peer_reap(struct mpi_oob *o);
void mpi_peer_free_all(struct mpi_oob *o);

/* Upcalls of the TCP endpoint; @arg is the endpoint. */
void mpi_tcp_message(void *arg, struct r2_oob_peer *tcp, const void *msg, size_t len);
void mpi_tcp_up(void *arg, struct r2_oob_peer *tcp);
void mpi_tcp_down(void *arg, struct r2_oob_peer *tcp, int refused);

/* Entries of the ops table. */
struct r2_oob_peer *mpi_peer_get(struct r2_oob *oob, const struct r2_oob_name *name);
void mpi_peer_ref(struct r2_oob_peer *peer);
void mpi_peer_put(struct r2_oob_peer *peer);
const uint64_t *mpi_peer_uuid(const struct r2_oob_peer *peer);
const char *mpi_peer_str(const struct r2_oob_peer *peer);
bool mpi_peer_is_up(const struct r2_oob_peer *peer);
int mpi_peer_send(struct r2_oob_peer *peer, const void *msg, size_t len);

#endif
