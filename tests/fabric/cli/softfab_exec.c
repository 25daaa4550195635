/* softfab exec and fault. */
#include "tests/fabric/cli/softfab.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The drop-in library stands beside the command, or where make install puts it. */
static int library_dir(char *buf, size_t len)
{
    static const char *const places[] = {"softfab-lib", "../lib/nccl-net-r2/softfab-lib"};
    char self[PATH_MAX], lib[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0) {
        return softfab_fail("cannot find my own file: %s", strerror(errno));
    }
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (snprintf(buf, len, "%s/%s", self, places[i]) >= (int)len) {
            return softfab_fail("%s is too long a path", self);
        }
        snprintf(lib, sizeof(lib), "%s/libibverbs.so.1", buf);
        if (access(lib, R_OK) == 0) {
            return 0;
        }
    }
    return softfab_fail("libibverbs.so.1 is neither in %s/%s nor in %s/%s", self, places[0], self,
                        places[1]);
}

/*
 * What the user has set stays. What an exec around this one has set, for the host that it is on, is
 * not the user's: 1 where  is that, or not set.
 */
static int is_ours(const char *name, const char *format)
{
    const char *dir = getenv(SEG_ENV_DIR), *host = getenv(SEG_ENV_HOST), *now = getenv(name);
    char outer[SEG_PATH_MAX + 32];

    if (now == NULL || dir == NULL || host == NULL) {
        return now == NULL;
    }
    snprintf(outer, sizeof(outer), format, dir, host);
    return strcmp(now, outer) == 0;
}

static int environment_set(const struct seg_map *m, int host)
{
    char lib[PATH_MAX], path[2 * PATH_MAX], num[16], id[16], sysfs[SEG_PATH_MAX + 32],
        run[SEG_PATH_MAX + 32];
    const char *old = getenv("LD_LIBRARY_PATH");
    int rc = library_dir(lib, sizeof(lib));
    int run_is_ours = is_ours("NCCL_R2_RUN_DIR", "%s/host%s/run");
    int id_is_ours = is_ours("NCCL_HOSTID", "%.0sh%s");

    if (rc != 0) {
        return rc;
    }
    int n = snprintf(path, sizeof(path), "%s%s%s", lib, old != NULL && *old != '\0' ? ":" : "",
                     old != NULL ? old : "");
    if (n >= (int)sizeof(path)) {
        return softfab_fail("LD_LIBRARY_PATH is longer than %d bytes", PATH_MAX);
    }
    snprintf(num, sizeof(num), "%d", host);
    snprintf(id, sizeof(id), "h%d", host);
    snprintf(sysfs, sizeof(sysfs), "%s/host%d/sys", m->dir, host);
    /* Hosts of a fabric, and fabrics side by side, have NICs of the same names: what processes of a
     * host share lies apart. */
    snprintf(run, sizeof(run), "%s/host%d/run", m->dir, host);
    if (mkdir(run, 0700) != 0 && errno != EEXIST) {
        return softfab_fail("cannot make %s: %s", run, strerror(errno));
    }
    if (setenv("NCCL_R2_RUN_DIR", run, run_is_ours) != 0 ||
        setenv("LD_LIBRARY_PATH", path, 1) != 0 || setenv(SEG_ENV_DIR, m->dir, 1) != 0 ||
        setenv(SEG_ENV_HOST, num, 1) != 0 || setenv("NCCL_HOSTID", id, id_is_ours) != 0 ||
        setenv("SOFTFAB_SYSFS", sysfs, 1) != 0) {
        return softfab_fail("cannot set the environment: %s", strerror(errno));
    }
    return 0;
}

int softfab_exec(int argc, char **argv)
{
    static const struct option opts[] = {{"name", 1, NULL, 'N'}, {"host", 1, NULL, 'H'}, {0}};
    const char *name = NULL, *host_text = NULL;
    struct seg_map m;
    int opt;

    /* '+': what follows the first word that is no option belongs to the command. */
    while ((opt = getopt_long(argc, argv, "+:", opts, NULL)) != -1) {
        if (opt == 'N') {
            name = optarg;
        } else if (opt == 'H') {
            host_text = optarg;
        } else {
            return softfab_refuse("exec", opt, argv, opts);
        }
    }
    if (host_text == NULL || optind >= argc) {
        return softfab_misuse("exec: %s",
                              host_text == NULL ? "--host is missing" : "the command is missing");
    }
    int rc = softfab_open(&m, name);
    if (rc != 0) {
        return rc;
    }
    int host = softfab_number(host_text, m.seg->head.desc.hosts - 1);
    if (host < 0) {
        rc = softfab_fail("exec: --host '%s' is not between 0 and %d", host_text,
                          m.seg->head.desc.hosts - 1);
    } else {
        rc = environment_set(&m, host);
    }
    seg_file_close(&m);
    if (rc != 0) {
        return rc;
    }
    execvp(argv[optind], &argv[optind]);
    rc = errno == ENOENT ? 127 : 126;
    softfab_fail("cannot run %s: %s", argv[optind], strerror(errno));
    return rc;
}

/* Programs that read files instead of asking verbs see the port's state and addresses too. */
static void files_follow(struct seg_map *m, const struct fab_fault *f)
{
    if (f->at == FAB_AT_SPINE) {
        return;
    }
    for (int h = 0; h < m->seg->head.desc.hosts; h++) {
        for (int n = 0; n < m->seg->head.desc.nics; n++) {
            if ((f->host >= 0 && f->host != h) || (f->nic >= 0 && f->nic != n)) {
                continue;
            }
            struct seg_nic *nic = seg_nic_at(m->seg, h, n);
            seg_sysfs_state_set(m->dir, h, n,
                                atomic_load_explicit(&nic->link.down, memory_order_relaxed) == 0);
            if (f->kind == FAB_FAULT_GID_CHANGE) {
                seg_sysfs_gids_set(m->dir, h, n,
                                   atomic_load_explicit(&nic->epoch, memory_order_relaxed));
            }
        }
    }
}

/* One fault per argument; words that were not quoted together make one fault. @last: the text that
 * was looked at last, static or of @argv. */
static int faults_parse(int argc, char **argv, struct fab_fault *f, const char **last, char *why,
                        size_t why_len)
{
    static char joined[256];
    int n = 0;

    if (strchr(argv[0], ' ') == NULL) {
        for (int i = 0; i < argc; i++) {
            size_t len = strlen(joined);
            snprintf(joined + len, sizeof(joined) - len, "%s%s", i > 0 ? " " : "", argv[i]);
        }
        *last = joined;
        return fab_fault_parse(joined, f, why, why_len) == 0 ? 1 : -1;
    }
    for (; n < argc; n++) {
        *last = argv[n];
        if (fab_fault_parse(argv[n], &f[n], why, why_len) != 0) {
            return -1;
        }
    }
    return n;
}

/* Applies @n faults, or with @check none: all are found to fit before the first is applied. 0, or
 * the exit status after a message. */
static int faults_apply(struct seg_map *m, const struct fab_fault *f, int n, bool check)
{
    char why[512];

    for (int i = 0; i < n; i++) {
        if (seg_fault_fits(m, &f[i], why, sizeof(why)) != 0) {
            return softfab_fail("fault: %s", why);
        }
    }
    for (int i = 0; i < n && !check; i++) {
        if (seg_fault_apply(m, &f[i], why, sizeof(why)) != 0) {
            return softfab_fail("fault: %s", why);
        }
        files_follow(m, &f[i]);
    }
    return 0;
}

/* What was wrong with fault @text, as @why has it, and the nearest that there is. Exit status. */
static int fault_refuse(const char *text, const char *why)
{
    const char *names[FAB_FAULT_KINDS + 1] = {NULL}, *near = NULL;
    char word[32];

    for (int k = 0; k < FAB_FAULT_KINDS; k++) {
        names[k] = fab_fault_name((enum fab_fault_kind)k);
    }
    if (fab_fault_word(text, word) == 0) {
        near = args_near(word, names);
    }
    return near && strcmp(near, word) != 0
               ? softfab_misuse("fault: %s: did you mean %s?", why, near)
               : softfab_misuse("fault: %s", why);
}

struct fault_args {
    const char *name;
    int hosts, nics, spines; /* of a fabric that is not there yet; 0: not given */
    bool check;
};

/* 0, or the exit status after a message. */
static int fault_options(int argc, char **argv, struct fault_args *a)
{
    static const struct option opts[] = {{"name", 1, NULL, 'N'},   {"check", 0, NULL, 'c'},
                                         {"hosts", 1, NULL, 'H'},  {"nics", 1, NULL, 'n'},
                                         {"spines", 1, NULL, 's'}, {0}};
    int opt;

    while ((opt = getopt_long(argc, argv, ":", opts, NULL)) != -1) {
        int *to = opt == 'H' ? &a->hosts : opt == 'n' ? &a->nics : opt == 's' ? &a->spines : NULL;
        int max = opt == 'H' ? FAB_MAX_HOSTS : opt == 'n' ? FAB_MAX_NICS : FAB_MAX_SPINES;

        if (opt == 'N') {
            a->name = optarg;
        } else if (opt == 'c') {
            a->check = true;
        } else if (to == NULL) {
            return softfab_refuse("fault", opt, argv, opts);
        } else if ((*to = softfab_number(optarg, max)) <= 0) {
            return softfab_misuse("fault: --%s '%s' is not a number from 1 to %d",
                                  opt == 'H'   ? "hosts"
                                  : opt == 'n' ? "nics"
                                               : "spines",
                                  optarg, max);
        }
    }
    if (optind >= argc) {
        return softfab_misuse("fault: no fault such as 'h0:n1 down'");
    }
    if ((a->hosts || a->nics || a->spines) && (!a->check || a->name || !a->hosts || !a->nics)) {
        return softfab_misuse("fault: --hosts and --nics go with --check, without --name: what "
                              "would fit such a fabric");
    }
    return 0;
}

/* Whether @n faults fit a fabric that is not there. 0, or the exit status after a message. */
static int faults_fit(const struct fault_args *a, const struct fab_fault *f, int n)
{
    static struct fab_desc d;
    char why[512] = "";
    int rc = fab_desc_init(&d, a->hosts, a->nics, 0, 0, why, sizeof(why));

    d.spines = a->spines ? a->spines : d.spines;
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = seg_fault_fits_desc(&d, NULL, &f[i], why, sizeof(why));
    }
    return rc == 0 ? 0 : softfab_fail("fault: %s", why);
}

int softfab_fault(int argc, char **argv)
{
    struct fault_args a = {0};
    char why[512];
    struct seg_map m;
    int rc = fault_options(argc, argv, &a);

    if (rc != 0) {
        return rc;
    }
    struct fab_fault *f = calloc((size_t)(argc - optind), sizeof(*f));
    if (f == NULL) {
        return softfab_fail("out of memory");
    }
    /* All are understood before the first is applied. */
    const char *last = argv[optind];
    int n = faults_parse(argc - optind, argv + optind, f, &last, why, sizeof(why));
    if (n < 0) {
        rc = fault_refuse(last, why);
    } else if (a.hosts) {
        rc = faults_fit(&a, f, n);
    } else if ((rc = softfab_open(&m, a.name)) == 0) {
        rc = faults_apply(&m, f, n, a.check);
        seg_file_close(&m);
    }
    free(f);
    return rc;
}
