/* The conductor's side of faults: when each is due, that it arrived, and what is right from then
 * on. */
#include "tests/soak/soak.h"
#include "tests/fabric/shm/seg.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct soak_injector {
    const struct soak_plan *p;
    struct soak_board *b;
    struct seg_map *map;
    const pid_t *pids;
    FILE *log;                   /* may be NULL */
    uint64_t due[SOAK_FAULTS];   /* 0: its trigger has not come */
    uint64_t fired[SOAK_FAULTS]; /* 0: not yet */
    int failed;
    char why[300];
};

struct soak_injector *soak_inject_new(const struct soak_plan *p, struct soak_board *b,
                                      struct seg_map *map, const pid_t *pids, const char *log)
{
    struct soak_injector *in = calloc(1, sizeof(*in));

    if (in) {
        *in = (struct soak_injector){
            .p = p, .b = b, .map = map, .pids = pids, .log = fopen(log, "w")};
    }
    return in;
}

static void may_fail(struct soak_injector *in, int conn, uint64_t now)
{
    uint64_t none = 0;

    atomic_compare_exchange_strong(&in->b->conn[conn].may_fail, &none, now);
}

/* The last rail of a host is about to go, for ever: errors are the right end of its connections. */
static void last_rail(struct soak_injector *in, const struct soak_fault *f, uint64_t now)
{
    const struct soak_plan *p = in->p;

    for (int i = 0; i < p->nfaults; i++) {
        if (p->fault[i].breaks && !in->fired[i] && &p->fault[i] != f) {
            return;
        }
    }
    for (int i = 0; i < p->conns; i++) {
        if (f->host < 0 || p->conn[i].from % p->hosts == f->host ||
            p->conn[i].to % p->hosts == f->host) {
            may_fail(in, i, now);
        }
    }
}

static int is_cut(const struct fab_fault *f)
{
    return f->kind == FAB_FAULT_CUT || f->kind == FAB_FAULT_CUT_TX;
}

static int matches(const struct fab_fault *f, int h, int n)
{
    return (f->host < 0 || f->host == h) && (f->nic < 0 || f->nic == n);
}

/* From now on a path may go down for it. */
/* A path's last packet may be lost over it. On a fabric that had no rate, one is a queue that
 * nobody knew of, which looks the same (docs/health.md). */
static int loses_tails(const struct soak_plan *p, const struct soak_fault *f)
{
    return f->kind == SOAK_LOSS || f->kind == SOAK_CORRUPT ||
           (f->kind == SOAK_RATE && p->rate == 0);
}

static void touch(struct soak_injector *in, const struct fab_fault *f)
{
    for (int h = 0; h < in->p->hosts; h++) {
        for (int n = 0; n < in->p->nics; n++) {
            if (!matches(f, h, n)) {
                continue;
            }
            if (!is_cut(f)) {
                atomic_fetch_or(&in->b->touched[h], 1u << n);
            }
            for (int far = 0; is_cut(f) && far < in->p->hosts; far++) {
                for (int k = 0; k < in->p->nics; k++) {
                    if (!fab_ports_has(f->value, far, k)) {
                        continue;
                    }
                    atomic_fetch_or(&in->b->cut[h][n][far], 1u << k);
                    atomic_fetch_or(&in->b->cut[far][k][h], 1u << n);
                }
            }
        }
    }
}

/* Whether @f arrived at this NIC as often as it must: once where it is named, once more at the far
 * end of a cut. What ends a cut may. */
static int arrived(const struct fab_fault *f, int h, int n, uint32_t times)
{
    struct fab_fault other;
    uint32_t most = matches(f, h, n), least = most;

    if (fab_fault_other(f, &other) && matches(&other, h, n)) {
        most++;
        least += f->kind == FAB_FAULT_CUT;
    }
    return times >= least && times <= most;
}

/* Whether what @f says of a spine is so now. */
static int spine_has(const struct soak_injector *in, const struct fab_fault *f)
{
    struct seg_rail *rail = &in->map->seg->rail[f->nic];
    uint64_t bit = 1ull << f->spine;
    int silent = (atomic_load(&rail->blackhole) & bit) != 0,
        down = (atomic_load(&rail->down) & bit) != 0;
    uint32_t loss = atomic_load(&rail->loss_ppm[f->spine]);

    switch (f->kind) {
    case FAB_FAULT_BLACKHOLE:
        return silent;
    case FAB_FAULT_DOWN:
        return down;
    case FAB_FAULT_LOSS:
        return loss == f->value;
    default:
        return !silent && !down && loss == 0;
    }
}

/* -1 when it is not there. */
static int spine_inject(struct soak_injector *in, const struct fab_fault *f)
{
    if (seg_fault_apply(in->map, f, in->why, sizeof(in->why)) != 0) {
        return -1;
    }
    if (!spine_has(in, f)) {
        snprintf(in->why, sizeof(in->why), "rail %d spine %d is not as it was to be", f->nic,
                 f->spine);
        return -1;
    }
    return 0;
}

/* Into the segment, and into the files that stand for /sys; -1 when it did not arrive at every NIC
 * that it names. */
static int fabric_inject(struct soak_injector *in, const struct soak_fault *fault)
{
    uint32_t before[SOAK_HOSTS][SOAK_NICS];
    struct seg *seg = in->map->seg;
    struct fab_fault f;

    if (fab_fault_parse(fault->text, &f, in->why, sizeof(in->why)) != 0) {
        return -1;
    }
    if (f.at == FAB_AT_SPINE) {
        atomic_fetch_or(&in->b->ways, 1u << f.nic);
        return spine_inject(in, &f);
    }
    if (fault->breaks) {
        touch(in, &f);
    } else if (loses_tails(in->p, fault)) {
        for (int h = 0; h < in->p->hosts; h++) {
            for (int n = 0; n < in->p->nics; n++) {
                atomic_fetch_or(&in->b->lossy[h], (uint32_t)matches(&f, h, n) << n);
            }
        }
    }
    for (int h = 0; h < in->p->hosts; h++) {
        for (int n = 0; n < in->p->nics; n++) {
            before[h][n] = atomic_load(&seg_nic_at(seg, h, n)->fault_seq);
        }
    }
    if (seg_fault_apply(in->map, &f, in->why, sizeof(in->why)) != 0) {
        return -1;
    }
    for (int h = 0; h < in->p->hosts; h++) {
        for (int n = 0; n < in->p->nics; n++) {
            struct seg_nic *nic = seg_nic_at(seg, h, n);
            if (!arrived(&f, h, n, atomic_load(&nic->fault_seq) - before[h][n])) {
                snprintf(in->why, sizeof(in->why), "'%s' did not arrive at h%d:n%d", fault->text, h,
                         n);
                return -1;
            }
            if (matches(&f, h, n)) {
                seg_sysfs_state_set(in->map->dir, h, n, atomic_load(&nic->link.down) == 0);
                if (f.kind == FAB_FAULT_GID_CHANGE) {
                    seg_sysfs_gids_set(in->map->dir, h, n, atomic_load(&nic->epoch));
                }
            }
        }
    }
    return 0;
}

static void process_inject(struct soak_injector *in, const struct soak_fault *f, uint64_t now)
{
    int sig = f->kind == SOAK_KILLED ? SIGKILL : f->cont ? SIGCONT : SIGSTOP;

    if (f->kind == SOAK_KILLED) {
        for (int i = 0; i < in->p->conns; i++) {
            if (in->p->conn[i].from == f->proc || in->p->conn[i].to == f->proc) {
                may_fail(in, i, now);
            }
        }
        for (int h = 0; h < SOAK_HOSTS; h++) {
            atomic_store(&in->b->touched[h], ~0u); /* its NICs are gone with it */
        }
        atomic_store(&in->b->killed, f->proc);
        atomic_fetch_sub(&in->b->ranks, 1);
    }
    if (kill(in->pids[f->proc], sig) != 0) {
        snprintf(in->why, sizeof(in->why), "signal %d to process %d: %s", sig, f->proc,
                 strerror(errno));
        in->failed = 1;
    }
}

static void inject(struct soak_injector *in, int i, uint64_t now)
{
    const struct soak_fault *f = &in->p->fault[i];

    if (in->p->want == SOAK_DEAD && f->breaks) {
        last_rail(in, f, now);
    }
    in->fired[i] = now;
    if (in->log) {
        fprintf(in->log, "%.6f conductor %s%s", (double)now / 1e9,
                f->text[0] ? f->text : soak_kind_name((int)f->kind), f->cont ? " ends" : "");
        fprintf(in->log, f->text[0] ? "\n" : ", process %d\n", f->proc);
        fflush(in->log);
    }
    if (f->text[0] == '\0') {
        process_inject(in, f, now);
    } else if (fabric_inject(in, f) != 0) {
        in->failed = 1;
    }
}

int64_t soak_inject_step(struct soak_injector *in, int first)
{
    uint32_t wake = UINT32_MAX,
             done = atomic_load(&in->b->through) ? UINT32_MAX : atomic_load(&in->b->done);
    uint64_t now = soak_now(), next = UINT64_MAX;

    for (int i = 0; i < in->p->nfaults && !in->failed; i++) {
        const struct soak_fault *f = &in->p->fault[i];
        if (in->fired[i] || (first && (f->after >= 0 || f->done))) {
            continue;
        }
        if (in->due[i] == 0 && f->after >= 0 && in->fired[f->after]) {
            in->due[i] = in->fired[f->after] + f->delay;
        } else if (in->due[i] == 0 && f->after < 0 && done >= f->done) {
            in->due[i] = now + f->delay;
        }
        if (in->due[i] == 0) {
            if (f->after < 0 && f->done < wake) {
                wake = f->done;
            }
        } else if (in->due[i] <= now) {
            inject(in, i, now);
            next = 0; /* those behind it may be due now */
        } else if (in->due[i] < next) {
            next = in->due[i];
        }
    }
    atomic_store(&in->b->wake_at, wake);
    if (wake != UINT32_MAX &&
        wake <= atomic_load(&in->b->done)) { /* reached before it was written there */
        return 0;
    }
    return next == UINT64_MAX ? -1 : next <= now ? 0 : (int64_t)(next - now);
}

int soak_inject_left(const struct soak_injector *in)
{
    int n = 0;

    for (int i = 0; i < in->p->nfaults; i++) {
        n += in->fired[i] == 0;
    }
    return n;
}

void soak_inject_count(const struct soak_injector *in, uint64_t *kinds)
{
    for (int i = 0; i < in->p->nfaults; i++) {
        if (in->fired[i] && !in->p->fault[i].cont) {
            kinds[in->p->fault[i].kind]++;
        }
    }
}

const char *soak_inject_error(const struct soak_injector *in)
{
    return in->failed ? in->why : NULL;
}

void soak_inject_free(struct soak_injector *in)
{
    if (in && in->log) {
        fclose(in->log);
    }
    free(in);
}
