/* What QEMU sees of a VM whose agent does not answer. In the lab's run folder. */
#ifndef R2_LAB_STILL_H
#define R2_LAB_STILL_H

/* Prints on standard error whether VM @host runs, and where its CPU is, several times: a loop in
 * the kernel shows as places that are close together, an idle CPU as HLT=1. Blocks for a second, or
 * as long as the monitor's limits. */
void lab_still_explain(const char *host);

#endif
