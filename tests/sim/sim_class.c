/*
 * Classes of schedules. Each aims at a part of the failures in scope and at some of the
 * counterexamples of the protocol: which things are slow against which others decides what can go
 * wrong.
 */
#include "sim.h"
#include "sim_locate.h"

#include <string.h>

/* What all classes start from: mostly small messages, everything a little late, short timers. */
static void draw_base(struct sim_params *p, struct fab_rng *r)
{
    p->want = SIM_WANT_FINISH;
    p->procs = sim_pct(r, 75) ? 2 : 3;
    p->share_host = p->procs == 3 && sim_pct(r, 40);
    p->nics = (int)sim_pick(r, 2, 4);
    p->conns = (int)sim_pick(r, 1, 4);
    p->msgs = (int)sim_pick(r, 15, 120) / p->conns + 8;
    p->max_group = (int)sim_pick(r, 1, 8);
    p->max_slots = sim_pct(r, 60) ? (int)sim_pick(r, 1, 8) : (int)sim_pick(r, 8, SIM_MAX_SLOTS);
    p->max_size = sim_pct(r, 70) ? 16384 : 262144;
    p->big_pct = p->max_size > 16384 ? 3 : 10;
    p->ops = (int)sim_pick(r, 1, 5);
    p->idle_ns = sim_pct(r, 30) ? 20 * SIM_MS : 500 * SIM_US;
    p->setup_ns = sim_pct(r, 70) ? 500 * SIM_US : 20 * SIM_MS;
    p->crossrail = sim_pct(r, 15);
    p->no_balance = sim_pct(r, 15);
    p->loopback_pct = 5;
    p->cross_dev_pct = 20;
    p->app = (struct sim_delay){fab_rng_upto(r, 3000), 2 * SIM_MS, (uint32_t)fab_rng_upto(r, 3000)};
    p->service = (struct sim_delay){fab_rng_upto(r, 50 * SIM_US), 3 * SIM_MS,
                                    (uint32_t)fab_rng_upto(r, 20000)};
    p->worker = (struct sim_delay){fab_rng_upto(r, 200 * SIM_US), 3 * SIM_MS,
                                   (uint32_t)fab_rng_upto(r, 20000)};
    p->latency_ns = sim_pick(r, 500, 5000);
    p->rate = sim_pct(r, 50) ? 0 : sim_pick(r, 1000, 20000) * 1000000ull;
    p->fab.jitter_ns = fab_rng_upto(r, 3000);
    p->fab.dma_ns = sim_pct(r, 50) ? fab_rng_upto(r, 2000) : fab_rng_upto(r, 300 * SIM_US);
    p->fab.cqe_ns = sim_pct(r, 50) ? fab_rng_upto(r, 2000) : fab_rng_upto(r, 300 * SIM_US);
    p->oob_min_ns = 10 * SIM_US;
    p->oob_max_ns = sim_pct(r, 60) ? 100 * SIM_US : 5 * SIM_MS;
    p->ib_timeout = (int)sim_pick(r, 8, 10);
    p->ib_retry = (int)sim_pick(r, 2, 5);
    p->t_fence_ms = (int)sim_pick(r, 2, 10);
    p->t_pcie_ms = 10;
    p->t_packet_ms = 40;
    p->t_dead_ms = 120;
    p->give_up_ms = 1000;
    p->repeat_ms = (int)sim_pick(r, 1, 5);
    p->linger_ms = 1000;
    p->ack_us = (int)fab_rng_upto(r, 40);
    p->stripe_min = 65536;
    p->t_stuck_ms = 2000;
    p->rq_depth = sim_pct(r, 50) ? 32 : 64;
    p->chain_pct = 50;
    p->chain_ns = sim_pct(r, 50) ? 100 * SIM_US : 10 * SIM_MS;
    p->both_pct = 20;
    p->close_now_pct = 50;
    /* Without the event a removal under an end that has nothing posted is seen by nobody but a
     * watchdog. */
    p->fab.remove_event_ppm = 1000000;
    p->close_ns = 5 * SIM_MS;
    p->stall_ms = 400; /* the transport's retries, a hold of T_dead, a few lost control messages,
                          the peer's silence */
}

static void draw_calm(struct sim_params *p, struct fab_rng *r)
{
    p->quiet = 1;
    p->ib_timeout = 14;
    p->spread = sim_pct(r, 30);
    p->oob_loss_ppm = (uint32_t)fab_rng_upto(r, 100000);
    p->oob_dup_ppm = (uint32_t)fab_rng_upto(r, 100000);
    p->oob_reorder_ppm = (uint32_t)fab_rng_upto(r, 100000);
    p->fab.ghost_ppm = (uint32_t)fab_rng_upto(r, 10000);
    p->fab.ghost_ns = 20 * SIM_MS;
}

static void draw_noise(struct sim_params *p, struct fab_rng *r)
{
    draw_calm(p, r);
    p->ib_retry = 7;
    p->faults = (int)sim_pick(r, 1, 5);
    p->fault_mask = GREY_FAULTS | SIM_F(SIM_F_OOB_OUTAGE);
}

static void draw_port(struct sim_params *p, struct fab_rng *r)
{
    p->faults = 1;
    p->fault_mask = LINK_FAULTS;
    p->both_pct = 40;
    p->spread = sim_pct(r, 30);
}

static void draw_silent(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = SILENT_FAULTS;
    p->spread = sim_pct(r, 30);
    p->fab.ghost_ppm = (uint32_t)fab_rng_upto(r, 20000);
    p->fab.ghost_ns = 20 * SIM_MS;
}

static void draw_device(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = DEVICE_FAULTS;
    p->spread = sim_pct(r, 30);
    p->fab.nic.dead_dma_ns = sim_pct(r, 50) ? 0 : fab_rng_upto(r, 8 * SIM_MS);
}

/* RC never says anything: only a missing answer can. */
static void draw_watch(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 3);
    p->fault_mask = SILENT_FAULTS | (sim_pct(r, 30) ? SIM_F(SIM_F_HANG) : 0);
    p->retry7 = sim_pct(r, 30);
    p->ib_timeout = p->retry7 ? (int)sim_pick(r, 8, 14) : 20;
    p->ib_retry = 7;
    p->spread = sim_pct(r, 30);
    p->idle_ns = sim_pct(r, 50) ? 200 * SIM_MS : p->idle_ns;
    p->stall_ms = 1000; /* three faults in a row, each suspected, asked (longer while a NIC of
                           either end moves) and settled; holds of T_dead */
}

/* Queue pairs that stand still on NICs that answer. */
static void draw_stuck(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = SIM_F(SIM_F_STUCK) | (sim_pct(r, 30) ? SILENT_FAULTS : 0);
    p->retry7 = sim_pct(r, 30);
    p->ib_timeout = 14;
    p->ib_retry = 7;
    p->t_stuck_ms = 100;
    p->spread = sim_pct(r, 30);
    p->stall_ms = 1500; /* per fault: twice T_stuck or the RC time-out, and as long again where the
                           probe is stuck, too */
}

/* Late bytes of every sort against buffers that are used again at once. */
static void draw_ghost(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = SILENT_FAULTS | LINK_FAULTS | SIM_F(SIM_F_QP_ERROR);
    if (sim_pct(r, 50)) {
        p->fault_mask = SIM_F(SIM_F_BLACKHOLE_TX) | SIM_F(SIM_F_BLACKHOLE) | SIM_F(SIM_F_LOSS);
    }
    p->msgs = p->msgs < 60 ? 60 : p->msgs;
    p->max_group = (int)sim_pick(r, 1, 2);
    p->max_slots = (int)sim_pick(r, 2, 4);
    p->ops = 1;
    p->fab.ghost_ppm = (uint32_t)sim_pick(r, 20000, 800000);
    p->fab.ghost_ns = sim_pick(r, SIM_MS, 30 * SIM_MS);
    p->fab.dma_ns = sim_pick(r, 10 * SIM_US, 4 * SIM_MS);
    p->fab.cqe_ns = sim_pick(r, 0, 2 * SIM_MS);
    p->oob_max_ns = 30 * SIM_US;
    p->service = (struct sim_delay){5 * SIM_US, 100 * SIM_US, 10000};
    p->worker = (struct sim_delay){5 * SIM_US, 100 * SIM_US, 10000};
}

/* Every NIC but one, one after another or together, each in the settlement of the one before. */
static void draw_chain(struct sim_params *p, struct fab_rng *r)
{
    p->nics = (int)sim_pick(r, 3, 4);
    p->faults = (int)sim_pick(r, 2, 6);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS;
    p->chain_pct = 80;
    p->chain_ns = sim_pct(r, 50) ? 200 * SIM_US : 15 * SIM_MS;
    p->spread = sim_pct(r, 50);
    p->fab.ghost_ppm = (uint32_t)fab_rng_upto(r, 20000);
    p->fab.ghost_ns = 20 * SIM_MS;
}

static void draw_connect(struct sim_params *p, struct fab_rng *r)
{
    p->dead_at_start = sim_pct(r, 50);
    p->faults = (int)sim_pick(r, 1, 3);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS | SIM_F(SIM_F_MR_FAIL) |
                    SIM_F(SIM_F_OOB_OUTAGE);
    p->early_pct = 100;
    p->chain_pct = 30;
    p->fab.rtr_needs_path = sim_pct(r, 30);
    p->oob_loss_ppm = (uint32_t)fab_rng_upto(r, 50000);
}

static void draw_oob(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 2, 4);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS | SIM_F(SIM_F_OOB_OUTAGE);
    p->chain_ns = 20 * SIM_MS;
    p->oob_max_ns = 5 * SIM_MS;
    p->oob_loss_ppm = (uint32_t)fab_rng_upto(r, 150000);
    p->oob_dup_ppm = (uint32_t)fab_rng_upto(r, 300000);
    p->oob_reorder_ppm = (uint32_t)fab_rng_upto(r, 300000);
}

/* No channel any more, told or not: what is to be said goes over the NICs that are left. */
static void draw_inband(struct sim_params *p, struct fab_rng *r)
{
    if (sim_pct(r, 40)) {
        draw_watch(p, r);
    }
    p->faults = (int)sim_pick(r, 1, 4);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS;
    p->setup_ns = 200 * SIM_US;
    p->chain_ns = 20 * SIM_MS;
    p->oob_gone = 1;
}

/* The receiver is gone right after its last done; the sender still needs an answer. */
static void draw_close(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS;
    p->msgs = (int)sim_pick(r, 4, 30);
    p->ops = 1;
    p->late_pct = 90;
    p->chain_pct = 30;
    p->close_now_pct = 90;
    p->oob_loss_ppm = sim_pct(r, 50) ? (uint32_t)fab_rng_upto(r, 100000) : 0;
}

static void draw_abort(struct sim_params *p, struct fab_rng *r)
{
    p->want = SIM_WANT_PEER;
    p->abort = 1;
    p->faults = (int)sim_pick(r, 0, 2);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS;
    if (sim_pct(r, 40)) { /* what a device does not let go of stays registered */
        p->faults = (int)sim_pick(r, 1, 3);
        p->fault_mask = HANG_FAULTS;
        p->fab.hang_modify_ns = 100 * SIM_US;
        p->fab.hang_modify_fails_ppm = 1000000;
        p->t_fence_ms = 1;
        p->t_packet_ms = 100;
        p->abort_hang = 1;
    }
    p->fab.dma_ns = 300 * SIM_US;
}

static void draw_last(struct sim_params *p, struct fab_rng *r)
{
    p->want = SIM_WANT_ERROR;
    p->procs = 2;
    p->share_host = 0;
    p->loopback_pct = 0;
    p->nics = (int)sim_pick(r, 1, 3);
    p->fault_mask = SIM_F(SIM_F_DOWN) | SIM_F(SIM_F_BLACKHOLE) | DEVICE_FAULTS;
    p->give_up_ms = (int)sim_pick(r, 300, 500);
    p->t_dead_ms = 100;
}

/* NCCL_R2_FAILOVER=off: what is in use when a NIC fails ends with an error, at both ends and in
 * time. */
static void draw_off(struct sim_params *p, struct fab_rng *r)
{
    p->want = SIM_WANT_ERROR;
    p->no_failover = 1;
    p->cross_dev_pct = 0; /* there is one path: it must be one that exists */
    p->faults = 1;
    p->fault_mask = LINK_FAULTS | SIM_F(SIM_F_FATAL) | SIM_F(SIM_F_QP_ERROR);
    p->both_pct = 0;
    p->give_up_ms = (int)sim_pick(r, 300, 500);
    p->t_dead_ms = 100;
}

static void draw_kill(struct sim_params *p, struct fab_rng *r)
{
    p->want = SIM_WANT_PEER;
    p->share_host = 0;
    p->kill = 1;
    p->loopback_pct = 0;
    p->give_up_ms = (int)sim_pick(r, 300, 500);
    p->t_dead_ms = 100;
}

/* All paths in use while all is well, messages cut small. */
static void draw_spread(struct sim_params *p, struct fab_rng *r)
{
    p->spread = 1;
    p->stripe_min = sim_pct(r, 70) ? (int)sim_pick(r, 128, 4096) : 65536;
    p->faults = (int)sim_pick(r, 1, 3);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS;
    p->max_slots = (int)sim_pick(r, 2, 8);
    p->max_group = (int)sim_pick(r, 1, 3);
    p->fab.cqe_ns = sim_pick(r, 0, 500 * SIM_US);
}

static void draw_mixed(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 8);
    p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS | HANG_FAULTS | GREY_FAULTS |
                    SIM_F(SIM_F_OOB_OUTAGE);
    p->spread = sim_pct(r, 50);
    p->stripe_min = sim_pct(r, 50) ? 65536 : (int)sim_pick(r, 128, 8192);
    p->early_pct = 10;
    p->late_pct = 10;
    p->oob_loss_ppm = sim_pct(r, 50) ? (uint32_t)fab_rng_upto(r, 100000) : 0;
    p->oob_dup_ppm = (uint32_t)fab_rng_upto(r, 50000);
    p->oob_reorder_ppm = (uint32_t)fab_rng_upto(r, 50000);
    p->fab.ghost_ppm = (uint32_t)fab_rng_upto(r, 30000);
    p->fab.ghost_ns = 20 * SIM_MS;
    p->fab.nic.dead_dma_ns = sim_pct(r, 50) ? 0 : fab_rng_upto(r, 8 * SIM_MS);
}

/* Several queue pairs over a NIC pair, which fail together or alone and come back. */
static void draw_qps(struct sim_params *p, struct fab_rng *r)
{
    if (sim_pct(r, 50)) {
        sim_return_draw(p, r);
    } else {
        draw_mixed(p, r);
    }
    p->qps = (int)sim_pick(r, 2, 8);
    p->split = sim_pct(r, 50);
}

/* Bytes go before what tells of them, and a driver may take the first and refuse the second. */
static void draw_adaptive(struct sim_params *p, struct fab_rng *r)
{
    static void (*const like[])(struct sim_params *, struct fab_rng *) = {
        draw_ghost, draw_spread, draw_mixed,      sim_return_draw, draw_qps,   sim_hang_draw,
        draw_chain, draw_close,  sim_reborn_draw, sim_drain_draw,  draw_watch, draw_oob};

    like[fab_rng_next(r) % (sizeof(like) / sizeof(like[0]))](p, r);
    p->adaptive = 1;
    p->ar_threshold = sim_pct(r, 50) ? 0 : (int)sim_pick(r, 1, 8192);
    p->list_cut = sim_pct(r, 70) && !p->no_retransmit ? (int)sim_pick(r, 3, 60) : 0;
    p->ar_mixed = sim_pct(r, 30);
    p->no_inline = sim_pct(r, 30);
    p->stall_ms = p->stall_ms < 700 ? 700 : p->stall_ms; /* each cut list is one more failure */
}

/* Unequal NICs, weights that never rest, and everything that may happen meanwhile. */
static void draw_weights(struct sim_params *p, struct fab_rng *r)
{
    switch (sim_pick(r, 0, 3)) {
    case 0:
        sim_return_draw(p, r);
        break;
    case 1:
        sim_drain_draw(p, r);
        break;
    case 2:
        draw_qps(p, r);
        break;
    default:
        draw_mixed(p, r);
        break;
    }
    p->whim_ns = sim_pct(r, 50) ? 200 * SIM_US : 5 * SIM_MS;
    p->stripe_min = sim_pct(r, 30) ? 65536 : (int)sim_pick(r, 128, 8192);
}

/* Parts count when they have been read back through their NIC: what came over one that died before
 * is sent again. */
static void draw_flushed(struct sim_params *p, struct fab_rng *r)
{
    static void (*const like[])(struct sim_params *, struct fab_rng *) = {
        draw_ghost, draw_spread, draw_device, draw_mixed, sim_return_draw, draw_qps, draw_close};

    like[fab_rng_next(r) % (sizeof(like) / sizeof(like[0]))](p, r);
    p->ack_flush = 1;
    p->adaptive = sim_pct(r, 30);
    p->ar_threshold = 1;
}

/* NICs, perhaps the connection's own, do not take the memory that is sent: it goes by way of
 * bounce buffer, with everything that can end an incarnation. */
static void draw_bounced(struct sim_params *p, struct fab_rng *r)
{
    static void (*const like[])(struct sim_params *, struct fab_rng *) = {
        draw_spread,     draw_device, sim_hang_draw, draw_ghost, draw_mixed,    sim_return_draw,
        sim_reborn_draw, draw_qps,    draw_close,    draw_abort, draw_adaptive, sim_drain_draw};
    unsigned all;

    like[fab_rng_next(r) % (sizeof(like) / sizeof(like[0]))](p, r);
    all = (1u << p->nics) - 1;
    p->copy_nics = 1 + (unsigned)fab_rng_upto(r, all - 2);
    p->copy = (struct sim_delay){sim_pct(r, 50) ? 5 * SIM_US : 300 * SIM_US, 20 * SIM_MS,
                                 (uint32_t)fab_rng_upto(r, 20000)};
    p->copy_fail_ppm = sim_pct(r, 20) ? 2000 : 0;
    p->no_retransmit &= p->copy_fail_ppm == 0;
}

/* Several ways between the NICs of a rail, which fail alone: RC says nothing, or late. */
static void draw_ways(struct sim_params *p, struct fab_rng *r)
{
    static void (*const like[])(struct sim_params *, struct fab_rng *) = {
        draw_watch, draw_watch, draw_silent, draw_spread, draw_mixed, draw_qps, draw_adaptive};

    like[fab_rng_next(r) % (sizeof(like) / sizeof(like[0]))](p, r);
    p->spines = (int)sim_pick(r, 2, 8);
    p->hash_qp = sim_pct(r, 20);
    p->faults += (int)sim_pick(r, 0, 2);
    p->stall_ms += 1000; /* a new way may be silent, too */
    p->ports = sim_pct(r, 50) ? (int)sim_pick(r, 1, 16) : 0;
    p->ports_differ = sim_pct(r, 40);
}

/* All RDMA NICs of a host, or of all, for a while or for good: what is left is TCP. */
static void draw_resort(struct sim_params *p, struct fab_rng *r)
{
    switch (sim_pick(r, 0, 3)) {
    case 0:
    case 1:
        sim_return_draw(p, r);
        p->dead_at_start = 0;
        p->both_pct = 50;
        p->fault_mask |= sim_pct(r, 30) ? SIM_F(SIM_F_DRAIN) : 0;
        p->chain_pct = (int)sim_pick(r, 0, 80);
        break;
    case 2:
        p->all_go = 1;
        p->fault_mask = LINK_FAULTS | SILENT_FAULTS | DEVICE_FAULTS | GREY_FAULTS;
        break;
    default: /* nothing happens */
        draw_calm(p, r);
        break;
    }
    p->nics = (int)sim_pick(r, 2, 4);
    p->last_nic = 1;
    p->aside = p->nics > 2 && sim_pct(r, 50);
    p->stall_ms = p->stall_ms < 1000 ? 1000 : p->stall_ms;
}

#define BY_NAME 8 /* at the end: those that no turn comes to */

const struct sim_class sim_classes[] = {
    {"calm", "no fault; late threads, DMA and completions, a bad bus: nothing may go DOWN",
     draw_calm},
    {"noise", "loss, duplicates, delay, slow links below what RC repairs: nothing may go DOWN",
     draw_noise},
    {"port", "port down, flaps, one end or both", draw_port},
    {"silent", "blackholes both ways and one way, lost acknowledgements", draw_silent},
    {"watch",
     "the same with RC time-outs beyond the run, and drivers that hang for ever: the watchdog alone",
     draw_watch},
    {"stuck", "queue pairs that send and complete nothing any more, without a word", draw_stuck},
    {"device", "device fatal, removed, queue pairs in error", draw_device},
    {"hang", "driver hangs: soft fences, holds, bytes that land late", sim_hang_draw},
    {"ghost", "packets and DMA held back against small windows", draw_ghost},
    {"chain", "all NICs but one, in a row or together", draw_chain},
    {"connect", "faults while connections are made, NICs dead at start", draw_connect},
    {"oob", "out-of-band channel lost, late, doubled, with faults", draw_oob},
    {"close", "the receiver closes at once, faults in the last messages", draw_close},
    {"abort", "an end closes with requests outstanding", draw_abort},
    {"last", "all paths die: an error at both ends, in time", draw_last},
    {"off", "failover switched off", draw_off},
    {"kill", "a process is killed", draw_kill},
    {"spread", "all paths in use, messages in parts", draw_spread},
    {"mixed", "everything together", draw_mixed},
    {"return",
     "what fails comes back: incarnations 2 and above, flaps, dead at start, every rail in turn",
     sim_return_draw, 1},
    {"reborn", "incarnations in quick succession, against packets and records of those before",
     sim_reborn_draw, 1},
    {"drain", "NICs drained and given back, alone and with faults; alone nothing may go twice",
     sim_drain_draw, 1},
    {"qps", "several queue pairs over each NIC pair, whole and split messages, everything together",
     draw_qps},
    {"adaptive",
     "adaptive routing, all or part of the NICs: two work requests, the second of which a driver may refuse",
     draw_adaptive},
    {"weights", "unequal NICs, weights that change all the time, with everything that comes back",
     draw_weights, 0, 1},
    {"flushed",
     "acknowledged when flushed: what a NIC brought and can read back no more is sent again",
     draw_flushed},
    {"bounce",
     "NICs that do not take the senders' memory: by way of a bounce buffer, with everything that ends an incarnation",
     draw_bounced},
    {"inband", "out-of-band channels lost for good, with faults: control messages over NICs",
     draw_inband},
    {"idle", "NICs that carry nothing die and cannot be fenced: nothing waits for it",
     sim_idle_draw},
    {"deaf", "drivers that refuse all calls at both ends, while the NICs go on repeating",
     sim_deaf_draw},
    {"unheard", "driver hangs, soft fences, words that are lost and come late", sim_unheard_draw},
    {"ways", "several ways between two NICs, one of which is silent or loses packets", draw_ways},
    {"resort", "all RDMA NICs go, for a while or for good: over the last resort, and back",
     draw_resort},
    {"locate", "one failure on three hosts: who blames what (by name only)", sim_locate_draw},
    {"locate2", "the same on two hosts (by name only)", sim_locate_two_draw},
    {"locate-one", "the same on three hosts of one NIC each (by name only)", sim_locate_one_draw},
    {"locate-ring", "the same in a ring of four hosts (by name only)", sim_locate_ring_draw},
    {"locate-late",
     "the same on three, where processes stand still for seconds and what broke is mended meanwhile (by name only)",
     sim_locate_late_draw},
    {"locate-still",
     "the same on three, where a process that is asked, or the channel to it, stands still for seconds (by name only)",
     sim_locate_still_draw},
    {"locate-busy",
     "the same on three, where all NICs are busy and the way between two of them is cut (by name only)",
     sim_locate_busy_draw},
    {"locate-cross", "the same on three hosts whose rails reach each other (by name only)",
     sim_locate_cross_draw},
    {"locate2-cross", "the same on two such hosts (by name only)", sim_locate_two_cross_draw},
    {"deaf-short", "deaf, with a T_dead that RC outlasts: wrong bytes (by name only)",
     sim_deaf_short_draw},
};
_Static_assert(sizeof(sim_classes) / sizeof(sim_classes[0]) <= SIM_MAX_CLASSES,
               "sums have a row for each class");

const int sim_class_count = sizeof(sim_classes) / sizeof(sim_classes[0]);
const int sim_class_turns = sizeof(sim_classes) / sizeof(sim_classes[0]) - BY_NAME;

void sim_params_draw(struct sim_params *p, int cls, uint64_t seed)
{
    struct fab_rng r = {seed * 0x9e3779b97f4a7c15ull + (uint64_t)cls * 0x51ed27};

    memset(p, 0, sizeof(*p));
    fab_rng_next(&r);
    draw_base(p, &r);
    sim_classes[cls].draw(p, &r);
    /* A channel that is out, messages lost in numbers, an error that comes only at the end of
     * T_give_up: these may take it all. */
    if (p->want != SIM_WANT_FINISH || p->oob_loss_ppm > 60000 ||
        p->fault_mask & SIM_F(SIM_F_OOB_OUTAGE) || p->oob_gone || p->fab.hang_modify_ns ||
        p->copy_fail_ppm) {
        p->stall_ms = p->give_up_ms + 500;
    }
    /* A process that was killed is given up when its host has refused for a second. */
    if (p->kill) {
        p->stall_ms += 1000;
    }
    p->recv_kept = p->fault_mask && sim_pct(&r, 10);
    /* Calls fail with EIO from the start; only its end is the proof. */
    p->fab.nic.removing_ns = sim_pct(&r, 50) ? fab_rng_upto(&r, 30 * SIM_MS) : 0;
    p->flush_always = sim_pct(&r, 25) || p->ack_flush;
    p->flush_pct = p->flush_always ? 50 : 5;
    /* A NIC that reads no more is given up after ten T_fence, and one may follow the other. */
    if (p->flush_always) {
        p->stall_ms += 10 * p->t_fence_ms * p->nics;
    }
    /* Where a fabric lets writes overtake each other, the plugin is told so. */
    if (p->adaptive && sim_pct(&r, 75)) {
        p->fab.nic.reorder_ns = sim_pct(&r, 50) ? 5 * SIM_US : fab_rng_upto(&r, 300 * SIM_US);
    }
    /* Last, so that the schedules are what they are without. */
    if (sim_pct(&r, 40)) {
        p->providers = fab_rng_next(&r) | 1;
        p->one_provider = sim_pct(&r, 30);
        /* with the slowest DMA still less than half of T_pcie (P16.4) */
        p->fab.nic.linger_ns = fab_rng_upto(&r, 4 * SIM_MS);
        p->t_pcie_ms = 20;
        p->stall_ms += 30;
    }
    p->fab.nic.pauses = sim_pct(&r, 40);
    if (p->spines && p->ports == 0 && !p->ar_mixed && sim_pct(&r, 60)) {
        p->lids = 1 + (int)sim_pick(&r, 0, 3);
        /* nobody refuses a queue pair to a LID that packets cannot reach */
        p->cross_dev_pct = p->crossrail ? p->cross_dev_pct : 0;
    }
}
