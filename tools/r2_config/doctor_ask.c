/*
 * Does each NIC answer? A device whose firmware stands still answers what its driver remembers (its
 * attributes, the state of a port) and keeps whoever makes a queue pair waiting for a minute, or
 * for ever; one whose data path stands still makes queue pairs and completes nothing. So each is
 * asked for both: a queue pair, and a write of no bytes to itself. By a child of its own, which may
 * stay in the kernel for good.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe/probe_qp.h"
#include "base/r2_log.h"
#include "tools/r2_config/doctor_int.h"

#define ASK_LIMIT_S 10 /* a healthy NIC takes milliseconds */
#define ASKED_MAX   64

/* What a child says as it gets there, a byte each. */
enum step {
    STEP_NONE = 'n',    /* it has not even opened the device */
    STEP_OPEN = 'o',    /* it is opened, and no queue pair was made */
    STEP_QUEUE = 'q',   /* a queue pair stands, and nothing came of the write */
    STEP_LOOP = 'l',    /* it was answered */
    STEP_NO_LOOP = 'x', /* the write failed, or could not be tried: that is for other checks */
    STEP_OVER = '.',
};

struct asked {
    char dev[IB_NAME_MAX];
    pid_t pid;
    int fd;
    char step; /* the last but OVER */
    int over;
};

static struct asked asked[ASKED_MAX];
static int asked_count;

/* --- lists with some devices only --- */

static struct ibv_device **(*list_all)(int *num);
static const char *(*name_of)(struct ibv_device *dev);
static const char *only; /* in a child: its device */

int doctor_hangs(const char *dev)
{
    for (int i = 0; i < asked_count; i++) {
        if (strcmp(asked[i].dev, dev) == 0) {
            return !asked[i].over && asked[i].step != STEP_QUEUE;
        }
    }
    return 0;
}

/* The devices that are left out stay with libibverbs until the process ends. */
static struct ibv_device **list_some(int *num)
{
    struct ibv_device **list;
    int all = 0, n = 0;

    list = list_all(&all);
    for (int i = 0; list && i < all; i++) {
        const char *name = name_of(list[i]);

        if (only ? strcmp(name, only) == 0 : !doctor_hangs(name)) {
            list[n++] = list[i];
        }
    }
    if (list) {
        list[n] = NULL;
    }
    if (num) {
        *num = n;
    }
    return list;
}

/* --- the child --- */

static void say(int fd, enum step s)
{
    char c = (char)s;

    if (write(fd, &c, 1) != 1) {
        _exit(1);
    }
}

static void line_drop(enum r2_log_level level, const char *file, int line, const char *msg)
{
    (void)level;
    (void)file;
    (void)line;
    (void)msg;
}

/* Until the answer, an error, or the parent's patience ends. */
static enum step loop_ask(struct ib_nics *nics, int nic, int fd)
{
    struct timespec ms = {.tv_nsec = 1000000};
    struct ib_path_addr self;
    struct probe_qp q = {0};
    int r;

    if (probe_qp_create(&q, nics, nic, 1) != 0) {
        return STEP_NO_LOOP;
    }
    say(fd, STEP_QUEUE);
    probe_qp_addr_get(&q, nics, nic, &self);
    if (probe_qp_connect(&q, nics, nic, &self, NULL) != 0 || probe_qp_post(&q, 0) != 0) {
        return STEP_NO_LOOP;
    }
    while ((r = probe_qp_poll(&q)) == 0) {
        nanosleep(&ms, NULL);
    }
    probe_qp_destroy(&q, nics);
    return r > 0 ? STEP_LOOP : STEP_NO_LOOP;
}

static void child(struct doctor *d, const char *dev, int fd)
{
    static struct ib_nics nics;
    char why[512];

    alarm(0); /* who watches is the parent */
    only = dev;
    r2_log_sink_set(line_drop);
    if (ib_nics_open(&nics, &d->verbs, &d->values->cfg, why, sizeof(why)) != 0) {
        _exit(0);
    }
    say(fd, STEP_OPEN);
    for (int i = 0; i < nics.count; i++) {
        if (ib_nic_state_get(&nics.nic[i]) == IB_NIC_UP) {
            say(fd, loop_ask(&nics, i, fd));
        }
    }
    say(fd, STEP_OVER);
    _exit(0);
}

/* --- the parent --- */

static void child_start(struct doctor *d, const char *dev)
{
    struct asked *a = &asked[asked_count];
    int fds[2];

    if (asked_count == ASKED_MAX || pipe2(fds, O_CLOEXEC) != 0) {
        return;
    }
    snprintf(a->dev, sizeof(a->dev), "%s", dev);
    a->step = STEP_NONE;
    fflush(stdout);
    a->pid = fork();
    if (a->pid == 0) {
        child(d, a->dev, fds[1]);
    }
    close(fds[1]);
    if (a->pid < 0) {
        close(fds[0]);
        return;
    }
    a->fd = fds[0];
    asked_count++;
}

/* Takes in what a child has said; a child that ended early found what other checks say. */
static void child_hear(struct asked *a)
{
    char said[64];
    ssize_t n = read(a->fd, said, sizeof(said));

    for (ssize_t i = 0; i < n; i++) {
        a->over |= said[i] == STEP_OVER;
        a->step = said[i] == STEP_OVER ? a->step : said[i];
    }
    a->over |= n == 0 || (n < 0 && errno != EINTR);
}

static int wait_ms(const struct timespec *from, int limit_ms)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return limit_ms -
           (int)((now.tv_sec - from->tv_sec) * 1000 + (now.tv_nsec - from->tv_nsec) / 1000000);
}

static void children_wait(int limit_ms)
{
    struct timespec from;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (;;) {
        struct pollfd p[ASKED_MAX];
        int n = 0, at[ASKED_MAX], left = wait_ms(&from, limit_ms);

        for (int i = 0; i < asked_count; i++) {
            if (!asked[i].over) {
                p[n] = (struct pollfd){.fd = asked[i].fd, .events = POLLIN};
                at[n++] = i;
            }
        }
        if (n == 0 || left <= 0) {
            return;
        }
        if (poll(p, (nfds_t)n, left) <= 0) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            if (p[i].revents) {
                child_hear(&asked[at[i]]);
            }
        }
    }
}

/* One that is in the kernel stays there when it is killed. */
static void child_end(struct asked *a)
{
    kill(a->pid, SIGKILL);
    waitpid(a->pid, NULL, a->over ? 0 : WNOHANG);
    close(a->fd);
}

static void child_judge(const struct asked *a, int answered, double limit_s)
{
    static const char todo[] =
        "dmesg; reset the device (mlxfwreset, or reload the driver), and name the others in NCCL_IB_HCA until then";
    char what[IB_NAME_MAX + 8];

    snprintf(what, sizeof(what), "NIC %.*s", IB_NAME_MAX - 1, a->dev);
    if (a->over) {
        return;
    }
    if (a->step == STEP_QUEUE) { /* a kind of NIC that cannot talk to itself looks the same */
        doctor_say(answered ? DOCTOR_FAIL : DOCTOR_WARN, what, todo,
                   "it hangs%s: a write to itself had no completion after %g s%s",
                   answered ? "" : ", or cannot do this", limit_s,
                   answered ? ", other NICs answer" : "");
    } else {
        doctor_say(DOCTOR_FAIL, what, todo, "it hangs: %s had not returned after %g s",
                   a->step == STEP_NONE ? "opening it" : "making a queue pair", limit_s);
    }
}

void doctor_ask(struct doctor *d)
{
    int limit_ms = d->limit_s * 750 < ASK_LIMIT_S * 1000 ? d->limit_s * 750 : ASK_LIMIT_S * 1000,
        n = 0, answered = 0;
    struct ibv_device **list = d->listed > 0 ? d->verbs.get_device_list(&n) : NULL;

    if (list == NULL) {
        return; /* other checks say why */
    }
    list_all = d->verbs.get_device_list;
    name_of = d->verbs.get_device_name;
    d->verbs.get_device_list = list_some;
    for (int i = 0; i < n; i++) {
        child_start(d, name_of(list[i]));
    }
    d->verbs.free_device_list(list);
    children_wait(limit_ms);
    for (int i = 0; i < asked_count; i++) {
        answered += asked[i].step == STEP_LOOP;
    }
    for (int i = 0; i < asked_count; i++) {
        child_judge(&asked[i], answered, limit_ms / 1000.0);
        child_end(&asked[i]);
    }
    if (answered > 0) {
        doctor_say(DOCTOR_OK, "NICs", NULL, "%d of %d devices answer a write to themselves",
                   answered, asked_count);
    }
}
