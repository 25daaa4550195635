/* Which rank this process is: from our own launcher, from Open MPI, from PMI or Slurm. */
#include "tools/r2_perf/launch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "tools/r2_perf/util.h"

const char *launch_fabric_get(void)
{
    return getenv("R2_PERF_FABRIC");
}

const char *launch_softfab_get(void)
{
    return getenv("R2_PERF_SOFTFAB");
}

static int launch_child_parse(const char *text, struct boot_place *p)
{
    unsigned long long key;
    if (sscanf(text, "%d:%d:%d:%d:%d:%d:%d:%llu", &p->rank, &p->nranks, &p->host, &p->local,
               &p->listen_fd, &p->board_fd, &p->port, &key) != 8 ||
        p->nranks < 1 || p->nranks > BOOT_RANKS_MAX || p->rank < 0 || p->rank >= p->nranks) {
        return -1;
    }
    p->key = key;
    if (p->rank != 0) {
        close(p->listen_fd); /* so that rank 0's end is seen as the end of its socket */
        p->listen_fd = -1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 0;
}

static bool launch_env_int(const char *name, long *value)
{
    return util_int_parse(getenv(name), 0, 1000000, value);
}

/* All ranks on one machine need no address: the job's name makes a file that they find. */
static bool launch_rendezvous_guess(struct boot_place *p)
{
    static const char *const jobs[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID",
                                       "PMI_JOBID"};
    const char *dir = getenv("TMPDIR"), *job = NULL;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]) && !job; i++) {
        job = getenv(jobs[i]);
    }
    snprintf(p->rendezvous, sizeof(p->rendezvous), "%s/r2_perf.%d.%s", dir && *dir ? dir : "/tmp",
             (int)geteuid(), job ? job : "");
    for (char *c = strrchr(p->rendezvous, '/') + 1; *c; c++) {
        *c = strchr("/@: ", *c) ? '_' : *c;
    }
    return job != NULL;
}

static enum launch_role launch_mpi_place(struct boot_place *p, char *error, size_t bytes)
{
    static const char *const names[][4] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
         "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};
    long rank, size, local = 0, locals = 0;
    for (size_t i = 0; i < 3; i++) {
        if (!launch_env_int(names[i][0], &rank) || !launch_env_int(names[i][1], &size) ||
            size <= 1) {
            continue;
        }
        launch_env_int(names[i][2], &local);
        launch_env_int(names[i][3], &locals);
        p->rank = (int)rank;
        p->nranks = (int)size;
        p->local = (int)local;
        if (size > BOOT_RANKS_MAX) {
            snprintf(error, bytes, "%ld ranks; at most %d are possible", size, BOOT_RANKS_MAX);
            return LAUNCH_ERROR;
        }
        if (!p->root[0] && !p->rendezvous[0] && (locals != size || !launch_rendezvous_guess(p))) {
            snprintf(
                error, bytes,
                "%ld ranks on several machines need --root HOST:PORT (rank 0's host and a free port; "
                "or R2_PERF_ROOT) or --rendezvous FILE on a shared file system",
                size);
            return LAUNCH_ERROR;
        }
        return LAUNCH_RANK;
    }
    return LAUNCH_PARENT;
}

enum launch_role launch_role_get(const struct opts *o, struct boot_place *place, char *error,
                                 size_t error_bytes)
{
    const char *child = getenv("R2_PERF_CHILD");
    memset(place, 0, sizeof(*place));
    place->host = place->listen_fd = place->board_fd = -1;
    snprintf(place->root, sizeof(place->root), "%s", o->root_address ? o->root_address : "");
    snprintf(place->rendezvous, sizeof(place->rendezvous), "%s",
             o->rendezvous ? o->rendezvous : "");
    if (child) {
        if (launch_child_parse(child, place) != 0) {
            snprintf(error, error_bytes, "R2_PERF_CHILD=%s was not made by this program's launcher",
                     child);
            return LAUNCH_ERROR;
        }
        return LAUNCH_RANK;
    }
    return o->hosts_given ? LAUNCH_PARENT : launch_mpi_place(place, error, error_bytes);
}
