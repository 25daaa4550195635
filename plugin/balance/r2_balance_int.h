/* Shared by r2_balance.c (facts, weights) and r2_balance_topo.c (what a topology says). Private,
 * but to their test. */
#ifndef R2_BALANCE_INT_H
#define R2_BALANCE_INT_H

#include "balance_plan.h"
#include "balance_room.h"
#include "r2_balance.h"

/* Of a host, as its NICs' connections see it: const once it is made. */
struct r2_way {
    uint8_t n, preference;
    uint16_t link[BALANCE_PLAN_WAYS]; /* in r2_ways.link[] */
    uint32_t
        reach; /* the smallest that is known of all, and of what a GPU reaches; Mb/s, 0 unknown */
};

struct r2_ways {
    uint32_t nics, links;
    uint32_t port[IB_MAX_NICS];                  /* Mb/s; 0 unknown */
    struct r2_way way[IB_MAX_NICS][IB_MAX_NICS]; /* from what the first one's connections serve to
                                                    the second one */
    struct r2_way (*bounced)[IB_MAX_NICS]; /* ... by way of a bounce buffer, as r2_relay_ways_make()
                                             would; NULL without NCCL_R2_RELAY */
    uint32_t link[BALANCE_PLAN_LINKS];     /* Mb/s */
};

/* Connections that send from one NIC of ours, by their plans. */
struct r2_balance_home {
    uint32_t conns;             /* that have a plan */
    uint32_t over[IB_MAX_NICS]; /* ... over each NIC */
    uint64_t demand;            /* ... bytes per second lately */
};

/* What the other processes of this host say of those that stand in, by our NICs;
 * struct r2_host_registry_room. */
struct r2_balance_theirs {
    uint64_t out[IB_MAX_NICS], out_bound[IB_MAX_NICS]; /* out: of those that say nothing, too */
    uint64_t in[IB_MAX_NICS], in_bound[IB_MAX_NICS], in_fixed[IB_MAX_NICS];
    uint64_t move, hosts;
    uint32_t nics; /* move_rows */
    bool stands[2];
};

/* Who makes room; r2_balance_room.c. */
struct r2_balance_room {
    uint32_t displaced[2]; /* connections that cannot use their home NIC: that receive, that send */
    uint32_t nics;         /* S: bit per NIC, some connection at home there makes room */
    struct r2_host_registry_room mine; /* what the others are told */
    bool is_said, said[2];             /* ... and have been; of it, stands */
    bool told;          /* S: some other end announces less of a NIC than at set-up */
    bool looks;         /* R: what comes in is counted */
    uint32_t series;    /* ... anew each time that begins */
    uint32_t announced; /* R: connections that are told of less than a NIC has, or again */
    uint32_t crowded;   /* R: bit per NIC, balance_room_crowded() */
};

/* Service thread; r2_balance_begin() and r2_balance_preference() read ways. */
struct r2_balance {
    struct r2_ways ways; /* const */
    int due;             /* something has changed since the last division */
    int rows_due;        /* ... of what the host registry says of us */
    int failed;          /* no memory: logged once */
    uint64_t done_at, poll_at;
    uint64_t pause; /* ns from the end of the last division to the next */
    struct r2_host_registry_flow published[IB_MAX_NICS];
    struct r2_balance_home home[IB_MAX_NICS], stood[IB_MAX_NICS]; /* stood: those that stand in */
    struct r2_balance_room making;
    struct r2_balance_theirs theirs;
    uint32_t spread;      /* plans of more than one NIC pair */
    struct r2_comm *busy; /* by flow->busy_next */
    uint32_t others;
    struct balance_other other[BALANCE_PLAN_OTHERS];

    /* Tables of a division, used nowhere else: grown as needed, freed with the last connection */
    uint32_t room;
    struct r2_comm **comm;
    struct balance_conn *conn;
    uint64_t *demand;
    uint32_t (*weight)[BALANCE_PLAN_PATHS];
    void *work;
    size_t work_size;
};

/* @t NULL: port rates alone. @relay: enum r2_relay_mode; @bounced: the caller's memory for
 * IB_MAX_NICS rows of w->bounced, NULL with R2_VIA_NONE. */
void r2_ways_make(struct r2_ways *w, const struct ib_nics *nics, const struct topo *t, int relay,
                  struct r2_way (*bounced)[IB_MAX_NICS]);

/* r2_balance_flows.c */
/* The plan of @c has the paths @plan now, 0: it has none. gone: it is being freed. */
void r2_flow_plan(struct r2_comm *c, uint32_t plan);
void r2_flow_gone(struct r2_comm *c);
/* flow->stands of @c is that from now on; from R2_FLOW_STANDS on it stands in. */
#define R2_FLOW_STANDS 3
void r2_flow_stands(struct r2_comm *c, uint8_t stands);
/* A look at the ports, @ns behind the last one; 0: it is the first. true: what some connection
 * moves is another rate now. */
bool r2_flow_tick(struct r2_inst *inst, uint64_t ns);
/* What has changed of ours, into the host registry; what others say there. true: what they send has
 * changed. */
void r2_flows_publish(struct r2_inst *inst);
bool r2_flows_hear(struct r2_inst *inst);

/* S, open: it makes room, by the paths @room beside those of its home NIC; 0: not any more. */
void r2_balance_make_room(struct r2_comm *c, uint32_t room);

/* r2_balance_room.c */
/* Gate held, after each step of @c: what of it is usable now; nothing, where it is not open. look:
 * with each look at the ports, behind r2_flow_tick(). */
void r2_room_comm(struct r2_comm *c, bool is_open);
void r2_room_look(struct r2_inst *inst);
/* The last connection is gone. */
void r2_room_gone(struct r2_inst *inst);
/* Whether what other processes say of those that stand in matters now. */
bool r2_room_is_due(struct r2_inst *inst);
/* R: Mb/s of our NIC of path @p that are announced; 0 not known. */
uint32_t r2_room_left(const struct r2_comm *c, int p);
/* S: whether less of the NIC of path @p there is announced than was. */
bool r2_room_is_told(const struct r2_comm *c, int p);
/* S: balance_conn.host: a process that announces what is left of its NICs is a host by itself,
 * since others there announce other numbers. */
uint32_t r2_room_host(const struct r2_comm *c);

#endif
