/*
 * The hosts of a job, from the statistics of its processes: which NICs each has and which of them
 * can be used by the next communicator. What is read is not trusted: numbers of any kind, texts
 * that are cut and made printable. One thread; nothing here blocks.
 */
#ifndef R2_PLAN_HOSTS_H
#define R2_PLAN_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "plugin/planner/planner_bound.h"
#include "plugin/telemetry/r2_stat.h"

#define HOSTS_NAME 64
#define HOSTS_NICS R2_STAT_NICS

/* A NIC, as all processes of its host see it: sums, and the state and words of the process that
 * sees it worst. */
struct host_nic {
    char name[24], why[128];
    int port, rail;       /* rail: -1: not known */
    uint32_t mbps;        /* 0: not known */
    uint64_t over, moved; /* connections: with a usable path over it; whose path over it is gone */
    uint8_t state, is_drained, is_last_resort;
    uint8_t is_theirs; /* whatever moved away did so for a fault of the other end */
};

struct host_process {
    int64_t pid;
    int at; /* source */
};

struct host {
    char name[HOSTS_NAME];
    int at;      /* the source that named it first */
    bool is_all; /* that source has all processes of the host */
    int nics;
    struct host_nic *nic; /* HOSTS_NICS */
    struct host_process *process;
    int processes, room;
};

/* Who wrote what is read. */
struct host_job {
    char id[64], command[32]; /* id: empty: it has none, and its command is its name */
    int64_t uid;              /* -1: not known */
};

enum hosts_fault {
    HOSTS_WELL,
    HOSTS_JOBS,  /* of several jobs */
    HOSTS_TWICE, /* a host, or a process */
    HOSTS_MANY,  /* hosts, or NICs of one */
    HOSTS_MEMORY,
};

struct hosts {
    const char *wanted; /* job; NULL: that which there is */
    struct host_job job;
    bool is_begun; /* job is that of the first process */
    struct host **host;
    int hosts, room;
    char (*peer)[HOSTS_NAME]; /* whom processes know */
    int peers, peer_room;
    struct host *now;         /* the process that is being read is its; NULL: not wanted */
    enum hosts_fault fault;   /* the first one */
    char what[2][HOSTS_NAME]; /* it is about: JOBS two jobs, TWICE and MANY a host */
    int where[2];             /* TWICE: the two sources */
};

/* A process begins, read from source @at, of which @is_all says whether it has all processes of its
 * hosts. */
void hosts_begin(struct hosts *h, int at, bool is_all, const char *name, int64_t pid,
                 const struct host_job *of);
/* What that process has. */
void hosts_nic(struct hosts *h, const struct host_nic *nic);
void hosts_peer(struct hosts *h, const char *name);
/* All of a process. */
void hosts_view(struct hosts *h, int at, const struct r2_stat_view *v);
/* @text: what r2_stat --json has printed. 0; -1: it is something else. */
int hosts_json(struct hosts *h, int at, const char *text);

/* Hosts by the source that named them first, then by name, and NICs by name. After the last
 * process. */
void hosts_sort(struct hosts *h);

/* One word for the state of a NIC, as r2_stat has them. */
const char *host_nic_word(const struct host_nic *n);
/* The next communicator can use it: one that was left for a fault of the other end is good. */
bool host_nic_is_usable(const struct host_nic *n);
int host_usable(const struct host *host);

/* Whether a peer of @h, number @i, is none of its hosts. */
bool hosts_is_missing(const struct hosts *h, int i);

void hosts_free(struct hosts *h);

#endif
