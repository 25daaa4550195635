/* Classes of schedules in which fences are soft and holds wait (sim_class.c has the others). */
#include "sim.h"

/* A receiver that cannot fence: what its NIC has taken lands when it pleases, long after the
 * retransmission if the bus is quick. */
void sim_hang_draw(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = HANG_FAULTS | (sim_pct(r, 50) ? SIM_F(SIM_F_FATAL) | SIM_F(SIM_F_REMOVE) : 0);
    p->fab.hang_modify_fails_ppm = (uint32_t)fab_rng_upto(r, 900000);
    p->fab.ghost_ppm = sim_pct(r, 60) ? 0 : (uint32_t)fab_rng_upto(r, 300000);
    p->fab.ghost_ns = 25 * SIM_MS;
    p->fab.nic.dead_dma_ns = sim_pick(r, SIM_MS, 8 * SIM_MS);
    p->fab.dma_ns = sim_pct(r, 30) ? p->fab.dma_ns : 5 * SIM_MS;
    p->msgs = p->msgs < 50 ? 50 : p->msgs;
    p->max_slots = (int)sim_pick(r, 1, 6);
    p->max_group = (int)sim_pick(r, 1, 3);
    p->ops = 1;
    p->t_fence_ms = 2;
    p->oob_max_ns = sim_pct(r, 70) ? 30 * SIM_US : p->oob_max_ns;
    p->service = (struct sim_delay){5 * SIM_US, SIM_MS, 5000};
    p->worker = (struct sim_delay){5 * SIM_US, SIM_MS, 5000};
    if (sim_pct(r, 40)) {
        /* A call that the driver keeps stops the whole simulation: the transport's patience and
         * that of the watchdog must outlast several of them, or healthy paths die of what is only
         * this program's single thread. */
        p->fab.hang_modify_ns = sim_pick(r, SIM_MS, 8 * SIM_MS);
        p->ib_timeout = 12;
        p->ib_retry = 5;
        p->t_probe_ms = 300;
        p->t_packet_ms = 300;
        p->t_dead_ms = 900;
        p->give_up_ms = 4000;
    }
}

/*
 * NICs that carry nothing die so that nobody can fence them, at one end or at both. Nothing may
 * wait for T_packet or T_dead.
 */
void sim_idle_draw(struct sim_params *p, struct fab_rng *r)
{
    p->idle_rails = 1;
    p->faults = (int)sim_pick(r, 1, 3);
    p->fault_mask = SIM_F(SIM_F_FATAL) | SIM_F(SIM_F_REMOVE) | SIM_F(SIM_F_HANG_FATAL);
    p->both_pct = 50;
    p->msgs = p->msgs < 50 ? 50 : p->msgs;
    p->oob_max_ns = sim_pct(r, 50) ? 30 * SIM_US : 100 * SIM_US;
    p->t_packet_ms = 300;
    p->t_dead_ms = 900;
    p->give_up_ms = 4000;
    p->stall_ms = 60; /* threads that are late, words that wait for them */
}

/* The same as in hang, where words are lost: the sender's comes when what it is of has been posted
 * again, and has come. */
void sim_unheard_draw(struct sim_params *p, struct fab_rng *r)
{
    sim_hang_draw(p, r);
    p->fault_mask = SIM_F(SIM_F_HANG_BACK);
    p->fab.hang_modify_ns = 0;
    p->oob_loss_ppm = (uint32_t)sim_pick(r, 200000, 500000);
    p->give_up_ms = 4000; /* set-up loses as many */
    p->t_packet_ms = 150;
    p->t_dead_ms = 450;
    p->oob_reorder_ppm = (uint32_t)fab_rng_upto(r, 300000);
    p->oob_max_ns = sim_pct(r, 50) ? 30 * SIM_US : 300 * SIM_US;
    p->msgs = p->msgs < 100 ? 100 : p->msgs;
    p->max_slots = (int)sim_pick(r, 1, 3);
    p->max_group = 1;
}

uint64_t sim_rc_ns(const struct sim_params *p)
{
    unsigned slow = p->fab.nic.slow_timer ? p->fab.nic.slow_timer : 1;

    return (4096ull << p->ib_timeout) * (unsigned)(p->ib_retry + 1) * slow;
}

/*
 * Drivers that answer nothing, at both ends as a rule, while queue pairs repeat by themselves: only
 * time ends the holds, and it is as long as the repetition.
 */
void sim_deaf_draw(struct sim_params *p, struct fab_rng *r)
{
    p->faults = (int)sim_pick(r, 1, 2);
    p->fault_mask = SIM_F(SIM_F_DEAF);
    p->both_pct = 80;
    p->chain_ns = 200 * SIM_US;
    p->msgs = p->msgs < 80 ? 80 : p->msgs;
    p->max_slots = (int)sim_pick(r, 1, 4);
    p->max_group = (int)sim_pick(r, 1, 2);
    p->ops = 1;
    p->ib_timeout = (int)sim_pick(r, 11, 13);
    p->fab.nic.slow_timer = (uint32_t)sim_pick(r, 1, 4);
    p->ib_retry = (int)sim_pick(r, 3, 7);
    p->t_fence_ms = 2;
    p->t_dead_ms = -1; /* its default */
    p->give_up_ms = 4000;
    p->stall_ms = p->faults * ((int)(sim_rc_ns(p) * 4 / p->fab.nic.slow_timer / SIM_MS) +
                               p->t_packet_ms + 1000);
    p->oob_loss_ppm = sim_pct(r, 20) ? (uint32_t)sim_pick(r, 100000, 500000) : 0;
    if (sim_pct(r, 40)) { /* words that come when time has ended a hold */
        p->fault_mask |= SIM_F(SIM_F_OOB_OUTAGE);
        p->faults += 2;
        p->chain_pct = 90;
    }
    if (sim_pct(r, 30)) {
        p->want = SIM_WANT_PEER;
        p->abort = 1;
    }
}

/* What T_dead is for: the same schedules, and RC outlasts it. They fail. */
void sim_deaf_short_draw(struct sim_params *p, struct fab_rng *r)
{
    sim_deaf_draw(p, r);
    p->t_dead_ms = 20;
}
