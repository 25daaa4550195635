/* r2_stat --prom: counters that do not go backwards when a process ends. One thread; blocks on the
 * local file system.
 */
#ifndef R2_STAT_PROM_H
#define R2_STAT_PROM_H

#include <stdio.h>

#include "plugin/base/r2_time.h"
#include "plugin/probe/probe_line.h"
#include "tools/r2_stat/stat.h"

#define NS ((uint64_t)R2_NS_PER_S) /* of a second */

enum prom_sum {
    PROM_FAULTS,
    PROM_SWITCHES,
    PROM_FAILBACKS,
    PROM_DRAINS,
    PROM_GIVEUPS,
    PROM_VERDICTS,
    PROM_REPLAYED,
    PROM_DROPPED,
    PROM_STRANGERS,
    PROM_BAD_FRAMES,
    PROM_BAD_MESSAGES,
    PROM_STALLS,
    PROM_KEPT,
    PROM_SUMS
};
enum prom_nic_sum {
    PROM_SENT,
    PROM_RECEIVED,
    PROM_WORK,
    PROM_LOST,
    PROM_NIC_STALLS,
    PROM_NIC_SUMS
};

/* Times of sends by doublings: shorter than the first bound, R2_HIST_FROM, then up to each of the
 * following ones, then longer than R2_HIST_TO. */
#define PROM_TIMES (R2_HIST_TO - R2_HIST_FROM + 2)
struct prom_times {
    uint64_t sum_ns, n[PROM_TIMES];
};

struct prom_nic {
    char device[24];
    unsigned port;
    uint64_t sum[PROM_NIC_SUMS];
    struct prom_times sends[R2_SEND_SIZES];
};

/* What a process has counted, and over which NICs. */
struct prom_count {
    uid_t uid;
    uint64_t unique; /* of its file; 0 with uid 0: all that have ended */
    uint64_t sum[PROM_SUMS];
    struct prom_times stalls[R2_STAT_STALLS];
    int nics;
    struct prom_nic nic[R2_STAT_NICS];
};

struct prom_book {
    struct prom_count ended;
    int procs;
    struct prom_count proc[STAT_PROCS];
};

/* How many times there are. */
uint64_t prom_times_count(const struct prom_times *t);
/* Every figure of @from is added to @to. NICs beyond R2_STAT_NICS are left out. */
void prom_count_add(struct prom_count *to, const struct prom_count *from);
/* What a process counts now. */
void prom_count_take(struct prom_count *out, const struct stat_proc *p);

/* Transfer times by peer host, where there are any of late. */
void prom_peers(FILE *f, const struct stat_found *found);

/* Which NICs their history advises for drain. */
void prom_nic_history(FILE *f, const struct stat_found *found);

/*
 * The book after this look: @now are the processes that live, with what they count; who is in @old
 * and not there any more has ended, or, where some files could not be read (@unread), may have:
 * then it stays as it was.
 */
void prom_book_turn(struct prom_book *now, const struct prom_book *old, bool unread);

/* The book as text, in FILE; a file that is not there is an empty book. -1 with the reason: not in
 * order, or not readable. */
int prom_book_read(const char *file, struct prom_book *b, char *why, size_t why_len);
int prom_book_write(const char *file, const struct prom_book *b, char *why, size_t why_len);

/* Writes @text to @file, whole or not at all: another name beside it, fsync, rename. */
int prom_file_put(const char *file, const char *text, size_t len, mode_t mode, char *why,
                  size_t why_len);

/* HELP and TYPE of a metric; once before its samples. */
void prom_head(FILE *f, const char *name, const char *type, const char *help);
/* KEY="VALUE", escaped, behind @before. */
void prom_label(FILE *f, const char *before, const char *key, const char *value);
/* What is known of the code that @text begins with, a verdict in short or its code; NULL: none. */
const struct probe_code_info *prom_code(const char *text);
/* Samples of jobs, and of verdicts by code: of the processes that live. */
void prom_jobs(FILE *f, const struct stat_found *found);
void prom_verdicts(FILE *f, const struct stat_found *found);

#endif
