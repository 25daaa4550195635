/* One end of a connection, its peer on another host, and the steps of which checks consist. */
#ifndef SOFTFAB_PROBE_H
#define SOFTFAB_PROBE_H

#include "tests/fabric/shm/seg.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/types.h>

#define BUF_SIZE (8u << 20)
#define MS       1000000ull
/* For what has to come: a bound against hangs, not on time. */
#define HANG_LIMIT (20000 * MS)

struct info {
    uint32_t qpn, rkey;
    uint64_t addr;
    union ibv_gid gid;
};

struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;
    struct info self, peer;
    uint64_t posted, done;
};

extern struct seg_map probe_map; /* the fabric, to break it */
extern struct end me;
extern struct end
    second; /* open: another NIC of this process, also connected to fab0 of the peer */
extern pid_t peer_pid;
extern uint8_t qp_timeout,
    qp_retries;          /* of the queue pairs made next; the time is 4.096 us x 2^qp_timeout */
extern char saw[256];    /* what the check has seen, for its line */
extern char reason[512]; /* why it failed */

/* All steps: true, or false with the reason in reason. */

/* Writes the reason; returns false. */
bool because(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* NULL with errno, ENODEV when it is not in the list. */
struct ibv_context *device_open(const char *name);
bool end_open(struct end *e, const char *nic);
void end_close(struct end *e);
/* Starts a peer on host 1 and connects me to it; stops it, by signal @sig if not 0. */
bool peer_start(void);
void peer_stop(int sig);
/* Connects me to myself: the peer is the second half of my buffer. */
bool loop_start(void);
/* The first word of the peer's buffer. */
uint64_t peer_word(void);
bool fault(const char *text);
/* Writes @value into the first word of the peer's buffer, as the head of @len bytes; post: mine. */
bool end_post(struct end *e, uint64_t value, uint32_t len);
bool post(uint64_t value, uint32_t len);
/* The next completion within @limit ns: its status, or -1: none came, -2: the device is gone. */
int completion(uint64_t limit);
bool expect_completion(int status, uint64_t limit); /* status -1: none */
bool write_ok(uint64_t value);                      /* posts, completes, arrives */
/* An asynchronous event of @type; the time since @since in microseconds through *us_p. */
bool expect_event(enum ibv_event_type type, uint64_t since, unsigned *us_p);
bool expect_no_event(void);
bool expect_port(enum ibv_port_state state);

#endif
