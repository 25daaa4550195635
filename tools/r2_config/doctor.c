#include "tools/r2_config/doctor.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_config/doctor_int.h"

static int counts[DOCTOR_FAIL + 1];

/* For the handler of the time limit: nothing but these and write(). */
static const char *volatile check_name;

void doctor_say(enum doctor_level level, const char *what, const char *todo, const char *fmt, ...)
{
    static const char *const words[] = {[DOCTOR_OK] = "ok  ", [DOCTOR_WARN] = "WARN", [DOCTOR_FAIL] = "FAIL"};
    va_list ap;

    counts[level]++;
    printf("%s  %s: ", words[level], what);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("%s%s\n", todo ? " -> " : "", todo ? todo : "");
    fflush(stdout);
}

int doctor_count(enum doctor_level level)
{
    return counts[level];
}

void doctor_path(const struct doctor *d, const char *path, char *out, size_t len)
{
    snprintf(out, len, "%s%s", d->root, path);
}

static void limit_reached(int signal)
{
    static const char head[] = "FAIL  doctor: the check of ";
    static const char tail[] = " does not return -> a driver or a file system hangs: see the kernel's log (dmesg)\n";
    const char *name = check_name;

    if (write(STDOUT_FILENO, head, sizeof(head) - 1) < 0 || write(STDOUT_FILENO, name, strlen(name)) < 0 ||
        write(STDOUT_FILENO, tail, sizeof(tail) - 1) < 0) {
        _exit(1);
    }
    _exit(1);
}

static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} checks[] = {
    {"the options", doctor_options},
    {"nccl.conf", doctor_conf_files},
    {"lock.conf", doctor_lock},
    {"the selection", doctor_selection},
    {"libibverbs", doctor_verbs},
    {"/dev/infiniband", doctor_device_files},
    {"the NICs", doctor_nics},
    {"memlock", doctor_memlock},
    {"the out-of-band channel", doctor_oob},
    {"the container", doctor_container},
    {"the GPU driver", doctor_gpu},
    {"the RDMA devices", doctor_rdma_end},
    {"the plugin itself", doctor_plugin},
};

int doctor_run(struct values *v, const char *root, int limit_s)
{
    static struct doctor d;
    struct sigaction limit = {.sa_handler = limit_reached};

    d.root = root;
    d.values = v;
    d.limit_s = limit_s;
    sigaction(SIGALRM, &limit, NULL);
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        check_name = checks[i].name;
        alarm((unsigned)limit_s);
        checks[i].run(&d);
    }
    alarm(0);
    printf("%d ok, %d warnings, %d failures\n", counts[DOCTOR_OK], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
    return counts[DOCTOR_FAIL] ? 1 : 0;
}
