#include "tests/gpu/gpu_meet.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

/* All of @m, in the direction of @send; false at the end of the stream or an error. */
static bool meet_move(int fd, struct gpu_meet *m, bool send_it)
{
    size_t done = 0;

    while (done < sizeof(*m)) {
        char *p = (char *)m + done;
        ssize_t n = send_it ? send(fd, p, sizeof(*m) - done, MSG_NOSIGNAL)
                            : recv(fd, p, sizeof(*m) - done, 0);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

int gpu_meet_all(int fd, struct gpu_meet *m)
{
    if (meet_move(fd, m, true) && meet_move(fd, m, false)) {
        return 0;
    }
    fprintf(stderr, "gpu_coll: another rank has ended\n");
    return -1;
}

static void meet_add(struct gpu_meet *sum, const struct gpu_meet *m)
{
    if (m->kind == GPU_MEET_SUM) {
        sum->whole += m->whole;
    } else if (m->kind == GPU_MEET_MAX && m->whole > sum->whole) {
        sum->whole = m->whole;
    } else if (m->kind == GPU_MEET_MAX_REAL && m->real > sum->real) {
        sum->real = m->real;
    }
}

/* One round; false when it cannot be finished. */
static bool meet_round(const int *fd, int nranks)
{
    struct gpu_meet sum, m;

    for (int r = 0; r < nranks; r++) {
        if (!meet_move(fd[r], r ? &m : &sum, false)) {
            return false;
        }
        if (r && m.kind != sum.kind) {
            fprintf(stderr, "gpu_coll: rank %d is in a round of kind %d, rank 0 in %d\n", r, m.kind,
                    sum.kind);
            return false;
        }
        if (r) {
            meet_add(&sum, &m);
        }
    }
    for (int r = 0; r < nranks; r++) {
        if (!meet_move(fd[r], &sum, true)) {
            return false;
        }
    }
    return true;
}

void gpu_meet_conduct(const int *fd, int nranks)
{
    while (meet_round(fd, nranks))
        ;
    for (int r = 0; r < nranks; r++) {
        shutdown(fd[r], SHUT_RDWR);
    }
}
