/*
 * What each NIC of a process carried, second by second, in a file that outlives the process
 * (docs/diagnosis.md): format, writer and reader. For the plugin and r2_report.
 *
 * RUN_DIR/nccl-net-r2.UID.<16 hex digits>.traffic, beside the process' statistics file of the same
 * digits, while which stands the process lives. A head, then a ring of R2_TRAFFIC_ROWS rows. A row
 * is words of 64 bits in the host's order: its number from 1, from and to when (CLOCK_REALTIME,
 * ns), two words of states, four bits for each NIC, then for each NIC the bytes that it has sent
 * and received up to then, since the process began; and its number again, so that a reader knows
 * whether what it has is whole. A row is of a second or more, but for the last one; while nothing
 * moves there are none.
 */
#ifndef R2_TRAFFIC_H
#define R2_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define R2_TRAFFIC_ROWS  600
#define R2_TRAFFIC_NICS  32
#define R2_TRAFFIC_ROW   1000000000ull /* ns: no row is of less, but for the last one */
#define R2_TRAFFIC_KEPT  64            /* files of a user's processes that have ended ... */
#define R2_TRAFFIC_AGE_S 86400         /* ... none of them older than that */

enum r2_traffic_state {
    R2_TRAFFIC_UP,
    R2_TRAFFIC_DRAINED,
    R2_TRAFFIC_AVOIDED, /* its port is up, and connections have left it: all of them */
    R2_TRAFFIC_DOWN,
    R2_TRAFFIC_FATAL,
    R2_TRAFFIC_GONE,
    R2_TRAFFIC_STATES
};

struct r2_traffic_head {
    uint64_t magic, shape; /* the writer fills them in */
    int64_t pid;
    uint64_t start; /* CLOCK_REALTIME, ns */
    uint32_t nics, reserved;
    char host[64], command[32], scheduler[16], job[64], step[32]; /* r2-epilog looks for job */
    char nic[R2_TRAFFIC_NICS][32];
};

struct r2_traffic_cell {
    uint64_t sent, received; /* bytes, since the process began */
    uint8_t state;           /* enum r2_traffic_state */
};

/* --- writer: one thread; blocks on the file system --- */

struct r2_traffic;

/* Makes the file beside the statistics file @stat_path. NULL with the reason in @why. */
struct r2_traffic *r2_traffic_create(const char *stat_path, const struct r2_traffic_head *head,
                                     char *why, size_t why_len);
/* What the NICs have carried by now (@mono, @real: ns); writes a row when one is due. The file
 * system is full: no more rows. */
void r2_traffic_look(struct r2_traffic *t, const struct r2_traffic_cell *cell, uint64_t mono,
                     uint64_t real);
/* The last row. The file stays, unless it has no row. NULL accepted. */
void r2_traffic_close(struct r2_traffic *t);

/* Takes away what is too old, or too many, of @uid's processes that have ended. @now: seconds,
 * CLOCK_REALTIME. */
void r2_traffic_sweep(const char *dir, uid_t uid, time_t now);

/* --- reader: nothing it gives is out of bounds, whatever the file says --- */

struct r2_traffic_row {
    uint64_t no, from, to;
    struct r2_traffic_cell cell[R2_TRAFFIC_NICS]; /* head.nics of them */
};

struct r2_traffic_view {
    struct r2_traffic_head head;
    int rows;
    struct r2_traffic_row row[R2_TRAFFIC_ROWS]; /* oldest first; some may be missing between */
};

/* 1 when @name is the name of such a file: whose, and which. Pure. */
int r2_traffic_name(const char *name, uid_t *uid, uint64_t *unique);
/* 1: it is in *@v; -1 with the reason in @why. Blocks on the file system. */
int r2_traffic_read(const char *path, struct r2_traffic_view *v, char *why, size_t why_len);
int r2_traffic_read_fd(int fd, const char *path, struct r2_traffic_view *v, char *why,
                       size_t why_len);

#endif
