/* What the plugin, and NCCL around it, need of the machine besides NICs. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "oob/oob_ifsel.h"
#include "base/r2_rundir.h"
#include "tools/r2_config/check.h"
#include "tools/r2_config/doctor_int.h"

#define MIB (1024ull * 1024)
#define MEMLOCK_ENOUGH_MIB                                                                         \
    1024 /* a few connections' buffers; below it NCCL's registrations fail sooner or later */
#define SHM_ENOUGH_MIB   512 /* NCCL keeps what the ranks of a host share there; docker gives 64 */
#define CAP_IPC_LOCK_BIT 14

/* --- memory --- */

/* The bit of CapEff, 0 where it cannot be read. */
static int capability(int bit)
{
    FILE *f = fopen("/proc/self/status", "re");
    unsigned long long mask = 0;
    char line[256];

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "CapEff: %llx", &mask) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return (mask >> bit) & 1;
}

void doctor_memlock(struct doctor *d)
{
    static const char *const todo =
        "memlock unlimited (ulimit -l, limits.d, slurmd's unit; docker: --ulimit memlock=-1), "
        "or CAP_IPC_LOCK";
    struct rlimit lim;
    unsigned long long mib;

    if (getrlimit(RLIMIT_MEMLOCK, &lim) != 0) {
        doctor_say(DOCTOR_WARN, "memlock", todo, "cannot be read: %s", strerror(errno));
        return;
    }
    mib = lim.rlim_cur / MIB;
    if (lim.rlim_cur == RLIM_INFINITY) {
        doctor_say(DOCTOR_OK, "memlock", NULL, "unlimited");
    } else if (capability(CAP_IPC_LOCK_BIT)) {
        doctor_say(DOCTOR_OK, "memlock", NULL, "%llu KiB, and CAP_IPC_LOCK lifts the limit",
                   (unsigned long long)lim.rlim_cur / 1024);
    } else if (mib >= MEMLOCK_ENOUGH_MIB || d->kernel_nics == 0) {
        doctor_say(mib >= MEMLOCK_ENOUGH_MIB ? DOCTOR_OK : DOCTOR_WARN, "memlock",
                   mib >= MEMLOCK_ENOUGH_MIB ? NULL : todo, "%llu KiB%s",
                   (unsigned long long)lim.rlim_cur / 1024,
                   d->kernel_nics == 0
                       ? ": enough without NICs of the kernel's, too little with them"
                       : "");
    } else {
        doctor_say(DOCTOR_FAIL, "memlock", todo,
                   "%llu KiB can be registered with NICs: NCCL needs more",
                   (unsigned long long)lim.rlim_cur / 1024);
    }
}

/* --- network --- */

static void address_text(const struct oob_if *i, char *out, size_t len)
{
    inet_ntop(i->family == 6 ? AF_INET6 : AF_INET, i->addr, out, (socklen_t)len);
}

static int name_listed(const char *name, const char *const *list)
{
    for (; list && *list; list++) {
        if (strcmp(*list, name) == 0) {
            return 1;
        }
    }
    return 0;
}

void doctor_oob(struct doctor *d)
{
    static struct oob_if list[OOB_IF_MAX];
    const struct r2_config *cfg = &d->values->cfg;
    const char *spec = cfg->oob_ifname[0] ? cfg->oob_ifname : cfg->socket_ifname;
    const char **avoid = d->nics.count ? ib_nics_netdevs(&d->nics) : NULL;
    char why[1024] = "", addr[INET6_ADDRSTRLEN] = "?";
    int n = oob_ifsel_read(list, OOB_IF_MAX), i;

    if (n < 0) {
        doctor_say(DOCTOR_FAIL, "out-of-band", "see the reason",
                   "the interfaces cannot be listed: %s", strerror(errno));
        free(avoid);
        return;
    }
    i = oob_ifsel_pick(list, n, spec, cfg->socket_family, (const char *const *)avoid, why,
                       sizeof(why));
    if (i < 0) {
        doctor_say(DOCTOR_FAIL, "out-of-band",
                   "NCCL_R2_OOB_IFNAME or NCCL_SOCKET_IFNAME with an interface that is up", "%s",
                   why);
        free(avoid);
        return;
    }
    address_text(&list[i], addr, sizeof(addr));
    if (strcmp(list[i].name, "lo") == 0) {
        doctor_say(DOCTOR_WARN, "out-of-band",
                   "give the container the host's network (docker: --network host)",
                   "%s %s: only processes of this host can be reached", list[i].name, addr);
    } else if (name_listed(list[i].name, (const char *const *)avoid)) {
        doctor_say(DOCTOR_WARN, "out-of-band",
                   "NCCL_R2_OOB_IFNAME with an interface of its own, if there is one",
                   "%s %s belongs to a data NIC: the two fail together", list[i].name, addr);
    } else {
        doctor_say(DOCTOR_OK, "out-of-band", NULL, "%s %s%s%s", list[i].name, addr,
                   spec[0] ? ", by " : "", spec);
    }
    free(avoid);
}

/* --- files of options --- */

static void conf_file_check(const char *path)
{
    struct check c;

    if (access(path, F_OK) != 0) {
        doctor_say(DOCTOR_OK, "nccl.conf", NULL, "%s: none", path);
    } else if (check_file(path, &c, NULL) != 0) {
        doctor_say(DOCTOR_WARN, "nccl.conf", "make it readable: NCCL skips it silently", "%s: %s",
                   path, strerror(errno));
    } else if (c.errors || c.warnings) {
        char todo[2 * PATH_MAX];

        snprintf(todo, sizeof(todo), "r2_config --check %.4095s", path);
        doctor_say(DOCTOR_WARN, "nccl.conf", todo, "%s: %d options of ours, %d errors, %d warnings",
                   path, c.taken, c.errors, c.warnings);
    } else {
        doctor_say(DOCTOR_OK, "nccl.conf", NULL, "%s: %d options of ours", path, c.taken);
    }
}

void doctor_conf_files(struct doctor *d)
{
    const char *home = getenv("HOME"), *file = getenv("NCCL_CONF_FILE");
    struct passwd *user = getpwuid(getuid());
    char path[2][PATH_MAX];
    int n = values_conf_paths(d->root, path);

    for (int i = 0; i < n; i++) {
        conf_file_check(path[i]);
    }
    if ((file == NULL || *file == '\0') && user && home && strcmp(home, user->pw_dir) != 0) {
        doctor_say(
            DOCTOR_WARN, "nccl.conf", "name the file in NCCL_CONF_FILE",
            "HOME is %s, the user's home %s: releases of NCCL differ in which .nccl.conf they read",
            home, user->pw_dir);
    }
}

void doctor_lock(struct doctor *d)
{
    const struct values *v = d->values;
    int n, pinned = 0;

    r2_config_rows(&n);
    for (int i = 0; i < n; i++) {
        pinned += v->offer[i][R2_SRC_LOCK].text != NULL;
    }
    switch (v->lock) {
    case VALUES_LOCK_NONE:
        doctor_say(DOCTOR_OK, "lock.conf", NULL, "%s: none", v->lock_path);
        break;
    case VALUES_LOCK_HOLDS:
        doctor_say(DOCTOR_OK, "lock.conf", NULL, "%s pins %d options", v->lock_path, pinned);
        break;
    case VALUES_LOCK_IGNORED:
        doctor_say(DOCTOR_WARN, "lock.conf",
                   "owner root, mode 0644, in a folder that root alone can write",
                   "%s is ignored: this process could write or replace it", v->lock_path);
        break;
    case VALUES_LOCK_UNREADABLE:
        doctor_say(DOCTOR_FAIL, "lock.conf", "mode 0644, folders 0755",
                   "%s is there and cannot be read: jobs end", v->lock_path);
        break;
    }
}

/* --- containers --- */

/* Names what says that this is a container; NULL. */
static const char *container_sign(const struct doctor *d)
{
    static const char *const files[] = {"/.dockerenv", "/run/.containerenv"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        doctor_path(d, files[i], path, sizeof(path));
        if (access(path, F_OK) == 0) {
            return files[i];
        }
    }
    return getenv("KUBERNETES_SERVICE_HOST") ? "KUBERNETES_SERVICE_HOST"
           : getenv("container")             ? "$container"
                                             : NULL;
}

static bool user_namespace_is_own(void)
{
    unsigned long long inside = 0, outside = 0, count = 0;
    FILE *f = fopen("/proc/self/uid_map", "re");
    int n = 0;

    if (f) {
        n = fscanf(f, "%llu %llu %llu", &inside, &outside, &count);
        fclose(f);
    }
    return n == 3 && !(inside == 0 && outside == 0 && count == 4294967295ull);
}

void doctor_container(struct doctor *d)
{
    const char *sign = container_sign(d);
    struct statvfs shm;
    char path[PATH_MAX];
    unsigned long long mib;

    doctor_say(DOCTOR_OK, "container", NULL, "%s%s%s", sign ? "yes, by " : "no sign of one",
               sign ? sign : "", user_namespace_is_own() ? ", in a user namespace of its own" : "");
    doctor_path(d, "/dev/shm", path, sizeof(path));
    if (statvfs(path, &shm) != 0) {
        doctor_say(DOCTOR_FAIL, "/dev/shm",
                   "mount a tmpfs on it: the ranks of a host share memory there", "%s: %s", path,
                   strerror(errno));
        return;
    }
    mib = (unsigned long long)shm.f_bavail * shm.f_frsize / MIB;
    if (mib < SHM_ENOUGH_MIB) {
        doctor_say(DOCTOR_WARN, "/dev/shm", "docker: --shm-size 1g; Kubernetes: a Memory volume",
                   "%llu MiB are free: little", mib);
    } else {
        doctor_say(DOCTOR_OK, "/dev/shm", NULL, "%llu MiB are free", mib);
    }
}

/* --- what the processes of a host share --- */

static int directory_writable(const char *path)
{
    char why[PATH_MAX + 128];

    return r2_rundir_find(path, why, sizeof(why)) != NULL;
}

void doctor_run_dir(struct doctor *d)
{
    static const char *const todo =
        "d " R2_RUNDIR_OWN " 1777 root root in tmpfiles.d; in a container: the host's, mounted";
    const struct r2_config *cfg = &d->values->cfg;
    char own[PATH_MAX], common[PATH_MAX], why[PATH_MAX + 128];

    if (cfg->run_dir[0]) {
        if (r2_rundir_find(cfg->run_dir, why, sizeof(why))) {
            doctor_say(DOCTOR_OK, "run directory", NULL, "%s, as NCCL_R2_RUN_DIR says",
                       cfg->run_dir);
        } else {
            doctor_say(DOCTOR_WARN, "run directory",
                       "make it, with mode 1777, or unset NCCL_R2_RUN_DIR",
                       "%s: no host registry, no drain files, no statistics", why);
        }
        return;
    }
    doctor_path(d, R2_RUNDIR_OWN, own, sizeof(own));
    doctor_path(d, R2_RUNDIR_COMMON, common, sizeof(common));
    if (directory_writable(own)) {
        doctor_say(DOCTOR_OK, "run directory", NULL, "%s", own);
    } else if (!directory_writable(common)) {
        doctor_say(
            DOCTOR_WARN, "run directory", todo,
            "neither %s nor %s can be written: no host registry, no drain files, no statistics",
            own, common);
    } else if (access(own, F_OK) == 0) {
        doctor_say(DOCTOR_WARN, "run directory", todo,
                   "%s, as %s cannot be written by this user: others may be there", common, own);
    } else if (container_sign(d)) {
        doctor_say(
            DOCTOR_WARN, "run directory", todo,
            "%s, as there is no %s: in a container, what other containers of the host find out is not known here",
            common, own);
    } else {
        doctor_say(DOCTOR_OK, "run directory", NULL, "%s, as there is no %s", common, own);
    }
}

/* --- GPU --- */

static void driver_check(void)
{
    int (*version_get)(int *) = NULL;
    int version = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;

    if (lib == NULL) {
        doctor_say(DOCTOR_WARN, "CUDA driver",
                   "none is needed for r2_perf; for NCCL: the driver, and --gpus in docker", "%s",
                   dlerror());
        return;
    }
    symbol = dlsym(lib, "cuDriverGetVersion");
    memcpy(&version_get, &symbol, sizeof(symbol));
    if (symbol == NULL || version_get(&version) != 0) {
        doctor_say(DOCTOR_WARN, "CUDA driver", "install the driver again",
                   "libcuda.so.1 does not tell its version");
    } else {
        doctor_say(DOCTOR_OK, "CUDA driver", NULL, "for CUDA %d.%d", version / 1000,
                   version % 1000 / 10);
    }
}

void doctor_gpu(struct doctor *d)
{
    int peer = d->peer_memory;

    driver_check();
    if (peer || d->dmabuf) {
        doctor_say(DOCTOR_OK, "GPU memory", NULL, "NICs can reach it by %s%s%s",
                   peer ? "a peer memory module" : "", peer && d->dmabuf ? " and " : "",
                   d->dmabuf ? "DMA-BUF" : "");
    } else {
        doctor_say(DOCTOR_WARN, "GPU memory",
                   "modprobe nvidia-peermem, or a kernel and NIC driver with DMA-BUF",
                   "NICs cannot reach it: messages go through host memory");
    }
}
