/* What the state of a NIC in statistics is called. Pure; any thread. */
#ifndef R2_TOOLS_STAT_NIC_H
#define R2_TOOLS_STAT_NIC_H

#include "plugin/telemetry/r2_stat.h"

/*
 * One word for its state: gone, fatal, down, drained; avoided: no connection uses it, though its
 * port is up; partly: some do not; up. And why, and since when (CLOCK_REALTIME, ns).
 */
const char *stat_nic_word(const struct r2_stat_nic *n, const char **why, uint64_t *since);
/* How bad it is, for people: of several views of a NIC the worst has its words. */
int stat_nic_badness(const struct r2_stat_nic *n);

#endif
