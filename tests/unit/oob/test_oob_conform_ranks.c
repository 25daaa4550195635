/*
 * The MPI out-of-band channel between processes: starts itself again as an MPI job of four ranks,
 * each with one endpoint and a service thread, while the program itself uses MPI as programs do,
 * wildcard receive included.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "oob/oob_mpi_load.h"
#include "base/r2_env.h"
#include "tests/support/times.h"

#define RANKS     4
#define MESSAGES  400
#define PINGS     200
#define CROSSINGS 100
#define TAG       77
#define LIMIT_S   100 /* against a hang, of each thing that is waited for */

/* No timer of a channel runs out within the test, however little of the processors the ranks get:
 * what comes of a timer does not come, and a loss has another reason. */
#define LIMIT (LIMIT_S * 1000 * MS)
#define NEVER (100 * LIMIT)

/* Under a sanitizer: Open MPI leaks from components that it has unloaded by then, which no
 * suppression can name. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
/* And the preloaded module comes before the sanitizer's library. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

int __lsan_is_turned_off(void)
{
    return 1;
}

const char *__asan_default_options(void)
{
    return "verify_asan_link_order=0";
}

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #what);                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* MPI as the preloaded module's libmpi has it; Open MPI's handles are addresses. The test links
 * none. */
static struct {
    void *world, *byte, *int_type, *sum;
    int (*init)(int *, char ***), (*finalize)(void), (*barrier)(void *);
    int (*comm_rank)(void *, int *), (*comm_size)(void *, int *), (*comm_dup)(void *, void **),
        (*comm_free)(void **);
    int (*allgather)(const void *, int, void *, void *, int, void *, void *);
    int (*allreduce)(const void *, void *, int, void *, void *, void *);
    int (*irecv)(void *, int, void *, int, int, void *, void **),
        (*send)(const void *, int, void *, int, int, void *);
    int (*wait)(void **, void *);
} mpi;

static int rank, size;
static struct r2_env env;
static struct r2_oob *oob;
static struct r2_oob_peer *peer[RANKS];
static struct r2_oob_name names[RANKS];
static atomic_int up, done, phase, stop, up_of[RANKS], said_by_tcp;
static int got[RANKS], sent[RANKS];
static uint64_t pinged_at, trip[PINGS];
static int pings, met;

static void *sym(const char *name)
{
    void *p = dlsym(RTLD_DEFAULT, name);

    CHECK(p != NULL);
    return p;
}

static void mpi_find(void)
{
    mpi.world = sym("ompi_mpi_comm_world");
    mpi.byte = sym("ompi_mpi_byte");
    mpi.int_type = sym("ompi_mpi_int");
    mpi.sum = sym("ompi_mpi_op_sum");
    *(void **)&mpi.init = sym("MPI_Init");
    *(void **)&mpi.finalize = sym("MPI_Finalize");
    *(void **)&mpi.barrier = sym("MPI_Barrier");
    *(void **)&mpi.comm_rank = sym("MPI_Comm_rank");
    *(void **)&mpi.comm_size = sym("MPI_Comm_size");
    *(void **)&mpi.comm_dup = sym("MPI_Comm_dup");
    *(void **)&mpi.comm_free = sym("MPI_Comm_free");
    *(void **)&mpi.allgather = sym("MPI_Allgather");
    *(void **)&mpi.allreduce = sym("MPI_Allreduce");
    *(void **)&mpi.irecv = sym("MPI_Irecv");
    *(void **)&mpi.send = sym("MPI_Send");
    *(void **)&mpi.wait = sym("MPI_Wait");
}

static uint64_t now(void)
{
    return env.now_ns(env.arg);
}

/* ---- the endpoint's side, on the service thread ---- */

static int peer_index(struct r2_oob_peer *p)
{
    for (int i = 0; i < size; i++) {
        if (memcmp(oob->ops->peer_uuid(p), names[i].uuid, 16) == 0) {
            return i;
        }
    }
    return -1;
}

static size_t length_of(int n)
{
    return n % 50 == 7 ? R2_OOB_MAX_MESSAGE : (size_t)(n * 37) % 3000 + 8;
}

static void fill(uint8_t *b, size_t len, int from, int n)
{
    for (size_t i = 0; i < len; i++) {
        b[i] = (uint8_t)(from * 101 + n * 31 + (int)i);
    }
}

/* The lower rank of a pair has no name of the other and learns of it here. */
static void told_up(void *arg, struct r2_oob_peer *p)
{
    int from = peer_index(p);

    CHECK(from >= 0 && from != rank);
    if (peer[from] == NULL && atomic_load(&phase) >= 0) {
        oob->ops->peer_ref(peer[from] = p);
    }
    CHECK(peer[from] == p || atomic_load(&phase) < 0);
    atomic_fetch_add(&up_of[from], 1);
    atomic_fetch_add(&up, 1);
    if (atomic_load(&phase) >= 3 && from == 0) {
        CHECK(oob->ops->send(p, "by TCP", 6) == 0);
    }
}

static void told_down(void *arg, struct r2_oob_peer *p, int refused)
{
    CHECK(atomic_load(&phase) < 0 ||
          atomic_load(&phase) >= 3); /* no channel is lost before MPI ends */
}

static void ping(void)
{
    pinged_at = now();
    CHECK(oob->ops->send(peer[1], "ping", 4) == 0);
}

static void told_message(void *arg, struct r2_oob_peer *p, const void *msg, size_t len)
{
    static uint8_t want[R2_OOB_MAX_MESSAGE];
    int from = peer_index(p);

    CHECK(from >= 0 && from != rank);
    if (atomic_load(&phase) < 0) {
        met++;
    } else if (atomic_load(&phase) == 0) {
        CHECK(len == length_of(got[from]));
        fill(want, len, from, got[from]);
        CHECK(memcmp(msg, want, len) == 0);
        if (++got[from] == MESSAGES) {
            atomic_fetch_add(&done, 1);
        }
    } else if (atomic_load(&phase) >= 3) {
        CHECK(len == 6 && memcmp(msg, "by TCP", 6) == 0 &&
              strncmp(oob->ops->peer_str(p), "MPI", 3) != 0);
        atomic_fetch_add(&said_by_tcp, 1);
    } else if (rank == 1 && len == 4) {
        CHECK(oob->ops->send(p, msg, len) == 0);
    } else if (rank == 0 && len == 4) {
        trip[pings++] = now() - pinged_at;
    }
}

/* As much as the queues take. */
static void say_all(void)
{
    static uint8_t msg[R2_OOB_MAX_MESSAGE];

    for (int i = 0; i < size; i++) {
        while (peer[i] != NULL && sent[i] < MESSAGES && oob->ops->peer_is_up(peer[i])) {
            size_t len = length_of(sent[i]);
            fill(msg, len, rank, sent[i]);
            if (oob->ops->send(peer[i], msg, len) != 0) {
                CHECK(errno == EAGAIN);
                break;
            }
            sent[i]++;
        }
    }
}

static void turn(uint64_t at_most)
{
    struct pollfd p = {.fd = oob->ops->fd(oob), .events = POLLIN};
    uint64_t t = now(), next = oob->ops->progress(oob, t), wait;
    struct timespec ts;

    if (atomic_load(&phase) == 0) {
        say_all();
    }
    wait = next > t ? next - t : 0;
    if (wait > at_most) {
        wait = at_most;
    }
    ts = (struct timespec){.tv_sec = (time_t)(wait / 1000000000),
                           .tv_nsec = (long)(wait % 1000000000)};
    (void)ppoll(&p, 1, &ts, NULL);
}

static void *service(void *arg)
{
    while (!atomic_load(&stop)) {
        turn(50 * MS);
    }
    return NULL;
}

/* ---- the program's side ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Rank 0, whose service thread has stopped: answers to pings after @pause without a word. */
static void measure(const char *what, uint64_t pause)
{
    struct timespec c0, c1;
    uint64_t start = now(), end;

    pings = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &c0);
    while (pings < PINGS) {
        int before = pings;
        for (end = now() + pause; now() < end;) {
            turn(end > now() ? end - now() : 0);
        }
        ping();
        while (pings == before) {
            turn(50 * MS);
        }
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &c1);
    qsort(trip, PINGS, sizeof(trip[0]), by_size);
    printf("round trip, %s: median %.0f us, p95 %.0f us, %.1f %% of a core\n", what,
           (double)trip[PINGS / 2] / 1e3, (double)trip[PINGS * 95 / 100] / 1e3,
           ((double)(c1.tv_sec - c0.tv_sec) * 1e9 + (double)(c1.tv_nsec - c0.tv_nsec)) * 100 /
               (double)(now() - start));
}

/* Meanwhile the program makes communicators and reduces, and its results are its own. */
static void program_works(void)
{
    uint64_t end = now() + LIMIT;
    int rounds = 0, all = 0;

    while (!all) {
        int in[2] = {1 << rank, atomic_load(&done) == size - 1}, out[2];
        void *dup;
        CHECK(mpi.comm_dup(mpi.world, &dup) == 0);
        CHECK(mpi.allreduce(in, out, 2, mpi.int_type, mpi.sum, dup) == 0);
        CHECK(mpi.comm_free(&dup) == 0);
        CHECK(out[0] == (1 << size) - 1);
        all = out[1] == size;
        rounds++;
        CHECK(now() < end);
    }
    if (rank == 0) {
        printf("%d communicators made and freed meanwhile\n", rounds);
    }
}

static struct r2_oob *tcp_make(void *arg, const struct r2_oob_events *ev, char *why, size_t why_len)
{
    struct r2_oob_tcp_config cfg = {.ifname = "lo", .family = "AF_INET"};

    return r2_oob_tcp_create(&cfg, ev, why, why_len);
}

static void endpoint_make(void)
{
    struct r2_oob_events ev = {NULL, told_message, told_up, told_down};
    struct r2_oob_mpi_params p = {.env = &env,
                                  .log = r2_log_write,
                                  .tcp_create = tcp_make,
                                  .hello_timeout_ns = NEVER,
                                  .keepalive_ns = NEVER};
    struct r2_oob_name own;
    char why[256] = "";

    oob = r2_oob_mpi_load(&p, &ev, why, sizeof(why));
    if (oob == NULL) {
        fprintf(stderr, "%s\n", why);
    }
    CHECK(oob != NULL);
    oob->ops->name_get(oob, &own);
    CHECK((int)(own.scope & 0xffffff) == rank);
    CHECK(mpi.allgather(&own, sizeof(own), mpi.byte, names, sizeof(own), mpi.byte, mpi.world) == 0);
}

/* Ranks 2k and 2k+1 dial each other at the same moment: one channel comes of it, and no dial has to
 * expire for that. */
static void dials_cross(void)
{
    int other = rank ^ 1;

    atomic_store(&phase, -1);
    for (int i = 0; i < CROSSINGS; i++) {
        struct r2_oob_peer *p = oob->ops->peer_get(oob, &names[other]);
        uint64_t start;
        int said = 0;
        CHECK(p != NULL);
        CHECK(mpi.barrier(mpi.world) == 0);
        for (start = now(); !said || met <= i;) {
            turn(MS);
            if (!said && oob->ops->peer_is_up(p)) {
                said = oob->ops->send(p, "met", 3) == 0;
            }
            CHECK(now() - start < LIMIT);
        }
        CHECK(mpi.barrier(mpi.world) == 0);
        oob->ops->peer_put(p);
    }
    /* what the last put has said is through when the barrier is: its messages come before the next
     * ones */
    for (uint64_t start = now(); now() - start < 20 * MS;) {
        turn(MS);
    }
    CHECK(mpi.barrier(mpi.world) == 0);
    for (uint64_t start = now(); now() - start < 20 * MS;) {
        turn(MS);
    }
    atomic_store(&phase, 0);
    atomic_store(&up, 0);
    atomic_store(&up_of[other], 0);
}

static void peers_get(void)
{
    for (int i = 0; i < size; i++) {
        CHECK(i == 0 ||
              (names[i].world == names[0].world && names[i].scope >> 24 == names[0].scope >> 24));
        if (i < rank) {
            CHECK((peer[i] = oob->ops->peer_get(oob, &names[i])) != NULL);
        }
    }
}

static void serve(pthread_t *t)
{
    atomic_store(&stop, 0);
    CHECK(pthread_create(t, NULL, service, NULL) == 0);
}

static void unserve(pthread_t t)
{
    atomic_store(&stop, 1);
    CHECK(pthread_join(t, NULL) == 0);
}

/*
 * Rank 0 ends MPI while the others still have it. It cannot dial them, it must tell them: they come
 * by TCP, for they would never miss it. Its MPI_Finalize waits for theirs.
 */
static void rank_0_leaves(void)
{
    uint64_t end = now() + LIMIT;

    atomic_store(&phase, 3);
    CHECK(mpi.barrier(mpi.world) == 0);
    if (rank == 0) {
        return;
    }
    while (atomic_load(&up_of[0]) < 2) {
        (void)poll(NULL, 0, 1);
        CHECK(now() < end);
    }
}

/* Rank 3 speaks to rank 2, which does not listen any more: leaving takes the time that it is given,
 * and not more. */
static void leave_a_deaf_one(void)
{
    static uint8_t msg[60000];
    uint64_t start;

    while (oob->ops->send(peer[2], msg, sizeof(msg)) == 0)
        ;
    CHECK(errno == EAGAIN);
    start = now();
    oob->ops->drain(oob, 300 * MS);
    CHECK(now() - start >= 299 * MS);
    CHECK(now() - start < LIMIT);
}

static int ranks_main(void)
{
    char mine[16] = "", theirs[16] = "";
    struct {
        int source, tag, error, cancelled;
        size_t length;
    } status;
    void *wild;
    pthread_t t;

    mpi_find();
    r2_env_default(&env);
    CHECK(mpi.init(NULL, NULL) == 0);
    CHECK(mpi.comm_rank(mpi.world, &rank) == 0 && mpi.comm_size(mpi.world, &size) == 0 &&
          size == RANKS);
    /* takes whatever anybody sends on MPI_COMM_WORLD, from before our first word to after the last
     */
    CHECK(mpi.irecv(theirs, sizeof(theirs), mpi.byte, -1, -1, mpi.world, &wild) == 0);
    endpoint_make();
    dials_cross();
    peers_get();
    CHECK(mpi.barrier(mpi.world) == 0);
    serve(&t);
    program_works();
    CHECK(atomic_load(&up) == size - 1);
    CHECK(mpi.barrier(mpi.world) == 0);
    atomic_store(&phase, 1);
    CHECK(mpi.barrier(mpi.world) == 0);
    if (rank == 0) {
        unserve(t);
        measure("back to back", 0);
        measure("after 20 ms of silence", 20 * MS);
        CHECK(mpi.send("measured", 9, mpi.byte, 1, TAG, mpi.world) == 0);
    } else {
        snprintf(mine, sizeof(mine), "from %d", rank);
        CHECK(mpi.send(mine, sizeof(mine), mpi.byte, (rank + 1) % size, TAG + rank, mpi.world) ==
              0);
    }
    CHECK(mpi.wait(&wild, &status) == 0);
    CHECK(status.source == (rank + size - 1) % size && status.tag == TAG + status.source);
    CHECK(rank == 1 ? strcmp(theirs, "measured") == 0 : atoi(theirs + 5) == status.source);
    CHECK(mpi.barrier(mpi.world) == 0);
    if (rank == 0) {
        serve(&t);
    }
    rank_0_leaves();
    if (rank == 2) {
        unserve(t);
        CHECK(mpi.send("deaf", 5, mpi.byte, 3, TAG, mpi.world) == 0);
    } else if (rank == 3) {
        CHECK(mpi.irecv(theirs, sizeof(theirs), mpi.byte, 2, TAG, mpi.world, &wild) == 0);
        CHECK(mpi.wait(&wild, &status) == 0);
        unserve(t);
        leave_a_deaf_one();
    }
    CHECK(mpi.finalize() == 0); /* with messages under way that nobody will take */
    for (uint64_t end = now() + LIMIT; rank == 0 && atomic_load(&said_by_tcp) < size - 1;) {
        (void)poll(NULL, 0, 1);
        CHECK(now() < end);
    }
    if (rank < 2) {
        unserve(t);
    }
    oob->ops->destroy(oob);
    if (rank == 0) {
        printf("7 passed, 0 failed\n"); /* crossing dials, order, the program undisturbed, its
                                           wildcard, leave, drain, finalize */
    }
    return 0;
}

/* As an MPI job: mpirun, over what ranks of several hosts would use too, with the module beside the
 * plugin preloaded.
 */
static int start_job(char *self)
{
    const char *b = getenv("R2_BUILD");
    char module[4096], preload[4200], np[8];

    snprintf(module, sizeof(module), "%s/" R2_OOB_MPI_MODULE, b != NULL ? b : "build");
    if (access(module, R_OK) != 0) {
        printf("%s is not there: it is built where Open MPI is installed\n", module);
        return 77;
    }
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", module);
    snprintf(np, sizeof(np), "%d", RANKS);
    setenv("HWLOC_COMPONENTS", "-pci", 1); /* oob_mpi_rig.h */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    execlp("mpirun", "mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,tcp",
           "-np", np, "env", preload, self, "rank", (char *)NULL);
    printf("mpirun: %s\n", strerror(errno));
    return 77;
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "rank") == 0 ? ranks_main() : start_job(argv[0]);
}
