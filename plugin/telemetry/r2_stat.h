/*
 * Statistics of a process in a mapped file of its own (docs/diagnosis.md): format, writer,
 * reader. For the plugin and r2_stat.
 *
 * Format, version 7. Records, each of them a number and a struct below. All is words of 64 bits in
 * the host's order. The number is odd while its record changes and grows by two with each change,
 * so a reader knows whether what it has is whole. Structs hold fixed-width fields without holes,
 * texts are ended by a zero.
 *
 *   at 0             head: magic, version and sizes, number of the round, then the record of the
 *                    process
 *   at NICS_AT       R2_STAT_NICS records
 *   at HISTORY_AT    R2_STAT_HISTORY records, a ring
 *   at PEERS_AT      R2_STAT_PEERS records
 *   at CONNS_AT      up to R2_STAT_CONNS records; the file is as long as it has had to be
 *
 * The number of the round is odd while several records change together.
 */
#ifndef R2_STAT_H
#define R2_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/r2_hist.h"
#include "r2_band.h"

#define R2_STAT_VERSION 7
#define R2_STAT_NICS    32
#define R2_STAT_HISTORY 256
#define R2_STAT_CONNS   2048
#define R2_STAT_PEERS   128
#define R2_STAT_PATHS   8

/* Stalls of connections are counted apart: at a failure, from the last progress before to the first
 * after; and of 0.5 s and more without one (probe/health/r2_stall.h). */
enum r2_stat_stall { R2_STAT_STALL_FAULT, R2_STAT_STALL_OTHER, R2_STAT_STALLS };

/* The process. */
struct r2_stat_who {
    char command[32], host[64], version[48];
    char scheduler[16], job[64], step[32]; /* empty: none is known */
    int64_t pid;
    uint64_t start, updated; /* CLOCK_REALTIME, ns */
    uint32_t digest;         /* of the policy */
    int32_t cuda_dev;        /* -1: not known */
    uint32_t nics, conns; /* records in use: NICs are the first ones; connections are those with an
                             id, below conns */
    uint32_t conns_all;   /* connections there are; more than records: the rest did not fit */
    uint32_t capacity_up; /* NICs that carry, or could */
    uint64_t history;     /* events so far; the last R2_STAT_HISTORY are there */
    uint64_t faults, switches, failbacks, drains, giveups, verdicts;
    uint64_t replayed_bytes, stall_max_ns;
    uint64_t
        events_lost; /* lines that could not be written, or events that were too many at once */
    /* The out-of-band channel: who was not let in, frames and messages of peers that could not be.
     */
    uint64_t oob_strangers, oob_bad_frames, oob_bad_messages;
    uint64_t stalls, stalls_max_ns; /* without a fault; r2_stall.h */
    uint64_t kept;  /* registrations that are never taken away, since a driver did not let go (P12,
                       P27) */
    uint32_t peers; /* records in use, the first ones */
    uint32_t peers_all; /* peers to which sends were timed */
    struct r2_hist stall_times[R2_STAT_STALLS];
};

enum r2_stat_nic_state {
    R2_STAT_NIC_UP,
    R2_STAT_NIC_DOWN,
    R2_STAT_NIC_FATAL,
    R2_STAT_NIC_GONE,
    R2_STAT_NIC_STATES
};
const char *r2_stat_nic_state_name(unsigned state);

struct r2_stat_nic {
    char name[24], device[24], pci[24], why[64]; /* why it is in this state */
    char trouble[96]; /* the last fault over it; once the job knows what broke, that */
    char blamed[96];  /* the last verdict that names it; empty: none */
    uint64_t guid;
    uint64_t since, trouble_at, blamed_at; /* CLOCK_REALTIME, ns; 0: never */
    uint64_t sent, received;             /* bytes of messages, without headers and control writes */
    uint64_t work_requests;              /* posted for messages and control */
    uint64_t lost;                       /* incarnations of paths over it that failed */
    uint64_t stalls, stall_ns, stall_at; /* without a fault: connections, the last one, until when
                                            (CLOCK_REALTIME, ns; 0: none) */
    uint32_t over, primary, moved,
        last; /* connections: with a usable path over it; that began on it; whose path over
                 it is   gone; for which it is the only one */
    int32_t rail;
    uint32_t speed_mbps;
    uint8_t port, state, drained; /* state: enum r2_stat_nic_state */
    uint8_t theirs; /* every connection that moved away did so for what is known to be the peer's */
    uint8_t gid[16];
    uint16_t lid;
    uint8_t last_resort, reserved2;      /* docs/last-resort.md: counted among no NICs */
    struct r2_hist sends[R2_SEND_SIZES]; /* times of sends, of some of them; r2_latency.h */
};

#define R2_STAT_STALL_CODE 8
/*
 * The code of the verdict that says why work over a NIC stood still for @ns until @until, into
 * @code: "R2-L02". @blamed and @blamed_at: of struct r2_stat_nic. A verdict of an earlier failure,
 * or of a later one, says nothing of it. Returns false, and @code is empty, where there is none.
 * Pure.
 */
bool r2_stat_stall_code(const char *blamed, uint64_t blamed_at, uint64_t ns, uint64_t until,
                        char code[R2_STAT_STALL_CODE]);

/* As enum fo_state. */
enum r2_stat_path_state {
    R2_STAT_PATH_NONE,
    R2_STAT_PATH_UP,
    R2_STAT_PATH_DOWN,
    R2_STAT_PATH_FENCED,
    R2_STAT_PATH_STATES
};
const char *r2_stat_path_state_name(unsigned state);

struct r2_stat_path {
    char peer_name[24]; /* of the remote NIC; empty: not known, but its number */
    uint64_t bytes;     /* of the present incarnation */
    uint32_t inc;
    uint8_t nic, peer_nic, state, share; /* share: percent of what is cut now */
    uint16_t udp_port; /* of the present incarnation's packets; 0: not known, or not RoCE */
    uint8_t way;       /* ... through the fabric; 0: the driver's choice */
    uint8_t reserved[5];
};

/* Times of sends, ns. */
struct r2_stat_times {
    uint64_t samples, sum_ns, p50_ns, p99_ns, p999_ns;
};
void r2_stat_times_of(const struct r2_hist *h, struct r2_stat_times *out);

struct r2_stat_conn {
    uint32_t id;                            /* 0: the record is free */
    uint8_t is_send, dev, npaths, standing; /* standing: set up */
    uint8_t error, reserved[7];
    char peer_host[40], peer_addr[64], why[96]; /* why it ended */
    uint64_t bytes, messages;
    uint64_t replayed_parts, replayed_bytes;
    uint64_t stall_ns, stall_at; /* the last one; at: CLOCK_REALTIME, ns; 0: none */
    struct r2_stat_times sends[R2_SEND_SIZES];
    struct r2_stat_path path[R2_STAT_PATHS];
};

/* Transfers to a peer of one size: what its last complete window had, and the band. */
struct r2_stat_transfer {
    uint64_t times;             /* all that were timed */
    uint64_t p50_ns, p99_ns;    /* of the window */
    uint64_t at;                /* when that ended, CLOCK_REALTIME, ns; 0: there is none */
    uint64_t low_ns, high_ns;   /* 0: learnt yet */
    uint64_t since;             /* it is in this state, CLOCK_REALTIME, ns; 0: learning */
    uint32_t n;                 /* times of the window */
    uint8_t state, reserved[3]; /* enum r2_band_state */
};

/* A process that sends go to. */
struct r2_stat_peer {
    char host[40], address[64]; /* host empty: the record is free */
    struct r2_stat_transfer transfer[R2_BAND_SIZES];
};

/* One line of history. */
struct r2_stat_event {
    uint64_t no;                         /* from 1; 0: the record is free */
    uint64_t when, mono;                 /* ns */
    uint8_t kind, severity, reserved[2]; /* enum r2_event_kind, _severity */
    uint32_t connections;
    int64_t stall_ns, replayed_bytes; /* -1: not known */
    char code[16], nic[24], peer_host[40], peer_nic[24], cause[96], text[256];
    int32_t capacity_all, capacity_up; /* -1: not known */
};

/* --- writer: one thread; blocks on the file system in open and close only, and where the file has
 * to grow --- */

struct r2_stat;

/*
 * Makes the file of this process in @dir, 0600, after taking away those of processes of @uid that
 * have ended. @unique: random, not 0. NULL with the reason in @why.
 */
struct r2_stat *r2_stat_create(const char *dir, uid_t uid, uint64_t unique, char *why,
                               size_t why_len);
/* Takes the file away. NULL accepted. */
void r2_stat_remove(struct r2_stat *s);
const char *r2_stat_path(const struct r2_stat *s);

/* Between the two, records change together. */
void r2_stat_begin(struct r2_stat *s);
void r2_stat_end(struct r2_stat *s);
/* Writes a record if it differs. Out of range, or no room in the file system: 0, else 1. */
int r2_stat_put_who(struct r2_stat *s, const struct r2_stat_who *who);
int r2_stat_put_nic(struct r2_stat *s, unsigned i, const struct r2_stat_nic *nic);
int r2_stat_put_conn(struct r2_stat *s, unsigned i, const struct r2_stat_conn *conn);
int r2_stat_put_peer(struct r2_stat *s, unsigned i, const struct r2_stat_peer *peer);
/* @e->no is its place in the ring. */
int r2_stat_put_event(struct r2_stat *s, const struct r2_stat_event *e);

/* --- reader: nothing it gives is out of bounds, whatever the file says --- */

struct r2_stat_view {
    struct r2_stat_who who;
    struct r2_stat_nic nic[R2_STAT_NICS];
    struct r2_stat_peer peer[R2_STAT_PEERS]; /* who.peers of them; host empty: could not be read */
    struct r2_stat_event event[R2_STAT_HISTORY]; /* oldest first */
    int events;
    struct r2_stat_conn *conn; /* conns of them, those in use */
    int conns;
    int whole; /* all of it is of one moment; else each record is, for itself */
};

/* 1 when @name is the name of a statistics file: whose, and which. Pure. */
int r2_stat_name(const char *name, uid_t *uid, uint64_t *unique);

/*
 * Reads the file @path of @uid. 1: it is in *@v, to be freed with r2_stat_view_free(); 0: its
 * process has ended; -1 with the reason in @why. Reads, does not map: a file that is cut short
 * meanwhile is an error, no signal. Blocks on the file system.
 */
int r2_stat_read(const char *path, uid_t uid, struct r2_stat_view *v, char *why, size_t why_len);
/* The same from a descriptor, without asking whether its process lives. 0: it is being made. */
int r2_stat_read_fd(int fd, const char *path, struct r2_stat_view *v, char *why, size_t why_len);
void r2_stat_view_free(struct r2_stat_view *v);

#endif
