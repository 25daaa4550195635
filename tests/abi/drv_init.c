/* Cases of the process: init, options, fork, reload, exit. */
#include "tests/abi/drv.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int threads_now(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    NEED(d != NULL, "/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void properties(void)
{
    struct abi_props p[64], again;

    NEED(drv.ndev >= 2 && drv.ndev <= 64, "%d devices", drv.ndev);
    for (int i = 0; i < drv.ndev; i++) {
        char path[PATH_MAX];
        memset(&p[i], 0xa5, sizeof(p[i]));
        OK(drv.net->get_properties(i, &p[i]));
        OK(drv.net->get_properties(i, &again));
        NEED(memcmp(&p[i], &again, sizeof(again) - 4) == 0,
             "properties of %d differ from call to call", i);
        NEED(p[i].name != NULL && p[i].name[0], "no name");
        for (int k = 0; k < i; k++) {
            NEED(strcmp(p[i].name, p[k].name) != 0, "%s is the name of two devices", p[i].name);
        }
        NEED(p[i].pci_path != NULL && realpath(p[i].pci_path, path) &&
                 strcmp(path, p[i].pci_path) == 0,
             "%s: path %s", p[i].name, p[i].pci_path);
        snprintf(path, sizeof(path), "%.4000s/subsystem", p[i].pci_path);
        NEED(access(path, F_OK) == 0, "%s is no PCI function", p[i].pci_path);
        NEED(p[i].speed > 0, "speed %d", p[i].speed);
        NEED(p[i].guid != 0, "no GUID");
        NEED(p[i].port == 1, "port %d", p[i].port);
        NEED((p[i].ptr_support & ABI_PTR_HOST) && (p[i].ptr_support & ~7) == 0, "pointer types %x",
             p[i].ptr_support);
        NEED(p[i].reg_is_global == 1 && p[i].max_recvs == 8 && p[i].max_comms >= 1024 &&
                 p[i].latency == 0,
             "fixed properties");
        NEED(p[i].device_type == ABI_DEVICE_HOST && p[i].device_version == 0, "device type %d",
             p[i].device_type);
    }
    NEED(drv.net->get_properties(drv.ndev, &again) != ABI_SUCCESS, "a device too many");
    NEED(drv.net->get_properties(-1, &again) != ABI_SUCCESS, "device -1");
}

/* All comms of a process are gone, core forgets the plugin, and comes back. */
static void init_again(void)
{
    int ndev = drv.ndev, threads;
    const void *table = abi_view.table;

    drv_self_test(); /* with the first registration each NIC has a thread for that */
    threads = threads_now();
    for (int i = 0; i < 6; i++) {
        drv_self_test();
        if (i % 3) { /* one that never ends must not be in the way of the next */
            OK(abi_view_finalize());
        }
        if (i & 1) {
            NEED(dlclose(drv.lib) == 0, "dlclose");
            drv_load();
            NEED(abi_view.table == table, "the library was really unloaded");
        }
        drv_init();
        NEED(drv.ndev == ndev, "%d devices became %d", ndev, drv.ndev);
    }
    NEED(threads_now() == threads, "%d threads became %d", threads, threads_now());
    drv_self_test();
}

/* Our threads take no signal away from the host program. */
static void signals_are_blocked(void)
{
    DIR *d = opendir("/proc/self/task");
    char path[300], line[256];
    int ours = 0;

    NEED(d != NULL, "/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        unsigned long long blocked = 0, wanted = 1ull << (SIGTERM - 1) | 1ull << (SIGINT - 1) |
                                                 1ull << (SIGUSR1 - 1);
        FILE *f;
        if (e->d_name[0] == '.' || atoi(e->d_name) == getpid()) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        f = fopen(path, "r");
        NEED(f != NULL, "%s", path);
        NEED(fgets(line, sizeof(line), f) != NULL, "%s", path);
        if (strncmp(line, "Name:\tr2-", 9) == 0) {
            ours++;
            while (fgets(line, sizeof(line), f) && sscanf(line, "SigBlk: %llx", &blocked) != 1) {
            }
            NEED((blocked & wanted) == wanted, "thread %s blocks only %llx", e->d_name, blocked);
        }
        fclose(f);
    }
    closedir(d);
    NEED(ours >= 1, "no thread of the plugin found");
}

/* What a data loader does: children without NCCL, and one that has its own. */
static void forked(void)
{
    int ndev = drv.ndev, status;
    pid_t pid;

    drv_self_test();
    for (int kind = 0; kind < 2; kind++) {
        pid = fork();
        NEED(pid >= 0, "fork");
        if (pid == 0) {
            int n = 7;
            void *comm = (void *)1;
            char handle[ABI_HANDLE_BYTES];
            alarm(30); /* the parent's is not inherited */
            NEED(drv.net->devices(&n) != ABI_SUCCESS && n == 0,
                 "the child may use its parent's devices");
            NEED(drv.net->listen(0, handle, &comm) != ABI_SUCCESS && comm == NULL,
                 "the child may listen on them");
            if (kind == 1) {
                drv_init();
                NEED(drv.ndev == ndev, "%d devices", drv.ndev);
                drv_self_test();
            }
            exit(0); /* handlers of the parent's life run here too */
        }
        NEED(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
             "child %d: status %x", kind, status);
        drv_self_test();
    }
}

/* A policy that cannot be obeyed: loud, and never a silent fall back to another network. */
static void bad_option(void)
{
    char handle[ABI_HANDLE_BYTES];
    void *comm = (void *)1;
    const char *text;

    NEED(drv.ndev > 0, "init fell back");
    for (int i = 0; i < 2; i++) {
        NEED(drv.net->listen(0, handle, &comm) == ABI_INVALID_USAGE && comm == NULL,
             "listening all the same");
        text = drv_last_warn();
        NEED(strstr(text, "NCCL_R2_") || strstr(text, "NCCL_IB_"),
             "the last WARN does not name it: %s", text);
        NEED(strstr(text, "expected"), "the last WARN does not say what is allowed: %s", text);
    }
}

/* The process ends with everything open: no hang, no crash, and the other side does not suffer. */
static void exit_with_all_open(void)
{
    char *buf = drv_map(1 << 16);
    struct drv_link l;
    uint64_t t0 = drv_now_ms();
    int status;
    pid_t pid = fork(); /* before there is anything of the plugin in this process */

    NEED(pid >= 0, "fork");
    if (pid == 0) {
        alarm(30);
        drv_load();
        drv_init();
        drv_connect(&l, 0);
        void *mh = drv_reg(l.recv, buf, 1 << 16);
        drv_irecv1(l.recv, buf, 1000, 0, mh);
        drv_barrier();
        exit(0);
    }
    NEED(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
         "status %x", status);
    NEED(drv_now_ms() - t0 < 20000, "the process took %u ms", (unsigned)(drv_now_ms() - t0));
}

/* What the survivor must see: an error that names its peer, soon, on whatever it does next. */
static void survivor(void)
{
    const char *t_fence = getenv("NCCL_R2_T_FENCE");
    char *buf = drv_map(1 << 16);
    struct drv_link l;
    uint64_t t0;
    void *req;
    struct abi_props p;
    /* a release waits for queue pairs to go to ERR: at most ten T_fence for a call into a driver */
    uint64_t fence = t_fence ? strtoull(t_fence, NULL, 10) : 0;
    int rc = ABI_SUCCESS, done = 0;

    drv_load();
    drv_init();
    OK(drv.net->get_properties(0, &p));
    drv_connect(&l, 0);
    void *mh = drv_reg(l.recv, buf, 1 << 16);
    req = drv_irecv1(l.recv, buf, 1000, 0, mh);
    drv_barrier();
    t0 = drv_now_ms();
    while (rc == ABI_SUCCESS && !done && drv_now_ms() - t0 < 20000) {
        rc = drv.net->test(req, &done, NULL);
        usleep(100);
    }
    NEED(rc == ABI_REMOTE_ERROR && !done, "after %u ms test says %d, done %d",
         (unsigned)(drv_now_ms() - t0), rc, done);
    NEED(strstr(drv_last_warn(), p.name) != NULL, "the reason does not say where: %s",
         drv_last_warn());
    fprintf(stderr, "%s: known after %u ms: %s\n", drv.name, (unsigned)(drv_now_ms() - t0),
            drv_last_warn());
    t0 = drv_now_ms();
    OK(drv.net->dereg_mr(l.recv, mh));
    drv_close(&l);
    t0 = drv_now_ms() - t0;
    NEED(t0 < 1000 + 10 * fence, "closing took %u ms", (unsigned)t0);
}

/* The other side: ends in the middle, by @sig or (0) by exit(). */
static void victim(int sig)
{
    struct drv_link l;
    int status;
    pid_t pid = fork(); /* so that this side lives to tell */

    NEED(pid >= 0, "fork");
    if (pid == 0) {
        alarm(30);
        drv_load();
        drv_init();
        drv_connect(&l, 0);
        drv_barrier();
        if (sig) {
            raise(sig);
        }
        exit(0);
    }
    NEED(waitpid(pid, &status, 0) == pid, "waitpid");
    NEED(sig ? WIFSIGNALED(status) && WTERMSIG(status) == sig
             : WIFEXITED(status) && WEXITSTATUS(status) == 0,
         "status %x", status);
}

static void peer_exits(void)
{
    if (drv.side == 0) {
        survivor();
    } else {
        victim(0);
    }
}

static void peer_is_killed(void)
{
    if (drv.side == 0) {
        survivor();
    } else {
        victim(SIGKILL);
    }
}

const struct drv_case drv_cases_init[] = {
    {"properties", 1, 30, properties, NULL},
    {"init_again", 1, 60, init_again, NULL},
    {"signals", 1, 30, signals_are_blocked, NULL},
    {"fork", 1, 60, forked, NULL},
    {"bad_option", 1, 30, bad_option, "NCCL_R2_FAILOVER=perhaps"},
    {"bad_number", 1, 30, bad_option, "NCCL_R2_GIVE_UP=5s"},
    {"bad_filter", 1, 30, bad_option, "NCCL_IB_HCA=fab0:x"},
    {"bad_range", 1, 30, bad_option, "NCCL_IB_ADDR_RANGE=10.0.0.0/33"},
    {"bad_family", 1, 30, bad_option, "NCCL_IB_ADDR_FAMILY=IPv4"},
    {"exit_open", 2, 60, exit_with_all_open, "DRV_NO_INIT=1"},
    {"peer_exits", 2, 60, peer_exits, "DRV_NO_INIT=1"},
    {"peer_killed", 2, 60, peer_is_killed, "DRV_NO_INIT=1"},
    {0},
};
