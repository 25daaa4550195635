/* Which part broke, in virtual time: classes of schedules, and the judge (sim_locate.c). */
#ifndef SIM_LOCATE_H
#define SIM_LOCATE_H

#include "sim.h"

void sim_locate_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_two_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_one_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_ring_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_cross_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_two_cross_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_late_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_still_draw(struct sim_params *p, struct fab_rng *r);
void sim_locate_busy_draw(struct sim_params *p, struct fab_rng *r);

/* Breaks what the schedule has for it, in time. */
void sim_locate_start(struct sim *s);
/* A line of process @proc: what it blames is looked at. */
void sim_locate_line(struct sim *s, int proc, int warn, const char *text);
/* The end: what was said goes to the sums. */
void sim_locate_judge(struct sim *s);

#endif
