/* The agent inside a VM: one thread, one epoll loop. lab_agent.c the loop and its sockets,
 * lab_session.c the requests, lab_job.c the commands. Nothing here may be called from outside the
 * loop. */
#ifndef R2_LAB_AGENT_H
#define R2_LAB_AGENT_H

#include <sys/types.h>

#include "tests/lab/lab_watch.h"
#include "tests/lab/lab_wire.h"

/* A command and all that it started, which live in a control group of their own so that none can
 * escape. */
struct lab_job {
    unsigned number;  /* names the control group */
    pid_t pid;        /* 0: none */
    int in, out, err; /* our ends of the pipes, non-blocking; @in is -1 without LAB_EXEC_STDIN */
};

/* Starts @argv in folder @cwd (or / when it is not there). @flags: LAB_EXEC_*. Returns 0, or an
 * errno value with nothing started. A program that cannot be executed is started all the same and
 * exits with 127, its reason on standard error. */
int lab_job_start(struct lab_job *j, const char *flags, const char *cwd, char **argv);
/* Kills the command and everything it started. What is killed is reaped by the loop. */
void lab_job_kill(struct lab_job *j);
/* The control groups of jobs that were killed go away when their last process has: called when a
 * process was reaped. */
void lab_job_sweep(void);
/* Mounts the control groups. Ends the program on failure. */
void lab_job_init(void);

/* Takes the connection @fd; it lives until the peer leaves or its request is done. */
void lab_session_open(int fd);
/* Process @pid ended with wait status @status. */
void lab_session_reaped(pid_t pid, int status);
/* Somebody in this VM (the connection @fd of lab_trigger, owned from now on) fires a trigger. */
void lab_trigger_open(int fd);
/* A connection waits for trigger @name; called back through lab_session_fired, at once when it
 * fired before and nobody was told. */
struct lab_session;
void lab_trigger_wait(struct lab_session *s, const char *name);
/* The session that was told about a trigger says what it did, or has gone (text NULL). */
void lab_trigger_done(struct lab_session *s, const char *text, size_t len);
void lab_session_fired(struct lab_session *s);

extern char lab_agent_secret[LAB_SECRET_LEN + 1];

#endif
