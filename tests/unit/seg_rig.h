/* What the suites of the shared segment share: a fabric, and processes in it that may be killed. */
#ifndef SEG_RIG_H
#define SEG_RIG_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fabric/shm/seg.h"

#define SEG_RIG static __attribute__((unused))

static char dir[SEG_PATH_MAX], why[512];

static struct fab_desc d;

SEG_RIG void fabric_make(void)
{

    snprintf(dir, sizeof(dir), "/tmp/softfab-test-%d", (int)getpid());
    ck_assert_int_eq(seg_dir_remove(dir), 0);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert_msg(fab_desc_init(&d, 2, 2, 0, 0, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(seg_file_create(dir, "test", &d, why, sizeof(why)) == 0, "%s", why);
}

SEG_RIG void fabric_remove(void)
{
    ck_assert_int_eq(seg_dir_remove(dir), 0);
    ck_assert_int_ne(access(dir, F_OK), 0);
}

SEG_RIG void inhabit(struct seg_map *m)
{
    ck_assert_msg(seg_file_open(m, dir, why, sizeof(why)) == 0, "%s", why);
    ck_assert_msg(seg_slot_attach(m, 0, why, sizeof(why)) == 0, "%s", why);
}

/* A child that is in the fabric once this returns. It runs @body and exits; its slot is returned
 * through *slot_p. */
SEG_RIG pid_t child_start(void (*body)(struct seg_map *m), int *slot_p)
{
    int fd[2];

    ck_assert_int_eq(pipe(fd), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct seg_map m;
        if (seg_file_open(&m, dir, why, sizeof(why)) != 0 ||
            seg_slot_attach(&m, 1, why, sizeof(why)) != 0 ||
            write(fd[1], &m.slot, sizeof(m.slot)) != (ssize_t)sizeof(m.slot)) {
            _exit(99);
        }
        body(&m);
        _exit(0);
    }
    ck_assert_int_eq(read(fd[0], slot_p, sizeof(*slot_p)), (ssize_t)sizeof(*slot_p));
    close(fd[0]);
    close(fd[1]);
    return pid;
}

SEG_RIG void child_kill(pid_t pid)
{
    int st;

    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &st, 0), pid);
    ck_assert(WIFSIGNALED(st));
}

SEG_RIG void child_join(pid_t pid)
{
    int st;

    ck_assert_int_eq(waitpid(pid, &st, 0), pid);
    ck_assert_msg(WIFEXITED(st) && WEXITSTATUS(st) == 0, "child ended with status %x",
                  (unsigned)st);
}

SEG_RIG void rest(struct seg_map *m)
{
    for (;;) {
        pause();
    }
}

#endif
