/* Classes of schedules in which what was lost comes back, and may be lost again (sim_class.c has
 * the others). */
#include "sim.h"

/* What fails comes back, again and again, on every rail: incarnations 2, 3, 4 carry data beside
 * late packets of those before.
 */
void sim_return_draw(struct sim_params *p, struct fab_rng *r)
{
    p->rounds = (int)sim_pick(r, 3, 14);
    p->fault_mask = LINK_FAULTS;
    p->fault_mask |= sim_pct(r, 60) ? SILENT_FAULTS : 0;
    p->fault_mask |= sim_pct(r, 50) ? SIM_F(SIM_F_QP_ERROR) | SIM_F(SIM_F_GID_CHANGE) : 0;
    p->fault_mask |= sim_pct(r, 30) ? SIM_F(SIM_F_HANG_BACK) : 0;
    p->fault_mask |= sim_pct(r, 15) ? SIM_F(SIM_F_FATAL) | SIM_F(SIM_F_REMOVE) |
                                          SIM_F(SIM_F_SILENT_DEATH) | SIM_F(SIM_F_UNPLUG)
                                    : 0;
    p->fault_mask |= sim_pct(r, 30) ? SIM_F(SIM_F_CALL_ERROR) : 0;
    p->fault_mask |= sim_pct(r, 30) ? SIM_F(SIM_F_SEND_ERROR) : 0;
    p->fault_mask |= sim_pct(r, 30) ? SIM_F(SIM_F_OOB_OUTAGE) : 0;
    p->mend_ns = sim_pct(r, 50) ? 4 * SIM_MS : 40 * SIM_MS;
    p->gap_ns = sim_pct(r, 30) ? 2 * SIM_MS : 80 * SIM_MS;
    p->chain_pct = (int)sim_pick(r, 0, 40);
    p->chain_ns = sim_pct(r, 50) ? 100 * SIM_US : 10 * SIM_MS;
    p->both_pct = 30;
    p->t_return_ms = (int)sim_pick(r, 1, 20);
    p->t_probe_ms = (int)sim_pick(r, 2, 30);
    p->t_packet_ms = (int)sim_pick(r, 3, 25);
    p->fab.ghost_ppm = sim_pct(r, 40) ? 0 : (uint32_t)fab_rng_upto(r, 200000);
    p->fab.ghost_ns = (uint64_t)p->t_packet_ms * SIM_MS * 3 / 4;
    p->fab.rtr_needs_path = sim_pct(r, 30);
    p->spread = sim_pct(r, 60);
    p->stripe_min = sim_pct(r, 50) ? 65536 : (int)sim_pick(r, 128, 8192);
    p->msgs = (int)sim_pick(r, 200, 450) / p->conns;
    p->ops = (int)sim_pick(r, 1, 8);
    p->idle_ns = sim_pct(r, 50) ? 20 * SIM_MS : 500 * SIM_US;
    /* bursts of eight on average, until the last round is through */
    p->pace_ns = (uint64_t)p->rounds * (p->gap_ns + p->mend_ns) / ((unsigned)p->msgs / 8 + 1);
    p->give_up_ms = 3000;
    p->stall_ms = 2000;
    p->oob_loss_ppm = sim_pct(r, 50) ? (uint32_t)fab_rng_upto(r, 100000) : 0;
    p->oob_dup_ppm = sim_pct(r, 50) ? (uint32_t)fab_rng_upto(r, 200000) : 0;
    p->oob_reorder_ppm = sim_pct(r, 50) ? (uint32_t)fab_rng_upto(r, 200000) : 0;
    p->dead_at_start = sim_pct(r, 20);
    if (sim_pct(r, 15)) {
        p->want = SIM_WANT_PEER;
        p->abort = 1;
    }
}

/* Incarnations that follow each other at once, while packets and records of those before are still
 * under way. */
void sim_reborn_draw(struct sim_params *p, struct fab_rng *r)
{
    sim_return_draw(p, r);
    p->want = SIM_WANT_FINISH;
    p->abort = 0;
    p->dead_at_start = 0;
    p->rounds = (int)sim_pick(r, 6, 14);
    p->fault_mask = SIM_F(SIM_F_QP_ERROR) | (sim_pct(r, 50) ? SILENT_FAULTS | LINK_FAULTS : 0);
    p->t_return_ms = 1;
    p->t_packet_ms = 40;
    p->fab.ghost_ppm = (uint32_t)sim_pick(r, 100000, 800000);
    p->fab.ghost_ns = 30 * SIM_MS;
    p->mend_ns = 2 * SIM_MS;
    p->gap_ns = 50 * SIM_MS;
    p->chain_pct = 0;
    p->idle_ns = 500 * SIM_US;
    p->ops = 1;
    p->max_group = (int)sim_pick(r, 1, 2);
    p->max_slots = (int)sim_pick(r, 2, 4);
    p->pace_ns = (uint64_t)p->rounds * (p->gap_ns + p->mend_ns) / ((unsigned)p->msgs / 8 + 1);
    p->flush_pct = 0;
    p->service = (struct sim_delay){5 * SIM_US, 100 * SIM_US, 10000};
    p->worker = (struct sim_delay){5 * SIM_US, 100 * SIM_US, 10000};
    p->oob_max_ns = 50 * SIM_US;
    p->oob_late_ns = 60 * SIM_MS;
    p->oob_loss_ppm = (uint32_t)fab_rng_upto(r, 50000);
    p->oob_dup_ppm = (uint32_t)sim_pick(r, 100000, 400000);
    p->oob_reorder_ppm = (uint32_t)sim_pick(r, 100000, 400000);
}

/* NICs are drained and given back, while others, or the same, fail. */
void sim_drain_draw(struct sim_params *p, struct fab_rng *r)
{
    sim_return_draw(p, r);
    p->want = SIM_WANT_FINISH;
    p->abort = 0;
    p->dead_at_start = 0;
    p->no_retransmit = sim_pct(r, 50);
    p->fault_mask = SIM_F(SIM_F_DRAIN);
    if (p->no_retransmit) {
        p->oob_loss_ppm = p->oob_loss_ppm > 60000 ? 60000 : p->oob_loss_ppm;
        p->ib_timeout = 14;
        p->stall_ms = 400;
        p->fab.rtr_needs_path = 0;
    } else {
        p->fault_mask |= LINK_FAULTS | (sim_pct(r, 50) ? SILENT_FAULTS | SIM_F(SIM_F_QP_ERROR) : 0);
        p->fault_mask |= sim_pct(r, 30) ? SIM_F(SIM_F_OOB_OUTAGE) : 0;
    }
}
