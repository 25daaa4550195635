/*
 * Two instances of the plugin, one per host, on the in-process fabric with its virtual clock, and a
 * channel between them that loses nothing. For tests that look into one connection; random
 * schedules are the simulation's. On a fabric of more hosts there are as many instances.
 *
 * Single-threaded. Service threads and workers are events that run a microsecond after they were
 * kicked (duo.wake_ns).
 */
#ifndef DUO_H
#define DUO_H

#include "plugin/base/r2_time.h"
#include "plugin/core/r2_inst.h"
#include "tests/fabric/inproc/fab_inproc.h"

#define DUO_MS   R2_NS_PER_MS
#define DUO_ENDS 16

struct duo;

struct duo_worker {
    struct duo_end *end;
    int device, armed;
};

struct duo_message {
    struct duo_message *next;
    int from; /* host */
    size_t len;
    uint8_t data[];
};

struct r2_oob_peer {
    struct duo_end *end; /* whose view of the channel this is */
    int host;            /* of the other end */
    uint64_t uuid[2];
    int up;
};

struct duo_end {
    struct r2_oob oob; /* first: recovered from it */
    struct duo *duo;
    int host;
    struct r2_inst *inst;
    struct r2_oob_events ev;
    struct r2_oob_peer peer[DUO_ENDS]; /* by host; its own is not used */
    struct duo_message *in, **in_tail;
    uint64_t service_id, service_at, random;
    struct duo_worker worker[IB_MAX_NICS];
    uint64_t sent, sent_bytes; /* messages of the channel */
};

struct duo {
    struct fab_inproc *f;
    uint64_t wake_ns; /* from a kick, or a message sent, until the thread concerned runs; may be
                         changed at any time */
    uint64_t job_ns;  /* what each job of a worker takes; 0: nothing */
    uint64_t
        device_ns[IB_MAX_NICS]; /* the same for the jobs of one device of either host; 0: job_ns */
    uint64_t stuck[DUO_ENDS];   /* per host, bit per device: the driver does not return from the job
                                   that it has, or gets next */
    int running;                /* host whose service thread or worker runs, -1: none */
    int ends;
    struct duo_end end[DUO_ENDS];
};

/* @nics per host, rated links if @rate is not 0. Aborts with a message when it cannot be made.
 * DUO_LOG in the environment: the plugin's lines go to stderr. */
void duo_create(struct duo *d, int nics, uint64_t rate, const struct r2_config *cfg);
/* The same on a fabric of 2 to DUO_ENDS hosts. */
void duo_create_on(struct duo *d, const struct fab_desc *desc, const struct r2_config *cfg);
/* Runs until nothing is with a worker, then takes all down. Connections that are still open end
 * with it. */
void duo_destroy(struct duo *d);

/* A connection from host 0 to host 1, device @dev at both ends, taken as far as both ends have it.
 * 0, -1 if an end got an error. */
int duo_connect(struct duo *d, int dev, struct r2_comm **send, struct r2_comm **recv);
/* The same from host @from to host @to. */
int duo_connect_hosts(struct duo *d, int from, int to, int dev, struct r2_comm **send,
                      struct r2_comm **recv);

static inline uint64_t duo_now(struct duo *d)
{
    return fab_inproc_now(d->f);
}
/* Lets everything happen for @ns. */
void duo_run(struct duo *d, uint64_t ns);
/* Applies a fault; aborts when its text is wrong. */
void duo_fault(struct duo *d, const char *text);
/* Tests @req every 500 ns of virtual time, at most @limit_ns long; the status of the last test.
 * *done, *sizes as r2_net_test. */
enum r2_status duo_wait(struct duo *d, struct r2_req *req, uint64_t limit_ns, int *done,
                        int *sizes);

#endif
