/*
 * Transfer times by peer and size (docs/diagnosis.md, "Transfer times of a peer"): from the times
 * of sends (r2_latency.h) of all connections to a process, its rows in the statistics file, and an
 * event when they leave their band (r2_band.h). Service thread; no function blocks.
 */
#ifndef R2_TRANSFER_H
#define R2_TRANSFER_H

#include "r2_report_int.h"

/* Announcements of a process in R2_TRANSFER_SPAN at the most: a switch that fills makes the
 * transfers to all peers late. What is not said stays due. */
#define R2_TRANSFER_SPAN 30000000000ull /* ns */
#define R2_TRANSFER_MOST 8

/* Takes what @c has timed since the last call. */
void r2_transfer_take(struct r2_comm *c);
/* Ends windows that are due, announces what follows, and writes the rows. */
void r2_transfer_write(struct r2_report *r, struct r2_stat_who *who);

#endif
