/*
 * Events: what happened to a job's NICs, as one line of JSON each (docs/events.md), and the file
 * that the processes of a user append them to. The text is pure; the file's calls are made on one
 * thread (the service thread's, at the end of its turn) and wait for nothing but the file system,
 * which has to be a local one.
 */
#ifndef R2_EVENT_H
#define R2_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define R2_EVENT_SCHEMA "r2.event/1"
#define R2_EVENT_LINE   8192 /* longest line: that of a verdict with all its evidence */

enum r2_event_kind {
    R2_EVENT_NONE,
    R2_EVENT_FAULT,    /* incarnations of paths ended */
    R2_EVENT_SWITCH,   /* ... and their traffic goes on elsewhere, all of it settled */
    R2_EVENT_VERDICT,  /* which component is to blame */
    R2_EVENT_FAILBACK, /* paths are used again */
    R2_EVENT_DRAIN,    /* a NIC is drained, free, or not drained any more */
    R2_EVENT_GIVEUP,   /* a connection ended with an error */
    R2_EVENT_START,
    R2_EVENT_STOP,
    R2_EVENT_NEWS,  /* another process of the job has found out which component is to blame, or that
                       it is good again */
    R2_EVENT_STALL, /* work over a NIC stood still, and went on without a fault */
    R2_EVENT_CHECKPOINT, /* the job may not last: a checkpoint is due */
    R2_EVENT_TRANSFER,   /* transfers to a peer take longer, or shorter, than usual */
    R2_EVENT_KINDS
};
const char *r2_event_kind_name(unsigned kind); /* "fault", ...; "?" when it is none */

enum r2_event_severity { R2_EVENT_INFO, R2_EVENT_WARNING, R2_EVENT_CRITICAL, R2_EVENT_SEVERITIES };
const char *r2_event_severity_name(unsigned severity);

/* Of which process. Const after init. */
struct r2_event_source {
    char host[64], command[32], version[48], boot_id[40];
    char scheduler[16], job[64], step[32]; /* empty: none is known */
    int64_t pid;
    int cuda_dev;    /* -1: not known */
    uint32_t digest; /* of the policy */
};

struct r2_event_nic {
    const char *device, *pci; /* device NULL: the event is about no NIC. pci NULL: not known */
    const char *netdev, *fw;  /* NULL, "": not known */
    uint64_t guid;
    uint8_t port, gid[16];
    uint16_t lid;
    int rail;
};

/* What a process has gone through: with its stop. */
struct r2_event_sum {
    uint64_t faults, switches, failbacks, drains, giveups, verdicts;
    uint64_t replayed_bytes, stall_max_ns;
    uint64_t stalls, stalls_max_ns; /* without a fault */
};

/* Transfers to the peer of the event, of messages of this size. */
struct r2_event_transfer {
    const char *size;                        /* r2_band_size_name() */
    int64_t p50_us, p99_us, low_us, high_us; /* low, high: the band, -1: being learnt */
};

/* -1 and NULL: not known, left out of the line. */
struct r2_event {
    enum r2_event_kind kind;
    enum r2_event_severity severity;
    uint64_t when_ns,
        mono_ns; /* CLOCK_REALTIME and CLOCK_MONOTONIC: when it happened, not when it is said */
    uint64_t since_ns;        /* verdicts: CLOCK_REALTIME of the fault; 0: not known */
    const char *code, *blame; /* "R2-L02", the component */
    struct r2_event_nic nic;
    struct {
        const char *host, *device;
    } peer;
    const char *how, *detail; /* cause: a word, and what was seen */
    struct {
        int wc_status, vendor_err, err;
    } error;
    int64_t detected_us; /* from the last progress that was seen to the fault */
    int64_t stall_us;    /* from the last progress before to the first after, of the connection that
                            waited longest */
    int64_t replayed_bytes, connections;
    struct {
        int all, up;
    } capacity;     /* NICs of this process: all, usable */
    int confidence; /* percent */
    const char *const *evidence;
    int n_evidence;
    struct {
        const char *const *name;
        const uint64_t *by;
        int n;
    } counters; /* verdicts: error counters of the NIC that have grown, by how much */
    const char *action, *recommend;
    const char *text; /* one line for people */
    struct {
        const char *code;
        uint64_t seq; /* the number of its line; 0: not known */
    } revises;        /* verdicts: an earlier one of this process about the same fault */
    const struct r2_event_sum *sum;
    const struct r2_event_transfer *transfer; /* NULL: it is about none */
};
/* All of it not known. */
extern const struct r2_event r2_event_empty;

/* One line, ended by a newline and a zero; its length, 0 when it does not fit @room. @seq counts
 * the lines of the process. Pure. */
size_t r2_event_line(char *out, size_t room, const struct r2_event_source *src,
                     const struct r2_event *e, uint64_t seq);

/* --- the file --- */

#define R2_EVENT_FILE_MAX                                                                          \
    (4u << 20) /* bytes; then it becomes FILE.1, and what that was is gone                         \
                */

struct r2_event_file {
    char path[512];
    int fd; /* -1: not open */
    uid_t uid;
    uint64_t max;             /* bytes */
    uint64_t written, failed; /* calls */
    int broken;               /* half a line stands at its end: no room */
};

/* Where the events of @uid go when no file is named: in the run directory. 0, or -1 when it does
 * not fit. */
int r2_event_path(const char *dir, uid_t uid, char *out, size_t len);
/* Names it; it is opened with the first line. -1: the name does not fit. */
int r2_event_file_init(struct r2_event_file *f, const char *path, uint64_t max);
/*
 * Appends @len bytes, whole lines, with one write. Makes the file (0600) where it is missing, turns
 * it over when it is full, and follows others who have. 0, or -1 with the reason in @why: a link,
 * somebody else's file, no room; the lines are lost and counted.
 */
int r2_event_append(struct r2_event_file *f, const char *lines, size_t len, char *why,
                    size_t why_len);
void r2_event_file_close(struct r2_event_file *f);

#endif
