/*
 * Inside of the TCP out-of-band channel; for oob_tcp*.c only.
 *
 * endpoint (tcp_oob) --- peers, by uuid --- per peer: at most one channel in use (cur) and one dial
 * (dial)
 *                    \-- channels: all of them, also strangers and those that only run dry
 *
 * Everything belongs to one thread. Upcalls happen only inside progress(), and may call back into
 * the endpoint, so inside progress nothing is freed: channels become DEAD, peers lose their last
 * reference, and reap() at the end frees both. Outside of progress (send, peer_get, peer_put) no
 * upcall is made: what needs one is noted and touch() makes progress() look.
 */
#ifndef OOB_TCP_H
#define OOB_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/r2_env.h"
#include "oob/oob_wire.h"
#include "oob/r2_oob.h"

#define OOB_QUEUE_MAX  (4u << 20) /* bytes waiting for one peer */
#define OOB_PLACES_MIN 64         /* of channels dialled by nobody we know yet: an eighth of the */
#define OOB_PLACES_MAX 512        /* descriptors that the process may have, within these bounds */
#define OOB_READ_BUDGET                                                                            \
    (256u << 10) /* bytes of one channel per turn: the others want their turn too */
#define OOB_TURN_NS       1000000ull     /* of reading: the process has more to do than to listen */
#define OOB_HELLO_TIMEOUT 5000000000ull  /* where the configuration says 0 */
#define OOB_KEEPALIVE     10000000000ull /* the same */
#define OOB_PEER_BUCKETS  256

struct oob_if;

struct tcp_buf {
    uint8_t *data;
    size_t head, tail, cap; /* valid bytes: head .. tail */
};

/* Who is not let in. One line each in the log of the process. */
enum oob_stranger {
    OOB_STRANGER_GARBAGE, /* its first bytes are not of this protocol */
    OOB_STRANGER_CUT,     /* closed in the middle of them */
    OOB_STRANGER_SILENT,  /* says nothing for too long */
    OOB_STRANGER_CROWD,   /* the same, and its place is needed */
    OOB_STRANGER_LOST,    /* looks for another process */
    OOB_STRANGER_UNKNOWN, /* claims a secret that there is not */
    OOB_STRANGER_SECRET,  /* its secret is wrong */
    OOB_STRANGERS
};

/* An address that somebody dials from who has not proved anything yet. */
struct tcp_source {
    uint8_t addr[16];
    unsigned waiting; /* channels; 0: the row is free */
};

enum chan_state {
    CHAN_CONNECTING, /* dialled: connect() has not answered */
    CHAN_HELLO,      /* the peer's hello is awaited */
    CHAN_AUTH,       /* the peer's AUTH is awaited */
    CHAN_UP,
    CHAN_DRAIN, /* our side only empties its queue and then half closes; ends with the peer's EOF */
    CHAN_DEAD,  /* closed; waits for reap() */
    CHAN_STATES
};

struct tcp_chan {
    struct tcp_chan *next;
    struct tcp_oob *oob;
    struct tcp_peer *peer; /* NULL: dialled by somebody who has not proved anything yet */
    int fd;
    enum chan_state state;
    uint8_t by_us;      /* dialled by this end */
    uint8_t own_secret; /* dialled with our secret: we had no name of the peer yet */
    uint8_t mute;       /* messages that still arrive are for nobody */
    uint8_t fin;        /* half closed */
    uint8_t eof;        /* the peer has half closed and we still have something to say */
    uint8_t armed;      /* EPOLLOUT is asked for */
    int err;            /* errno of a send() outside of progress, 0 */
    uint64_t since;     /* peer == NULL: in its state, of those that oob_waiter tells apart */
    struct tcp_source *source; /* peer == NULL: where it comes from */
    uint64_t deadline;         /* of everything but UP */
    uint64_t last_rx, last_ping;
    uint64_t tx_seq, rx_seq;
    uint64_t lost_id; /* of its dialler's hello */
    uint64_t id;
    struct oob_keys keys;
    uint8_t dial_hello[OOB_HELLO_SIZE];
    struct oob_hello theirs;
    struct tcp_buf rx, tx;
};

struct tcp_peer {
    struct tcp_peer *next_all, *next_hash;
    struct tcp_oob *oob;
    struct r2_oob_name name; /* secret valid when @has_secret */
    uint8_t has_secret;      /* we were given the name: the pair may use this secret */
    uint8_t self;            /* this process: no channel, a queue */
    uint8_t warned;          /* about its version */
    int refs;
    int chans; /* channels that point here */
    struct tcp_chan *cur, *dial;
    uint64_t last_id; /* of the last channel that stood */
    unsigned attempt;
    uint64_t dial_at;
    char str[72];
};

struct tcp_note { /* a message to ourselves */
    struct tcp_note *next;
    size_t len;
    uint8_t data[];
};

struct tcp_oob {
    struct r2_oob base; /* first */
    struct r2_oob_events ev;
    struct r2_env env;
    struct r2_oob_name name;
    uint64_t hello_timeout, keepalive;
    int epfd, wakefd;
    struct {
        int fd;
        struct tcp_oob *next; /* oob_tcp_listen.c */
        uint8_t paused;
        uint8_t starved;          /* paused for want of descriptors, not of places */
        uint8_t strangers_logged; /* bit per kind */
        uint64_t at;              /* a paused listener is checked again */
        int pending;              /* channels with peer == NULL */
        int places;               /* for these */
        struct tcp_source source[OOB_PLACES_MAX];
    } door; /* oob_tcp_door.c */
    uint8_t in_progress, stopping, rescan, self_up;
    struct {
        uint64_t now, next; /* time of this turn; deadline found by the last scan */
        uint64_t began;     /* env.now_ns() then, which goes on while it lasts */
    } turn;
    struct tcp_chan *chans;
    struct tcp_peer *peers, *self, *hash[OOB_PEER_BUCKETS];
    struct {
        struct tcp_note *first, **last;
        size_t bytes;
    } note;
    struct oob_logged versions, bad; /* who dialled with another version; whose frames were bad */
    struct r2_oob_counters count;
};

/* oob_tcp.c: this turn has lasted long enough; what has come is read in the next one. */
bool oob_tcp_turn_is_over(const struct tcp_oob *o);
/* oob_tcp.c: something for progress() to do without an event of a socket. */
void oob_tcp_touch(struct tcp_oob *o);
/* A dialler without the right secret, or with no manners: counts it, and says the first of each
 * kind. */
void oob_tcp_stranger(struct tcp_oob *o, const struct tcp_chan *c, enum oob_stranger kind);
/* A bad frame of somebody who knows the secret, @from: counts it, says the first of each process,
 * closes nothing. */
void oob_tcp_bad_frame(const struct tcp_chan *c, const uint64_t from[2], enum oob_bad why);
/* Text of an address; family 4 or 6. */
void oob_tcp_addr_text(const struct r2_oob_name *n, char *out, size_t len);

/* oob_tcp_listen.c. Binds to the address of @i, so that nobody finds us on another network. The
 * port is the kernel's choice. -1 with errno. From here on a child of fork() has neither the socket
 * nor those of @o's channels. Any thread. */
int oob_listen_open(struct tcp_oob *o, const struct oob_if *i);
/* No more connections; none where it is closed already. The thread of progress. */
void oob_listen_close(struct tcp_oob *o);
/* Closes it, and @o may be freed: before that its channels are. */
void oob_listen_forget(struct tcp_oob *o);
/* What a child of fork() closes does not change between these two: the list of @o's channels, and
 * their descriptors. Blocks while a fork() is going on. */
void oob_fork_hold(void);
void oob_fork_release(void);
/*
 * Ends the socket *@fd, which is in @o's epoll, and makes *@fd -1; between the two above. A child
 * may have it, too, as one of posix_spawn() between its fork() and exec(), where no handler runs.
 * Then close() alone neither takes it out of the epoll, which goes on to tell of events of a
 * channel that has been freed, nor tells the peer.
 */
void oob_fd_close(const struct tcp_oob *o, int *fd);

/* oob_tcp_door.c: places of those who have not proved the secret yet, and the listener */
int oob_door_places(void);
void oob_door_enter(struct tcp_chan *c);
/* @c is proved or closed: its place is free. Anywhere. */
void oob_door_leave(struct tcp_chan *c);
/* Takes in who waits in the kernel, and throws out whose time is over where there is no place.
 * Inside progress only. */
void oob_door_accept(struct tcp_oob *o);
/* Opens a paused listener again when it is time; returns when to look again. */
uint64_t oob_door_scan(struct tcp_oob *o);

/* oob_tcp_chan.c */
/* The only writer of a channel's state behind its creation. What is no legal move is logged, and
 * refused. */
void oob_chan_move(struct tcp_chan *c, enum chan_state to);
/* Takes @fd over, also on failure. NULL: out of memory. @peer NULL: dialled from outside. Between
 * oob_fork_hold() before there is @fd and oob_fork_release(). */
struct tcp_chan *oob_chan_create(struct tcp_oob *o, int fd, struct tcp_peer *peer,
                                 enum chan_state state);
/* Closes without a message to anybody; the memory goes at reap(). Anywhere. */
void oob_chan_close(struct tcp_chan *c);
/* Closes and tells the peer's owner. Inside progress only. */
void oob_chan_fail(struct tcp_chan *c, int refused);
/* Stops using @c: what is queued goes out, then FIN; it ends with the peer's EOF or at its
 * deadline. Anywhere. */
void oob_chan_drain(struct tcp_chan *c, int mute);
/* Appends raw bytes (hello) or a frame; -1 with errno. Does not write to the socket. */
int oob_chan_put(struct tcp_chan *c, const void *data, size_t len);
int oob_chan_put_frame(struct tcp_chan *c, uint8_t type, const void *payload, size_t len);
/* Writes what the socket takes; an error is kept in c->err for the next scan. Anywhere. */
void oob_chan_flush(struct tcp_chan *c);
/* Reads and hands up what is there, up to OOB_READ_BUDGET. Inside progress only. */
void oob_chan_read(struct tcp_chan *c);
void oob_chan_event(struct tcp_chan *c, uint32_t events);
/* Frees dead channels. End of progress only. */
void oob_chan_reap(struct tcp_oob *o);

/* oob_tcp_auth.c: consume the peer's hello or AUTH at the front of c->rx. 1: done, look again; 0:
 * more bytes; -1: c was closed or refused. */
int oob_auth_hello(struct tcp_chan *c);
int oob_auth_frame(struct tcp_chan *c, const struct oob_frame *f);
/* Our hello, when connect() is through. */
void oob_auth_begin(struct tcp_chan *c);

/* oob_tcp_peer.c */
struct tcp_peer *oob_peer_find(struct tcp_oob *o, const uint64_t uuid[2]);
struct tcp_peer *oob_peer_create(struct tcp_oob *o, const uint64_t uuid[2]);
void oob_peer_dial(struct tcp_peer *p);
/* @c stands and is the one to use from now on. Inside progress only. */
void oob_peer_adopt(struct tcp_peer *p, struct tcp_chan *c);
/* @c, which was p->cur or p->dial, is gone. Inside progress only. */
void oob_peer_lost(struct tcp_peer *p, struct tcp_chan *c, int refused);
void oob_peer_reap(struct tcp_oob *o);
void oob_peer_free_all(struct tcp_oob *o);
/* Hands up what was queued for ourselves before this turn. */
void oob_self_deliver(struct tcp_oob *o);

/* Entries of the ops table. */
struct r2_oob_peer *oob_peer_get(struct r2_oob *oob, const struct r2_oob_name *name);
void oob_peer_ref(struct r2_oob_peer *peer);
void oob_peer_put(struct r2_oob_peer *peer);
const uint64_t *oob_peer_uuid(const struct r2_oob_peer *peer);
const char *oob_peer_str(const struct r2_oob_peer *peer);
bool oob_peer_is_up(const struct r2_oob_peer *peer);
int oob_peer_send(struct r2_oob_peer *peer, const void *msg, size_t len);

#endif
