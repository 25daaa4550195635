#include "tools/r2_config/doctor.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_config/doctor_int.h"
#include "tools/shared/patience.h"

static int counts[DOCTOR_FAIL + 1];

/* What has been said, without its hint. */
#define SAID_MAX 256
static char *said[SAID_MAX];
static int said_count;

/* For the handler of the time limit: nothing but these and write(). */
static const char *volatile check_name;

void doctor_say(enum doctor_level level, const char *what, const char *todo, const char *fmt, ...)
{
    static const char *const words[] = {
        [DOCTOR_OK] = "ok  ", [DOCTOR_WARN] = "WARN", [DOCTOR_FAIL] = "FAIL"};
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0) {
        text = NULL;
    }
    va_end(ap);
    counts[level]++;
    printf("%s  %s: %s%s%s\n", words[level], what, text ? text : "?", todo ? " -> " : "",
           todo ? todo : "");
    fflush(stdout);
    if (text && said_count < SAID_MAX) {
        said[said_count++] = text; /* until the end of the process */
    } else {
        free(text);
    }
}

int doctor_said(const char *text)
{
    for (int i = 0; i < said_count; i++) {
        if (strcmp(said[i], text) == 0) {
            return 1;
        }
    }
    return 0;
}

void doctor_hint(const char *text, char *out, size_t len)
{
    static const struct {
        const char *part, *todo;
    } known[] = {
        {"overruled by lock.conf", "unset it: the administrator's file wins"},
        {"could write it itself", "owner root, mode 0644, in a folder that root alone can write"},
        {"did you mean", "correct the name, or unset it"},
        {"unknown ", "unset it: nothing reads it"},
        {"has no address",
         "correct NCCL_IB_GID_INDEX, NCCL_IB_ADDR_FAMILY or NCCL_IB_ADDR_RANGE, or give its interface an address"},
        {"ports found, the first", "name those that are to be used in NCCL_IB_HCA"},
        {"Weights and order of NICs go by",
         "r2_topo shows what can be read here; NCCL_R2_TOPO=off where that is meant"},
        {"NCCL_R2_WAYS: ", "correct the file, or let the fabric controller write it anew"},
        {"NCCL_R2_RELAY has no effect", "the CUDA driver where the job runs, or NCCL_R2_RELAY=off"},
        {"no host registry", "a local directory of mode 1777, in NCCL_R2_RUN_DIR"},
        {"no statistics", "a local directory of mode 1777, in NCCL_R2_RUN_DIR"},
        {"events are lost", "a local file that can be written, in NCCL_R2_EVENT_FILE"},
    };
    const char *name = strstr(text, "NCCL_");

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strstr(text, known[i].part)) {
            snprintf(out, len, "%s", known[i].todo);
            return;
        }
    }
    if (name) {
        snprintf(out, len, "r2_config --explain %.*s",
                 (int)strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), name);
    } else {
        snprintf(out, len, "NCCL_DEBUG=INFO in a job shows the lines around it");
    }
}

int doctor_count(enum doctor_level level)
{
    return counts[level];
}

void doctor_path(const struct doctor *d, const char *path, char *out, size_t len)
{
    snprintf(out, len, "%s%s", d->root, path);
}

static volatile sig_atomic_t
    limit_left; /* seconds, once it was said that a check takes long; 0: it was not yet */

/* A check takes long; it goes on for what is left. */
static void limit_near(void)
{
    static const char head[] = "r2_config: still at the check of ";
    const char *name = check_name;
    int error = errno;
    bool is_said = write(STDERR_FILENO, head, sizeof(head) - 1) > 0 &&
                   write(STDERR_FILENO, name, strlen(name)) > 0 &&
                   write(STDERR_FILENO, " ...\n", 5) > 0;

    (void)is_said; /* nobody has to read it */
    errno = error;
    alarm((unsigned)limit_left);
    limit_left = 0;
}

static void limit_reached(int signal)
{
    static const char head[] = "FAIL  doctor: the check of ";
    static const char tail[] =
        " does not return -> a driver or a file system hangs: see the kernel's log (dmesg)\n";
    const char *name = check_name;

    if (limit_left > 0) {
        limit_near();
        return;
    }
    if (write(STDOUT_FILENO, head, sizeof(head) - 1) < 0 ||
        write(STDOUT_FILENO, name, strlen(name)) < 0 ||
        write(STDOUT_FILENO, tail, sizeof(tail) - 1) < 0) {
        _exit(1);
    }
    _exit(1);
}

void doctor_limit_start(int limit_s)
{
    alarm(0);
    limit_left = limit_s > PATIENCE_FIRST_S ? limit_s - PATIENCE_FIRST_S : 0;
    alarm((unsigned)(limit_s - limit_left));
}

static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} checks[] = {
    {"the options", doctor_options},      {"nccl.conf", doctor_conf_files},
    {"lock.conf", doctor_lock},           {"the selection", doctor_selection},
    {"libibverbs", doctor_verbs},         {"/dev/infiniband", doctor_device_files},
    {"the NICs' answers", doctor_ask},    {"the NICs", doctor_nics},
    {"memlock", doctor_memlock},          {"the out-of-band channel", doctor_oob},
    {"the container", doctor_container},  {"the run directory", doctor_run_dir},
    {"the GPU driver", doctor_gpu},       {"the RDMA devices", doctor_rdma_end},
    {"the plugin itself", doctor_plugin},
};

int doctor_run(struct values *v, const char *root, int limit_s)
{
    static struct doctor d;
    struct sigaction limit = {.sa_handler = limit_reached, .sa_flags = SA_RESTART};

    d.root = root;
    d.values = v;
    d.limit_s = limit_s;
    sigaction(SIGALRM, &limit, NULL);
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        check_name = checks[i].name;
        doctor_limit_start(limit_s);
        checks[i].run(&d);
    }
    alarm(0);
    printf("%d ok, %d warnings, %d failures\n", counts[DOCTOR_OK], counts[DOCTOR_WARN],
           counts[DOCTOR_FAIL]);
    return counts[DOCTOR_FAIL] ? 1 : 0;
}
