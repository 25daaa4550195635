/*
 * Out-of-band channel: messages between two processes, beside the data NICs (protocol section 4,
 * docs/control.md).
 *
 * One endpoint per process, one channel per process pair, however many connections share it. A
 * message arrives whole or not at all; messages on one live channel keep their order; a message
 * queued when a channel is lost may be lost with it, and may be lost without notice: everything
 * above repeats until answered. Messages are authenticated: a stranger, a wrong secret, a replayed,
 * truncated or oversized frame is dropped and counted, the channel closed, and nothing above hears
 * of it.
 *
 * Thread rule: an endpoint and its peers belong to one thread, the service thread of the process
 * (in simulation: the one thread). Every function here is called on it.
 * Nothing here blocks.
 */
#ifndef R2_OOB_H
#define R2_OOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define R2_OOB_MAX_MESSAGE (64 * 1024) /* protocol P30 */

/* Where and who an endpoint is: travels in the NCCL handle. 56 bytes, no padding, integers little
 * endian on the wire. */
struct r2_oob_name {
    uint64_t uuid[2];   /* of the process, random, never zero */
    uint8_t secret[16]; /* who knows it may open a channel */
    uint8_t family;     /* 4, 6; 0 = a backend that needs no address */
    uint8_t
        world; /* not 0: reached by MPI too; with the top byte of scope the mark of the MPI job */
    uint16_t port;    /* host order in memory */
    uint32_t scope;   /* of the address; with world: mark and, in 24 bits, the rank */
    uint8_t addr[16]; /* network order; IPv4 in the first four */
};

struct r2_oob;
struct r2_oob_peer;

/* Upcalls, on the service thread, from within ops->progress(). They may call every function of
 * this header except destroy. */
struct r2_oob_events {
    void *arg;
    /* @msg is valid during the call only. @peer is known to be the process peer_uuid() says. */
    void (*message)(void *arg, struct r2_oob_peer *peer, const void *msg, size_t len);
    /* a channel is established (again): what is unanswered is to be sent again */
    void (*up)(void *arg, struct r2_oob_peer *peer);
    /* the channel is lost; redialled with back-off for as long as the peer is referenced. @refused:
     * the last dial was refused, that is, the host answers and nobody listens there: the process is
     * most likely gone. Called at every failed dial too. */
    void (*down)(void *arg, struct r2_oob_peer *peer, int refused);
};

struct r2_oob_counters {
    uint64_t sent, received, bytes_sent, bytes_received;
    uint64_t strangers, bad_frames, reconnects, queue_full;
};

struct r2_oob_ops {
    const char *name;
    void (*destroy)(struct r2_oob *oob);
    /* Descriptor that is readable when progress() has something to do, or -1 (simulation). Level
     * triggered. */
    int (*fd)(struct r2_oob *oob);
    /* Does all that is ready; returns the time (ns, the clock of r2_env) of its next deadline,
     * UINT64_MAX for none. */
    uint64_t (*progress)(struct r2_oob *oob, uint64_t now_ns);
    void (*name_get)(struct r2_oob *oob, struct r2_oob_name *name);
    /*
     * Peer by name; makes it known and dials when it is new. Takes a reference. NULL with errno
     * when out of memory or when the name cannot be dialled. A peer that dialled us is found by the
     * same uuid (one peer object per process).
     */
    struct r2_oob_peer *(*peer_get)(struct r2_oob *oob, const struct r2_oob_name *name);
    void (*peer_ref)(struct r2_oob_peer *peer);
    /* Drops a reference; with the last one the channel is closed in order once its queue is out (no
     * RST over unread data). */
    void (*peer_put)(struct r2_oob_peer *peer);
    const uint64_t *(*peer_uuid)(const struct r2_oob_peer *peer);
    const char *(*peer_str)(const struct r2_oob_peer *peer); /* "host:port" or alike, for logs */
    bool (*peer_is_up)(const struct r2_oob_peer *peer);
    /* Queues a copy of @msg. 0, or -1 when the channel is down or its queue is full: repeat later.
     */
    int (*send)(struct r2_oob_peer *peer, const void *msg, size_t len);
    /* P28: push out what is queued, then half close and wait for the peers' EOF, at most @limit_ns.
     * Blocks; at exit only. */
    void (*drain)(struct r2_oob *oob, uint64_t limit_ns);
    void (*counters)(struct r2_oob *oob, struct r2_oob_counters *out);
};

/* Common head of every backend's object. */
struct r2_oob {
    const struct r2_oob_ops *ops;
};

struct r2_oob_tcp_config {
    const char *ifname; /* NCCL_R2_OOB_IFNAME, else NCCL_SOCKET_IFNAME; "" = choose. Syntax of NCCL:
                           '^', '=' , commas */
    const char *family; /* NCCL_SOCKET_FAMILY: "", "AF_INET", "AF_INET6" */
    const char *const
        *avoid; /* netdevs of data NICs, NULL terminated: used only when nothing else is there */
    uint64_t hello_timeout_ns; /* unauthenticated channels live no longer */
    uint64_t keepalive_ns; /* a channel silent for 3 x this is half open: closed and redialled */
};

/* TCP backend. NULL with the reason in @why. Listens on an ephemeral port. */
struct r2_oob *r2_oob_tcp_create(const struct r2_oob_tcp_config *cfg,
                                 const struct r2_oob_events *ev, char *why, size_t why_len);

#endif
