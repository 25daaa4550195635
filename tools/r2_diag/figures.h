/*
 * What was read of many processes: how long transfers take from each host, and from each NIC, to
 * each other one. Nothing blocks; one thread. What is read is not trusted: numbers of any kind,
 * texts that are cut and made printable.
 */
#ifndef R2_DIAG_FIGURES_H
#define R2_DIAG_FIGURES_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/telemetry/r2_stat.h"
#include "tools/r2_diag/matrix.h"

#define FIGURES_PLACES 2048 /* hosts, or NICs */
#define FIGURES_SIZES  4
#define FIGURES_NAME   64
#define FIGURES_FRESH  60000000000ull /* ns: a figure older than its process says nothing of now */

/* Matrices are of hosts or of NICs. */
enum figures_by { FIGURES_HOST, FIGURES_NIC, FIGURES_BYS };

struct figures_place {
    char name[FIGURES_NAME]; /* of a NIC: HOST/NIC */
    int rail;                /* of a NIC; -1: not known */
    uint8_t is_read;         /* statistics of it are there, so that its row may be full */
};

struct figures_one {
    int source, destination;
    uint32_t times;
    double p50, p99; /* ns */
    uint8_t size;
};

struct figures_set {
    struct figures_place *place;
    struct figures_one *one;
    int places;
    size_t ones, room;
};

struct figures {
    struct figures_set by[FIGURES_BYS];
    const char *wanted; /* job; NULL: that which there is */
    char job[128];      /* that was read; empty: none has a number */
    uint8_t jobs;       /* 0: no process was read; 2: of several jobs, which is an error */
    uint8_t full;       /* more places than fit, or out of memory */
    int processes;
    int stale;       /* figures that are too old */
    int spread;      /* connections over several NICs, which are of no NIC's matrix */
    uint32_t hidden; /* peers that processes do not list */
    /* The process that is being read. */
    struct {
        int host;
        uint64_t updated;
    } now;
};

/* A send's connection, as far as it concerns NICs. */
struct figures_conn {
    char peer_host[FIGURES_NAME];
    struct {
        char nic[24], peer_nic[24];
        uint64_t bytes;
    } path[R2_STAT_PATHS];
    int paths;
    uint8_t is_send;
    struct {
        uint64_t samples, p50, p99;
    } sends[R2_SEND_SIZES];
};

/* A process of @host begins: 1, or 0: it is of another job than is wanted. @updated: when it wrote
 * last, CLOCK_REALTIME, ns. */
int figures_begin(struct figures *f, const char *host, const char *job, uint64_t updated);
/* What that process has. */
void figures_nic(struct figures *f, const char *name, int rail);
void figures_transfer(struct figures *f, const char *peer, unsigned size,
                      const struct r2_stat_transfer *t);
void figures_connection(struct figures *f, const struct figures_conn *c);
/* All of a process. */
void figures_view(struct figures *f, const struct r2_stat_view *v);
/* @text: what r2_stat --json has printed. 0; -1: it is something else. Pure. */
int figures_json(struct figures *f, const char *text);

/* Places by name, numbers in their order. After the last process. */
void figures_sort(struct figures *f);
/* Of the figures of @size that a cell has, the median. NULL: out of memory. */
struct diag_matrix *figures_matrix(const struct figures *f, enum figures_by by, unsigned size);
/* "16K", "small", ...; NULL: there is none. */
const char *figures_size_name(enum figures_by by, unsigned size);
void figures_free(struct figures *f);

#endif
