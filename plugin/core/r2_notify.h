/*
 * Facts that modules announce and others subscribe to (docs/architecture.md). Who announces one
 * knows nothing of those who hear it: a fact travels up through the folders, a call travels down.
 *
 * inst->above.subscribers is the list, in the order of the folders from bottom to top, written once
 * by r2_inst_create() and const since. All of it runs on the service thread, or, once that has
 * ended, on the thread that takes the instance down, inside the announcing call; nothing blocks but
 * for a visit of a gate. A handler may announce further facts; none announces the one that it is
 * handling.
 */
#ifndef R2_NOTIFY_H
#define R2_NOTIFY_H

#include "r2_inst.h"

struct probe_report;

#define R2_CAUSE_EVIDENCE 18 /* lines */
#define R2_CAUSE_COUNTERS 28

/* Which component is to blame. Texts hold for the call; NULL: not known. */
struct r2_cause {
    const char *code, *blame;
    int severity; /* 0 info, 1 warning, 2 critical: enum r2_event_severity */
    int nic;      /* of ours; -1: none */
    const char *peer_host, *peer_nic;
    uint64_t since_ns; /* of the fault, r2_now(); 0: not known. The fact itself is of now */
    const char *how;
    int confidence; /* percent */
    const char *evidence[R2_CAUSE_EVIDENCE];
    int n_evidence;
    const char *counter[R2_CAUSE_COUNTERS]; /* error counters of @nic that have grown since its
                                               first connection */
    uint64_t counter_by[R2_CAUSE_COUNTERS];
    int n_counters;
    const char *action, *recommend;
    const char *brief;   /* at most 80 characters */
    uint32_t id;         /* of one that names suspects only, and may be revised; 0 */
    const char *revises; /* code of an earlier one of this process about the same fault; NULL */
    uint32_t revises_id; /* ... and its id */
};

enum r2_nic_change {
    R2_NIC_DOWN,   /* its port is not ACTIVE */
    R2_NIC_UP,     /* ... and is again */
    R2_NIC_FATAL,  /* the device failed, or is gone */
    R2_NIC_FAILS,  /* its driver answers with errors */
    R2_NIC_REMOVED /* the kernel has taken the device away (P18) */
};

enum r2_pair_verdict {
    R2_PAIR_SILENT,   /* a probe that counts was not answered for @ns */
    R2_PAIR_ANSWERED, /* one was answered */
    R2_PAIR_FIRST,    /* ... the first one over its present queue pair */
    R2_PAIR_GOOD      /* it has failed, and has answered since for as long as it must */
};

enum r2_report_from {
    R2_REPORT_SELF, /* this process found it out */
    R2_REPORT_PEER,
    R2_REPORT_HOST /* another process of this host */
};

struct r2_subscriber {
    /* Our NIC @nic. Connections over one that is lost have stopped posting. No gate held. */
    void (*on_nic)(struct r2_inst *inst, int nic, enum r2_nic_change change);
    /* A NIC pair. No gate held. */
    void (*on_pair)(struct r2_pair *pair, enum r2_pair_verdict verdict, uint64_t ns);
    /* The fabric swallows what takes way @way of a NIC pair, for @ns by now, while way @good
     * answers: the NICs are well (probe/health/r2_ways.h). No gate held. */
    void (*on_way)(struct r2_pair *pair, unsigned way, unsigned good, uint64_t ns);
    /* Another process, @who, has found that out, and it was not known here. No gate held. */
    void (*on_way_notified)(struct r2_pair *pair, unsigned way, uint64_t ns,
                            enum r2_report_from from, const char *who);
    /* A peer's NICs take what is sent, and its process answers nothing. Gate held of a connection
     * to it. */
    void (*on_peer_silent)(struct r2_inst *inst, struct r2_peer *peer);
    /* The peer of @pair has reported what moved over its NIC. No gate held. */
    void (*on_load)(struct r2_pair *pair, const struct probe_load *there);
    /* The peer of @pair has said that the way to our NIC is slow, or answered such a word: FO_LOAD_
     * flags of fo_proto.h. No gate held. */
    void (*on_slow_word)(struct r2_pair *pair, uint8_t flags);
    /* The watchdog takes a turn: probes have been read. @tick: ns between two checks of the
     * connections, one of which follows; 0: none does. Who waits for an answer to come soon sets
     * inst->watch.probing; who wants a turn though nothing is under way lowers inst->watch.wanted.
     */
    void (*on_watch)(struct r2_inst *inst, uint64_t now, uint64_t tick);
    /* A health report that is new here; @who sent it, NULL for SELF. */
    void (*on_report)(struct r2_inst *inst, const struct probe_report *w, enum r2_report_from from,
                      const char *who);
    /* Which paths of @c others advise against has changed. Gate held. */
    void (*on_advice)(struct r2_comm *c);
    /* Which component broke was decided. */
    void (*on_cause)(struct r2_inst *inst, const struct r2_cause *cause);
    /* Work requests of path @p had no completion for @ns, and its incarnation goes on. @over: one
     * has come. No gate held. */
    void (*on_stall)(struct r2_comm *c, int p, uint64_t ns, int over);
};

/* Calls @handler of each subscriber that has one. */
#define R2_NOTIFY(inst_, handler, ...)                                                             \
    do {                                                                                           \
        for (const struct r2_subscriber *const *s_ = (inst_)->above.subscribers; *s_; s_++) {      \
            if ((*s_)->handler) {                                                                  \
                (*s_)->handler(__VA_ARGS__);                                                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#endif
