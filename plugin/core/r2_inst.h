/*
 * Inside of an instance: devices, service thread, peers, connections.
 *
 * Threads. The service thread alone walks peers, sends and receives OOB messages, frees connections
 * and runs their set-up and close. inst->lock guards what NCCL's threads share with it: the tables
 * of connections and listeners, accept queues and the list of connections that want a step. A
 * connection's data state is guarded by its gate (r2_gate.h). Lock order: gate, then inst->lock.
 * Nothing is called out of the plugin with inst->lock held.
 */
#ifndef R2_INST_H
#define R2_INST_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/r2_hist.h"
#include "base/r2_host_registry.h"
#include "base/r2_rundir.h"
#include "base/r2_timer.h"
#include "failover/fo_engine.h"
#include "ib_transport/ib_flush.h"
#include "ib_transport/ib_inband.h"
#include "ib_transport/ib_way.h"
#include "ib_transport/r2_gate.h"
#include "ib_transport/verbs/ib_mr.h"
#include "probe/probe_load.h"
#include "probe/probe_watch.h"
#include "r2_net.h"

struct r2_loopback;
struct r2_counters;
struct r2_case;
struct r2_verdicts;
struct r2_port_refresh;
struct r2_nic_load;
struct r2_commands;
struct r2_rehearsal;
struct r2_slow;
struct r2_slowness;
struct r2_slowness_peer;
struct r2_pair;
struct probe_gossip;
struct r2_report;
struct r2_balance;
struct r2_reach;
struct r2_relay;
struct r2_prof;
struct r2_latency;
struct r2_held;
struct r2_watch_conn;
struct r2_flow;
struct r2_setup_conn;
struct r2_reconnect_conn;
struct r2_close_conn;
struct r2_hang;
struct r2_hang_conn;

#define R2_COMM_BUCKETS 4096 /* powers of two */
#define R2_PEER_BUCKETS 1024
#define R2_PAIR_BUCKETS 1024
#define R2_LABEL_MAX    160

/* Set-up of a connection; moved by the service thread only (setup_move in r2_setup.c), read by
 * connect. */
enum r2_setup {
    R2_SETUP_NEW,
    R2_SETUP_S_REQ,   /* S: REQ is out, repeated until REP */
    R2_SETUP_S_BUILD, /* S: queue pairs are being built and connected */
    R2_SETUP_S_CONF,  /* S: CONF is out, repeated until READY */
    R2_SETUP_R_BUILD, /* R: queue pairs are being built */
    R2_SETUP_R_REP,   /* R: REP is out, repeated as REQ is */
    R2_SETUP_R_MOVE,  /* R: queue pairs are being connected */
    R2_SETUP_DONE,
    R2_SETUP_FAILED,
    R2_SETUP_COUNT
};

enum r2_close {
    R2_CLOSE_OPEN,
    R2_CLOSE_BYE,     /* closed by NCCL: BYE is repeated until BYE_OK (P25); R's tombstone (P26) */
    R2_CLOSE_DESTROY, /* queue pairs are being destroyed */
    R2_CLOSE_COUNT
};

/* Those behind R2_REQ_RECV are rare: r2_net_test() takes them apart from the others. */
enum r2_req_kind {
    R2_REQ_SEND,
    R2_REQ_RECV,
    R2_REQ_FLUSH,
    R2_REQ_SEND_TIMED, /* r2_latency.h */
};

struct r2_req {
    struct r2_comm *comm;
    enum r2_req_kind kind;
    uint8_t n;            /* receives of a group */
    uint64_t seq;         /* of a flush: its number */
    struct ib_smsg *sent; /* of a send: its message, in the sender's half */
};

/* What a connection is in the sums of its process: bits per NIC. r2_report_count.c */
struct r2_counted {
    uint32_t over;          /* it has a path that is up */
    uint32_t moved;         /* it had one, and has none now */
    uint32_t last;          /* the only one with a path that is up */
    uint32_t ours;          /* ... of those moved away from: not known to lie at the peer's end */
    uint32_t aside;         /* the RDMA NIC that carries it as its last resort, or 0 */
    uint8_t stands, resort; /* it is set up; it has no path up but over TCP */
};

/* What was known of a connection after its last step, for statistics and events. Service thread;
 * r2_report.c */
struct r2_seen {
    struct {
        uint32_t inc;
        uint32_t fault;     /* number of the case that its end belongs to; 0: none, or settled */
        uint8_t state;      /* enum fo_state */
        uint8_t stood : 1;  /* some incarnation of it was up */
        uint8_t theirs : 1; /* what ended its incarnation is known to lie at the peer's end */
        uint8_t why : 1;    /* ... is known to be a NIC, a link or the way between */
        uint8_t folded : 1; /* its counters are in the totals, though they still stand */
        uint8_t kept : 1;   /* R: something complete waits for the end of its quarantine */
        uint32_t
            lost; /* number of the case that it was lost in, settled or not; 0: none, or a drain */
        uint32_t
            quarantined; /* R: the same while its quarantine keeps something open; 0: it does not */
        uint8_t share;   /* percent of the plan */
        uint64_t bytes, wrs; /* of its incarnation, that are in the sums */
    } path[IB_MAX_PATHS];
    uint64_t bytes; /* of incarnations that are put away */
    uint64_t retransmitted_bytes, retransmitted_parts;
    uint64_t stall_from, stall_mark; /* ns; acknowledged then. from 0: it does not wait */
    uint64_t stall_ns, stall_at;     /* the last stall; CLOCK_REALTIME, ns */
    uint32_t stall_case;
    struct r2_counted counted;
    uint32_t record;                      /* of the statistics file, from 1; 0: none */
    struct r2_comm *row_next, **row_prev; /* those whose record is to be written; NULL: it is not */
    uint8_t closing, error;               /* enum r2_status */
    char why[96];
};

/* What is repeated until it is answered; ns. */
struct r2_repeat {
    uint64_t at, interval;
};

/* Which paths of a connection the administrator lets return; core/r2_policy.c, r2_failback.c.
 * Gate */
struct r2_permit {
    uint32_t inc[IB_MAX_PATHS]; /* the incarnation that, once over, may be followed by another; 0:
                                   none */
    uint8_t unsent;             /* bit per path: the peer has not answered yet that it knows */
    uint8_t fresh;              /* bit per path: allowed since its return was last checked */
    struct r2_repeat repeat;
};

/* Places of a connection in the tables of its instance; inst->lock, but for what is the service
 * thread's alone */
struct r2_comm_list {
    struct r2_comm *hash_next, *all_next, *all_prev, *kick_next, *accept_next;
    struct r2_comm *peer_next, **peer_prev;   /* of the same peer; service thread */
    struct r2_comm *from_next, **from_prev;   /* R: by the peer and its number; service thread */
    struct r2_timer due;                      /* its next step; service thread */
    struct r2_comm *due_next;                 /* to be stepped in this turn; service thread */
    struct r2_comm *woken_next;               /* r2_comm_wake() */
    struct r2_comm *awake_next, **awake_prev; /* those awake, or expecting; service thread */
    struct r2_comm *stirred_next, **stirred_prev; /* r2_comms_stirred(); service thread */
    int kicked;
    int visits; /* threads of NCCL that read it (r2_reg.c): it is not freed meanwhile */
    int going;  /* it is about to be freed: nobody reads it any more */
};

struct r2_comm {
    struct r2_inst *inst;
    uint32_t id;
    int dev;
    int is_send;
    char label[R2_LABEL_MAX];
    struct r2_gate gate;
    struct r2_comm_list list;

    /* guarded by the gate once set-up is done */
    struct ib_conn conn;
    struct ib_send *tx;
    struct ib_recv *rx;
    struct fo_conn fo;
    struct {
        uint32_t left;             /* sends until one is timed */
        struct r2_latency *sample; /* NULL: no send is timed. Const; r2_latency.h */
    } timed;                       /* S */
    struct r2_req req[R2_LEDGER_WINDOW];
    struct {
        struct ib_flush *lane; /* R: NULL when no NIC reaches the memory of a GPU */
        struct r2_req *req;    /* R: IB_FLUSH_OPS of them */
    } flush;
    struct r2_held *held; /* what NCCL has registered on it and not released; r2_reg.c */
    struct r2_prof *prof; /* NULL: no profiler listens. Const; its contents are NCCL's thread's */

    struct {
        _Atomic int setup; /* enum r2_setup: release by service, acquire by connect */
        _Atomic int close; /* enum r2_close: OPEN -> BYE by NCCL's thread inside the gate, the rest
                              by the service thread */
    } state;

    /* service thread */
    struct r2_peer *peer;    /* r2_comm_join() */
    struct r2_repeat repeat; /* REQ and CONF, then BYE */
    struct {
        char host[FO_HOST_NAME];
        char nic[IB_MAX_PATHS][FO_NIC_NAME]; /* of each path */
    } far;                                   /* the peer's names */
    struct {
        uint32_t up, out; /* paths that were up, that waited for the administrator */
        uint32_t nics;    /* ... bit per NIC that carried it */
    } shown;              /* after its last step: for the rows in the host registry */
    uint8_t qp_lost;      /* bit per path: its queue pair failed before the path came up */
    struct r2_permit permit;
    struct r2_seen seen;

    /* Service thread; of the modules that watch it, weigh its paths, make them and end it. They
     * stand in one piece of memory with it: r2_conn.c. Never NULL. */
    struct r2_watch_conn *watch;   /* r2_watch.h */
    struct r2_flow *flow;          /* r2_balance.h */
    struct r2_setup_conn *start;   /* r2_setup.h */
    struct r2_reconnect_conn *ret; /* r2_reconnect.h */
    struct r2_close_conn *end;     /* r2_close.h */
    struct r2_hang_conn *hang;     /* r2_hang.h */
};

struct r2_listen {
    struct r2_inst *inst;
    uint32_t id;
    int dev;
    struct r2_listen *next, **prev;          /* of the same bucket; inst->lock */
    struct r2_comm *ready_head, *ready_tail; /* inst->lock */
    char error[256];                         /* inst->lock: a set-up that failed on this listener */
};

/* Delivery queries and CTS requests of one tick of the watch; r2_questions.c. */
struct r2_questions {
    uint64_t number;     /* of the tick */
    unsigned n, refused; /* in it */
    uint32_t turn;       /* counts ticks in which some query was due */
    uint8_t slots_log2; /* each connection may send one in one turn of so many, as a power of two */
};

struct r2_transfer;
struct r2_nic_log;

/* A process at the other end of connections. Service thread. */
struct r2_peer {
    struct r2_peer *next, **prev, *hash_next;
    struct r2_oob_peer *oob;
    struct r2_comm *comms; /* by list.peer_next */
    struct r2_pair *pairs; /* by peer_next; r2_pair.c */
    int refs;              /* connections */
    uint64_t last_contact;
    uint64_t refused_since;  /* ns; 0 */
    uint64_t asked_at;       /* ns: over NICs, whether its process lives, since it refuses */
    char host[FO_HOST_NAME]; /* as it names itself; empty before the first connection */
    uint8_t crossed;         /* enum r2_cross_state */
    struct {
        uint32_t
            dead_gen[IB_MAX_NICS]; /* of the peer's NICs: incarnations that began before are over */
        uint32_t gen[IB_MAX_NICS]; /* of our NICs: to be announced */
        uint32_t mask;             /* NIC_DOWN not answered yet */
        struct r2_repeat repeat;
    } down; /* r2_dispatch.c */
    struct {
        uint32_t nics;  /* of the peer's NICs */
        uint32_t gen;   /* ... as it announced by this number */
        uint8_t heard;  /* any has come */
        uint8_t unsent; /* DRAIN of ours not answered yet */
        struct r2_repeat repeat;
    } drain; /* r2_drain.c */
    struct {
        int no;                  /* as neighbour in probe_gossip; -1: none yet, or one too many */
        uint8_t more;            /* not all reports had room in the latest message */
        uint8_t blamed;          /* a verdict of ours blames its process or host, until it sends */
        uint64_t blamed_until;   /* when it sent again, ns; 0: it was never blamed */
        struct r2_repeat repeat; /* real time, ns */
    } gossip;                    /* r2_gossip.c */
    struct {
        uint32_t rank, pid;   /* PROBE_HANG_RANK_NONE, 0: not known */
        uint8_t knows;        /* it has sent a record HANG */
        uint8_t known, tries; /* it has announced that it knows ours; HANG sent to it so far */
        uint64_t try_at;      /* ... the next, clock of struct r2_hang */
        uint32_t round;       /* of the latest wait for it */
        uint64_t since;       /* ... and since when, clock of struct r2_hang */
        struct r2_comm *comm; /* ... of which connection */
        struct r2_peer *next; /* that is waited for in this round */
    } hang;                   /* r2_hang.c */
    struct {
        uint64_t lost;                /* since when there is no channel to it, ns; 0: it stands */
        uint64_t owed_since, owed_at; /* when the first and the last of the messages were given to
                                         the channel since which none has come by it, ns; 0: none
                                         was */
        uint64_t requested_since, requested_at; /* ... when a request that is always answered went
                                           with one of them first, and last, ns; 0: none did */
        uint64_t
            deaf_until; /* it has announced over a NIC that nothing reaches it by the channel, ns */
        uint64_t hello_at;     /* a request that its process always answers was sent, ns; 0 */
        uint32_t messages;     /* messages of its own, by any way */
        unsigned turn;         /* messages to it over NICs */
        uint8_t inband_logged; /* that NICs are used */
        uint8_t logged;        /* ... has been logged */
    } channel;                 /* r2_peer.c, r2_inband.c */
    /* r2_questions.h */
    struct r2_questions asked, answered;
    struct r2_transfer *transfer;      /* NULL: no send to it has been timed; r2_transfer.c */
    struct r2_slowness_peer *slowness; /* NULL: nothing was sent to it; r2_slowness.c */
    struct {
        size_t len;
        uint8_t buf[R2_OOB_MAX_MESSAGE];
    } out; /* what has gathered for it */
};

#define R2_DRAIN_WHY 48

/* A drain file as it was when it was read last. */
struct r2_drain_file {
    struct r2_rundir_stamp stamp;
    uint32_t nics;
    char why[IB_MAX_NICS][R2_DRAIN_WHY]; /* the administrator's text about each of them */
    int logged;                          /* that it cannot be read now */
    int absent;                          /* it was not there */
};

/* The service thread's visits of gates. All but @strict: service thread. */
struct r2_visits {
    int strict;    /* all gates are: written by the service thread with inst->lock held; read by
                      it, or with the lock held */
    unsigned left; /* barriers that may be paid */
    uint64_t filled_at; /* ns, up to when @left has been filled up */
    uint64_t count;     /* visits since the last check whether gates may be loose again */
    uint64_t tick_at;   /* ns, when the next one is, while they are strict */
};

#define R2_WAYS_HEARD 32

/* A way between our NIC nic and the port with gid that some process has found to be silent since
 * since; watch's clock. */
struct r2_way_heard {
    uint64_t at, since; /* received at; at 0: none */
    uint32_t label;     /* ib_way.h */
    uint8_t nic, gid[16];
};

struct r2_subscriber;

struct r2_inst {
    struct r2_env env;
    struct {
        const struct r2_subscriber *const *subscribers; /* r2_notify.h; ends with NULL */
        /* What lies above hands on what goes out and takes what comes in. post: hands the message
         * that has gathered for @peer to the channel, or to NICs. deliver: records that came over a
         * NIC. Service thread. */
        void (*post)(struct r2_inst *inst, struct r2_peer *peer);
        void (*deliver)(struct r2_inst *inst, struct r2_peer *peer, const void *msg, size_t len);
    } above; /* const */
    struct ib_verbs v;
    struct r2_config cfg;
    struct {
        char host[FO_HOST_NAME];
        char job[96];    /* "slurm:81233"; empty: not known */
        uint32_t digest; /* of the policy, and of the file of ports, if there is one */
    } self;
    struct ib_ways ways; /* const */
    struct ib_nics nics;
    struct {
        struct ib_mr_cache *mrs;
        struct r2_relay *relay; /* NULL: no path is bounced */
        struct r2_reach *reach; /* NULL: memory of GPUs is not tested */
    } mem;
    struct {
        struct r2_report *report;   /* NULL: none */
        struct r2_nic_log *nics;    /* NULL: none */
        struct r2_traffic *traffic; /* NULL: none; service thread */
        /* Of each NIC, by whoever sends over it; r2_latency.c */
        struct r2_hist_live latency[IB_MAX_NICS][R2_SEND_SIZES];
    } telemetry;
    struct r2_oob *oob;
    struct {
        struct ib_workers *workers;
        /* bit per device: it did not get a queue pair to ERR in time, last (P27). relaxed: it
         * shortens waits */
        _Atomic uint32_t unhalted;
        uint64_t alive[IB_MAX_NICS];  /* ns, per device: when a job of it last came back; service
                                         thread */
        uint64_t reaped[IB_MAX_NICS]; /* service thread */
    } jobs;

    /* inst->lock */
    pthread_mutex_t lock;
    struct {
        struct r2_comm *bucket[R2_COMM_BUCKETS];
        struct r2_comm *all;
        unsigned n;             /* ... of them */
        struct r2_comm *kicked; /* by list.kick_next */
        struct r2_comm *turn;   /* ... those of this turn of the service thread */
        uint32_t next_id;
        _Atomic(struct r2_comm *) woken; /* by list.woken_next; no lock: r2_comm_wake() */
        _Atomic int sleep; /* the service thread sleeps until one wakes, or for long */
        struct r2_listen *listen[R2_COMM_BUCKETS]; /* by number */
    } comms;                                       /* r2_registry.c */
    struct r2_visits visits;                       /* r2_visit.h */

    struct {
        pthread_t thread;
        int started;
        int wake_fd;
        _Atomic int stop;
        uint32_t no_event, no_message; /* bit per device, per NIC: its descriptor had nothing when
                                          the thread woke. 0: not known. r2_wait.h */
    } service;                         /* r2_service.c; the masks: service thread */

    /* The rest is the service thread's. */
    struct {
        struct r2_timers due;  /* of connections */
        struct r2_comm *awake; /* by list.awake_next: those on which something may be under way */
        struct r2_comm *expecting; /* likewise: of those that rest, R with receives open */
        struct r2_comm *stirred; /* by list.stirred_next: those awake now, or at some time since the
                                    ports were checked last */
    } steps;
    struct {
        struct r2_comm *from[R2_COMM_BUCKETS]; /* R, by the peer and its number */
        struct r2_peer *peer[R2_PEER_BUCKETS]; /* by channel */
        struct r2_pair *pair[R2_PAIR_BUCKETS]; /* by peer and NICs; r2_pair.c */
        struct r2_peer *peers;                 /* all of them */
        struct r2_pair *pairs;                 /* r2_pair.h */
    } index;                                   /* r2_registry.c */
    struct {
        struct r2_port_refresh *refresh; /* of each NIC */
        uint64_t poll_at;                /* ns, next read of all ports */
        int polls; /* there are connections, so that ports are read every NCCL_R2_LOOK */
        uint64_t removal_at, removal_since; /* next check whether a failed device is gone; ns, since
                                               when. since 0: now */
    } ports;                                /* r2_port_monitor.c */
    struct {
        uint16_t builds[IB_MAX_NICS]; /* of new incarnations over each of our NICs */
        uint32_t waiting; /* bit per NIC: some connection may wait for one of them to end */
    } reconnect;          /* r2_reconnect.c */
    struct {
        uint64_t clock;    /* ns, stands still while the process does not run */
        uint64_t lost;     /* ns: real time that it has stood still for */
        uint64_t tick;     /* ... when the connections are checked next */
        uint64_t at, last; /* the next step and the last one, real time */
        uint64_t rest;     /* ns that the thread sleeps now, nothing being under way; 0 */
        uint64_t wanted;   /* on_watch lowers it: real time of the turn that it wants, though
                              nothing is under way */
        int probing;       /* a probe went out, its answer is polled for soon */
        struct r2_questions asked; /* r2_questions.h */
        struct r2_nic_load *load;  /* of each NIC; r2_load.h */
    } watch;                       /* r2_watch.c */
    struct {
        uint64_t job_ns[IB_MAX_NICS]; /* of the latest job of a pair on probation */
        uint32_t inc;                 /* of the probe queue pair made last; 0: none was */
        unsigned connections;         /* that this end has chosen ways for; r2_ways.h */
        struct r2_way_heard heard[R2_WAYS_HEARD]; /* r2_way_notified.c */
    } probing;                                    /* r2_pair.c, r2_probation.c */
    struct {
        struct ib_inband_pool pool[IB_MAX_NICS]; /* the worker's until its bit is set in tried */
        uint32_t tried, open;                    /* bit per NIC */
        uint64_t sent, received;                 /* pieces */
    } inband;                                    /* r2_inband.c */
    struct {
        struct r2_loopback *loop;     /* of each NIC; r2_loopback.h */
        struct r2_counters *counters; /* of each NIC; r2_counters.h */
        struct r2_case *cases;        /* R2_CASES; r2_locate.h */
        uint32_t case_id;             /* of the latest */
        struct probe_gossip *gossip;
        uint64_t origin;              /* of our reports: the first half of this process' name */
        struct r2_verdicts *verdicts; /* r2_verdict.h */
        uint64_t way_at[IB_MAX_NICS]; /* of R2-F04 of each, watch's clock; r2_way_report.c. 0 */
        struct r2_hang *hang;         /* r2_hang.c */
        struct r2_slowness *slowness; /* r2_slowness.c */
        int crowded;                  /* logged that there are more peers than can be notified */
    } diagnosis; /* which part broke, and what the job knows of it; r2_locate.c, r2_gossip.c */
    struct {
        char run_dir[256];                 /* empty: none */
        struct r2_rundir_dir dir;          /* r2_admin_files.c */
        int no_new_file;                   /* ... for this poll: what was absent still is */
        struct r2_host_registry *registry; /* NULL: none */
        int rung, rows_changed;
        unsigned looks;                 /* at the ports, so far */
        uint64_t heard_at[IB_MAX_NICS]; /* ns: when another process reported on the NIC; 0 */
        uint64_t ways_at;               /* ns: silent ways are written there, so many since then */
        unsigned ways;
        uint64_t incarnations_lost[IB_MAX_NICS];
        struct {
            uint32_t usable, last, waits; /* as in struct r2_host_registry_nic */
        } sum[IB_MAX_NICS];               /* over connections, of what each has in shown */
    } share;                              /* the host; r2_host_share.c */
    struct {
        struct r2_drain_file file[2];   /* of user 0, of our user */
        struct r2_commands *failback;   /* r2_failback.c */
        struct r2_rehearsal *rehearsal; /* r2_rehearse.c */
        uint32_t rehearsed;             /* NICs that are out for a rehearsal */
        uint32_t nics;                  /* bit per NIC of ours, rehearsed ones as well */
        uint32_t gen;
        uint32_t refused; /* NICs that had refused a buffer when the drains were last applied */
    } drain;              /* r2_drain.c */
    struct r2_balance *balance;
    struct r2_slow *slow; /* r2_slow.c */
    struct {
        int qps;           /* that there are fewer queue pairs than wanted */
        int policy;        /* that another host's differs */
        uint32_t left_out; /* bit per NIC: that it is no backup, though it could be */
        int backups;       /* that NCCL_R2_BACKUP_NICS names none */
    } logged;              /* r2_setup.c */
    struct {
        uint64_t unknown_records, bad_messages, foreign_messages;
    } refused; /* r2_dispatch.c */
};

static inline uint64_t r2_now(const struct r2_inst *inst)
{
    return inst->env.now_ns(inst->env.arg);
}

#endif
