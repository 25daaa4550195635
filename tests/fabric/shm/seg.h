/*
 * The shared segment of one software fabric: what its processes and the command share.
 *
 * A fabric is a directory (seg_dir_path) with
 *   segment   the mapped file: header, NICs, slots, rings (struct seg)
 *   alive     a file whose record locks tell which slots are lived in: byte i is held by the
 *             process in slot i; byte SEG_LOCK_FAULT serialises writers of faults
 *   hostH/    a tree in the shape of sysfs, one per host
 *
 * No process-shared mutex exists. Every word has one writer, or is changed by one atomic operation,
 * so a process killed at any instruction leaves each structure valid:
 *   - a ring has one producer slot and one consumer slot; a record not yet published is invisible,
 *     and the next owner of either slot goes on from the published indices;
 *   - a slot belongs to the process that holds its record lock; the kernel drops the lock with the
 *     process;
 *   - counters are single atomics, and so are the words of port clocks (seg_port.h);
 *   - a fault is visible once fault_seq has moved past it.
 */
#ifndef SEG_H
#define SEG_H

#include "tests/fabric/model/fab_desc.h"
#include "tests/fabric/model/fab_fault.h"
#include "tests/fabric/model/fab_spine.h"
#include "tests/fabric/shm/seg_port.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SEG_MAGIC     0x6261666674666f73ull
#define SEG_VERSION   6u
#define SEG_SLOTS     64
#define SEG_NICS_MAX  (FAB_MAX_HOSTS * FAB_MAX_NICS)
#define SEG_NAME_MAX  64
#define SEG_PATH_MAX  176 /* longest run directory: ibdev_path (256 bytes) lies below it */
#define SEG_RING_DATA (512u << 10)
#define SEG_REC_MAX                                                                                \
    (SEG_RING_DATA /                                                                               \
     2) /* longest record with its head: two fit, so a full ring has room again soon               \
         */
#define SEG_FAULT_LOG  64
#define SEG_LOCK_FAULT SEG_SLOTS

#define SEG_NSEC_PER_SEC 1000000000ull

/* Environment by which `softfab exec` tells the library where it is. */
#define SEG_ENV_DIR  "SOFTFAB_DIR"
#define SEG_ENV_HOST "SOFTFAB_HOST"

/* Queue pair numbers name the slot that owns them: 6 bits of slot above 18 bits of counter. */
#define SEG_QPN_BITS  18
#define SEG_QPN_FIRST 32u

/* struct fab_link as words that one process writes while others read: each stands for itself. */
struct seg_link {
    _Atomic uint32_t down, blackhole_tx, blackhole_rx, ack_lost, send_error, late_some, loss_ppm,
        corrupt_ppm, dup_ppm;
    _Atomic uint64_t delay_ns, rate;
    _Atomic uint32_t cut[FAB_MAX_HOSTS], late[FAB_MAX_HOSTS];
};

struct seg_fault {
    _Atomic uint32_t kind;
    _Atomic uint64_t value;
};

struct seg_count {
    _Atomic uint64_t tx_bytes, tx_packets, rx_bytes, rx_packets; /* bytes of payload */
    _Atomic uint64_t drops;   /* by faults, dead ports and processes that are gone */
    _Atomic uint64_t overrun; /* the receiver's ring stayed full */
};

struct seg_nic {
    /*
     * Faults in the order in which they were given: number n (from 1) is log[n % SEG_FAULT_LOG].
     * fault_seq is the newest; it is stored (release) after the entry and the words below. An
     * engine (acquire) applies what is new; one that fell behind by more than the log holds takes
     * over the words.
     */
    _Atomic uint32_t fault_seq;
    struct seg_fault log[SEG_FAULT_LOG];
    /* What the faults so far amount to, for processes that come later. */
    struct seg_link link;
    _Atomic uint32_t gone;       /* FAB_FAULT_FATAL, _REMOVE or _UNPLUG, + 1; 0: the device works */
    _Atomic uint32_t hung;       /* 1 while it hangs */
    _Atomic uint32_t mr_fail;    /* 1 while registrations fail without end */
    _Atomic uint32_t call_error; /* 1 while control calls fail without end */
    _Atomic uint32_t gpu_dma_fail; /* 1 while memory of GPUs cannot be reached */
    _Atomic uint32_t epoch;        /* address changes so far */
    _Atomic uint32_t qp_errors;    /* faults qp-error so far */
    _Atomic uint32_t send_stucks;  /* faults send-stuck so far */
    _Atomic uint32_t retry7;       /* 1: retry_cnt 7 is without end */
    _Atomic uint32_t recv_kept;    /* 1: receives posted in ERR are kept */
    _Atomic uint32_t provider;     /* enum fab_provider */
    _Atomic uint32_t silent_death; /* 1: who dies fails in control calls only */
    _Atomic uint32_t mr_hang;      /* 1: registrations do not return */

    struct seg_port tx, rx;
    _Alignas(64) struct seg_count count;
};

struct seg_spine {
    _Alignas(64) _Atomic uint64_t free_at; /* CLOCK_MONOTONIC ns: its queue is empty, advanced by
                                              compare-and-swap; of use while it has a rate */
    _Atomic uint64_t packets, bytes, dropped, queued, moved; /* struct fab_spine_count */
};

/* The spines of a rail: struct fab_rail as words that faults write and senders read, and what
 * senders count. */
struct seg_rail {
    _Atomic uint64_t down, blackhole;
    _Atomic uint32_t loss_ppm[FAB_MAX_SPINES];
    _Atomic uint64_t rate[FAB_MAX_SPINES];
    struct seg_spine spine[FAB_MAX_SPINES];
};

struct seg_slot {
    _Alignas(64) _Atomic uint32_t incarnation; /* odd while lived in */
    _Atomic int32_t pid;
    _Atomic uint32_t host;
    _Atomic uint32_t qpn_next;
    _Atomic uint64_t nics_open; /* bit = NIC on the slot's host that the process has open */
    _Atomic uint32_t fault_gen; /* of the newest fault that the process has taken up; release */
    char command[32];           /* written by the owner before incarnation becomes odd */

    /* The doorbell: a shared futex. @sleeping is 1 while the owner's thread may be in futex wait.
     */
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleeping;
    _Atomic uint64_t
        sleep_until; /* written before sleeping: when the owner's thread wakes by itself */
    /* Bit p: the ring from slot p may hold records. */
    _Alignas(64) _Atomic uint64_t pending;
    /* Bit d: the owner waits for room in its ring to slot d; the consumer rings the bell when it
     * has made some. */
    _Alignas(64) _Atomic uint64_t starved;
};

/* Indices of one direction between two slots. They count bytes and never wrap (64 bits); offset =
 * index mod SEG_RING_DATA. */
struct seg_index {
    _Alignas(64) _Atomic uint64_t head; /* producer writes, consumer reads */
    _Alignas(64) _Atomic uint64_t tail; /* consumer writes, producer reads */
};

/* Whole pages, so that the memory of one ring can be reserved alone. */
struct seg_ring {
    _Alignas(4096) uint8_t data[SEG_RING_DATA];
};

/* Head of a record in a ring. Records start on 16-byte boundaries and never wrap around the end. */
struct seg_rec {
    uint32_t len;        /* with this head; 0: skip to the end of the ring */
    uint32_t dst_incarn; /* of the receiving slot when it was sent: a record for a former owner is
                            dropped */
    uint64_t due;        /* CLOCK_MONOTONIC ns at which it arrives */
    uint8_t body[];
};

struct seg_head {
    uint64_t magic; /* written last by the creator */
    uint32_t version, pad;
    uint64_t size;     /* of the file */
    int64_t created_s; /* CLOCK_REALTIME */
    char name[SEG_NAME_MAX];
    _Atomic uint32_t closed;    /* `down` has unlinked it */
    _Atomic uint32_t fault_gen; /* incremented after the fault_seq of any NIC */
    struct fab_desc desc;
};

struct seg {
    struct seg_head head;
    _Alignas(64) struct seg_nic nic[SEG_NICS_MAX]; /* seg_nic_at */
    struct seg_rail rail[FAB_MAX_NICS];
    struct seg_slot slot[SEG_SLOTS];
    struct seg_index index[SEG_SLOTS][SEG_SLOTS]; /* [producer][consumer] */
    struct seg_ring ring[SEG_SLOTS][SEG_SLOTS];   /* [producer][consumer] */
};

_Static_assert(sizeof(struct seg_ring) == SEG_RING_DATA, "rings are whole pages");
_Static_assert(offsetof(struct seg, ring) % 4096 == 0, "rings start on a page");
_Static_assert(SEG_SLOTS == 64, "pending is one word of 64 bits");
_Static_assert(SEG_SLOTS == SEG_PORT_USERS, "the users of a port are slots");
_Static_assert((SEG_SLOTS << SEG_QPN_BITS) == (1 << 24), "a queue pair number has 24 bits");

static inline struct seg_nic *seg_nic_at(struct seg *seg, int host, int nic)
{
    return &seg->nic[host * FAB_MAX_NICS + nic];
}

/* An attachment. A process has at most one at a time: record locks belong to the process. */
struct seg_map {
    struct seg *seg;
    int seg_fd;
    int alive_fd;
    int slot;          /* -1: observer (the command) */
    uint64_t reserved; /* bit d: memory of ring [slot][d] is allocated */
    pid_t owner;
    char dir[SEG_PATH_MAX];
};

/* --- seg_dir.c: where fabrics live --- */

/* Writes the run directory of fabric @name (NULL: the user's default) to @path. 0, or -1 with the
 * reason in @why. */
int seg_dir_path(const char *name, char *path, size_t path_len, char *why, size_t why_len);
/* Removes a directory with all below it. 0, or -1 with errno; a missing directory is success.
 * Blocks on file I/O. */
int seg_dir_remove(const char *path);
/* Gives the finished tree @tmp the name @path. What stands there already is replaced when no
 * process lives in it; else it stays and the result is -1 with the reason, naming a living process,
 * in @why. Blocks on file I/O. */
int seg_dir_install(const char *tmp, const char *path, char *why, size_t why_len);
/* Pid of a process that lives in the fabric at @path; 0: none; -1: no fabric there (errno). */
pid_t seg_dir_inhabitant(const char *path);

/* --- seg_sysfs.c --- */

/* In the tree of a host whose NICs reach memory of a GPU: where programs look for the kernel module
 * that does it. */
#define SEG_GPU_DIR  "sys/module/nvidia_peermem"
#define SEG_GPU_FILE SEG_GPU_DIR "/version"

/* Writes the tree in the shape of sysfs for every host below @dir. @gpu: with SEG_GPU_FILE. 0, or
 * -1 with the reason in
 * @why. Blocks on file I/O. */
int seg_sysfs_write(const char *dir, const struct fab_desc *d, bool gpu, char *why, size_t why_len);
/* The directory of a device in the tree of its host: taken away, or, where there is none, made
 * anew. -1 with errno. */
int seg_sysfs_device_set(const char *dir, const struct fab_desc *d, int host, int nic, bool there);
/* Writes the port's state where programs read it. -1 with errno. */
int seg_sysfs_state_set(const char *dir, int host, int nic, bool up);
/* Writes the GID files of the NIC for address @epoch. -1 with errno. */
int seg_sysfs_gids_set(const char *dir, int host, int nic, uint32_t epoch);

/* --- seg_file.c: the mapped file --- */

/* Creates <dir>/segment and <dir>/alive. 0, or -1 with the reason in @why. Thread: any; blocks on
 * file I/O. */
int seg_file_create(const char *dir, const char *name, const struct fab_desc *d, char *why,
                    size_t why_len);
/* Maps the fabric at @dir. The map is an observer until seg_slot_attach. 0, or -1 with the reason
 * in @why. */
int seg_file_open(struct seg_map *m, const char *dir, char *why, size_t why_len);
/* Detaches if attached, unmaps. In a child of the process that attached: unmaps only. */
void seg_file_close(struct seg_map *m);

/* --- seg_fault.c --- */

/* Whether there is what @f names: 0, or -1 with the reason in @why. */
int seg_fault_fits(const struct seg_map *m, const struct fab_fault *f, char *why, size_t why_len);
/* The same of a fabric of shape @d, which need not be there; @name is for the
 * reason, NULL: it has none. */
int seg_fault_fits_desc(const struct fab_desc *d, const char *name, const struct fab_fault *f,
                        char *why, size_t why_len);
/* Applies @f to every NIC or spine it names: words, log, bells. A device that is removed leaves its
 * host's tree when every process that has it open has taken that up, as the kernel's leaves sysfs
 * when the objects of all are destroyed; if one stands still, it stays there. 0, or -1 with the
 * reason in @why (no such NIC). Waits for another writer. */
int seg_fault_apply(struct seg_map *m, const struct fab_fault *f, char *why, size_t why_len);
/* Reads fault number @seq of @n, 1..fault_seq. False if the log no longer holds it. */
bool seg_fault_read(struct seg_nic *n, uint32_t seq, struct fab_fault *f);
/* Copies the link's words. */
void seg_link_read(struct seg_nic *n, struct fab_link *l);

/* --- seg_spine.c; all but the first two for fabrics of more than one spine --- */

/* Copies the words. */
void seg_rail_read(struct seg_rail *s, struct fab_rail *r);
/* Applies what @f says of spines. Under SEG_LOCK_FAULT. */
void seg_rails_fault(struct seg *seg, const struct fab_fault *f);
void seg_spine_count_read(struct seg_spine *s, struct fab_spine_count *c);
/* The spine that a packet takes, which counts it; -1: all are down. Not for a packet that its own
 * port takes back. */
int seg_spine_choose(struct seg *seg, const struct fab_hdr *h);
/* What spine @k of @rail does to a packet with @len bytes of payload that reaches it at *@when (0:
 * at once). False: it is lost; else *@when is when it leaves. @rnd: a fresh random number. */
bool seg_spine_pass(struct seg *seg, int rail, int k, uint32_t len, uint64_t rnd, uint64_t *when);

/* --- seg_slot.c: processes --- */

/* Takes the lowest free slot for this process on host @host. 0, or -1 with the reason in @why.
 * Never waits for others.
 */
int seg_slot_attach(struct seg_map *m, int host, char *why, size_t why_len);
void seg_slot_detach(struct seg_map *m);
/* Whether slot @i is lived in by a process (the lock, not the words, decides); the own slot counts
 * as alive. Sets
 * *@pid_p. */
bool seg_slot_alive(const struct seg_map *m, int i, pid_t *pid_p);
/* Marks slot @i as left if its process is dead, so that senders stop filling its rings. True if it
 * is not lived in now.
 */
bool seg_slot_bury(struct seg_map *m, int i);
/* A queue pair number of this slot, in turn, so that none comes back soon; the caller knows which
 * are in use. Thread: any. */
uint32_t seg_slot_qpn_next(struct seg_map *m);
static inline int seg_qpn_slot(uint32_t qpn)
{
    return (int)((qpn >> SEG_QPN_BITS) & (SEG_SLOTS - 1));
}

/* --- seg_ring.c: packets between processes --- */

/*
 * Producer side of the ring from the map's slot to slot @dst. Must be called by one thread at a
 * time (the engine's lock). reserve: room for a record with @body_len bytes of body, or NULL: full
 * (errno EAGAIN: the starved bit is set and the bell will ring when there is room), no such peer
 * (ECONNREFUSED) or no memory behind the ring (ENOSPC). publish: makes the last reserved record
 * visible; does not ring the bell.
 */
struct seg_rec *seg_ring_reserve(struct seg_map *m, int dst, uint32_t body_len);
void seg_ring_publish(struct seg_map *m, int dst, struct seg_rec *rec);
/* Consumer side: the oldest record of the ring from slot @src, or NULL. Records for a former owner
 * are skipped. pop frees it. */
struct seg_rec *seg_ring_peek(struct seg_map *m, int src);
void seg_ring_pop(struct seg_map *m, int src, struct seg_rec *rec);
/* Whether the ring from slot @src holds nothing. */
bool seg_ring_empty(const struct seg_map *m, int src);

/* --- seg_bell.c: waking --- */

/* Wakes the thread of slot @dst if it sleeps beyond @due (0: at all). Pairs with seg_bell_wait: the
 * caller has published first. */
void seg_bell_ring(struct seg *seg, int dst, uint64_t due);
/* Rings every slot, also those whose thread naps. For what must not wait. */
void seg_bell_ring_all(struct seg *seg);
/*
 * Sleeps until the bell of the own slot rings or @deadline (CLOCK_MONOTONIC ns, UINT64_MAX: none)
 * passes. Two steps, so that nothing is lost: prepare returns a ticket; the caller then looks for
 * work once more; wait returns at once if the bell has rung since the ticket. cancel instead of
 * wait when there was work. @deadline is the same in both.
 */
uint32_t seg_bell_prepare(struct seg_map *m, uint64_t deadline);
void seg_bell_wait(struct seg_map *m, uint32_t ticket, uint64_t deadline);
void seg_bell_cancel(struct seg_map *m);
/* Sleeps until @deadline or a bell from seg_bell_ring_all or seg_bell_wake, deaf to all others.
 * @ticket is bell's value before. */
void seg_bell_nap(struct seg_map *m, uint32_t ticket, uint64_t deadline);
uint32_t seg_bell_ticket(struct seg_map *m);
/* Wakes the thread of slot @dst in any case. */
void seg_bell_wake(struct seg *seg, int dst);

/* Inside a short spin: lets the other hardware thread of the core run. */
static inline void seg_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* CLOCK_MONOTONIC in ns. */
uint64_t seg_now(void);

#endif
