#include "tools/r2_perf/planned.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/planner/planner_seat.h"
#include "tools/r2_perf/launch.h"
#include "tools/r2_perf/util.h"
#include "tools/schedule/sched.h"

static int planned_fail(struct planned *p, int code, const char *text)
{
    boot_fail(p->boot, code, text);
    return -1;
}

/* --- NICs --- */

/* Bits of the NICs of this host whose ports are active, as the system says; one of which it says
 * nothing counts as such. */
static uint32_t planned_up_read(const struct planned *p)
{
    const char *root = getenv("SOFTFAB_SYSFS");
    uint32_t up = 0;

    for (int k = 0; k < p->nics; k++) {
        char path[600];
        int state = 4;
        FILE *f;

        snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%d/state", root ? root : "/sys",
                 p->plugin->props[k].name, p->plugin->props[k].port);
        f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%d", &state) != 1) {
            state = 4;
        }
        if (f != NULL) {
            fclose(f);
        }
        up |= state == 4 ? 1u << k : 0;
    }
    return up;
}

static int planned_up_exchange(struct planned *p, uint32_t *up)
{
    memset(up, 0, BOOT_RANKS_MAX * sizeof(*up));
    up[p->rank] = planned_up_read(p);
    if (boot_allgather(p->boot, up, sizeof(*up)) != 0) {
        return -1;
    }
    for (int i = 0; i < p->nranks; i++) {
        if (up[i] == 0) {
            return planned_fail(p, PERF_INTERNAL, "--algo: a host has no NIC that works");
        }
    }
    return 0;
}

/* --- the plan --- */

static void planned_order_get(struct planned *p)
{
    double load[BOOT_RANKS_MAX];
    int rank_order[BOOT_RANKS_MAX];

    for (int i = 0; i < p->nranks; i++) {
        rank_order[i] = i;
        p->order[i] = p->o->order_n ? p->o->order[i] : i;
    }
    if (p->o->order_seats) {
        planner_seat_loads(p->nranks, load);
        planner_seat_assign(p->b, p->nranks, rank_order, load, p->order);
    }
}

/* Steps for the NICs of @up. A schedule that is not for hosts that are all alike is then a ring. */
static struct steps *planned_steps_make(struct planned *p, const uint32_t *up)
{
    struct sched c = {
        .nodes = p->nranks, .b = p->b, .order = p->order, .pieces = p->o->pieces, .abreast = 2};
    struct steps *s;

    for (int i = 0; i < p->nranks; i++) {
        p->b[i] = (double)__builtin_popcount(up[i]) / p->nics;
    }
    planned_order_get(p);
    s = sched_make(&c, p->o->algo);
    return s != NULL ? s : sched_make(&c, PLANNER_RING);
}

/* Ranks that may come to send to each other: those of the plan, or with faults all. */
static void planned_links_add(struct planned *p, const struct steps *s)
{
    bool all = p->o->nfaults > 0;

    for (int c = 0; c < p->channels; c++) {
        for (int i = 0; i < p->nranks && all; i++) {
            p->links[c * p->nranks + i] = ((1ull << p->nranks) - 1) & ~(1ull << i);
        }
    }
    for (int i = 0; i < s->connections && !all; i++) {
        const struct steps_connection *c = &s->connection[i];

        for (int k = 0; k < p->nics; k++) {
            p->links[(c->channel * p->nics + k) * p->nranks + c->src] |= 1ull << c->dst;
        }
    }
}

/* The most channels that a plan has whichever NICs are lost: each level has two. */
static int planned_channels_most(const struct planned *p)
{
    switch (p->o->algo) {
    case PLANNER_RING:
        return 1;
    case PLANNER_TREE:
    case PLANNER_STARS:
        return 2;
    case PLANNER_RECURSION:
    case PLANNER_LEAVES:
        return 2 * (p->nics < p->nranks ? p->nics : p->nranks);
    default:
        return 4;
    }
}

static int planned_shape_check(struct planned *p, const struct boot_place *place)
{
    int32_t all[BOOT_RANKS_MAX] = {0};
    char text[200];

    all[p->rank] = place->local == 0 ? p->nics : -1;
    if (boot_allgather(p->boot, all, sizeof(all[0])) != 0) {
        return -1;
    }
    for (int i = 0; i < p->nranks; i++) {
        if (all[i] != p->nics || p->nics > SPREAD_NICS) {
            return planned_fail(
                p, PERF_USAGE,
                "--algo needs one rank on each host, all with as many NICs, up to 16");
        }
    }
    if (p->nranks < 2) {
        return planned_fail(p, PERF_USAGE, "--algo needs at least 2 hosts");
    }
    if (p->o->order_n && p->o->order_n != p->nranks) {
        snprintf(text, sizeof(text), "option --order: %d hosts are named, and there are %d",
                 p->o->order_n, p->nranks);
        return planned_fail(p, PERF_USAGE, text);
    }
    return 0;
}

static void planned_counters_read(struct planned *p, struct spread_load *load);

int planned_open(struct planned *p, const struct opts *o, const struct boot_place *place,
                 struct boot *boot, const struct plugin *plugin)
{
    struct steps *s;
    char text[200];
    int most;

    *p = (struct planned){.o = o,
                          .boot = boot,
                          .plugin = plugin,
                          .rank = place->rank,
                          .nranks = place->nranks,
                          .nics = plugin->ndev};
    if (planned_shape_check(p, place) != 0 || planned_up_exchange(p, p->up) != 0) {
        return -1;
    }
    s = planned_steps_make(p, p->up);
    if (s == NULL) {
        return planned_fail(p, PERF_USAGE, "--algo: hosts have too many different numbers of NICs");
    }
    most = planned_channels_most(p);
    p->channels = p->nics * (o->nfaults > 0 && most > s->channels ? most : s->channels);
    if (p->channels > WIRE_CHANNELS_MAX) {
        snprintf(text, sizeof(text),
                 "--algo: %d connections between two hosts, and there can be %d: use fewer NICs",
                 p->channels, WIRE_CHANNELS_MAX);
        steps_close(s);
        return planned_fail(p, PERF_USAGE, text);
    }
    p->links = util_mem_alloc((size_t)(p->channels * p->nranks), sizeof(*p->links));
    planned_links_add(p, s);
    steps_close(s);
    p->runs = util_mem_alloc(PLANNED_RUNS, sizeof(*p->runs));
    if (p->rank == 0) {
        planned_counters_read(p, p->counted);
    }
    return 0;
}

void planned_close(struct planned *p)
{
    spread_close(&p->spread);
    steps_close(p->steps);
    free(p->links);
    free(p->runs);
}

static void planned_make(struct planned *p, size_t bytes, size_t type_size)
{
    struct sim_result r;

    engine_play(p->engine, NULL);
    spread_close(&p->spread);
    steps_close(p->steps);
    p->steps = planned_steps_make(p, p->up);
    p->bytes = bytes;
    p->type_size = type_size;
    spread_open(&p->spread, p->steps, p->up, p->nics, bytes / type_size);
    if (p->rank == 0) {
        sim_run_spread(&p->spread, SIM_SENDERS, &r);
        p->simulated = r.time;
    }
    engine_play(p->engine, &p->spread);
}

/* --- what the fabric counts --- */

static uint64_t planned_number_find(const char *from, const char *key)
{
    const char *at = strstr(from, key);

    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* "softfab status" of this run's fabric; nothing where there is none. */
static void planned_counters_read(struct planned *p, struct spread_load *load)
{
    const char *fabric = launch_fabric_get(), *softfab = launch_softfab_get();
    char *command, *line = NULL;
    size_t room = 0;
    FILE *f;

    memset(load, 0, BOOT_RANKS_MAX * sizeof(*load));
    if (!fabric || !softfab) {
        return;
    }
    command = util_str_format("'%s' status --json --name '%s'", softfab, fabric);
    f = popen(command, "r");
    while (f != NULL && getline(&line, &room, f) > 0) {
        for (const char *at = line; (at = strstr(at, "{\"place\":\"h")) != NULL; at++) {
            uint64_t host = planned_number_find(at, "\"host\":");
            uint64_t nic = planned_number_find(at, "\"nic\":");

            if (host < (uint64_t)p->nranks && nic < (uint64_t)p->nics) {
                load[host].sent[nic] = planned_number_find(at, "\"tx_bytes\":");
                load[host].received[nic] = planned_number_find(at, "\"rx_bytes\":");
                p->rate = planned_number_find(at, "\"rate_Bps\":");
                p->has_wire = true;
            }
        }
    }
    if (f != NULL) {
        pclose(f);
    }
    free(line);
    free(command);
}

/* --- before and after operations --- */

int planned_before(void *arg, const struct measure_case *c, bool timed)
{
    struct planned *p = arg;
    size_t type_size = type_id_size(c->type), bytes = c->bytes / type_size * type_size;
    uint32_t up[BOOT_RANKS_MAX];
    uint64_t spare[2][SPREAD_NICS];

    if (planned_up_exchange(p, up) != 0) {
        return -1;
    }
    if (p->steps == NULL || bytes != p->bytes || type_size != p->type_size ||
        memcmp(up, p->up, sizeof(up)) != 0) {
        memcpy(p->up, up, sizeof(up));
        planned_make(p, bytes, type_size);
    }
    engine_played_take(p->engine, spare[0], spare[1]);
    if (p->rank == 0 && timed) {
        planned_counters_read(p, p->counted);
    }
    return 0;
}

static void planned_load_add(struct spread_load *sum, const struct spread_load *a, int nics,
                             const struct spread_load *less)
{
    for (int k = 0; k < nics; k++) {
        sum->sent[k] += a->sent[k] - (less ? less->sent[k] : 0);
        sum->received[k] += a->received[k] - (less ? less->received[k] : 0);
    }
}

static struct planned_run *planned_run_get(struct planned *p, bool changed)
{
    struct planned_run *r;

    for (int i = 0; i < p->nruns; i++) {
        r = &p->runs[i];
        if (r->bytes == p->bytes && r->changed == changed &&
            memcmp(r->up, p->up, sizeof(p->up)) == 0) {
            return r;
        }
    }
    if (p->nruns == PLANNED_RUNS) {
        memmove(p->runs, p->runs + 1, (PLANNED_RUNS - 1) * sizeof(*p->runs));
        p->nruns--;
    }
    r = &p->runs[p->nruns++];
    *r = (struct planned_run){.bytes = p->bytes, .changed = changed, .simulated = p->simulated};
    memcpy(r->up, p->up, sizeof(p->up));
    memcpy(r->order, p->order, sizeof(p->order));
    spread_loads(&p->spread, r->plan);
    for (int i = 0; i < p->nranks; i++) {
        for (int k = 0; k < p->nics; k++) {
            r->plan[i].sent[k] *= p->type_size;
            r->plan[i].received[k] *= p->type_size;
        }
    }
    return r;
}

/* What each rank says of the operations it has just run. */
struct planned_said {
    double seconds;
    uint32_t up;
    struct spread_load moved;
};

int planned_after(void *arg, const struct measure_case *c, bool timed, int operations,
                  double seconds)
{
    struct planned *p = arg;
    struct planned_said all[BOOT_RANKS_MAX];
    struct spread_load counted[BOOT_RANKS_MAX];
    struct planned_run *r;
    bool changed = false;
    double longest = 0;

    if (!timed) {
        return 0;
    }
    memset(all, 0, sizeof(all));
    all[p->rank] = (struct planned_said){.seconds = seconds, .up = planned_up_read(p)};
    engine_played_take(p->engine, all[p->rank].moved.sent, all[p->rank].moved.received);
    if (boot_allgather(p->boot, all, sizeof(all[0])) != 0) {
        return -1;
    }
    if (p->rank != 0) {
        return 0;
    }
    for (int i = 0; i < p->nranks; i++) {
        changed = changed || all[i].up != p->up[i];
        longest = all[i].seconds > longest ? all[i].seconds : longest;
    }
    planned_counters_read(p, counted);
    r = planned_run_get(p, changed);
    r->operations += operations;
    r->seconds += longest;
    for (int i = 0; i < p->nranks; i++) {
        planned_load_add(&r->moved[i], &all[i].moved, p->nics, NULL);
        planned_load_add(&r->wire[i], &counted[i], p->nics, &p->counted[i]);
    }
    return 0;
}
