/*
 * What our own plugin tells of this process in its statistics file (docs/diagnosis.md): bytes by
 * NIC, read while the run goes on, and its events, read at the end. A thread of its own reads; the
 * file is found among what is mapped into the process, so it is this process' own wherever it lies.
 * Other plugins have none: then there are no rows, and why[] says so.
 */
#ifndef R2_PERF_STATS_H
#define R2_PERF_STATS_H

#include <stdint.h>

#include "plugin/telemetry/r2_stat.h"

#define STATS_ROWS_MAX 1024

/* Bytes of messages, since the process began. */
struct stats_row {
    int64_t at_ns; /* since the clock started; of the first row before that, where there is one */
    uint64_t sent[R2_STAT_NICS], received[R2_STAT_NICS];
};

struct stats_told {
    char why[200]; /* nothing could be read; empty: it could */
    uint32_t nics;
    char nic[R2_STAT_NICS][sizeof(((struct r2_stat_nic *)0)->name)];
    uint32_t nrows, nevents;
    uint32_t halved;    /* so often were rows too many, and every second one was left out */
    uint32_t forgotten; /* events that the file had no room for any more */
    struct stats_row row[STATS_ROWS_MAX];
    struct r2_stat_event event[R2_STAT_HISTORY]; /* since the clock started; mono: since then */
};

struct stats;

/* Start the thread, which looks every @interval_ns, at most ten times a second: the plugin writes
 * no more often. Caller closes. NULL when there are no threads. */
struct stats *stats_open(uint64_t interval_ns);
/* The clock starts: of what was before, the last row stays. Any thread; does not block long. */
void stats_start(struct stats *s, uint64_t t0_ns);
/* After the last operation: waits, for two seconds at most, until the plugin has written what it
 * knows of it. The result is valid until stats_close. Thread: main. */
const struct stats_told *stats_stop(struct stats *s);
/* Also without stats_stop. NULL accepted. */
void stats_close(struct stats *s);

/* --- pure --- */

/* @row follows those that are there; where there is no room, or its time does not go on, not all of
 * them stay. Sums are kept: what is left out is in the row behind. */
void stats_row_add(struct stats_told *t, const struct stats_row *row);

#endif
