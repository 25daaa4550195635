/*
 * Directed protocol tests: two processes of the plugin, each on its host of the in-process fabric,
 * one connection between them, and a channel whose records a test can see, drop, change and send
 * again. One thread, virtual time: a scenario is the same in every run. Process 0 sends, process 1
 * receives. Whatever must hold and does not ends the test (ck_assert).
 */
#ifndef PROTO_RIG_H
#define PROTO_RIG_H

#include "plugin/base/r2_time.h"
#include "plugin/core/r2_inst.h"
#include "tests/fabric/inproc/fab_inproc.h"

#define RIG_US R2_NS_PER_US
#define RIG_MS R2_NS_PER_MS
#define RIG_S  R2_NS_PER_S

#define RIG_MAX_OPS  1024 /* requests of one side that are remembered, by number modulo this */
#define RIG_MAX_SENT 4096 /* records that are remembered */
#define RIG_LOG      400

struct rig;
struct rig_oob;

/* Of process 0, for the rigs that are created from now on: its copy engine, what changes its verbs,
 * its topology. NULL: none. */
extern struct rig_relay {
    const struct ib_copy_ops *ops;
    void *arg;
    void (*verbs)(struct ib_verbs *v);
    const struct topo *topo;
} rig_relay;

/* Bytes per second of each NIC of rigs that rig_create() and rig_create_on() make from now on; 0:
 * the fabric's default. */
extern uint64_t rig_rate;

/* What changes the verbs of both processes of rigs that are created from now on; NULL: nothing. */
extern void (*rig_verbs)(struct ib_verbs *v);

struct rig_op {
    struct r2_req *req; /* NULL once done */
    int n;
    int size[R2_NET_MAX_RECVS];
};

struct rig_side {
    struct rig *rig;
    int index;
    struct r2_inst *inst;
    struct rig_oob *oob;
    struct r2_config cfg;
    uint64_t service_id, service_at, random;
    uint32_t worker_armed;
    struct r2_comm *comm;
    struct rig_op op[RIG_MAX_OPS];
    unsigned head, tail;   /* oldest outstanding, next */
    enum r2_status status; /* the first error that a call returned */
    int asleep;            /* NCCL does not call this end */
    int oldest_alone;      /* ... tests the oldest request alone, as the real one does */
    int still;             /* its service thread stands still; rig_kick() when it goes on */
};

struct rig_sent {
    uint64_t at;
    int from, type;
    union fo_body body;
};

struct rig {
    struct fab_inproc *f;
    int nics; /* of each host */
    struct rig_side side[2];
    struct r2_listen *listen;
    uint8_t handle[R2_NET_HANDLE_SIZE];
    int traffic_class; /* that connect asks for; rig_create: none */
    /* sees every record before it goes; may change it; 0: it is dropped */
    int (*filter)(struct rig *r, int from, int type, union fo_body *body);
    int filter_count; /* for the filter's own use */
    struct rig_sent *sent;
    unsigned sent_count;
    int hostile; /* the test forges what arrives: rig_close does not ask that nothing came twice or
                    was refused */
    int oob_cut; /* channel out: records are lost, ends are told by rig_oob_cut */
    char last_warn[2][RIG_LOG];
    struct rig *beside; /* two more processes on the same hosts, destroyed with this one */
};

/*
 * @options: "NAME=value" for both processes, "0:NAME=value" for one, ended by NULL; NULL: defaults,
 * but for a shorter NCCL_IB_TIMEOUT, and for NCCL_R2_INBAND, off: what the channel loses is lost.
 * @crossrail: NICs of different rails reach each other.
 */
struct rig *rig_create(int nics, int crossrail, const char *const *options);
/* The same on a fabric with @opts: delivery apart from completion, late copies, a hook at every
 * write of a device. */
struct rig *rig_create_on(const struct fab_inproc_opts *opts, int nics, int crossrail,
                          const char *const *options);
/* The same on a fabric of two hosts as @desc says, with rates of its own for each NIC. */
struct rig *rig_create_desc(const struct fab_desc *desc, const char *const *options);
/* Two more processes with a connection of their own, on the hosts and NICs of @first. rig_turn and
 * rig_until drive the one they are given; its clock is that of both. */
struct rig *rig_create_beside(struct rig *first, const char *const *options);
/* Closes what is open, runs on for a second and destroys everything; the fabric checks that no
 * context stays. */
void rig_destroy(struct rig *r);

/* listen, connect, accept until both ends stand, within 10 s. */
void rig_connect(struct rig *r, int s_dev, int r_dev);
/* The same until one end fails; returns its status. */
enum r2_status rig_connect_fails(struct rig *r, int s_dev, int r_dev);
/* listen and the first connect; then rig_connect_turn until done or failed. */
void rig_connect_begin(struct rig *r, int s_dev, int r_dev);
enum r2_status rig_connect_turn(struct rig *r, int s_dev, int *done);

/* A fault; it must have fired at every NIC that it names. */
void rig_fault(struct rig *r, const char *text);
uint64_t rig_now(struct rig *r);

/* One buffer over [mem, mem + len), registered at one end. */
struct ib_mr *rig_reg(struct rig *r, int side, void *mem, size_t len);
void rig_dereg(struct rig *r, int side, struct ib_mr *mr);

/* Start a request; its number, or -1 when the call gave none. Statuses go to side.status. */
int rig_isend(struct rig *r, void *data, size_t size, int tag, struct ib_mr *mr);
int rig_irecv(struct rig *r, int n, void **data, const size_t *sizes, const int *tags,
              struct ib_mr *mr);
static inline int rig_irecv1(struct rig *r, void *data, size_t size, int tag, struct ib_mr *mr)
{
    return rig_irecv(r, 1, &data, &size, &tag, mr);
}
static inline int rig_done(const struct rig *r, int side, int op)
{
    return r->side[side].op[op % RIG_MAX_OPS].req == NULL;
}
static inline size_t rig_size(const struct rig *r, int side, int op, int i)
{
    return (size_t)r->side[side].op[op % RIG_MAX_OPS].size[i];
}

/* Before a call into an instance that is not made through the rig. */
void rig_enter(struct rig_side *s);

/* One test of every outstanding request at both ends; then time goes on. */
void rig_turn(struct rig *r, uint64_t ns);
/* Turns until @cond, at most @limit_ns; 1 when it came true. */
int rig_until(struct rig *r, int (*cond)(struct rig *r), uint64_t limit_ns);
void rig_run(struct rig *r, uint64_t ns);
int rig_all_done(struct rig *r);
int rig_both_failed(struct rig *r);
/* isend that waits for its CTS. */
int rig_send_wait(struct rig *r, void *data, size_t size, int tag, struct ib_mr *mr);

/* A record reaches process @to, as from the other one. */
void rig_inject(struct rig *r, int to, enum fo_type type, const union fo_body *body);
/* The same for bytes. */
void rig_inject_bytes(struct rig *r, int to, const void *msg, size_t len);
/* Channel lost and back. */
void rig_oob_cut(struct rig *r, int cut);
/* How many records of @type process @from has sent. */
unsigned rig_count(const struct rig *r, int from, int type);

/* Closes that end; nothing may have come twice there. */
void rig_close(struct rig *r, int side);
/* Connections that process @side still has. */
int rig_comms(struct rig *r, int side);

/* Between the files of the rig. The service thread of @side has something to do. */
void rig_kick(void *side);
/* r2_inst_params.oob_create with a struct rig_side as @arg. */
struct r2_oob *rig_oob_create(void *arg, const struct r2_oob_events *ev, char *why, size_t why_len);

#endif
