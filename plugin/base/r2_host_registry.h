/*
 * The host registry: what the processes of one user on one host announce to each other about its
 * NICs (docs/control.md). A mapped file; each process writes one slot of it and reads the others.
 * Nothing read from it is trusted.
 *
 * One thread at a time per registry. No call blocks, except open and what a tool does, on the file
 * system.
 */
#ifndef R2_HOST_REGISTRY_H
#define R2_HOST_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define R2_HOST_REGISTRY_SLOTS  256
#define R2_HOST_REGISTRY_EVENTS 16 /* the latest of a slot */
#define R2_HOST_REGISTRY_NICS   32
#define R2_HOST_REGISTRY_NAME   32
#define R2_HOST_REGISTRY_HOST   64
#define R2_HOST_REGISTRY_NIC    24
#define R2_HOST_REGISTRY_DATA   17 /* words of what an event carries beside */

enum r2_host_registry_kind {
    R2_HOST_REGISTRY_NONE,
    R2_HOST_REGISTRY_NIC_DOWN,
    R2_HOST_REGISTRY_NIC_UP,
    R2_HOST_REGISTRY_PAIR_SILENT, /* gid, lid: of the remote port */
    R2_HOST_REGISTRY_PAIR_GOOD,
    R2_HOST_REGISTRY_REPORT, /* data: a report on a NIC of the job, anywhere; guid, port, gid and
                      lid are not used */
    R2_HOST_REGISTRY_WAY,    /* gid, lid: of the remote port; data[0]: flow label of a silent way */
    R2_HOST_REGISTRY_KINDS
};
const char *r2_host_registry_kind_name(enum r2_host_registry_kind k);

struct r2_host_registry_event {
    enum r2_host_registry_kind kind;
    uint64_t guid; /* node GUID of the NIC on this host */
    uint8_t port;
    uint16_t lid;
    uint8_t gid[16];
    uint64_t when; /* CLOCK_MONOTONIC, ns: the same for all processes of a host */
    uint64_t data[R2_HOST_REGISTRY_DATA];
};

struct r2_host_registry_nic {
    char name[R2_HOST_REGISTRY_NIC]; /* empty: no such NIC */
    uint64_t guid;
    uint8_t port, state, drained; /* state: enum ib_nic_state */
    uint8_t waits;   /* paths over it that are down until the administrator says so; 255: or more */
    uint16_t usable; /* connections with a path that is up over it */
    uint16_t last;   /* ... and no other path */
    uint64_t lost;   /* incarnations over it that have ended */
};

/* What moves over a NIC; r2_load.c */
struct r2_host_registry_load {
    uint64_t moved;    /* bytes; only differences mean something */
    uint64_t queued;   /* bytes posted and not completed, and bytes that receives are open for */
    uint64_t front;    /* ... of these, those of the message that comes next on each queue pair */
    uint64_t moved_at; /* CLOCK_MONOTONIC, ns; 0: never */
};

/* What a process sends whose home is a NIC; r2_balance.c */
struct r2_host_registry_flow {
    uint32_t conns;  /* connections; 0: none */
    uint32_t rows;   /* bit per row of the same slot: NICs that they may go over now */
    uint64_t demand; /* bytes per second lately */
};

struct r2_host_registry_who {
    char command[R2_HOST_REGISTRY_NAME], host[R2_HOST_REGISTRY_HOST];
    pid_t pid;
    uint64_t since; /* CLOCK_REALTIME, ns */
};

struct r2_host_registry;

/* Path of the host registry of @uid in @dir. 0, or -1 when it does not fit. Any thread. */
int r2_host_registry_path(const char *dir, uid_t uid, char *out, size_t len);

/* Takes a slot of the user's host registry in @dir, which is made where it is missing. NULL with
 * the reason in @why. */
struct r2_host_registry *r2_host_registry_open(const char *dir,
                                               const struct r2_host_registry_who *me, char *why,
                                               size_t why_len);
/* The same without a slot, for tools: reads, and may ring. Does not make one: NULL with errno
 * ENOENT where there is none. */
struct r2_host_registry *r2_host_registry_attach(const char *dir, uid_t uid, char *why,
                                                 size_t why_len);
void r2_host_registry_close(struct r2_host_registry *b); /* NULL accepted */

/* Readable when somebody has rung; -1: nobody can. heard: takes that away. */
int r2_host_registry_fd(const struct r2_host_registry *b);
void r2_host_registry_heard(struct r2_host_registry *b);
/* Wakes all readers. */
void r2_host_registry_ring(struct r2_host_registry *b);

/* Says @e and rings. */
void r2_host_registry_post(struct r2_host_registry *b, const struct r2_host_registry_event *e);
/* The next event of somebody else that was not read yet and came after open. 0: none. @from may be
 * NULL. */
int r2_host_registry_next(struct r2_host_registry *b, struct r2_host_registry_event *e,
                          struct r2_host_registry_who *from);
/* The same of the slots alone that somebody had when r2_host_registry_next() looked at all of them
 * last: who has come since rings with what he says, unless he is killed in between. */
int r2_host_registry_next_known(struct r2_host_registry *b, struct r2_host_registry_event *e,
                                struct r2_host_registry_who *from);

/* Row @i of the own slot. */
void r2_host_registry_nic_set(struct r2_host_registry *b, int i,
                              const struct r2_host_registry_nic *nic);

/* Row @i of the own slot. */
void r2_host_registry_load_set(struct r2_host_registry *b, int i,
                               const struct r2_host_registry_load *l);
/*
 * Adds to @sum what all others say of this NIC; moved_at: the latest. Of processes that come and
 * go: the sums may shrink, and wrap; nothing in them is checked. What is queued counts only where
 * something moved less than R2_HOST_REGISTRY_STALE before @now (ns): a process that was killed
 * leaves its numbers behind.
 */
#define R2_HOST_REGISTRY_STALE 5000000000ull
void r2_host_registry_load_add(const struct r2_host_registry *b, uint64_t guid, uint8_t port,
                               uint64_t now, struct r2_host_registry_load *sum);

/* Row @i of the own slot. */
void r2_host_registry_flow_set(struct r2_host_registry *b, int i,
                               const struct r2_host_registry_flow *f);
/* Row @row of slot @i, which is not the own one. 0: nothing is said there by the process that holds
 * the slot. Nothing in it is checked. */
int r2_host_registry_slot_flow(const struct r2_host_registry *b, int i, int row,
                               struct r2_host_registry_flow *f);
/* Whether a process holds slot @i and it is not that of @b. */
int r2_host_registry_slot_alive(struct r2_host_registry *b, int i);

/*
 * How fast a NIC carries what a process has for it (balance/balance_rate.h), in row @i of the own
 * slot; and the fastest that another process has announced of this NIC less than @age ns before
 * @now: 0 if there is none. Nothing in it is checked but that.
 */
struct r2_host_registry_tempo {
    uint64_t rate, least; /* bytes/s */
    uint32_t wait_us;
    uint16_t busy, parts;
    uint64_t at; /* CLOCK_MONOTONIC, ns */
};
void r2_host_registry_tempo_set(struct r2_host_registry *b, int i,
                                const struct r2_host_registry_tempo *t);
int r2_host_registry_tempo_best(const struct r2_host_registry *b, uint64_t guid, uint8_t port,
                                uint64_t now, uint64_t age, struct r2_host_registry_tempo *out);

/*
 * What a process sees of connections that stand in for those of a lost NIC (docs/balance.md,
 * "Making room"), while there are any on this host. Numbers of a NIC are kept to a thousandth.
 * Nothing that is read is checked.
 */
struct r2_host_registry_room_nic { /* one of the writer's NICs, by the row of its slot */
    uint32_t rows;           /* NICs that those that send, and are at home here, stand in on */
    uint64_t demand;         /* ... bytes per second of theirs */
    uint64_t out, out_bound; /* bytes per second that go out over it; of those that stand in */
    uint64_t in, in_bound, in_fixed; /* bytes that came in lately, as struct balance_in has them */
};
struct r2_host_registry_room {
    struct r2_host_registry_room_nic nic[R2_HOST_REGISTRY_NICS];
    uint64_t move;      /* of what came in, what can move */
    uint32_t move_rows; /* ... to these NICs */
    uint64_t hosts;     /* whose connections to us stand in: a bit of 64 for each */
    bool stands[2];     /* connections of the writer stand in that receive, that send */
    uint64_t until;     /* CLOCK_MONOTONIC, ns: a writer that stands still counts no more then */
};
/* Of the own slot; NULL: there is nothing to say any more. Who reads meanwhile gets new numbers
 * beside old ones. */
void r2_host_registry_room_set(struct r2_host_registry *b, const struct r2_host_registry_room *r);
/* Of slot @i, which is not the own one. 0: nothing is said there by the process that holds it. That
 * @until has come is for the caller to see. */
int r2_host_registry_slot_room(const struct r2_host_registry *b, int i,
                               struct r2_host_registry_room *r);

/* Slot @i, if a process holds it: 1 and who it is, else 0. The slot of @b itself is not alive to
 * it. */
int r2_host_registry_slot(struct r2_host_registry *b, int i, struct r2_host_registry_who *who);
/* Row @row of slot @i; 0: there is no such NIC. */
int r2_host_registry_slot_nic(const struct r2_host_registry *b, int i, int row,
                              struct r2_host_registry_nic *nic);
/* The latest events of slot @i, oldest first; returns how many. */
int r2_host_registry_slot_events(const struct r2_host_registry *b, int i,
                                 struct r2_host_registry_event out[R2_HOST_REGISTRY_EVENTS]);

#endif
