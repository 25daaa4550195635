/*
 * The agent: process 1 of a VM. Runs commands for lab_ctl, answers echo datagrams on all data NICs,
 * passes triggers out. lab_agent SECRET_FILE CONTROL_MAC The control NIC lives in a network
 * namespace of its own in which only the listening socket is: the programs under test see the data
 * and the management NICs and nothing else.
 */
#include "tests/lab/lab_agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lab/lab_netif.h"

char lab_agent_secret[LAB_SECRET_LEN + 1];

static void control_ready(struct lab_watch *w, uint32_t events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        lab_session_open(fd);
    }
}

static void trigger_ready(struct lab_watch *w, uint32_t events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        lab_trigger_open(fd);
    }
}

static void echo_ready(struct lab_watch *w, uint32_t events)
{
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    char data[9000];
    ssize_t n;

    while ((n = recvfrom(w->fd, data, sizeof(data), 0, (struct sockaddr *)&from, &len)) >= 0) {
        (void)!sendto(w->fd, data, (size_t)n, 0, (struct sockaddr *)&from, len);
        len = sizeof(from);
    }
}

static void signal_ready(struct lab_watch *w, uint32_t events)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(w->fd, &info, sizeof(info)) == sizeof(info)) {
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        lab_session_reaped(pid, status);
    }
    lab_job_sweep();
}

static int netns_open(void)
{
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        lab_die(1, "network namespace: %s", strerror(errno));
    }
    return fd;
}

static void netns_enter(int fd)
{
    if (setns(fd, CLONE_NEWNET) != 0) {
        lab_die(1, "network namespace: %s", strerror(errno));
    }
}

/* The control NIC is 10.0.2.15 because that is where QEMU's user network forwards to. */
static int control_listen(const char *mac)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(LAB_AGENT_PORT)};
    struct lab_netif n;
    int ours = netns_open(), apart, fd, one = 1;

    if (lab_netif_find(mac, &n) != 0) {
        lab_die(1, "no control NIC with address %s", mac);
    }
    if (unshare(CLONE_NEWNET) != 0) {
        lab_die(1, "network namespace: %s", strerror(errno));
    }
    apart = netns_open();
    netns_enter(ours);
    if (lab_netif_up(n.name, false) != 0 || lab_netif_netns(n.index, apart) != 0) {
        lab_die(1, "move of control NIC %s: %s", n.name, strerror(errno));
    }
    netns_enter(apart);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lab_netif_up("lo", true) != 0 || lab_netif_address(n.name, "10.0.2.15") != 0 ||
        lab_netif_up(n.name, true) != 0 || fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 64) != 0) {
        lab_die(1, "control socket on %s: %s", n.name, strerror(errno));
    }
    netns_enter(ours);
    close(ours);
    close(apart);
    return fd;
}

static int echo_open(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(LAB_ECHO_PORT)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        lab_die(1, "echo socket: %s", strerror(errno));
    }
    return fd;
}

static int trigger_listen(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX, .sun_path = LAB_TRIGGER_SOCKET};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    unlink(sa.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 16) != 0) {
        lab_die(1, "trigger socket %s: %s", sa.sun_path, strerror(errno));
    }
    return fd;
}

static int signal_open(void)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        lab_die(1, "signalfd: %s", strerror(errno));
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct sched_param rt = {.sched_priority = 1};
    struct lab_watch control = {.ready = control_ready}, trigger = {.ready = trigger_ready},
                     echo = {.ready = echo_ready}, child = {.ready = signal_ready};
    char host[64] = "";

    if (argc != 3) {
        lab_die(2, "usage: lab_agent SECRET_FILE CONTROL_MAC");
    }
    if (lab_file_line(argv[1], lab_agent_secret, sizeof(lab_agent_secret)) != 0 ||
        strlen(lab_agent_secret) != LAB_SECRET_LEN) {
        lab_die(1, "%s: no secret of %d characters", argv[1], LAB_SECRET_LEN);
    }
    lab_watch_init();
    lab_job_init();
    child.fd = signal_open();
    control.fd = control_listen(argv[2]);
    trigger.fd = trigger_listen();
    echo.fd = echo_open();
    lab_watch_set(&child, EPOLLIN);
    lab_watch_set(&control, EPOLLIN);
    lab_watch_set(&trigger, EPOLLIN);
    lab_watch_set(&echo, EPOLLIN);
    /* Ahead of whatever keeps the VM busy; commands go back to normal (lab_job.c). */
    sched_setscheduler(0, SCHED_RR, &rt);
    gethostname(host, sizeof(host) - 1);
    printf("lab: %s is up\n", host);
    fflush(stdout);
    for (;;) {
        lab_watch_run();
    }
}
