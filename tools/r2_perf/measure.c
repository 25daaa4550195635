#include "tools/r2_perf/measure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/r2_perf/util.h"

#define MEASURE_BATCH_MAX 1024
/* With a duration, a batch is made to last about this long, so that the end is not overrun by much.
 */
#define MEASURE_BATCH_NS 50000000ull
#define MEASURE_ALIGN    4096

/* What all ranks know of a measurement under way. */
struct measure_state {
    const struct measure_case *c;
    struct algo_counts counts;
    size_t type_size, send_bytes, recv_bytes, stride;
    int batch; /* operations per batch, a multiple of -m */
    int done;  /* operations timed */
    uint64_t timed_ns, began_ns;
    uint64_t wrong; /* on this rank */
    double *times;  /* -I: seconds per iteration on this rank */
};

void measure_counts_get(const struct measure *m, const struct measure_case *c,
                        struct algo_counts *counts)
{
    size_t ts = type_id_size(c->type);
    algo_counts_get(m->o->op, c->bytes / ts, ts, m->nranks, counts);
}

/* Memory of one operation: both buffers, each with room for the misalignment that -u asks for. */
static size_t measure_stride_get(const struct measure *m, size_t send_bytes, size_t recv_bytes,
                                 size_t type_size)
{
    size_t slack = (size_t)m->o->unalign * type_size;
    return util_size_roundup(send_bytes + slack, MEASURE_ALIGN) +
           util_size_roundup(recv_bytes + slack, MEASURE_ALIGN);
}

int measure_open(struct measure *m, char *error, size_t error_bytes)
{
    size_t largest = util_size_roundup(m->o->max_bytes + 64, MEASURE_ALIGN);
    size_t one = 2 * (largest + util_size_roundup((size_t)m->o->unalign * 8, MEASURE_ALIGN));
    m->pool_bytes = util_size_max(m->o->batch_bytes, one * (size_t)m->o->agg);
    m->pool = mmap(NULL, m->pool_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t have = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (m->pool == MAP_FAILED || one * (size_t)m->o->agg > have / 2) {
        m->pool = m->pool == MAP_FAILED ? NULL : m->pool;
        snprintf(
            error, error_bytes,
            "%zu bytes of buffers per rank are more than this machine has; lower --maxbytes or -m",
            m->pool_bytes);
        return -1;
    }
    m->room = (int)util_size_max(MEASURE_BATCH_MAX, (size_t)m->o->agg);
    m->ops = util_mem_alloc((size_t)m->room, sizeof(*m->ops));
    m->cases = util_mem_alloc((size_t)m->room, sizeof(*m->cases));
    m->verify = verify_open(m->nranks);
    return 0;
}

void measure_close(struct measure *m)
{
    if (m->pool) {
        munmap(m->pool, m->pool_bytes);
    }
    free(m->ops);
    free(m->cases);
    verify_close(m->verify);
}

static void measure_state_init(const struct measure *m, struct measure_state *s,
                               const struct measure_case *c)
{
    memset(s, 0, sizeof(*s));
    s->c = c;
    s->type_size = type_id_size(c->type);
    measure_counts_get(m, c, &s->counts);
    s->send_bytes = s->counts.send * s->type_size;
    s->recv_bytes = s->counts.recv * s->type_size;
    if (c->in_place) {
        s->recv_bytes = util_size_max(s->send_bytes, s->recv_bytes);
        s->send_bytes = 0;
    }
    s->stride = util_size_max(measure_stride_get(m, s->send_bytes, s->recv_bytes, s->type_size),
                              MEASURE_ALIGN);
    size_t fit = util_size_min(m->pool_bytes / s->stride, (size_t)m->room);
    fit = m->before ? 1 : fit;
    s->batch = (int)util_size_max(fit / (size_t)m->o->agg, 1) * m->o->agg;
}

/* Operation @i of a batch: buffers, and with checks its own data. */
static void measure_op_prepare(struct measure *m, const struct measure_state *s, int i, bool fill)
{
    size_t skew = (size_t)m->o->unalign * s->type_size;
    char *send = m->pool + (size_t)i * s->stride + skew;
    char *recv =
        send + (s->c->in_place ? 0 : util_size_roundup(s->send_bytes + skew, MEASURE_ALIGN));
    if (s->c->in_place) {
        send = recv + (size_t)m->rank * s->counts.send_in_place * s->type_size;
        recv += (size_t)m->rank * s->counts.recv_in_place * s->type_size;
    }
    m->ops[i] = (struct engine_op){.type = s->c->type,
                                   .redop = s->c->redop,
                                   .root = s->c->root,
                                   .count = s->counts.param,
                                   .send = send,
                                   .recv = recv};
    m->cases[i] = (struct verify_case){.op = m->o->op,
                                       .type = s->c->type,
                                       .redop = s->c->redop,
                                       .rank = m->rank,
                                       .nranks = m->nranks,
                                       .root = s->c->root,
                                       .in_place = s->c->in_place,
                                       .serial = m->serial++,
                                       .counts = s->counts};
    if (fill) {
        verify_data_fill(m->verify, &m->cases[i], send, recv);
    }
}

/* What came out of operation @i of a batch that has run. */
static void measure_op_note(struct measure *m, struct measure_state *s,
                            const struct engine_batch *b, int i, bool check)
{
    uint64_t wrong = 0;
    if (check) {
        wrong = verify_data_check(m->verify, &m->cases[i], m->ops[i].recv);
        s->wrong += wrong;
        m->checked++;
    }
    if (m->trace && b->timed) {
        trace_op_add(m->trace, i ? m->ops[i - 1].end_ns : b->start_ns, m->ops[i].end_ns,
                     s->c->in_place, check ? (int64_t)wrong : -1);
    }
}

/* Run @n operations; @timed: they count. */
static int measure_batch_run(struct measure *m, struct measure_state *s, int n, bool timed,
                             bool check)
{
    struct engine_batch b = {
        .ops = m->ops, .n = n, .blocking = (enum engine_blocking)m->o->blocking, .agg = m->o->agg};
    for (int i = 0; i < n; i++) {
        measure_op_prepare(m, s, i, check);
    }
    b.timed = timed && s->c->watched;
    b.clock_start = b.timed && !m->recording;
    b.late_ns = b.clock_start && m->rank == m->o->late_rank ? m->o->late_ns : 0;
    b.started = b.clock_start ? m->started : NULL;
    b.started_arg = m->started_arg;
    m->recording = m->recording || b.timed;
    if (m->before && m->before(m->around_arg, s->c, timed) != 0) {
        return -1;
    }
    if (engine_run(m->engine, &b) != 0) {
        return -1;
    }
    if (timed) {
        uint64_t from = b.start_ns;
        s->timed_ns += b.end_ns - b.start_ns - b.excluded_ns;
        for (int i = m->o->agg - 1; s->times && i < n; i += m->o->agg) {
            s->times[(s->done + i) / m->o->agg] =
                (double)(m->ops[i].end_ns - from) / 1e9 / m->o->agg;
            from = m->ops[i].end_ns;
        }
        s->done += n;
    }
    if (m->after &&
        m->after(m->around_arg, s->c, timed, n, (double)(b.end_ns - b.start_ns) / 1e9) != 0) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        measure_op_note(m, s, &b, i, check);
    }
    return 0;
}

int measure_warmup(struct measure *m, const struct measure_case *c, int n)
{
    struct measure_state s;
    measure_state_init(m, &s, c);
    while (n > 0) {
        int k = (int)util_size_min((size_t)n, (size_t)s.batch);
        if (measure_batch_run(m, &s, k, false, false) != 0) {
            return -1;
        }
        n -= k;
    }
    return 0;
}

/* What a rank says before a batch. */
struct measure_word {
    uint64_t each_ns; /* an operation takes it so long; the slowest decides: the root of a broadcast
                         is done when its first ones lie in buffers */
    uint64_t on;      /* there is another batch; rank 0 decides */
};

/* Operations of the next batch, the same number on all ranks; 0 at the end; -1 once the run has
 * failed. */
static int measure_next_get(struct measure *m, const struct measure_state *s)
{
    struct measure_word all[BOOT_RANKS_MAX], *own = &all[m->rank];
    int agg = m->o->agg, left = m->o->iters * agg - s->done;
    uint64_t each = 0;

    if (!m->o->duration_ns) {
        return (int)util_size_min((size_t)left, (size_t)s->batch);
    }
    own->each_ns = s->done ? s->timed_ns / (uint64_t)s->done : MEASURE_BATCH_NS - 1;
    own->on = m->rank == 0 && (util_now_ns() - s->began_ns < m->o->duration_ns ||
                               (s->c->watched && m->unfinished && m->unfinished(m->started_arg)));
    if (boot_allgather(m->boot, all, sizeof(all[0])) != 0) {
        return -1;
    }
    for (int r = 0; r < m->nranks; r++) {
        each = all[r].each_ns > each ? all[r].each_ns : each;
    }
    size_t want = util_size_max(MEASURE_BATCH_NS / (each + 1) / (size_t)agg, 1) * (size_t)agg;
    return all[0].on ? (int)util_size_min(want, (size_t)s->batch) : 0;
}

struct measure_share {
    double seconds;
    uint64_t wrong;
};

/* -a: which rank's time counts. */
static double measure_seconds_get(const struct measure *m, const struct measure_share *all)
{
    double sum = 0, min = all[0].seconds, max = all[0].seconds;
    for (int r = 0; r < m->nranks; r++) {
        sum += all[r].seconds;
        min = all[r].seconds < min ? all[r].seconds : min;
        max = all[r].seconds > max ? all[r].seconds : max;
    }
    double choices[4] = {all[0].seconds, sum / m->nranks, min, max};
    return choices[m->o->average];
}

/* -I: all ranks' times, and of each iteration the slowest. */
static int measure_times_gather(struct measure *m, const struct measure_state *s,
                                struct report_cell *cell)
{
    size_t n = (size_t)(s->done / m->o->agg);
    double *all = util_mem_alloc(n * (size_t)m->nranks, sizeof(*all)),
           *slowest = util_mem_alloc(n, sizeof(*slowest));
    memcpy(all + (size_t)m->rank * n, s->times, n * sizeof(*all));
    int rc = boot_allgather(m->boot, all, n * sizeof(*all));
    for (size_t i = 0; i < n * (size_t)m->nranks && rc == 0; i++) {
        slowest[i % n] = all[i] > slowest[i % n] ? all[i] : slowest[i % n];
    }
    cell->rank_times = all;
    cell->times = slowest;
    cell->ntimes = (int)n;
    cell->nranks = m->nranks;
    return rc;
}

static int measure_cell_set(struct measure *m, const struct measure_state *s,
                            struct report_cell *cell)
{
    struct measure_share all[BOOT_RANKS_MAX];
    all[m->rank] = (struct measure_share){(double)s->timed_ns / 1e9 / s->done, s->wrong};
    if (boot_allgather(m->boot, all, sizeof(all[0])) != 0) {
        return -1;
    }
    for (int r = 0; r < m->nranks; r++) {
        cell->wrong += all[r].wrong;
    }
    m->wrong += cell->wrong;
    double bytes = (double)algo_bytes_get(m->o->op, s->counts.param, s->type_size, m->nranks);
    double factor = algo_bus_factor(m->o->op, m->nranks);
    cell->made = true;
    cell->checked = m->o->check && (!s->c->in_place || algo_info_get(m->o->op)->in_place_ok);
    cell->seconds = measure_seconds_get(m, all);
    cell->algbw = cell->seconds > 0 ? bytes / 1e9 / cell->seconds : 0;
    cell->busbw = cell->algbw * factor;
    if (s->c->watched) {
        m->bus_bytes += bytes * factor * s->done;
    }
    return s->times ? measure_times_gather(m, s, cell) : 0;
}

int measure_run(struct measure *m, const struct measure_case *c, struct report_cell *cell,
                int *iters)
{
    struct measure_state s;
    bool check = m->o->check && (!c->in_place || algo_info_get(m->o->op)->in_place_ok);
    memset(cell, 0, sizeof(*cell));
    measure_state_init(m, &s, c);
    s.times = m->o->per_iter ? util_mem_alloc((size_t)m->o->iters, sizeof(*s.times)) : NULL;
    int rc = measure_batch_run(m, &s, 1, false,
                               check); /* as nccl-tests: one operation right before, not timed */
    s.began_ns = util_now_ns();
    while (rc == 0) {
        int n = measure_next_get(m, &s);
        if (n <= 0) {
            rc = n;
            break;
        }
        rc = measure_batch_run(m, &s, n, true, check);
    }
    rc = rc == 0 ? measure_cell_set(m, &s, cell) : rc;
    *iters = s.done / m->o->agg;
    free(s.times);
    return rc;
}
