/*
 * Protocol simulation: whole instances of the plugin, in one thread, on the in-process fabric with
 * a virtual clock.
 *
 * One struct sim is one run of one schedule: class and seed say everything that happens in it. The
 * layers, from below:
 *   sim_oob     message bus between the instances: delay, loss, duplicates, disorder, outages
 *   sim_proc    an instance, its service thread and its device workers as events with random delays
 *   sim_oracle  owner table of every receive slot, and the contents that each message must have
 *   sim_conn    set-up and end of a connection;  sim_traffic: isend, irecv, test as NCCL's proxy
 *               makes them
 *   sim_fault   the schedule of faults;  sim_class: what the classes of schedules are
 *   sim_broken  which paths may go down for them;  sim_quarantine: which receives may be held back
 *   sim_jobs    many seeds;  sim_table: what they saw;  sim_main: the command line
 * Single-threaded. Times are virtual nanoseconds.
 */
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/base/r2_time.h"
#include "plugin/ib_transport/verbs/ib_device.h"
#include "plugin/base/r2_config.h"
#include "plugin/base/r2_log.h"
#include "plugin/core/r2_net.h"
#include "plugin/base/r2_rules.h"
#include "tests/fabric/inproc/fab_inproc.h"
#include "tests/fabric/model/fab_rng.h"
#include "tests/matrix/matrix.h"

#define SIM_US R2_NS_PER_US
#define SIM_MS R2_NS_PER_MS

#define SIM_MAX_PROCS   4
#define SIM_MAX_CONNS   8
#define SIM_MAX_FAULTS  160
#define SIM_MAX_MSGS    512
#define SIM_MAX_SLOTS   256
#define SIM_INCS        8
#define SIM_MAX_CLASSES 44
#define SIM_LOG_LINES   48
#define SIM_LOG_CHARS   400

struct sim;
struct sim_oob;

/* ---- what a schedule is made of: drawn by sim_class from class and seed ---- */

enum sim_want {
    SIM_WANT_FINISH, /* a path stays healthy: every message arrives, no call returns an error */
    SIM_WANT_ERROR, /* all paths die: what is not finished ends in an error at both ends, in time */
    SIM_WANT_PEER /* one process is killed, or one end aborts: its peers end in time, everybody else
                     finishes */
};

/* Kinds of faults as the schedule draws them: some are two faults of the fabric one after the
 * other. */
enum sim_fault_kind {
    SIM_F_DOWN,
    SIM_F_FLAP, /* down, then up */
    SIM_F_BLACKHOLE,
    SIM_F_BLACKHOLE_TX,
    SIM_F_BLACKHOLE_RX,
    SIM_F_ACK_LOST,
    SIM_F_FATAL,
    SIM_F_REMOVE,
    SIM_F_QP_ERROR,
    SIM_F_HANG_FATAL, /* hang, then fatal: without a watchdog only the second is sure to be seen */
    SIM_F_HANG_BACK,  /* hang, then unhang before the holds end, then down */
    SIM_F_HANG,       /* for ever: only the watchdog finds it */
    SIM_F_STUCK, /* queue pairs of now send and complete nothing any more, while the NIC goes on
                    answering */
    SIM_F_LOSS,
    SIM_F_DUP,
    SIM_F_DELAY,
    SIM_F_RATE,
    SIM_F_MR_FAIL,
    SIM_F_GID_CHANGE,
    SIM_F_OOB_OUTAGE,
    SIM_F_DRAIN,  /* no fault: the processes of a host are to keep a NIC free of work */
    SIM_F_CUT,    /* what is between two NICs, or a plane */
    SIM_F_CUT_TX, /* ... one way */
    SIM_F_CORRUPT,
    SIM_F_SEND_ERROR,
    SIM_F_SILENT_DEATH, /* then fatal or removed: the driver takes what is posted, and never says
                           anything of it */
    SIM_F_UNPLUG,
    SIM_F_CALL_ERROR, /* then down: the next calls fail, so that a fence comes late, and a look says
                         nothing of use */
    SIM_F_DEAF,   /* the driver refuses all calls for good, the data path goes on; what it sends, or
                     is sent, is swallowed for a while */
    SIM_F_RETRY7, /* not drawn among the others: what all devices of a schedule do from its start */
    SIM_F_RECV_KEPT, /* the same */
    SIM_F_PROVIDER,  /* no fault: NICs whose library keeps its own account of queue pairs in ERR */
    SIM_F_DRAWN,
    SIM_F_SPINE = SIM_F_DRAWN, /* one of the ways between two NICs, in place of another kind */
    SIM_F_KINDS
};
#define SIM_F(kind) (1ull << (kind))
const char *sim_fault_kind_name(int kind);

/* Groups of them, of which the classes draw. */
#define LINK_FAULTS (SIM_F(SIM_F_DOWN) | SIM_F(SIM_F_FLAP))
#define SILENT_FAULTS                                                                              \
    (SIM_F(SIM_F_BLACKHOLE) | SIM_F(SIM_F_BLACKHOLE_TX) | SIM_F(SIM_F_BLACKHOLE_RX) |              \
     SIM_F(SIM_F_ACK_LOST) | SIM_F(SIM_F_CUT) | SIM_F(SIM_F_CUT_TX))
#define DEVICE_FAULTS                                                                              \
    (SIM_F(SIM_F_FATAL) | SIM_F(SIM_F_REMOVE) | SIM_F(SIM_F_SILENT_DEATH) | SIM_F(SIM_F_UNPLUG) |  \
     SIM_F(SIM_F_CALL_ERROR) | SIM_F(SIM_F_SEND_ERROR) | SIM_F(SIM_F_QP_ERROR) |                   \
     SIM_F(SIM_F_GID_CHANGE))
#define GREY_FAULTS                                                                                \
    (SIM_F(SIM_F_LOSS) | SIM_F(SIM_F_CORRUPT) | SIM_F(SIM_F_DUP) | SIM_F(SIM_F_DELAY) |            \
     SIM_F(SIM_F_RATE))
#define HANG_FAULTS (SIM_F(SIM_F_HANG_FATAL) | SIM_F(SIM_F_HANG_BACK))

struct sim_delay { /* of a thread: usually up to .usual, with chance .rare_ppm up to .rare */
    uint64_t usual, rare;
    uint32_t rare_ppm;
};

struct sim_params {
    enum sim_want want;
    int no_retransmit; /* nothing in the schedule may make a part go twice */
    int quiet;         /* nothing in the schedule may take a path down: none may go DOWN */
    int procs, nics, conns;
    int mesh;           /* a connection from each process to each other */
    int ring;           /* ... from each process to the next one, over each NIC */
    int locate;         /* one failure, and what every process says of it; sim_locate.c */
    int cut_path;       /* ... which is a path between two NICs; nobody may miss it */
    uint64_t mended_ns; /* what is broken is mended within this time; 0: never */
    uint64_t still_ns;  /* meanwhile a process, or the channel to it, stands still for so long at
                           most; 0: none does */
    uint64_t hold_ns;   /* nobody closes before this time */
    int share_host;     /* the third process runs on the host of the first */
    int msgs;           /* per connection */
    int max_group;      /* buffers of one irecv */
    int max_slots;      /* receive buffers of a connection that are posted at a time */
    uint32_t max_size;  /* bytes */
    int big_pct;        /* share of messages near max_size */
    int ops;            /* operations with silence between them */
    uint64_t idle_ns;   /* longest silence */
    uint64_t pace_ns;   /* a sender pauses up to this long between two bursts */
    uint64_t setup_ns;  /* connections are made within this time: late ones find NICs dead */
    int loopback_pct, cross_dev_pct;
    int last_nic;   /* the last NIC of each host is one of last resort */
    int aside;      /* ... and so is the one before it, an RDMA NIC of another speed class */
    int all_go;     /* every rail but the safe one is struck */
    int idle_rails; /* all connections are on the safe rail: the others carry nothing */
    int crossrail;  /* rails reach each other, and any pair of NICs may be a path ... */
    int own_rail;   /* ... but is none, by NCCL_R2_BACKUP_SCOPE=rail */
    int spines;     /* ways between two NICs; 0: one */
    int hash_qp;    /* ... which switches choose by queue pair numbers, too */
    int lids;       /* NICs are InfiniBand's, with 2^(lids - 1) LIDs each; 0: Ethernet's */
    int ports; /* so many UDP source ports in a file of them (NCCL_R2_WAYS); 0: there is none */
    int ports_differ; /* ... and each process has another one, the third none */
    int no_failover;  /* the first failure ends the connections */
    int no_balance;   /* after a failure everything goes over one path */
    struct sim_delay app, service, worker;
    /* fabric */
    struct fab_inproc_opts fab;
    uint64_t rate, latency_ns;
    /* bus */
    uint64_t oob_min_ns, oob_max_ns;
    uint32_t oob_loss_ppm, oob_dup_ppm, oob_reorder_ppm;
    int oob_gone;         /* all channels are out for good, some time after the first messages */
    uint64_t oob_late_ns; /* a duplicate comes up to this much later than its like */
    /* plugin options */
    int ib_timeout, ib_retry;
    int t_fence_ms, t_pcie_ms, t_packet_ms, t_dead_ms, give_up_ms, repeat_ms, linger_ms, ack_us;
    int qps, split;             /* 0: defaults */
    int adaptive, ar_threshold; /* adaptive routing */
    int ar_mixed;       /* which processes and NICs have it on differs, and so does the threshold */
    int no_inline;      /* devices take no inline data */
    int ack_flush;      /* NCCL_R2_ACK=flush, of host memory */
    unsigned copy_nics; /* bit per rail: NICs that do not take the buffers of senders; with
                           NCCL_R2_RELAY these go by way of a bounce buffer */
    struct sim_delay copy;
    uint32_t copy_fail_ppm; /* copies that the engine refuses */
    int retry7, recv_kept;  /* what the kernel's Soft-RoCE does: fab_fault.h */
    uint64_t
        providers;    /* 0: all libraries are plain; else which NIC has which is drawn from this */
    int one_provider; /* ... and all are of one kind */
    int list_cut; /* NICs of other rails than the safe one refuse each n-th list behind its first
                     work request; 0: none */
    int stripe_min, rq_depth, spread, t_stuck_ms, t_return_ms,
        t_probe_ms; /* the last two 0: defaults */
    /* faults */
    int faults;
    uint64_t fault_mask;
    int rounds;       /* instead: so many faults of any rail, each mended after a while */
    uint64_t mend_ns; /* ... up to this much later */
    uint64_t gap_ns;  /* ... and up to this much before the next one */
    int chain_pct; /* a fault follows the one before within chain_ns instead of waiting for traffic
                    */
    uint64_t chain_ns;
    int both_pct;      /* ... hits both ends of the rail */
    int early_pct;     /* ... comes while connections are set up */
    int late_pct;      /* ... comes with the last messages */
    int dead_at_start; /* NICs down before the instances start */
    int kill, abort;   /* a process is killed; an end closes with requests outstanding */
    int abort_hang;    /* ... on a NIC that hangs just then, where that is not the safe rail's */
    int close_now_pct; /* an end closes at once after its last done */
    uint64_t close_ns; /* else up to this much later */
    int flush_always;  /* host memory is flushed as a GPU's is */
    int flush_pct;     /* receives that are flushed */
    uint64_t whim_ns;  /* weights change at random, up to this far apart; 0: they do not */
    int stall_ms;      /* an end that waits longer than this without progress hangs */
};

struct sim_class {
    const char *name, *what;
    void (*draw)(struct sim_params *p, struct fab_rng *r);
    int returns; /* paths return: incarnations after the first must be seen to carry data */
    int weights; /* plans must be seen to change by weight */
};
extern const struct sim_class sim_classes[];
extern const int sim_class_count;
extern const int
    sim_class_turns; /* of them the first so many take turns where no class is asked for */

/* Draws the parameters of @seed in class @cls. */
void sim_params_draw(struct sim_params *p, int cls, uint64_t seed);

/* Parameters as options of the plugin. Ends the process when an option is unknown: the table and
 * this file must agree.
 */
void sim_params_config(const struct sim_params *p, struct r2_config *cfg);
/* For how long a queue pair repeats by itself. */
uint64_t sim_rc_ns(const struct sim_params *p);
/* Names in @cfg the file of ports of process @index, if it has one. Returns a descriptor, to be
 * closed when it has been read; -1: none. */
int sim_params_ports(const struct sim_params *p, int index, struct r2_config *cfg);

/* ---- processes ---- */

struct sim_worker {
    struct sim_proc *proc;
    int device, armed;
};

struct sim_proc {
    struct sim *sim;
    int index, host;
    int dead;             /* killed: never entered again until the end */
    uint64_t still_until; /* stopped (SIGSTOP): not entered before; its devices go on */
    struct r2_inst *inst;
    struct sim_oob *oob;
    struct fab_rng rng;
    uint64_t clock; /* last time given to the plugin */
    uint64_t service_id, service_at;
    struct sim_worker worker[IB_MAX_NICS];
    char log[SIM_LOG_LINES][SIM_LOG_CHARS];
    unsigned log_count;
};

/* Creates the instance of process @index on @host. Failure ends the run (sim_fail). */
void sim_proc_start(struct sim *s, int index, int host);
void sim_proc_stop(struct sim_proc *p);

/* Wakes the service thread, as a descriptor that became readable would. */
void sim_proc_kick(struct sim_proc *p);

/* Every call into an instance is made between these two: they tell fabric and log whose call it is.
 */
void sim_proc_enter(struct sim_proc *p);
void sim_proc_leave(struct sim_proc *p);

/* SIGKILL: the process does nothing any more, its devices fall silent, its channels break. */
void sim_proc_kill(struct sim_proc *p);

void sim_proc_log_print(const struct sim_proc *p);

/* The engine for NCCL_R2_RELAY; its argument is a struct sim_proc. */
extern const struct ib_copy_ops sim_copy_ops;
/* NICs of p.copy_nics take no buffer of a sender. */
void sim_copy_verbs(struct ib_verbs *verbs);

/* ---- bus ---- */

struct sim_bus;
struct sim_bus *sim_bus_create(struct sim *s);
void sim_bus_destroy(struct sim_bus *b);
/* r2_inst_params.oob_create with a struct sim_proc as @arg. */
struct r2_oob *sim_oob_create(void *arg, const struct r2_oob_events *ev, char *why, size_t why_len);
/* All channels between @a and @b are lost for @ns; @silent: the ends are not told before the end of
 * it. */
void sim_bus_outage(struct sim_bus *b, int a, int other, uint64_t ns, int silent);
/* The process is gone: its channels are refused from now on. */
void sim_bus_dead(struct sim_bus *b, int proc);

/* ---- traffic ---- */

struct sim_msg {
    uint32_t size, cap;
    int tag;
    uint8_t index, n;             /* in its group */
    uint8_t send_skew, recv_skew; /* alignment of the buffers */
    uint8_t s_done, r_done;
};

static inline uint32_t sim_size_due(const struct sim_msg *m)
{
    return m->size < m->cap ? m->size : m->cap;
}

enum sim_slot_state { SIM_SLOT_FREE, SIM_SLOT_POSTED, SIM_SLOT_GONE };
struct sim_slot {
    uint8_t state;
    uint32_t msg; /* whose turn it is or was last */
};

enum sim_end_state {
    SIM_END_OPENING,
    SIM_END_RUN,
    SIM_END_IDLE,
    SIM_END_CLOSING,
    SIM_END_DEREGISTERED,
    SIM_END_CLOSED
};

struct sim_pending {
    struct r2_req *req;
    uint32_t first, n; /* messages */
};

struct sim_end {
    struct sim_conn *conn;
    struct sim_proc *proc;
    struct fab_rng rng;
    int sender, dev;
    enum sim_end_state state;
    struct r2_comm *comm;
    uint32_t comm_id; /* stays when @comm is closed */
    struct ib_mr *mr[2];
    struct sim_pending fifo[SIM_MAX_SLOTS];
    unsigned window;     /* requests outstanding at most */
    unsigned head, tail; /* requests outstanding: oldest, next */
    uint32_t next;       /* next to post: place in send_order, or message number */
    uint32_t done;       /* messages done here */
    uint64_t post_at;    /* sender: nothing is posted before, */
    int burst;           /* ... then so many */
    int op;
    unsigned empty;       /* turns without progress */
    uint64_t progress_at; /* last progress, or start of the present wait */
    uint64_t idle_until;
    enum r2_status error;
    int filled; /* sender: the buffer of the next message holds its bytes */
    struct r2_req *flush;
    uint32_t flush_first, flush_n;
    uint64_t tick_id;
};

struct sim_conn {
    struct sim *sim;
    int index;
    struct sim_end s, r;
    struct r2_listen *listen;
    uint8_t handle[R2_NET_HANDLE_SIZE];
    uint64_t handle_at; /* when it reaches the sender */
    uint64_t setup_at;
    int nmsgs, nslots;
    struct sim_msg msg[SIM_MAX_MSGS];
    uint16_t send_order[SIM_MAX_MSGS];
    int ops;
    uint32_t op_end[16];
    struct sim_slot slot[SIM_MAX_SLOTS];
    uint8_t send_free[SIM_MAX_SLOTS];
    uint32_t stride;
    uint8_t *send_base, *recv_base;
    int may_fail; /* an error is a legal end from now on */
    int left;     /* the receiver has aborted: what lands in its open slots is nobody's */
    struct {
        uint64_t moved[IB_MAX_NICS];
        uint32_t inc[IB_MAX_NICS];
        int looks[IB_MAX_NICS];
    } resort; /* at the last look */
    int kept; /* memory that stayed registered at an abort: bit 0 the sender's, bit 1 the receiver's
               */
};

void sim_conn_init(struct sim_conn *c, struct sim *s, int index);
void sim_conn_start(struct sim_conn *c);
/* One turn of an end that is not running traffic: set-up, close. */
void sim_conn_open_turn(struct sim_end *e);
void sim_end_close(struct sim_end *e); /* at once, whatever is outstanding */
void sim_end_leave(struct sim_end *e); /* the same, perhaps with a pause between dereg and close */
void sim_end_fail(struct sim_end *e, const char *call, enum r2_status st);
int sim_end_finished(const struct sim_end *e); /* all its messages are done */
void sim_end_schedule(struct sim_end *e, uint64_t at);
/* One turn of traffic: posts and tests. */
void sim_traffic_turn(struct sim_end *e);
/* Draws messages, groups, tags, operations. */
void sim_traffic_draw(struct sim_conn *c, struct fab_rng *r);
static inline struct sim_end *sim_end_peer(struct sim_end *e)
{
    return e->sender ? &e->conn->r : &e->conn->s;
}

/* ---- oracle ---- */

/* Memory of all buffers, at one address in every run. */
uint8_t *sim_arena_region(int conn, int sender);
#define SIM_REGION_BYTES (80ull << 20)
void sim_arena_init(void);

void sim_fill(struct sim_conn *c, uint32_t msg, uint8_t *at, size_t len);
/* Offset of the first byte of @at that is not byte @off.. of @msg; -1 when all are right. */
int64_t sim_compare(struct sim_conn *c, uint32_t msg, size_t off, const uint8_t *at, size_t len);
uint8_t *sim_slot_addr(struct sim_conn *c, uint32_t msg);
/* The hook of the fabric, and the check of what it announced: after every event. */
void sim_oracle_write(void *arg, int host, int nic, uint32_t qpn, void *addr, uint32_t len);
void sim_oracle_settle(struct sim *s);
/* Checks at done of a receive and of a send. */
void sim_oracle_recv_done(struct sim_conn *c, uint32_t msg, size_t size);
void sim_oracle_send_done(struct sim_conn *c, uint32_t msg, size_t size);

/* ---- faults ---- */

struct sim_fault {
    struct sim *sim;
    char text[40]; /* empty: an outage of the bus */
    int kind, host, nic, nic_kind;
    uint64_t delay; /* after its trigger */
    int after;      /* trigger: this fault (index), or -1 */
    uint32_t done;  /* ... or this many messages done in all; 0: the start */
    uint64_t outage_ns;
    int silent;
    int armed, fired;
};

void sim_faults_draw(struct sim *s);
/* sim_return.c: the faults of a class with rounds; a NIC that was dead at start comes up; a set-up
 * is not to lose its last path */
void sim_rounds_draw(struct sim *s);
void sim_rounds_late_nic(struct sim *s, int host, int rail);
int sim_rounds_must_wait(const struct sim *s, const struct sim_fault *f);
struct sim_fault *
sim_fault_new(struct sim *s); /* zeroed, triggered by nothing yet; NULL when the schedule is full */
void sim_faults_start(struct sim *s);    /* NICs dead at start, faults of the set-up */
void sim_faults_progress(struct sim *s); /* a message was done */
int sim_faults_left(const struct sim *s);
void sim_faults_rest(struct sim *s); /* traffic is over: those that still wait for it come now */

/* Where a cut goes: "h0:n1 cut h2:n1", or the plane of @f's rail. Into f->text, of which host, NIC
 * and kind are set. */
void sim_cut_compose(struct sim *s, struct sim_fault *f);

/* ---- false switches ---- */

/* A fault of the fabric, now; the run fails when it does not arrive at every NIC that it names. */
void sim_fabric_fault(struct sim *s, const char *text);
/* A driver that refuses work at times. */
void sim_broken_nic(struct sim *s, int host, int nic);
/* @msg says that a path of @p goes down: the run fails when nothing has been done to its NICs nor
 * to what is between. */
void sim_switch_judge(struct sim_proc *p, const char *msg);

/* ---- holds ---- */

void sim_quarantine_watch(struct sim *s);

void sim_hang_draw(struct sim_params *p, struct fab_rng *r);
void sim_idle_draw(struct sim_params *p, struct fab_rng *r);
void sim_unheard_draw(struct sim_params *p, struct fab_rng *r);
void sim_deaf_draw(struct sim_params *p, struct fab_rng *r);
void sim_deaf_short_draw(struct sim_params *p, struct fab_rng *r);

/* ---- last resort ---- */

void sim_resort_verbs(const struct sim_params *p, struct ib_verbs *verbs, struct r2_config *cfg);
void sim_resort_rates(struct sim *s, struct fab_desc *d);
void sim_resort_watch(struct sim *s);

/* ---- what comes back ---- */

void sim_return_draw(struct sim_params *p, struct fab_rng *r);
void sim_reborn_draw(struct sim_params *p, struct fab_rng *r);
void sim_drain_draw(struct sim_params *p, struct fab_rng *r);

/* ---- a run ---- */

struct sim_stats {
    uint64_t runs, failed, messages, events, switches, false_switches, soft, retransmitted;
    uint64_t told; /* looks at a soft incarnation whose sender had said what it may still bring */
    uint64_t longest_stall_ns, virtual_ns;
    uint64_t faults[SIM_F_KINDS];
    uint64_t oob_lost, oob_dup, oob_reordered, oob_outages, ghosts;
    uint64_t copies, copies_refused; /* of parts to a bounce buffer */
    uint64_t refused, made_up;       /* posts in ERR; flushes by libraries */
    uint64_t late_arrivals;          /* good completions behind these */
    uint64_t lists, lists_cut; /* of send work requests: adaptive routing posts two at a time */
    uint64_t overtaken;        /* writes placed before an older one of their queue pair */
    uint64_t weights;          /* changes of weights or paths of a plan that were seen */
    uint64_t resorts;          /* looks at which a connection had sent over its last resort */
    uint64_t returns;          /* incarnations after the first that came up, at the receiver */
    struct mx_sums matrix;
    uint64_t
        carried[SIM_INCS]; /* incarnations of this number that carried data; the last: and above */
};

struct sim {
    int cls;
    uint64_t seed;
    struct sim_params p;
    struct r2_config cfg;
    struct fab_inproc *f;
    struct sim_bus *bus;
    struct sim_proc proc[SIM_MAX_PROCS];
    struct sim_conn conn[SIM_MAX_CONNS];
    struct fab_rng rng;
    uint64_t
        key; /* of message contents: differs in every run, so that leftovers never look right */
    struct sim_fault fault[SIM_MAX_FAULTS];
    int nfaults, safe_rail;
    struct {
        uint32_t nic[SIM_MAX_PROCS];                             /* of a host, bit = NIC */
        uint32_t drained[SIM_MAX_PROCS];                         /* the same: by order */
        uint32_t way[SIM_MAX_PROCS][IB_MAX_NICS][SIM_MAX_PROCS]; /* from a NIC to those of a host */
    } broken; /* until now: what may take a path down. sim_broken.c */
    int in_event;
    uint32_t done_total, msgs_total;
    uint32_t kill_at, abort_at; /* messages done in all */
    int killed, aborted;
    struct mx_case located; /* with p.locate: what, when, and what was said of it */
    struct mx_tally tally;
    uint64_t broken_at, verdict_at, informed_at[SIM_MAX_PROCS];
    int still;  /* process that stands still, or has; -1: none */
    int waited; /* ... long enough to be named, by somebody who waits for it */
    int named;  /* lines that name it */
    int mended; /* while somebody may not have looked yet: then nobody need tell it any more */
    uint64_t hash;
    /* write announced by the fabric, not yet checked */
    struct {
        struct sim_conn *c;
        uint32_t msg;
        size_t off, len;
        uint8_t *at;
        int nic;
        uint32_t qpn;
    } written;
    int failed;
    char why[600];
    uint64_t failed_at;
    struct fab_rng whims;
    uint64_t weights; /* what the plans were at the last whim */
    struct sim_stats st;
};

extern int sim_verbose;
extern struct sim *sim_now_running;

/* Rates of , and the whims that follow, for a class that has them. */
void sim_weights_rates(struct sim *s, struct fab_desc *d);
void sim_weights_start(struct sim *s);

/* Runs one schedule; 0 when everything held. The reason is in s->why. @s is large: static or heap.
 */
int sim_run(struct sim *s, int cls, uint64_t seed);

/* The first failure of a run counts. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A step of the run: into the hash, and with --verbose onto stdout. */
void sim_trace(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void sim_hash(struct sim *s, uint64_t v)
{
    s->hash = (s->hash ^ v) * 0x9fb21c651e98df25ull;
    s->hash ^= s->hash >> 29;
}
uint64_t sim_delay_draw(const struct sim_delay *d, struct fab_rng *r);
static inline uint64_t sim_pick(struct fab_rng *r, uint64_t lo, uint64_t hi)
{
    return lo + fab_rng_upto(r, hi - lo);
}
static inline int sim_pct(struct fab_rng *r, int pct)
{
    return (int)(fab_rng_next(r) % 100) < pct;
}

/* Runs seeds in child processes. Returns the number that failed. */
struct sim_job {
    int cls; /* -1: seed modulo the number of classes */
    uint64_t from, count;
    int jobs, stop_at_first;
    unsigned limit_s; /* seconds of the processor for one seed */
    int recheck;      /* every so many seeds the run is repeated and its hash compared; 0: never */
};
uint64_t sim_jobs_run(const struct sim_job *j, struct sim_stats *per_class, uint64_t *passed);
void sim_stats_add(struct sim_stats *to, const struct sim_stats *s);

/* Of the classes that ran, with their sum, onto stdout. @st: one for each class. */
void sim_table_print(const struct sim_stats *st);

#endif
