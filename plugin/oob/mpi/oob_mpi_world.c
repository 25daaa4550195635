#include "oob_mpi_world.h"

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define TAG             1
#define MEET_MAGIC      0x72326f6f626d7069ull
#define MEET_VERSION    1
#define POLL_BUDGET     64
#define LEAVE_LIMIT_S   1  /* MPI_Finalize waits no longer for the endpoints */
#define MEET_PATIENCE_S 10 /* after this a rank says what it is waiting for */
#define EXPORT          __attribute__((visibility("default")))

EXPORT int MPI_Init(int *argc, char ***argv);
EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);

struct world_out {
    struct world_out *next;
    MPI_Request request;
    int rank, posted;
    size_t len;
    uint8_t data[];
};

struct arriving { /* matched; perhaps not all bytes are here */
    struct arriving *next;
    struct world_in *m;
    MPI_Request request;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t left;
    enum world_state state;
    MPI_Comm comm;
    int rank, size;
    uint64_t id;
    pid_t pid;
    struct world_box *boxes;
    struct arriving *arriving; /* in the order of matching */
    struct world_out *orphans;
    char why[160];
} w = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

/* The only writer of the state, under w.lock. Row: from. */
static void world_move(enum world_state to)
{
    static const char *const names[WORLD_STATES] = {"none", "ready", "ending", "ended"};
    static const unsigned char legal[WORLD_STATES][WORLD_STATES] = {
        [WORLD_NONE] = {[WORLD_READY] = 1},
        [WORLD_READY] = {[WORLD_ENDING] = 1},
        [WORLD_ENDING] = {[WORLD_ENDED] = 1},
    };

    if (!legal[w.state][to]) {
        fprintf(stderr, "NET/R2 : MPI cannot go from %s to %s\n", names[w.state], names[to]);
        return;
    }
    w.state = to;
}

/* ---- the beginning: where all ranks meet ---- */

struct patience {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int met;
};

/* A rank without the module does not come to the meeting. Whoever waits for it says so. */
static void *patience_main(void *arg)
{
    struct patience *p = arg;
    struct timespec t;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += MEET_PATIENCE_S;
    pthread_mutex_lock(&p->lock);
    while (!p->met && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&p->cond, &p->lock, &t);
    }
    if (!p->met) {
        fprintf(
            stderr,
            "NET/R2 : MPI_Init waits for ranks that do not come: libnccl-net-r2-oob-mpi.so must be preloaded "
            "in all ranks of the job or in none\n");
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* MPI_Finalize begins: attributes of MPI_COMM_SELF are deleted before anything else is taken down.
 */
static int finalize_begins(MPI_Comm comm, int keyval, void *value, void *extra)
{
    static const uint64_t one = 1;
    struct timespec t;
    int rc = 0, waiting = 1;

    pthread_mutex_lock(&w.lock);
    world_move(WORLD_ENDING);
    for (struct world_box *b = w.boxes; b != NULL; b = b->next) {
        (void)!write(b->wakefd, &one, sizeof(one));
    }
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += LEAVE_LIMIT_S;
    while (waiting && rc != ETIMEDOUT) {
        waiting = 0;
        for (struct world_box *b = w.boxes; b != NULL; b = b->next) {
            waiting |= !b->left;
        }
        if (waiting) {
            rc = pthread_cond_timedwait(&w.left, &w.lock, &t);
        }
    }
    world_move(WORLD_ENDED);
    snprintf(w.why, sizeof(w.why), "the program has called MPI_Finalize");
    pthread_mutex_unlock(&w.lock);
    return MPI_SUCCESS;
}

/*
 * Collective. The second step makes sure that those who took part in the first are modules and not
 * somebody's own MPI_Comm_dup: a rank without the module would keep us here, with a word on stderr,
 * rather than share a communicator with us.
 */
static int meet(int thread_level)
{
    uint64_t word[3] = {MEET_MAGIC, MEET_VERSION, 0};
    int keyval, fine[2], all[2];

    if (PMPI_Comm_dup(MPI_COMM_WORLD, &w.comm) != MPI_SUCCESS) {
        return -1;
    }
    PMPI_Comm_set_errhandler(w.comm, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(w.comm, &w.rank);
    PMPI_Comm_size(w.comm, &w.size);
    if (w.rank == 0 && getrandom(&word[2], sizeof(word[2]), 0) != (ssize_t)sizeof(word[2])) {
        word[2] = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    }
    if (PMPI_Bcast(word, sizeof(word), MPI_BYTE, 0, w.comm) != MPI_SUCCESS) {
        return -1;
    }
    fine[0] = word[0] == MEET_MAGIC && word[1] == MEET_VERSION;
    fine[1] = thread_level;
    if (PMPI_Allreduce(fine, all, 2, MPI_INT, MPI_MIN, w.comm) != MPI_SUCCESS) {
        return -1;
    }
    w.id = word[2];
    if (!all[0]) {
        snprintf(w.why, sizeof(w.why), "the ranks have modules of different versions");
    } else if (all[1] < MPI_THREAD_MULTIPLE) {
        snprintf(w.why, sizeof(w.why), "this MPI does not provide MPI_THREAD_MULTIPLE");
    } else if (w.size > (int)WORLD_RANK_MAX) {
        snprintf(w.why, sizeof(w.why), "%d ranks are too many", w.size);
    } else if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize_begins, &keyval, NULL) !=
                   MPI_SUCCESS ||
               PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL) != MPI_SUCCESS) {
        snprintf(w.why, sizeof(w.why), "the end of MPI cannot be watched");
    } else {
        return 0;
    }
    return -1;
}

static void begin(int thread_level)
{
    struct patience p = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    int watched = pthread_create(&thread, NULL, patience_main, &p) == 0, rc = meet(thread_level);

    pthread_mutex_lock(&p.lock);
    p.met = 1;
    pthread_cond_signal(&p.cond);
    pthread_mutex_unlock(&p.lock);
    if (watched) {
        pthread_join(thread, NULL);
    }
    pthread_mutex_lock(&w.lock);
    w.pid = getpid();
    if (rc == 0) {
        world_move(WORLD_READY);
    } else if (w.why[0] == '\0') {
        snprintf(w.why, sizeof(w.why), "MPI gave no communicator");
    }
    pthread_mutex_unlock(&w.lock);
}

/* More than was asked for is allowed to be provided; every rank does the same, so every rank comes
 * to the meeting. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int rc = PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);

    if (rc == MPI_SUCCESS) {
        begin(*provided);
    }
    return rc;
}

int MPI_Init(int *argc, char ***argv)
{
    int provided;

    return MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &provided);
}

/* ---- facts ---- */

enum world_state world_state(char *why, size_t why_len)
{
    enum world_state s;

    pthread_mutex_lock(&w.lock);
    s = w.state;
    if (w.pid != 0 && w.pid != getpid()) {
        s = WORLD_NONE;
        snprintf(why, why_len, "MPI belongs to the parent of this process");
    } else if (w.why[0] != '\0') {
        snprintf(why, why_len, "%s", w.why);
    } else if (s == WORLD_NONE) {
        snprintf(why, why_len, "the program has not called MPI_Init");
    }
    pthread_mutex_unlock(&w.lock);
    return s;
}

int world_rank(void)
{
    return w.rank;
}

int world_size(void)
{
    return w.size;
}

void world_tag(uint8_t *low, uint8_t *high)
{
    *low = (uint8_t)(1 + w.id % 255);
    *high = (uint8_t)(w.id >> 32);
}

static bool may_call(void)
{
    return w.state == WORLD_READY || w.state == WORLD_ENDING;
}

/* ---- boxes ---- */

void world_join(struct world_box *box)
{
    pthread_mutex_lock(&w.lock);
    box->last = &box->first;
    box->next = w.boxes;
    w.boxes = box;
    pthread_mutex_unlock(&w.lock);
}

void world_leave(struct world_box *box)
{
    pthread_mutex_lock(&w.lock);
    for (struct world_box **at = &w.boxes; *at != NULL; at = &(*at)->next) {
        if (*at == box) {
            *at = box->next;
            break;
        }
    }
    pthread_cond_broadcast(&w.left);
    pthread_mutex_unlock(&w.lock);
    while (box->first != NULL) {
        free(world_take(box));
    }
}

void world_took_leave(struct world_box *box)
{
    pthread_mutex_lock(&w.lock);
    box->left = 1;
    pthread_cond_broadcast(&w.left);
    pthread_mutex_unlock(&w.lock);
}

struct world_in *world_take(struct world_box *box)
{
    struct world_in *m;

    pthread_mutex_lock(&w.lock);
    m = box->first;
    if (m != NULL) {
        box->first = m->next;
        if (box->first == NULL) {
            box->last = &box->first;
        }
    }
    pthread_mutex_unlock(&w.lock);
    return m;
}

/* ---- messages out ---- */

struct world_out *world_out(int rank, const struct world_head *head, const void *data, size_t len)
{
    struct world_out *o = malloc(sizeof(*o) + sizeof(*head) + len);

    if (o == NULL) {
        return NULL;
    }
    o->next = NULL;
    o->rank = rank;
    o->posted = 0;
    o->len = sizeof(*head) + len;
    memcpy(o->data, head, sizeof(*head));
    if (len > 0) {
        memcpy(o->data + sizeof(*head), data, len);
    }
    return o;
}

size_t world_out_len(const struct world_out *o)
{
    return o->len;
}

struct world_out **world_out_next(struct world_out *o)
{
    return &o->next;
}

/* Under the lock, as everything named *_locked. */
static int post_locked(struct world_out *o)
{
    if (!may_call() || o->rank < 0 || o->rank >= w.size ||
        PMPI_Issend(o->data, (int)o->len, MPI_BYTE, o->rank, TAG, w.comm, &o->request) !=
            MPI_SUCCESS) {
        return -1;
    }
    o->posted = 1;
    return 0;
}

static int through_locked(struct world_out *o)
{
    int flag = 0;

    /* an error ends the request too: a message that MPI will not bring is through */
    return !o->posted ||
           (may_call() &&
            (PMPI_Test(&o->request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag));
}

int world_post(struct world_out *o)
{
    int rc;

    pthread_mutex_lock(&w.lock);
    rc = post_locked(o);
    pthread_mutex_unlock(&w.lock);
    return rc;
}

int world_posted(const struct world_out *o)
{
    return o->posted;
}

int world_through(struct world_out *o)
{
    int rc;

    pthread_mutex_lock(&w.lock);
    rc = through_locked(o);
    pthread_mutex_unlock(&w.lock);
    return rc;
}

static void abandon_locked(struct world_out *o)
{
    if (!o->posted || through_locked(o)) {
        free(o);
        return;
    }
    o->next = w.orphans;
    w.orphans = o;
}

void world_abandon(struct world_out *o)
{
    pthread_mutex_lock(&w.lock);
    abandon_locked(o);
    pthread_mutex_unlock(&w.lock);
}

static int orphans_locked(void)
{
    struct world_out **at = &w.orphans;
    int n = 0;

    while (*at != NULL) {
        struct world_out *o = *at;
        if (!through_locked(o)) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        free(o);
        n++;
    }
    return n;
}

/* ---- messages in ---- */

/*
 * Posts a receive for what has come, never before: nothing has to be cancelled at the end. Nobody
 * else receives on this communicator, so the message probed is the one that the receive gets. 0:
 * nothing there, or no memory for it now.
 */
static int receive_locked(struct arriving **at)
{
    struct arriving *a;
    MPI_Status status;
    int flag = 0, count;

    if (PMPI_Iprobe(MPI_ANY_SOURCE, TAG, w.comm, &flag, &status) != MPI_SUCCESS || !flag) {
        return 0;
    }
    PMPI_Get_count(&status, MPI_BYTE, &count);
    a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return 0;
    }
    a->m = malloc(sizeof(*a->m) + (size_t)count);
    if (a->m == NULL) {
        free(a);
        return 0;
    }
    a->m->next = NULL;
    a->m->source = status.MPI_SOURCE;
    a->m->len = (size_t)count;
    if (PMPI_Irecv(a->m->data, count, MPI_BYTE, status.MPI_SOURCE, TAG, w.comm, &a->request) !=
        MPI_SUCCESS) {
        free(a->m);
        free(a);
        return 0;
    }
    *at = a;
    return 1;
}

static int receive_all_locked(void)
{
    struct arriving **at = &w.arriving;
    int n = 0;

    while (*at != NULL) {
        at = &(*at)->next;
    }
    while (n < POLL_BUDGET && receive_locked(at)) {
        at = &(*at)->next;
        n++;
    }
    return n;
}

static void refuse_locked(const struct world_in *m)
{
    struct world_head head, answer;
    struct world_out *o;

    memcpy(&head, m->data, sizeof(head));
    if (head.kind == WORLD_REFUSE) {
        return;
    }
    answer = (struct world_head){.magic = WORLD_MAGIC,
                                 .kind = WORLD_REFUSE,
                                 .chan = head.chan,
                                 .from = {head.to[0], head.to[1]},
                                 .to = {head.from[0], head.from[1]}};
    o = world_out(m->source, &answer, NULL, 0);
    if (o == NULL) {
        return;
    }
    (void)post_locked(o);
    abandon_locked(o);
}

/* To the endpoint it is for. What is not ours, or for nobody here, goes no further; who sent the
 * latter is notified. */
static void box_locked(struct world_in *m)
{
    struct world_head head;

    if (m->len >= sizeof(head)) {
        memcpy(&head, m->data, sizeof(head));
        if (head.magic == WORLD_MAGIC) {
            for (struct world_box *b = w.boxes; b != NULL; b = b->next) {
                if (b->uuid[0] == head.to[0] && b->uuid[1] == head.to[1]) {
                    *b->last = m;
                    b->last = &m->next;
                    return;
                }
            }
            refuse_locked(m);
        }
    }
    free(m);
}

static int earlier_of_source(const struct arriving *a)
{
    for (const struct arriving *e = w.arriving; e != a; e = e->next) {
        if (e->m->source == a->m->source) {
            return 1;
        }
    }
    return 0;
}

/* A message whose bytes are slow to come delays its own source, nobody else. */
static int arrived_locked(void)
{
    struct arriving **at = &w.arriving;
    int n = 0;

    while (*at != NULL) {
        struct arriving *a = *at;
        int flag = 0, rc;
        if (earlier_of_source(a)) {
            at = &a->next;
            continue;
        }
        rc = PMPI_Test(&a->request, &flag, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS && !flag) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        if (rc == MPI_SUCCESS) {
            box_locked(a->m);
        } else {
            free(a->m);
        }
        free(a);
        n++;
    }
    return n;
}

int world_poll(void)
{
    int n = 0;

    pthread_mutex_lock(&w.lock);
    if (may_call()) {
        n = receive_all_locked();
        n += arrived_locked();
        n += orphans_locked();
    }
    pthread_mutex_unlock(&w.lock);
    return n;
}
