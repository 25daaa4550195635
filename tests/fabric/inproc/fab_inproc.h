/*
 * In-process engine: hosts and NICs of one fabric in one process, one thread, a virtual clock and a
 * seed.
 *
 * Nothing happens by itself: verbs calls only queue work, and fab_inproc_step runs the next event
 * (a packet arriving, a timer, a DMA, a completion becoming visible, a callback of the user). Same
 * description, options, seed and calls: the same run, event for event.
 *
 * Not thread-safe. Callbacks may call any verbs call and any function here except _step,
 * _run_until, _run_idle and _destroy.
 */
#ifndef FAB_INPROC_H
#define FAB_INPROC_H

#include "plugin/ib_transport/verbs/ib_verbs.h"
#include "tests/fabric/model/fab_desc.h"
#include "tests/fabric/model/fab_nic.h"
#include "tests/fabric/model/fab_spine.h"

struct fab_inproc;

/* All zero: a calm fabric with 4096-byte segments in which DMA and completions take no time.
 * Chances are per million.
 */
struct fab_inproc_opts {
    struct fab_nic_cfg nic; /* base_rate and latency_ns are taken from the description instead */
    uint64_t jitter_ns;     /* each packet takes up to this much longer; order within a queue pair's
                               direction is kept */
    uint64_t dma_ns;        /* accepted data reaches memory after up to this much */
    uint64_t cqe_ns;        /* a completion becomes visible after up to this much more */
    uint32_t ghost_ppm;     /* chance that a copy of a packet is held back ... */
    uint64_t ghost_ns;      /* ... and delivered up to this much later, out of order */
    uint32_t remove_event_ppm; /* chance that `remove` raises DEVICE_FATAL */
    uint64_t hang_modify_ns;   /* a modify_qp on a hung NIC keeps its caller this long: the clock
                                  jumps, nothing runs   meanwhile */
    uint32_t hang_modify_fails_ppm; /* chance that it then fails with ETIMEDOUT */
    bool rtr_needs_path; /* INIT->RTR fails with ETIMEDOUT when either end's link is down or
                            blackholed */
    const void *gpu_mem; /* memory of the process that counts as a GPU's: gpu_len bytes */
    size_t gpu_len;
    /* Called before the device of @host:@nic writes memory for queue pair @qpn. NULL: none. Must
     * not call verbs. */
    void (*on_memory_write)(void *arg, int host, int nic, uint32_t qpn, void *addr, uint32_t len);
    void *arg;
};

/* NULL with errno EINVAL or ENOMEM. @opts NULL: all zero. Both are copied. */
struct fab_inproc *fab_inproc_create(const struct fab_desc *desc, uint64_t seed,
                                     const struct fab_inproc_opts *opts);
/* All contexts must be closed before (a context left open is reported on stderr and the process
 * aborts). */
void fab_inproc_destroy(struct fab_inproc *f);

/* The verbs calls of @host as the plugin's table. fab_inproc_set_host decides whose devices
 * get_device_list shows from now on; this call does it for @host too. Objects belong to the host on
 * whose device they were opened, whatever is set. */
void fab_inproc_verbs(struct fab_inproc *f, int host, struct ib_verbs *v);
void fab_inproc_set_host(struct fab_inproc *f, int host);

/* Virtual time in ns, from 0. */
uint64_t fab_inproc_now(struct fab_inproc *f);
/* Runs @cb(@arg) at @when_ns (now, if that is past). Returns an id, never 0; 0 with ENOMEM. Of
 * events of one time the one set first runs first. */
uint64_t fab_inproc_at(struct fab_inproc *f, uint64_t when_ns, void (*cb)(void *arg), void *arg);
void fab_inproc_cancel(struct fab_inproc *f, uint64_t id); /* nothing if it ran */
/* Runs the next event, moving the clock to its time; 0 when none is left. */
int fab_inproc_step(struct fab_inproc *f);
/* Runs all events up to and including @t_ns, then sets the clock to @t_ns. */
void fab_inproc_run_until(struct fab_inproc *f, uint64_t t_ns);
/* Time of the next event; UINT64_MAX when none is left. */
uint64_t fab_inproc_next_event_time(struct fab_inproc *f);
/* Moves the clock without running what falls due (a thread that did not get the processor); overdue
 * events run at the new time. */
void fab_inproc_skip(struct fab_inproc *f, uint64_t ns);

/* From now on @cb(@arg, host) is called when a completion channel of @host has got an event: what
 * wakes a thread that waits on its descriptor. Must not call verbs. NULL: none. */
void fab_inproc_on_channel(struct fab_inproc *f, void (*cb)(void *arg, int host), void *arg);

/* Applies a fault given as text (fab_fault.h) now. -1 with the reason in @err, and nothing changed.
 */
int fab_inproc_fault(struct fab_inproc *f, const char *text, char *err, size_t err_len);

/* The model's NIC: counters in ->cnt, link state in ->link. */
struct fab_nic *fab_inproc_nic(struct fab_inproc *f, int host, int nic);
/* Counters of a spine; NULL where there is none, as in a fabric of one spine. */
const struct fab_spine_count *fab_inproc_spine(struct fab_inproc *f, int rail, int spine);
/* The spine that packets of @qp take now. -1: none, as before RTR, between a port and itself, with
 * all of them down or in a fabric of one spine. */
int fab_inproc_way(struct fab_inproc *f, const struct fab_qp *qp);
/* Sums over all NICs. */
void fab_inproc_totals(struct fab_inproc *f, struct fab_counters *sum);
uint64_t fab_inproc_events(struct fab_inproc *f); /* events run so far */
/* Hash over all packets and events so far: equal for equal runs. */
uint64_t fab_inproc_digest(struct fab_inproc *f);
/* The engine's random numbers, for schedules of the user that should hang on the same seed. */
uint64_t fab_inproc_random(struct fab_inproc *f);

#endif
