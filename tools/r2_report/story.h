/*
 * What happened to a job, from the events of its processes (docs/events.md): which NIC was lost
 * when, who is blamed, what it cost. Pure but for memory; one thread.
 */
#ifndef R2_REPORT_STORY_H
#define R2_REPORT_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/telemetry/r2_traffic.h"

#define STORY_EVIDENCE    12
#define STORY_EVENTS      200000
#define STORY_EVENTS_TEXT "200000"
#define STORY_RATES       480                    /* of a NIC, over time ... */
#define STORY_RATES_NS    (3600 * 1000000000ull) /* ... which is at most so long */

enum story_kind {
    STORY_OTHER, /* a kind that this version does not know */
    STORY_FAULT,
    STORY_SWITCH,
    STORY_VERDICT,
    STORY_FAILBACK,
    STORY_DRAIN,
    STORY_GIVEUP,
    STORY_START,
    STORY_STOP,
    STORY_NEWS,
    STORY_STALL,
    STORY_CHECKPOINT,
    STORY_KINDS
};

struct story_event {
    enum story_kind kind;
    uint64_t when, since; /* CLOCK_REALTIME, ns; since: of verdicts, else 0 */
    uint64_t mono;
    int64_t pid, stall_us, replayed, connections; /* the last three: -1, not known */
    int64_t all, up;                              /* NICs of the process; -1: not known */
    int64_t seq, revised;                         /* the line's, and the one's it revises; or 0 */
    int confidence;
    char host[64], job[96], nic[32], peer_host[64], peer_nic[32], code[16], blame[40], how[40];
    char action[40], severity[12], revises[16], detail[24], text[300];
    char *evidence[STORY_EVIDENCE]; /* owned */
    int evidences;
};

/* A NIC that a process could not use, or that it drained. */
enum story_why { STORY_LOST, STORY_PEERS, STORY_DRAINED, STORY_REHEARSED };
struct story_span {
    enum story_why why;
    int64_t pid;
    uint64_t from, to; /* ns */
    bool open;         /* it had not come back at the end */
    const struct story_event *began;
};

/* What a NIC carried in one part of the time. */
struct story_rate {
    double sent, received; /* bytes */
    uint8_t state;         /* the worst: enum r2_traffic_state */
};

struct story_nic {
    char host[64], device[32];
    struct story_span *span;
    int spans;
    uint64_t sent, received; /* bytes, of processes whose statistics were there */
    bool counted;            /* sent and received are known */
    struct story_rate *rate; /* story.rates.n of them; NULL: not known */
};

struct story_verdict {
    const struct story_event *e; /* the first one that says so */
    int *by;                     /* the processes that say so, by their place in `process` */
    int said;                    /* so many */
    bool revised;                /* a later one took its place */
};

struct story_process {
    const char *host;
    int64_t pid, all; /* NICs; -1: not known */
    uint64_t from, to;
    bool stopped; /* its end is among the events; else `to` is the end of all events */
};

/* A host's part of the cost. */
struct story_cost {
    char host[64];
    int processes, faults, giveups;
    uint64_t stall_us, replayed; /* the longest; the sum */
    double less; /* bytes that it carried less while a NIC of any host was lost; -1: not known */
    double nic_s, lost_s; /* NICs times the time that its processes ran, and what was lost of it
                             here; the other end of a fault is counted where the fault is */
};

struct story {
    struct story_event *event; /* by time */
    int events, room;
    int wrong;  /* lines that are no event */
    int unread; /* files that could not be read */
    uint64_t from, to;
    struct story_nic *nic;
    int nics;
    struct story_verdict *verdict;
    int verdicts;
    struct story_process *process;
    int processes;
    struct story_cost *cost;
    int costs;
    struct {
        uint64_t from, width; /* ns: of all, of one */
        int n;                /* 0: none are known */
    } rates;
};

/* Adds the event of @line, if it is of job @job (NULL: of any). -1: out of memory, or there are
 * STORY_EVENTS. */
int story_line_add(struct story *s, const char *line, const char *job);
/* Adds bytes to a NIC's; before story_tell or behind it. -1: out of memory. */
int story_bytes_add(struct story *s, const char *host, const char *device, uint64_t sent,
                    uint64_t received);
/* Rates are of @from to @to, or what of it comes last; once, before they are added. */
void story_rates_begin(struct story *s, uint64_t from, uint64_t to);
/* A NIC carried so much more between @from and @to, by one process. -1: out of memory. */
int story_rate_add(struct story *s, const char *host, const char *device, uint64_t from,
                   uint64_t to, const struct r2_traffic_cell *more);
/* Once all is added: order, spans, verdicts and costs. -1: out of memory. */
int story_tell(struct story *s);
void story_free(struct story *s);

/* What was carried less than at the rate before, of so much in each of @n parts of time, in @lost
 * of which (0 to 1) something was lost: bytes; -1: it began where nothing is known of before. */
double story_less_of(const double *carried, const double *lost, int n);
/* The same of each host, into its cost: story_tell does it. */
void story_less(struct story *s);

/* The NIC of that host, made when it is not there. NULL: out of memory. */
struct story_nic *story_nic_at(struct story *s, const char *host, const char *device);
/* As much of @text as @out has room for; what is not ASCII as '?'. */
void story_text_keep(char *out, size_t room, const char *text);
/* "2026-11-27T00:25:09.322189433Z" to ns since 1970; 0: it is none. */
uint64_t story_time(const char *text);

#endif
