/* r2_ctl: what its parts share. One thread; blocks on the local file system and, with --wait, until its limit. */
#ifndef R2_CTL_H
#define R2_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "plugin/r2_board.h"

#define CTL_BOARDS 64
#define CTL_NAMES  32

struct ctl {
    const char *dir;                 /* run directory */
    struct r2_board *board[CTL_BOARDS]; /* those that we may read: root all, others their own */
    uid_t board_uid[CTL_BOARDS];
    int boards;
    bool json, wait;
    double limit_s; /* of --wait */
    const char *why;
};

/* Prints "r2_ctl: ..." to stderr; returns 1, the exit status. */
int ctl_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Opens the boards of the run directory. What cannot be read is said on stderr. */
void ctl_boards_open(struct ctl *c);
void ctl_boards_close(struct ctl *c);

/* Calls @row for each NIC of each living process. */
struct ctl_row {
    uid_t uid;
    struct r2_board_who who;
    struct r2_board_nic nic;
};
void ctl_rows_walk(const struct ctl *c, void (*row)(void *arg, const struct ctl_row *r), void *arg);

/* Adds the @n names to this user's drain file, or takes them away (@n 0: all). Exit status. */
int ctl_drain_change(const struct ctl *c, bool add, int n, char *const *names);
/* With --wait: until no process has work on them. Exit status. */
int ctl_drain_wait(const struct ctl *c, int n, char *const *names);
/* Whether @name, as the user says it, means NIC @nic of a row. */
bool ctl_name_is(const char *name, const struct r2_board_nic *nic);
/* Whether some running job here has it. */
bool ctl_name_known(const struct ctl *c, const char *name);

int ctl_status(const struct ctl *c);

#endif
