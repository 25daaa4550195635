/* r2_ctl: what its parts share. One thread; blocks on the local file system and, with --wait, until
 * its limit. */
#ifndef R2_CTL_H
#define R2_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "plugin/base/r2_host_registry.h"
#include "plugin/base/r2_rundir.h"

#define CTL_REGISTRIES  64
#define CTL_NAMES       32
#define CTL_REHEARSE_MS 10000 /* a rehearsal without --for */

struct ctl {
    const char *dir; /* run directory */
    struct r2_host_registry
        *registry[CTL_REGISTRIES]; /* those that we may read: root all, others their own */
    uid_t registry_uid[CTL_REGISTRIES];
    int registries;
    bool json, wait;
    bool force;     /* names of NICs that cannot be seen from here are taken */
    double limit_s; /* of --wait */
    const char *why;
    int for_ms; /* of a rehearsal; 0: it ends, -1: as usual */
};

/* Prints "r2_ctl: ..." to stderr; returns 1, the exit status. */
int ctl_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Opens the host registries of the run directory. What cannot be read is said on stderr. */
void ctl_registries_open(struct ctl *c);
void ctl_registries_close(struct ctl *c);

/* Calls @row for each NIC of each living process. */
struct ctl_row {
    uid_t uid;
    struct r2_host_registry_who who;
    struct r2_host_registry_nic nic;
};
void ctl_rows_walk(const struct ctl *c, void (*row)(void *arg, const struct ctl_row *r), void *arg);

/*
 * A file of the administrator: edited under its lock, which is waited for at most 10 s, replaced by
 * rename, and the jobs are told. @edit gets the present text and fills @text (CTL_TEXT_ROOM); it
 * returns the length, or -1, which it has explained. Exit status.
 */
#define CTL_TEXT_ROOM (2 * R2_RUNDIR_TEXT_MAX + 2)
typedef int (*ctl_edit_func_t)(void *arg, const char *path, const char *old, size_t len,
                               char *text);
int ctl_file_edit(const struct ctl *c, const char *path, ctl_edit_func_t edit, void *arg);
/* Copies @old without the lines about @names (@n 0: without any about a NIC), which keeps comments.
 * Returns the length. */
size_t ctl_lines_keep(const char *old, size_t len, int n, char *const *names, char *out);
/* Adds a line per name, each with @value behind it, to the @used bytes of @out. The length, or -1
 * when it does not fit. */
int ctl_lines_add(const struct ctl *c, char *out, size_t used, size_t room, int n,
                  char *const *names, const char *value);
/* Whether they can be names of NICs; what cannot is said, and is 1. */
int ctl_names_check(int n, char *const *names);
/* Whether each of them is a NIC of a running job or of this host, or --force was given. 1: not, and
 * nothing may be done; said. */
int ctl_names_known(const struct ctl *c, int n, char *const *names);

/* Adds the @n names to this user's drain file, or takes them away (@n 0: all). Exit status. */
int ctl_drain_change(const struct ctl *c, bool add, int n, char *const *names);
/* With --wait: until no process has work on them. Exit status. */
int ctl_drain_wait(const struct ctl *c, int n, char *const *names);
/* Whether @name, as the user says it, means NIC @nic of a row. */
bool ctl_name_is(const char *name, const struct r2_host_registry_nic *nic);
/* Whether some running job here has it. */
bool ctl_name_known(const struct ctl *c, const char *name);
/* ": did you mean NIC?", of the NICs of running jobs and of the kernel, into @out; empty: none is
 * near. Returns it. */
const char *ctl_nic_near(const struct ctl *c, const char *name, char *out, size_t room);
/* Whether this host has a NIC of that name (DEVICE or DEVICE:PORT), by sysfs or libibverbs. Opens
 * no device. */
bool ctl_nic_here(const char *name);

/* Lets paths over these NICs (@n 0: over all) that have failed so far return. Exit status. */
int ctl_failback(const struct ctl *c, int n, char *const *names);

/* Lets these NICs of running jobs fail for c->for_ms, or ends that. Exit status. */
int ctl_rehearse(const struct ctl *c, int n, char *const *names);

int ctl_status(const struct ctl *c);

#endif
