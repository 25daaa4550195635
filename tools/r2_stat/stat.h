/* r2_stat: what its parts share. One thread; blocks on the local file system, and with --watch and
 * --follow until it is interrupted. */
#ifndef R2_STAT_TOOL_H
#define R2_STAT_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "plugin/telemetry/r2_event.h"
#include "plugin/telemetry/r2_stat.h"
#include "tools/shared/stat_nic.h"

#define STAT_PROCS 512
#define STAT_DIRS  2

/* A living process. */
struct stat_proc {
    uid_t uid;
    uint64_t unique; /* of its file */
    struct r2_stat_view v;
};

/* All that was found, jobs together: by user, then job, then start. */
struct stat_found {
    const char *dir[STAT_DIRS];
    int dirs;
    struct stat_proc *proc[STAT_PROCS];
    int procs;
    int unread;    /* files that are in order by their name and could not be read */
    char why[700]; /* the first of them */
};

/* Finds the run directories: @asked, or those that jobs use when nobody says. -1: said on stderr.
 */
int stat_dirs_find(struct stat_found *f, const char *asked);
/* Reads what this user may read: its own, root all. Take and free again for the next look. */
void stat_take(struct stat_found *f);
void stat_free(struct stat_found *f);

/* How many processes from @i on are of the job of process @i: of the same user and job, or, where
 * no scheduler is known, command. */
int stat_job_procs(const struct stat_found *f, int i);
/* Name of @uid, else its number; static. */
const char *stat_user(uid_t uid);

/* A NIC as all processes of a job see it. */
struct stat_nic {
    struct r2_stat_nic n; /* sums; state and reason of the process that sees it worst */
    uint32_t procs;
};
/* NICs of @p, without those of last resort. */
uint32_t stat_proc_nics(const struct stat_proc *p);
/* Whether two processes mean one NIC; those of last resort are one. */
bool stat_nic_is_same(const struct r2_stat_nic *a, const struct r2_stat_nic *b);
/* The NICs of @n processes from @p on; returns how many. */
int stat_nics(struct stat_proc *const *p, int n, struct stat_nic out[R2_STAT_NICS]);
/* Whether @why is a verdict in short: "R2-L02 fab1 cable or switch port; job continues at 3/4;
 * drain after job". */
bool stat_is_verdict(const char *why);

/* What the tables show beside NICs. */
struct stat_more {
    bool conns, history, sends;
};
/* Lines above the NICs of the @n processes of a job. */
void stat_job_head(FILE *out, struct stat_proc *const *p, int n);
/* @why for the row of its NIC: a verdict without the NIC, and without what follows from it. */
void stat_why_text(const char *why, char *out, size_t room);
/* Paths of a connection, behind each other. */
void stat_paths_text(const struct stat_proc *p, const struct r2_stat_conn *c, char *out,
                     size_t room);
/* What has happened to the @n processes of a job, oldest first; the caller frees. No @lines: there
 * is none, or no memory. */
struct stat_line {
    const struct stat_proc *p;
    const struct r2_stat_event *e;
};
struct stat_line *stat_lines_of(struct stat_proc *const *p, int n, int *lines);
/* One line of history, behind @host, where that is not empty. */
void stat_event_row(FILE *out, const char *host, const struct stat_proc *p,
                    const struct r2_stat_event *e);
/* Text: the tables. */
void stat_print(const struct stat_found *f, struct stat_more more);
/* How long sends take: by NIC; of one connection. */
void stat_print_sends(FILE *out, const struct stat_nic *nic, int nics);
void stat_print_sends_of(const struct r2_stat_conn *c);
/* Transfers to each peer of @p. */
void stat_print_peers(struct stat_proc *const *p, int n);
/* ns; 0: of none. */
uint64_t stat_mean(const struct r2_stat_times *t);
/* That there is no job, and where it was looked for. */
void stat_none_text(const struct stat_found *f, char *out, size_t room);
void stat_print_none(const struct stat_found *f);
/* One line of history. */
void stat_print_event(const struct stat_proc *p, const struct r2_stat_event *e);
/* The same as JSON: one object, or one line. */
void stat_json(const struct stat_found *f);
void stat_json_event(const struct stat_proc *p, const struct r2_stat_event *e);

/*
 * Prometheus' text format, to FILE, or to stdout for "-". FILE.counters beside it remembers what
 * ended processes have counted, so that counters do not go backwards. Exit status.
 */
int stat_prom(const struct stat_found *f, const char *file);

/* Each until interrupted; exit status. */
int stat_watch(struct stat_found *f, double seconds, struct stat_more more);
int stat_follow(struct stat_found *f, bool json);
/* One line, exit status 0: nothing is known to be wrong with this host's NICs, 1: a problem, 2:
 * nothing is known. @is_idle_well: where no job uses the plugin nothing is wrong, either. */
int stat_check(const struct stat_found *f, bool is_idle_well);
/* Exit status 0: a process of this user (and job, if this is inside of one) uses the plugin; 1:
 * none. */
int stat_assert_loaded(const struct stat_found *f);

/* History of NICs over jobs. Exit status 0; 1: one is advised for drain; 2: a file cannot be read.
 */
int stat_nic_history(const struct stat_found *f, bool json);

/* Short forms: 1.2 GB; 14:02:11, or the day when that is not today. */
const char *stat_bytes(uint64_t bytes, char *out, size_t room);
const char *stat_time(uint64_t ns, bool fraction, char *out, size_t room);

#endif
