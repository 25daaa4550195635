/* Shared by probe_hang.c (who waits, what is found) and probe_hang_report.c (a report by itself).
 */
#ifndef PROBE_HANG_INT_H
#define PROBE_HANG_INT_H

#include "probe_hang.h"

/* UINT32_MAX where it does not fit. */
uint32_t probe_hang_ms(uint64_t ns);
/* @w becomes what it is @ns after it was sent. */
void probe_hang_age(struct probe_hang_report *w, uint64_t ns);

#endif
