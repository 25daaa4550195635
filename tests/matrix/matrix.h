/*
 * The confusion matrix: one fault of known kind and place under running traffic, and what every
 * process says broke.
 *
 *   matrix_truth  pure: the kinds of faults, what is right to say of each, and from which vantage
 *                 point it can be known
 *   matrix_line   pure: what a line of the plugin's log says
 *   matrix_rank   the process on a host: the plugin, and traffic to all others
 *   matrix_proc   starting them, their output as lines with the time at which they came
 *   matrix_job    the fabric, its faults, and when everything is well
 *   matrix_case   one case from the fault to the end of its effects
 *   matrix_table  the sums, as text and as JSON
 *   matrix_main   command line
 *
 * One thread. Times are ns of CLOCK_MONOTONIC.
 */
#ifndef MATRIX_H
#define MATRIX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "plugin/base/r2_time.h"
#include "tests/fabric/shm/seg.h"

#define MX_HOSTS 4
#define MX_NICS  4
#define MX_LINE  1024
#define MX_TOLD  64
#define MX_MS    R2_NS_PER_MS

/* ---- truth ---- */

/* What may be blamed. The first is the truth of a case without a fault, and a process that says
 * nothing. */
enum mx_blame { MX_NOTHING, MX_NIC, MX_LINK, MX_PATH, MX_PROCESS, MX_WAY, MX_UNKNOWN, MX_BLAMES };
const char *mx_blame_name(enum mx_blame b);

enum mx_kind {
    MX_HANG,
    MX_FATAL,
    MX_REMOVE,
    MX_SILENT_DEATH,
    MX_DOWN,
    MX_BLACKHOLE,
    MX_BLACKHOLE_TX,
    MX_BLACKHOLE_RX,
    MX_PLANE_CUT,
    MX_PATH_CUT,
    MX_KILLED,
    MX_STOPPED,
    MX_SLOW,
    MX_LOSS,
    MX_CALM,
    MX_SPINE, /* of a fabric that has several; elsewhere CALM */
    MX_KINDS
};

struct mx_case {
    enum mx_kind kind;
    int hosts, nics;
    int host, nic; /* where; of a process: its host */
    int far;       /* other host of a path; -1 */
    int crossrail; /* rails reach each other */
    int spine;     /* SPINE: which, of rail nic */
    int met;       /* SPINE: it has swallowed packets; if not, nobody can know */
};

/* Which case @seed is: kinds come in turn, places at random. Rails are apart, with @spines each. */
void mx_case_draw(struct mx_case *c, uint64_t seed, int hosts, int nics, int spines);
const char *mx_kind_name(enum mx_kind k);
enum mx_blame mx_case_blame(const struct mx_case *c);
/* "hang h1:n0", "path h0:n1 h2:n1" */
void mx_case_name(const struct mx_case *c, char *out, size_t len);
/* The faults of the fabric that make it, one after the other; NULL behind the last. */
const char *mx_case_fault(const struct mx_case *c, int i, char out[48]);
/* Its processes do not come back by themselves: their contexts, or they, are dead. */
int mx_case_ends_job(const struct mx_case *c);
/* Whether anybody has a vantage point from which the component can be told from its neighbours. */
int mx_case_can_tell(const struct mx_case *c);

/* What a process said, with the place as numbers: -1 where it named none. */
struct mx_verdict {
    enum mx_blame blame;
    int host, nic, far_host, far_nic;
    int plane; /* of a path: it is said to be the plane, not the way between two ports */
};

enum mx_judgement { MX_RIGHT, MX_CANNOT_TELL, MX_WRONG };
enum mx_judgement mx_judge(const struct mx_case *c, const struct mx_verdict *v);

/* ---- lines ---- */

enum mx_said {
    MX_SAID_OTHER,
    MX_SAID_VERDICT,
    MX_SAID_BAD_REPORT,
    MX_SAID_GOOD_REPORT,
    MX_SAID_PATH_DOWN,
    MX_SAID_PATH_UP,
    MX_SAID_LEFT_OUT /* so many more lines of paths: NCCL_R2_LOG=trace writes them all */
};
/* @line: one line of a process' log, ended. @v is written for a verdict. */
enum mx_said mx_line_read(const char *line, struct mx_verdict *v);

/* Whom a verdict or gossip is about, "h2 fab0", as text that both have alike. Static, until the
 * next call. */
const char *mx_line_who(const char *line);

/* ---- processes ---- */

/*
 * A process of the job: HOST HOSTS NICS PLUGIN WAYS [PAUSE-MS]. Ends when it is killed. Says "#
 * carried N messages over each of M connections", at most once a second, whenever N has grown; M
 * are those that have not ended with an error.
 */
int mx_rank_main(int argc, char **argv);
/* WAYS, the folder through which the processes of a job find each other, empty. -1 with errno. */
int mx_ways_make(const char *path);

struct mx_opts {
    const char *build, *dir; /* programs; logs */
    const char *json;
    int hosts, nics, spines, crossrail, verbose;
    uint64_t seeds, from;
    int window_ms; /* how long a case without a fault is watched */
    int limit_ms;  /* how long a verdict is waited for */
};

struct mx_proc {
    pid_t pid; /* 0: does not run */
    int fd;    /* its output */
    FILE *log;
    char buf[MX_LINE];
    size_t len;
    long paths_down; /* incarnations that went down less those that came up */
    int carried;     /* it has said that every connection has carried messages */
    /* in this case; ns, 0: not */
    uint64_t verdict_at, informed_at;
    int verdicts, good_reports;
};

struct mx_job {
    const struct mx_opts *o;
    char name[32]; /* of the fabric */
    struct seg_map map;
    int mapped, runs;
    int dying; /* a process is killed: it ends, and the connections to it */
    struct mx_proc proc[MX_HOSTS];
    struct {
        char who[64], far[64]; /* of a path its other end: gossip of it name one of the two */
        int bad;               /* blamed, and not told to be good again since */
    } told[MX_TOLD];
    int ntold;
    uint64_t reported_at;                                          /* latest verdict */
    void (*said)(void *arg, int proc, const struct mx_verdict *v); /* a process gave a verdict */
    void *arg;
    char why[400]; /* the first thing that went wrong with the job itself */
};

uint64_t mx_now(void);
/* The reason goes to j->why, the first one counts; returns -1. */
int mx_job_fail(struct mx_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Starts the process of host @i; its output comes through proc->fd. */
int mx_proc_start(struct mx_job *j, int i);
/* Ends it and waits for it. */
void mx_proc_end(struct mx_proc *p);
/* Takes what has come within @limit ns, at once when something has; lines go to the counters above
 * and to j->said. */
void mx_procs_read(struct mx_job *j, uint64_t limit);
int mx_procs_alive(const struct mx_job *j);

/* ---- the job ---- */

/* Brings the fabric up. -1 with j->why. */
int mx_job_up(struct mx_job *j, const struct mx_opts *o);
void mx_job_down(struct mx_job *j);
/* Starts all processes and waits until every NIC carries traffic. */
int mx_job_start(struct mx_job *j);
void mx_job_stop(struct mx_job *j);
/* A fault, which must arrive at every port that it names. */
int mx_job_fault(struct mx_job *j, const char *text);
/* Packets that spine @k of rail @rail has swallowed so far. */
uint64_t mx_job_swallowed(const struct mx_job *j, int rail, int k);
/* Waits until every connection has carried messages, no path is down anywhere and every NIC has
 * carried new traffic. -1: not within the limit. */
int mx_job_well(struct mx_job *j, uint64_t limit);
/* Somebody blames @who, or the path from there to @far ("": no path). */
void mx_blamed(struct mx_job *j, const char *who, const char *far);
/* Somebody says that @who is good again. */
void mx_cleared(struct mx_job *j, const char *who);
/* The first who still stands blamed; NULL: nobody. */
const char *mx_still_blamed(const struct mx_job *j);
/*
 * Waits until all who were blamed are told to be good again and nobody has given a verdict for
 * MX_QUIET: within that time a failure may be taken for a consequence of the one before. -1: not
 * within the limit.
 */
#define MX_QUIET (1100 * MX_MS)
int mx_job_cleared(struct mx_job *j, uint64_t limit);

/* ---- sums ---- */

struct mx_sums {
    uint64_t cases[MX_KINDS], cell[MX_KINDS][MX_BLAMES]; /* by every process that could speak */
    uint64_t wrong[MX_KINDS], wrong_place[MX_KINDS];     /* verdicts */
    uint64_t
        unknown_though_known[MX_KINDS]; /* said of cases that somebody could tell, and left so */
    uint64_t revised[MX_KINDS];         /* said of such cases, and put right by the same process */
    uint64_t silent[MX_KINDS];          /* cases with a fault of which nobody said anything */
    uint64_t missed[MX_KINDS];          /* cases that somebody could tell and nobody told */
    uint64_t not_informed[MX_KINDS]; /* processes that heard nothing in time though another gave a
                                        verdict */
    uint64_t first_ns[MX_KINDS], first_max[MX_KINDS], last_ns[MX_KINDS], last_max[MX_KINDS],
        timed[MX_KINDS];
    uint64_t stayed[MX_KINDS]; /* cases after which somebody stayed blamed, or paths did not come
                                  back: then the job is started anew */
};

/* What the processes said in one case. Zeroed before. */
struct mx_tally {
    int said[MX_HOSTS][MX_BLAMES];
    int undecided[MX_HOSTS]; /* of a process that has not been right */
    uint8_t knows[MX_HOSTS]; /* it has */
    int right, wrong, wrong_place, revised;
};
/* Takes a verdict of process @proc; what it is worth. */
enum mx_judgement mx_tally_add(struct mx_tally *t, const struct mx_case *c, int proc,
                               const struct mx_verdict *v);
/* Into the sums: @speaks, @informed: bit per process that could speak, and that heard of it;
 * @first, @last: ns after the fault, 0: never. */
void mx_tally_sum(const struct mx_tally *t, const struct mx_case *c, unsigned speaks,
                  unsigned informed, uint64_t first, uint64_t last, struct mx_sums *s);
void mx_sums_add(struct mx_sums *to, const struct mx_sums *s);

/* Runs one case on a job that is well, and leaves it so. -1: the job cannot go on (j->why). */
int mx_case_run(struct mx_job *j, uint64_t seed, struct mx_sums *s);

void mx_table_print(const struct mx_sums *s, FILE *out);
int mx_table_json(const struct mx_sums *s, const struct mx_opts *o, FILE *out);
/*
 * What makes the campaign fail: wrong blames; faults of which nobody spoke, or that somebody could
 * tell and nobody told; undecided verdicts of such faults that their process left so; processes
 * that did not hear of a verdict in time; who is blamed, or is not used, when all is mended.
 */
uint64_t mx_sums_bad(const struct mx_sums *s);
/* The same of one kind. */
uint64_t mx_sums_bad_of(const struct mx_sums *s, enum mx_kind k);
/* What stands in @s of kind @k and not in @before: "wrong", "silent", "missed", "undecided", "not
 * told", "stayed", the gravest first; NULL: nothing. */
const char *mx_sums_worse(const struct mx_sums *s, const struct mx_sums *before, enum mx_kind k);

#endif
