/*
 * What the NICs of a host have gone through over many jobs, and which of them is to be drained
 * before it fails again (docs/operating.md, "A NIC's history"). Facts in, verdict out; and its
 * text. Pure: no clock, no file; no function blocks.
 */
#ifndef R2_NIC_HISTORY_H
#define R2_NIC_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define R2_NIC_HISTORY_NICS  32
#define R2_NIC_HISTORY_HOURS 48           /* of a NIC, in which something happened: the last ones */
#define R2_NIC_HISTORY_JOBS  8            /* in which it failed: the last ones */
#define R2_NIC_HISTORY_TEXT  (128 * 1024) /* bytes that are always enough */

#define R2_NIC_HISTORY_SAME 2        /* s: later is not the same failure, said by another process */
#define R2_NIC_HISTORY_FLAP 60       /* s: within is a flap */
#define R2_NIC_HISTORY_SPAN (7 * 24) /* hours that count */
/* From so many on it is to be drained: */
#define R2_NIC_DRAIN_JOBS  3  /* in which it failed */
#define R2_NIC_DRAIN_HOURS 3  /* in which it failed */
#define R2_NIC_DRAIN_FLAPS 10 /* in 24 hours */
#define R2_NIC_DRAIN_SLOW  6  /* hours in which it was slow to several peers */

enum r2_nic_fact { R2_NIC_FAILED, R2_NIC_SLOW, R2_NIC_SLOW_ITSELF };

struct r2_nic_hour {
    uint32_t hour; /* since 1970 */
    uint32_t failures, flaps;
    uint32_t slow_to; /* bit per peer, by a hash of its name: of one peer it may be the peer's
                         fault; of a NIC that several found slow all bits */
};

struct r2_nic_job {
    uint32_t job, hour; /* hash; of the last failure in it */
};

struct r2_nic_past {
    uint64_t guid;
    uint32_t port;
    char name[24];
    uint64_t failed_at; /* s since 1970; 0: never */
    uint32_t hours, jobs;
    struct r2_nic_hour hour[R2_NIC_HISTORY_HOURS]; /* oldest first */
    struct r2_nic_job job[R2_NIC_HISTORY_JOBS];
};

/* Zero bytes are an empty one. */
struct r2_nic_history {
    uint32_t nics;
    struct r2_nic_past nic[R2_NIC_HISTORY_NICS];
};

struct r2_nic_note {
    enum r2_nic_fact fact;
    uint64_t guid, at;       /* at: s since 1970 */
    uint32_t port, job;      /* job: a hash */
    char name[24], peer[40]; /* peer: to which it was slow */
};

/* Enters a fact. Of more NICs than there is room for, the one to which nothing has happened for
 * longest makes room. */
void r2_nic_history_note(struct r2_nic_history *h, const struct r2_nic_note *n);

enum r2_nic_verdict { R2_NIC_GOOD, R2_NIC_WATCH, R2_NIC_DRAIN, R2_NIC_VERDICTS };
const char *r2_nic_verdict_name(unsigned verdict); /* "good", "watch", "drain"; "?" */

/* What of it counts at @now (s), and what follows; @why: the reason of a drain, in words. */
struct r2_nic_judged {
    enum r2_nic_verdict verdict;
    uint32_t failures, flaps, flaps_day, failed_hours, slow_hours, jobs;
    char why[64];
};
void r2_nic_history_judge(const struct r2_nic_past *p, uint64_t now, struct r2_nic_judged *out);
/* @from's into @to: of each hour the larger counts, since two users see the same failure. */
void r2_nic_history_merge(struct r2_nic_history *to, const struct r2_nic_history *from);

/* As text, ended by a checksum; its length, 0 when it does not fit @room. */
size_t r2_nic_history_print(const struct r2_nic_history *h, char *out, size_t room);
/* 0; else the number of the first line that is not as it was written, and *h is empty. Without text
 * it is empty, too. */
int r2_nic_history_parse(const char *text, size_t len, struct r2_nic_history *h);

#endif
