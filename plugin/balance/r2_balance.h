/*
 * Weights of the paths of connections that send: gathers what is known of both ends, of other
 * processes and of the host's topology, lets balance_plan() divide, and hands the result to the
 * plans of the connections (docs/balance.md). The one place where weights come from.
 *
 * Service thread, except r2_balance_open, _close and _preference; nothing blocks but a visit of a
 * gate. No failure of it harms a connection: the weights of before stay.
 */
#ifndef R2_BALANCE_H
#define R2_BALANCE_H

#include "core/r2_inst.h"
#include "topo/topo.h"

/* What of a connection its weights are made from; r2_balance.c. Service thread */
struct r2_flow {
    uint32_t port_there[IB_MAX_PATHS],
        reach_there[IB_MAX_PATHS]; /* Mb/s, as the other end announces; 0 not known */
    uint32_t measured[IB_MAX_PATHS],
        nic_measured[IB_MAX_PATHS]; /* Mb/s, r2_balance_measured; 0 not known */
    uint32_t host;                  /* number of the other end's host */
    uint32_t plan;                  /* paths of its plan after its last step */
    uint32_t over;                  /* ... bit per NIC of ours */
    uint32_t spread;                /* ... 1: it has more than one NIC pair */
    uint32_t bounced;               /* paths that then were known to go by way of a bounce buffer */
    uint64_t marked;                /* bytes that had moved when it was checked last */
    uint64_t demand;                /* bytes per second lately */
    struct r2_comm *busy_next, **busy_prev; /* those that have moved something lately */
    uint32_t port_first[IB_MAX_PATHS];      /* S: the most that was ever announced in port_there */
    uint32_t usable;                        /* paths, after its last step */
    uint32_t room;     /* S: paths to which it may move what its home NIC has; 0: it stays there */
    bool is_slow;      /* S: r2_balance_wide() */
    bool is_open;      /* ... it was set up, neither closed nor failed */
    bool is_displaced; /* ... and none of the usable paths is of its home NIC pair */
    bool is_fresh;     /* it has moved something since the look before */
    uint8_t leaves; /* S: looks in a row in which it had no reason to make the room that it makes */
    uint8_t stands; /* whether it stands in, stands_follow() */
    struct {
        bool ever;      /* it was told of something else than the rates of our NICs */
        uint8_t repeat; /* times that it is to be told again */
        uint8_t rest;   /* looks until it is told something else */
    } told;             /* R, r2_balance_room.c */
    union {
        struct {
            struct r2_pair *pair; /* NULL: not looked for yet. It stays as long as the peer */
            uint64_t done, cqes;  /* counted so far */
        } slow[IB_MAX_PATHS];     /* S, r2_slow.c */
        struct {
            uint64_t bytes[IB_MAX_PATHS], sum[IB_MAX_PATHS];
            uint32_t left[IB_MAX_PATHS]; /* Mb/s announced; 0: the rate of our NIC */
            uint32_t series;
        } came; /* R, r2_balance_room.c */
    };
};

/* Before the service thread is started. @t is read here and not kept; NULL: not known. -1: out of
 * memory. */
int r2_balance_open(struct r2_inst *inst, const struct topo *t);
void r2_balance_close(struct r2_inst *inst);

/* Index of @nic in the topology @t, by device and port; -1: it is not there. Pure; any thread. */
int r2_ways_place(const struct topo *t, const struct ib_nic *nic);

/*
 * @t (finished; NULL: not known) without the NIC ports that are not in @nics, into @ours; empty for
 * NULL. What we do not use is no GPU's best NIC, and no guess for the rate of a port that is down.
 * Indices of NICs are others than in @t. Pure; any thread.
 */
void r2_ways_topo(struct topo *ours, const struct topo *t, const struct ib_nics *nics);

#define R2_PREFERENCE_MOST 80

/* How much @nic is wanted as a backup for connections of NIC @dev by what lies between, 1 to
 * R2_PREFERENCE_MOST; equal ones are equal. Any thread. */
uint8_t r2_balance_preference(const struct r2_inst *inst, int dev, int nic);

/* S, gate held: the paths are known, and what R announces of them: each gets a weight. */
void r2_balance_begin(struct r2_comm *c);
/* Gate held, after each step of a connection: whether its plan has other paths now. */
void r2_balance_comm(struct r2_comm *c);
/*
 * @c is being freed, and in no list any more. With the last one goes the memory that divisions
 * need. Service thread, or any when that does not run.
 */
void r2_balance_comm_gone(struct r2_comm *c);

/* R: sends RATES. S, gate held: takes them. on_channel: the channel is back, and may have lost some
 * of R. */
void r2_balance_send(struct r2_comm *c);
void r2_balance_on_rates(struct r2_comm *c, const struct fo_rates *m);
void r2_balance_on_channel(struct r2_comm *c);

/*
 * Inputs of who measures; gate not held. measured: Mb/s that the NIC pair of path @p was seen to
 * carry for @c and all other connections of this process over it, when they had all that they
 * wanted; @nic_mbps: that its NIC here was seen to carry of all its pairs. 0: not known any more.
 * To be set alike for all of them. It counts from the next r2_balance_step() on, while the plan has
 * more than one NIC pair. wide: @on, the plan of @c takes in all usable paths though its primary is
 * up; else it does so no more for this reason. At once. Nothing happens for a connection that
 * receives, is not set up, or has no such path.
 */
void r2_balance_measured(struct r2_comm *c, int p, uint32_t mbps, uint32_t nic_mbps);
/* Mb/s of the port of @nic, as far as topology and verbs tell; 0 unknown. */
uint32_t r2_balance_port(const struct r2_inst *inst, int nic);
void r2_balance_wide(struct r2_comm *c, int on);

/* Least known limit of path @p of @c in Mb/s, of both ports and the ways inside both hosts; 0: none
 * is known. */
uint32_t r2_balance_limit(const struct r2_comm *c, int p);

/* Divides where something has changed. @tick: the ports are checked in this turn. Returns the next
 * time, UINT64_MAX for none. */
uint64_t r2_balance_step(struct r2_inst *inst, uint64_t now, int tick);

#endif
