/* The fabric, its faults, and when everything is well. */
#include "tests/matrix/matrix.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_LIMIT (30000 * MX_MS)
#define FRESH_BYTES (256u << 10) /* by each NIC: several messages of each connection over it */

static int softfab(struct mx_job *j, char *const argv[])
{
    char path[340];
    int status = -1;
    pid_t pid;

    snprintf(path, sizeof(path), "%s/softfab", j->o->build);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        execv(path, argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0
               ? 0
               : mx_job_fail(j, "softfab %s ended with status %#x", argv[1], (unsigned)status);
}

int mx_job_up(struct mx_job *j, const struct mx_opts *o)
{
    char hosts[16], nics[16], spines[16], path[SEG_PATH_MAX];
    char *argv[] = {"softfab",
                    "up",
                    "--name",
                    j->name,
                    "--hosts",
                    hosts,
                    "--nics",
                    nics,
                    "--rate",
                    "40MB/s",
                    "--spines",
                    spines,
                    o->crossrail ? "--crossrail" : NULL,
                    NULL};

    j->o = o;
    snprintf(j->name, sizeof(j->name), "matrix%d", (int)getpid());
    snprintf(hosts, sizeof(hosts), "%d", o->hosts);
    snprintf(nics, sizeof(nics), "%d", o->nics);
    snprintf(spines, sizeof(spines), "%d", o->spines);
    if (softfab(j, argv) != 0 ||
        seg_dir_path(j->name, path, sizeof(path), j->why, sizeof(j->why)) != 0 ||
        seg_file_open(&j->map, path, j->why, sizeof(j->why)) != 0) {
        return -1;
    }
    j->mapped = 1;
    return 0;
}

void mx_job_down(struct mx_job *j)
{
    char *argv[] = {"softfab", "down", "--name", j->name, NULL};

    mx_job_stop(j);
    if (j->mapped) {
        seg_file_close(&j->map);
        softfab(j, argv);
    }
    j->mapped = 0;
}

void mx_job_stop(struct mx_job *j)
{
    for (int i = 0; i < j->o->hosts; i++) {
        mx_proc_end(&j->proc[i]);
    }
}

int mx_job_start(struct mx_job *j)
{
    char path[340];

    j->runs++;
    j->ntold = j->dying = 0;
    snprintf(path, sizeof(path), "%s/ways", j->o->dir);
    if (mx_ways_make(path) != 0) {
        return mx_job_fail(j, "%s: %s", path, strerror(errno));
    }
    for (int i = 0; i < j->o->hosts; i++) {
        if (mx_proc_start(j, i) != 0) {
            return -1;
        }
    }
    if (mx_job_well(j, READY_LIMIT) != 0) {
        return mx_job_fail(j, "the job does not run within %d s: see %s/process*.log",
                           (int)(READY_LIMIT / (1000 * MX_MS)), j->o->dir);
    }
    return 0;
}

int mx_job_fault(struct mx_job *j, const char *text)
{
    uint32_t before[MX_HOSTS][MX_NICS];
    struct fab_fault f;

    if (fab_fault_parse(text, &f, j->why, sizeof(j->why)) != 0) {
        return -1;
    }
    for (int h = 0; h < j->o->hosts; h++) {
        for (int n = 0; n < j->o->nics; n++) {
            before[h][n] = atomic_load(&seg_nic_at(j->map.seg, h, n)->fault_seq);
        }
    }
    if (seg_fault_apply(&j->map, &f, j->why, sizeof(j->why)) != 0) {
        return -1;
    }
    for (int h = 0; h < j->o->hosts; h++) {
        for (int n = 0; n < j->o->nics; n++) {
            struct seg_nic *nic = seg_nic_at(j->map.seg, h, n);

            if (f.at == FAB_AT_SPINE || !fab_ports_has(fab_ports(f.host, f.nic), h, n)) {
                continue;
            }
            if (atomic_load(&nic->fault_seq) == before[h][n]) {
                return mx_job_fail(j, "'%s' did not arrive at h%d:n%d", text, h, n);
            }
            seg_sysfs_state_set(j->map.dir, h, n, atomic_load(&nic->link.down) == 0);
        }
    }
    return 0;
}

uint64_t mx_job_swallowed(const struct mx_job *j, int rail, int k)
{
    return atomic_load(&j->map.seg->rail[rail].spine[k].dropped);
}

void mx_blamed(struct mx_job *j, const char *who, const char *far)
{
    int i = 0;

    while (i < j->ntold && (strcmp(j->told[i].who, who) != 0 || strcmp(j->told[i].far, far) != 0)) {
        i++;
    }
    if (i == MX_TOLD) {
        return;
    }
    snprintf(j->told[i].who, sizeof(j->told[i].who), "%s", who);
    snprintf(j->told[i].far, sizeof(j->told[i].far), "%s", far);
    j->told[i].bad = 1;
    j->ntold += i == j->ntold;
}

void mx_cleared(struct mx_job *j, const char *who)
{
    for (int i = 0; i < j->ntold; i++) {
        if (strcmp(j->told[i].who, who) == 0 || strcmp(j->told[i].far, who) == 0) {
            j->told[i].bad = 0;
        }
    }
}

const char *mx_still_blamed(const struct mx_job *j)
{
    for (int i = 0; i < j->ntold; i++) {
        if (j->told[i].bad) {
            return j->told[i].who;
        }
    }
    return NULL;
}

int mx_job_cleared(struct mx_job *j, uint64_t limit)
{
    uint64_t end = mx_now() + limit;

    for (;;) {
        if (mx_still_blamed(j) == NULL && mx_now() >= j->reported_at + MX_QUIET) {
            return 0;
        }
        if (mx_now() >= end) {
            return -1;
        }
        mx_procs_read(j, 10 * MX_MS);
    }
}

static uint64_t sent(const struct mx_job *j, int h, int n)
{
    return atomic_load(&seg_nic_at(j->map.seg, h, n)->count.tx_bytes);
}

static int all_fresh(const struct mx_job *j, uint64_t before[MX_HOSTS][MX_NICS])
{
    for (int h = 0; h < j->o->hosts; h++) {
        for (int n = 0; n < j->o->nics; n++) {
            if (sent(j, h, n) - before[h][n] < FRESH_BYTES) {
                return 0;
            }
        }
    }
    return 1;
}

int mx_job_well(struct mx_job *j, uint64_t limit)
{
    uint64_t before[MX_HOSTS][MX_NICS], end = mx_now() + limit;
    int fresh = 0;

    while (mx_now() < end && mx_procs_alive(j) == j->o->hosts) {
        long down = 0;

        for (int i = 0; i < j->o->hosts; i++) {
            down += j->proc[i].paths_down > 0 ||
                    !j->proc[i].carried; /* who is not connected to all is no vantage point */
        }
        /* New traffic counts from when no path is down any more. */
        for (int h = 0; h < j->o->hosts && (down || !fresh); h++) {
            for (int n = 0; n < j->o->nics; n++) {
                before[h][n] = sent(j, h, n);
            }
        }
        fresh = down == 0;
        if (fresh && all_fresh(j, before)) {
            return 0;
        }
        mx_procs_read(j, 5 * MX_MS);
    }
    return -1;
}
