/*
 * Campaign on the software fabric: random traffic and random faults in several processes, in real
 * time.
 *
 * Class and seed are the whole schedule; what the machine adds is timing. One process conducts: it
 * makes a fabric, starts the others under `softfab exec`, injects the faults and judges; all share
 * one page of memory, the board.
 *   soak_plan             what the seed says: connections, messages, options, faults
 *   soak_class            what the classes are
 *   soak_rank             a process that loads the plugin, one thread per communicator
 *   soak_end              one end of a connection
 *   soak_send, soak_recv  its traffic
 *   soak_data             contents, and traces of late writes
 *   soak_log              what the plugin's lines say
 *   soak_fault            faults, by progress and time
 *   soak_run              one schedule from `up` to `down`
 *   soak_main             command line, table
 */
#ifndef SOAK_H
#define SOAK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plugin/base/r2_time.h"
#include "tests/fabric/model/fab_rng.h"
#include "tools/r2_perf/abi_view.h"

#define SOAK_PROCS  4
#define SOAK_HOSTS  3
#define SOAK_NICS   8
#define SOAK_COMMS  3
#define SOAK_CONNS  32
#define SOAK_LAPS   12
#define SOAK_GROUP  8 /* buffers of one irecv */
#define SOAK_MSGS   400
#define SOAK_SLOTS  64
#define SOAK_FAULTS 64
#define SOAK_ENV    24

#define SOAK_MS R2_NS_PER_MS
#define SOAK_US R2_NS_PER_US

/* ---- the schedule ---- */

enum soak_want {
    SOAK_FINISH, /* every message arrives, no call returns an error */
    SOAK_DEAD,   /* all paths die: what is not finished ends with an error at both ends, in time */
    SOAK_KILL    /* a process is killed, or an end leaves in the middle: its peers end in time, all
                    others finish */
};

enum soak_kind {
    SOAK_DOWN,
    SOAK_BLACKHOLE,
    SOAK_BLACKHOLE_TX,
    SOAK_BLACKHOLE_RX,
    SOAK_ACK_LOST,
    SOAK_CUT, /* between two NICs, or the NICs of a rail: the plane */
    SOAK_CUT_TX,
    SOAK_HANG,
    SOAK_SEND_STUCK,
    SOAK_SEND_ERROR,
    SOAK_FATAL,
    SOAK_REMOVE,
    SOAK_SILENT_DEATH, /* followed by remove or fatal */
    SOAK_UNPLUG,
    SOAK_QP_ERROR,
    SOAK_GID_CHANGE,
    SOAK_MR_FAIL,
    SOAK_LOSS,
    SOAK_CORRUPT,
    SOAK_DUP,
    SOAK_DELAY,
    SOAK_RATE,
    SOAK_RETRY7,
    SOAK_RECV_KEPT,
    SOAK_PROVIDER, /* a host whose NICs' library keeps its own account of queue pairs in ERR */
    SOAK_MEND,     /* up, unhang, heal or restore: the end of one of those above */
    SOAK_STOP,     /* of a process, and on again */
    SOAK_KILLED,
    SOAK_SPINE, /* one of the ways between the NICs of a rail */
    SOAK_KINDS
};
#define SOAK_BIT(kind) (1u << (kind))
const char *soak_kind_name(int kind);

struct soak_fault {
    enum soak_kind kind;
    char text[40];  /* for the fabric; empty: for process @proc */
    int proc, cont; /* SOAK_STOP: @cont ends it */
    int host, nic;  /* -1: all; of a spine: the rail */
    int breaks;     /* a path over this NIC may go down, of a cut: one between the two, of a spine:
                       one of its rail */
    int after;      /* fault it waits for, -1: none */
    uint32_t done;  /* else so many messages received; 0: before the processes start */
    uint64_t delay; /* ns after that */
};

struct soak_conn {
    int from, to, comm, from_dev, to_dev;
    int msgs; /* in each lap */
    uint32_t max_size;
    int big_pct, max_group, slots, window;
    uint32_t send_us, recv_us, test_us; /* longest pauses */
    int rest_pct;                       /* of posts, before which there is a long one */
    uint32_t rest_us;
    uint32_t setup_us, close_us; /* longest wait before */
    int extra;                   /* one receive more than is ever sent: it must stay empty */
    int leave; /* ends after so many messages, with requests outstanding; 0: does not */
    int leaver_sends;
};

struct soak_plan {
    int cls;
    uint64_t seed;
    enum soak_want want;
    int quiet; /* nothing in the schedule may take a path down */
    int procs, hosts, nics, comms, laps, conns;
    int crossrail, safe_rail, nap_us, flush;
    int spines;    /* ways between two NICs of a rail; 0: one */
    int resort;    /* goes on over TCP where no RDMA path is left (docs/last-resort.md) */
    int reorder;   /* adaptive routing: plain writes of a queue pair overtake each other */
    uint64_t rate; /* bytes per second, 0: none */
    int give_up_ms;
    int t_packet_ms;
    int nenv;
    char env[SOAK_ENV][48];
    struct soak_conn conn[SOAK_CONNS];
    int nfaults;
    struct soak_fault fault[SOAK_FAULTS];
    uint32_t total; /* messages of all laps */
};

struct soak_msg {
    uint32_t size, cap;
    int tag;
    uint16_t first, n; /* its group */
    uint8_t send_skew, recv_skew;
};

struct soak_class {
    const char *name, *what;
    void (*draw)(struct soak_plan *p, struct fab_rng *r);
    int switches; /* some of its schedules must show one */
    int resorts;  /* half of its schedules must go over TCP, and NICs return in some */
};
extern const struct soak_class soak_classes[];
extern const int soak_class_count;

void soak_plan_draw(struct soak_plan *p, int cls, uint64_t seed);
/* Messages of a connection in a lap; order[i]: which message is sent as number i. */
void soak_msgs_draw(const struct soak_plan *p, int conn, int lap, struct soak_msg *msg,
                    uint16_t *order);
void soak_plan_print(const struct soak_plan *p);
static inline uint32_t soak_due(const struct soak_msg *m)
{
    return m->size < m->cap ? m->size : m->cap;
}
static inline uint64_t soak_pick(struct fab_rng *r, uint64_t lo, uint64_t hi)
{
    return lo + fab_rng_upto(r, hi - lo);
}
static inline int soak_pct(struct fab_rng *r, int pct)
{
    return (int)(fab_rng_next(r) % 100) < pct;
}

/* soak_fault.c, drawing */
struct soak_fault *soak_fault_add(struct soak_plan *p, enum soak_kind kind, int host, int nic);
void soak_faults_draw(struct soak_plan *p, struct fab_rng *r, uint32_t mask, int count,
                      int chain_pct);
void soak_rounds_draw(struct soak_plan *p, struct fab_rng *r, uint32_t mask, int rounds);
void soak_all_draw(struct soak_plan *p, struct fab_rng *r, uint32_t mask, int back);
void soak_grey_draw(struct soak_plan *p, struct fab_rng *r, int count);
void soak_spines_draw(struct soak_plan *p, struct fab_rng *r, int count);
void soak_stops_draw(struct soak_plan *p, struct fab_rng *r, int count, int most_ms);
void soak_kill_draw(struct soak_plan *p, struct fab_rng *r);

/* ---- the board: every word has one writer or is changed atomically; a killed process leaves
 * nothing locked ---- */

struct soak_rank_board {
    _Atomic uint32_t switches, false_switches, wrong /* verdicts */, retransmits, returns, soft,
        unproven;
    _Atomic uint32_t resorts; /* goes over TCP: no RDMA path is left to some of its connections */
    _Atomic uint32_t named;   /* a WARN has named the process that was killed */
    _Atomic uint64_t stall;   /* longest, of a sending end, ns */
    _Atomic uint64_t ended;   /* latest error that was due, ns after its cause */
    _Atomic uint64_t bytes;
    _Atomic int64_t heap_growth;
    _Atomic uint32_t errors; /* connections that ended with an error that was due */
    _Atomic uint32_t failed; /* @why is written */
    char address[64];        /* of its out-of-band channel */
    char why[600];
};

struct soak_conn_board {
    struct {
        char handle[ABI_HANDLE_BYTES];
        _Atomic uint32_t ready;
    } lap[SOAK_LAPS];
    _Atomic uint32_t
        sent_all; /* laps in which the sender is through, and waits for the extra receive */
    _Atomic uint32_t recv_all; /* ... and the receiver has seen that it stays empty */
    _Atomic uint64_t may_fail; /* instant from which an error is right; 0: it is not */
};

struct soak_board {
    _Atomic uint32_t done;    /* messages received */
    _Atomic uint32_t wake_at; /* the conductor wants to hear of this one */
    _Atomic uint32_t in_lap[SOAK_LAPS + 1];
    _Atomic uint32_t ranks;   /* processes that take part in a lap: one that was killed does not */
    _Atomic uint32_t over;    /* every fault has been injected */
    _Atomic uint32_t through; /* the traffic is over: what waits for messages comes now */
    _Atomic uint32_t touched[SOAK_HOSTS]; /* NICs that something has happened to */
    _Atomic uint32_t lossy[SOAK_HOSTS];   /* NICs over which a path's last packet may be lost */
    _Atomic uint32_t ways;                /* rails of which a spine has been broken */
    _Atomic uint32_t cut[SOAK_HOSTS][SOAK_NICS]
                        [SOAK_HOSTS]; /* from a NIC to those of a host: so has to what is between */
    _Atomic int32_t killed;           /* process, -1 */
    struct soak_rank_board rank[SOAK_PROCS];
    struct soak_conn_board conn[SOAK_CONNS];
};

uint64_t soak_now(void);

/* ---- a process ---- */

struct soak_rank {
    const struct soak_plan *plan;
    struct soak_board *board;
    struct soak_rank_board *mine;
    const struct abi_net *net;
    int index, host, ndev;
    int trigger_fd;
    int lap;
};
extern struct soak_rank soak_rank;

/* Ends this process: the reason goes to the board. */
__attribute__((noreturn, format(printf, 1, 2))) void soak_fail(const char *fmt, ...);
int soak_rank_main(int argc, char **argv);
/* The conductor looks again at what it waits for. Any thread. */
void soak_conductor_ring(void);

/* soak_log.c */
void soak_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
const char *soak_last_warn(void);

/* ---- one end of a connection in one lap ---- */

enum soak_state { SOAK_WAIT, SOAK_OPENING, SOAK_RUN, SOAK_EXTRA, SOAK_CLOSING, SOAK_CLOSED };

struct soak_slot {
    uint32_t msg, used; /* @used: bytes from its start that have been written, guards included */
};

struct soak_pending {
    void *req, *flush;
    uint16_t first, n; /* receives: messages; sends: place in the order */
    int sizes[64];     /* room for as many as core has */
};

struct soak_end {
    const struct soak_conn *cp;
    struct soak_conn_board *cb;
    int conn, sender, dev;
    enum soak_state state;
    void *listen, *comm, *mh[2];
    char handle[ABI_HANDLE_BYTES];
    struct fab_rng rng;
    struct soak_msg *msg;
    uint16_t *order;
    uint64_t key;
    uint8_t *base;
    size_t stride;
    struct soak_slot slot[SOAK_SLOTS];
    struct soak_pending fifo[SOAK_SLOTS];
    unsigned head, tail;   /* requests: oldest, next */
    uint32_t shead, stail; /* slots in use */
    uint32_t next, done;   /* messages posted, done */
    int filled;            /* sender: the next message is in its slot */
    int rested;            /* the pause before the next post has been drawn */
    uint64_t act_at, test_at, extra_turns;
    uint64_t moved_at; /* last progress of any kind */
};

/* Memory, messages. In a thread of its communicator. */
void soak_end_init(struct soak_end *e, int conn, int sender);
/* One turn, never waiting. 1 when something moved. */
int soak_end_turn(struct soak_end *e);
/* After the plugin has let go of everything: nothing has been written late. Frees. */
void soak_end_free(struct soak_end *e);
/* @rc of @call: 0 when it is a success; 1 when it is an error that had to come; ends the process
 * otherwise. */
int soak_end_error(struct soak_end *e, const char *call, int rc);
void soak_end_moved(struct soak_end *e);
uint8_t *soak_slot_at(const struct soak_end *e, uint32_t slot);
/* Posts and tests; 1 when something moved, -1 when the connection has ended with an error. */
int soak_send_turn(struct soak_end *e);
int soak_recv_turn(struct soak_end *e);
/* The receive too many. 0: goes on; 1: it stayed empty for long enough. */
int soak_recv_extra(struct soak_end *e);
/* Nothing has been written into any slot since the last message was done. */
void soak_recv_leave_check(struct soak_end *e);

/* ---- contents ---- */

#define SOAK_GUARD  256
#define SOAK_POISON 0x5a
void soak_fill(uint8_t *at, size_t len, uint64_t key);
/* Offset of the first byte that is wrong, -1: none. */
int64_t soak_check(const uint8_t *at, size_t len, uint64_t key);
int64_t soak_check_poison(const uint8_t *at, size_t len);
static inline uint64_t soak_msg_key(uint64_t conn_key, uint32_t msg)
{
    struct fab_rng r = {conn_key + msg * 0x9fb21c651e98df25ull};

    return fab_rng_next(&r);
}

/* ---- the conductor ---- */

struct soak_stats {
    uint64_t runs, failed, messages, bytes, conns;
    uint64_t faults[SOAK_KINDS];
    uint64_t switches, false_switches, wrong, retransmits, returns, soft, unproven, errors;
    uint64_t resorts; /* schedules */
    uint64_t stall, ended, ms, longest_ms;
    int64_t heap_growth;
};

struct soak_opts {
    char self[256], dir[200]; /* dir: of the build */
    char plugin[256], softfab[256];
    unsigned limit_s;
    int verbose, keep;
};

/* One schedule; 0 when everything held, else the reason is in @why. */
int soak_run(const struct soak_opts *o, int cls, uint64_t seed, struct soak_stats *st, char *why,
             size_t why_len);
/* SIGINT and SIGTERM end the schedule under way, with all that belongs to it. Before the first
 * soak_run. */
void soak_run_catch(void);
int soak_run_caught(void);

/* soak_fault.c, injecting */
struct soak_injector;
struct seg_map;
struct soak_injector *soak_inject_new(const struct soak_plan *p, struct soak_board *b,
                                      struct seg_map *map, const pid_t *pids, const char *log);
/* Injects what is due; ns until the next timed one, -1: none. @first: only those before the
 * processes start. */
int64_t soak_inject_step(struct soak_injector *in, int first);
/* How many have not been injected. */
int soak_inject_left(const struct soak_injector *in);
void soak_inject_count(const struct soak_injector *in, uint64_t *kinds);
const char *soak_inject_error(const struct soak_injector *in); /* NULL: none */
void soak_inject_free(struct soak_injector *in);

#endif
