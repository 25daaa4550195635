/*
 * Preloaded behind the module: makes a program that knows nothing of MPI one that runs it, from
 * before main to after it. OOB_MPI_HOST=finalize-after:MS ends MPI early, under the program's feet.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_t ender;
static int ender_runs;

static void *end_early(void *arg)
{
    long ms = (long)(intptr_t)arg;
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&t, NULL);
    MPI_Finalize();
    fprintf(stderr, "oob_mpi_host: MPI has ended\n");
    return NULL;
}

static void end(void)
{
    int over = 0;

    if (ender_runs) {
        (void)pthread_join(ender, NULL);
    }
    MPI_Finalized(&over);
    if (!over) {
        MPI_Finalize();
    }
}

__attribute__((constructor)) static void begin(void)
{
    const char *when = getenv("OOB_MPI_HOST");
    long ms = 0;

    unsetenv("LD_PRELOAD"); /* what the program starts is no rank */
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) {
        exit(1);
    }
    (void)atexit(end);
    if (when != NULL && sscanf(when, "finalize-after:%ld", &ms) == 1) {
        ender_runs = pthread_create(&ender, NULL, end_early, (void *)(intptr_t)ms) == 0;
    }
}
