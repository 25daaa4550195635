/*
 * What many connections cost a process: their set-up, CPU time while nothing is sent, barriers of
 * all threads (membarrier) while all of them are busy, and how long a port that goes down keeps
 * each of them, in real time. One thread polls them all in turn, as a proxy of NCCL's does.
 */
#include "tests/bench/pair.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE      4096
#define WINDOW    2
#define SETTLE_NS (3000 * PAIR_NS_MS) /* probes of new NIC pairs, weights, rows of statistics */
#define IDLE_NS   (3000 * PAIR_NS_MS)
#define BUSY_NS   (2000 * PAIR_NS_MS)
#define CALM      "*:n%d delay 0ms"

struct lane {
    struct pair_lane s;
    uint64_t mark, back_ns; /* the message that ends its stall, from the event on; 0: waits */
};

struct load {
    int n;
    struct lane *lane;
    uint64_t event_ns;
    int waiting; /* lanes that have not come to their mark */
    int closing; /* nothing is begun any more */
};

static _Atomic uint64_t barriers;

/* Stands before the C library's, so that the plugin's barriers are counted. */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
    static long (*_Atomic real)(long, ...);
    long (*call)(long, ...) = atomic_load_explicit(&real, memory_order_acquire);
    long a[6];
    va_list ap;

    if (call == NULL) {
        *(void **)&call = dlsym(RTLD_NEXT, "syscall");
        atomic_store_explicit(&real, call, memory_order_release); /* pairs with the load above */
    }
    va_start(ap, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(ap, long);
    }
    va_end(ap);
    if (number == SYS_membarrier) {
        atomic_fetch_add_explicit(&barriers, 1, memory_order_relaxed);
    }
    return call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void lane_turn(struct load *l, struct lane *s)
{
    if (pair_lane_turn(&s->s, l->closing) && s->s.done == s->mark) {
        s->back_ns = pair_now() - l->event_ns;
        l->waiting--;
    }
}

static void load_turn(struct load *l)
{
    for (int i = 0; i < l->n; i++) {
        lane_turn(l, &l->lane[i]);
    }
}

static void load_pass(struct load *l, uint64_t ns)
{
    for (uint64_t end = pair_now() + ns; pair_now() < end;) {
        load_turn(l);
    }
}

/* How long every lane takes until all that was posted before @text and one message more are
 * through. */
static struct pair_spread event_measure(struct load *l, const char *text, uint64_t *v)
{
    pair_fault_do(text);
    l->event_ns = pair_now();
    l->waiting = l->n;
    for (int i = 0; i < l->n; i++) {
        l->lane[i].mark = l->lane[i].s.posted + 1;
    }
    while (l->waiting) {
        load_turn(l);
    }
    for (int i = 0; i < l->n; i++) {
        v[i] = l->lane[i].back_ns;
    }
    return pair_spread_get(v, l->n);
}

/* CPU time of the plugin's service thread so far. */
static double service_ms(void)
{
    char path[300], name[32] = "";
    unsigned long long ns = 0;
    struct dirent *e;
    DIR *d = opendir("/proc/self/task");

    NEED(d, "no /proc");
    while (ns == 0 && (e = readdir(d)) != NULL) {
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
        f = fopen(path, "r");
        if (f == NULL) {
            continue;
        }
        if (fscanf(f, "%31s", name) == 1 && strcmp(name, "r2-service") == 0) {
            snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
            fclose(f);
            f = fopen(path, "r");
            NEED(f && fscanf(f, "%llu", &ns) == 1, "%s", path);
        }
        fclose(f);
    }
    closedir(d);
    return (double)ns / 1e6;
}

static double cpu_of_idle(void)
{
    double cpu;

    pair_rest(SETTLE_NS);
    cpu = pair_cpu_ms();
    pair_rest(IDLE_NS);
    return (pair_cpu_ms() - cpu) * 1e9 / (double)IDLE_NS;
}

/* Side 1 says when all of its receives are done: nothing of ours is on its way then. */
static void send_until_told(struct load *l)
{
    char over;

    while (recv(drv.peer, &over, sizeof(over), MSG_DONTWAIT) != (ssize_t)sizeof(over)) {
        load_turn(l);
    }
}

static void drain(struct load *l)
{
    int left;

    l->closing = 1;
    do {
        left = 0;
        load_turn(l);
        for (int i = 0; i < l->n; i++) {
            left += l->lane[i].s.posted > l->lane[i].s.done;
        }
    } while (left);
}

static void receive_and_break(struct load *l, double *per_s, struct pair_spread *calm,
                              struct pair_spread *down)
{
    uint64_t *v = calloc((size_t)l->n, sizeof(*v)), count, from;
    char text[32];

    NEED(v, "out of memory");
    load_pass(l, BUSY_NS);
    count = atomic_load_explicit(&barriers, memory_order_relaxed);
    from = pair_now();
    load_pass(l, BUSY_NS);
    *per_s = (double)(atomic_load_explicit(&barriers, memory_order_relaxed) - count) * 1e9 /
             (double)(pair_now() - from);
    snprintf(text, sizeof(text), CALM, drv.ndev - 1);
    *calm = event_measure(l, text, v);
    load_pass(l, BUSY_NS / 4);
    *down = event_measure(l, "h0:n0 down", v);
    drain(l);
    free(v);
}

static void spread_put(const char *name, const struct pair_spread *p, const char *end)
{
    printf("\"%s\": {\"median_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}%s", name, p->median,
           p->p99, p->most, end);
}

void pair_load_run(int n)
{
    struct load l = {.n = n, .lane = calloc((size_t)n, sizeof(*l.lane))};
    void **comm = calloc((size_t)n, sizeof(*comm));
    char *mem = drv_map((size_t)n * WINDOW * SIZE), over = 1;
    double cost[3], theirs[3]; /* service thread in set-up; all when idle; service thread then */
    struct pair_spread calm = {0}, down = {0};
    double per_s = 0;
    uint64_t setup;

    NEED(l.lane && comm, "out of memory");
    setup = pair_connect(n, 0, comm);
    cost[0] = service_ms();
    cost[1] = cpu_of_idle();
    for (int i = 0; i < n; i++) {
        l.lane[i].s = (struct pair_lane){.comm = comm[i],
                                         .buf = mem + (size_t)i * WINDOW * SIZE,
                                         .size = SIZE,
                                         .window = WINDOW};
        l.lane[i].s.mr = drv_reg(comm[i], l.lane[i].s.buf, WINDOW * SIZE);
    }
    drv_barrier();
    cost[2] = service_ms();
    if (drv.side) {
        receive_and_break(&l, &per_s, &calm, &down);
        NEED(send(drv.peer, &over, sizeof(over), 0) == (ssize_t)sizeof(over), "the sender is gone");
    } else {
        send_until_told(&l);
        drain(&l);
    }
    cost[2] = service_ms() - cost[2];
    drv_swap(cost, theirs, sizeof(cost));
    if (drv.side) {
        printf("{\"connections\": %d, \"nics\": %d, \"setup_ms\": %.1f, ", n, drv.ndev,
               (double)setup / 1e6);
        printf("\"setup_service_ms\": [%.1f, %.1f], \"idle_cpu_ms_per_s\": [%.2f, %.2f], ",
               theirs[0], cost[0], theirs[1], cost[1]);
        printf("\"barriers_per_s\": %.0f, \"busy_service_ms\": [%.0f, %.0f], ", per_s, theirs[2],
               cost[2]);
        spread_put("no_fault", &calm, ", ");
        spread_put("port_down", &down, "}\n");
    }
    for (int i = 0; i < n; i++) {
        OK(drv.net->dereg_mr(comm[i], l.lane[i].s.mr));
    }
    pair_close(n, comm);
    drv_barrier();
    free(l.lane);
    free(comm);
}
