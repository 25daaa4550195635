/* What a seed says: processes, connections, messages, options. Pure: conductor and processes draw
 * the same. */
#include "tests/soak/soak.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIB (1u << 20)

static __attribute__((format(printf, 2, 3))) void env_add(struct soak_plan *p, const char *fmt, ...)
{
    va_list ap;

    if (p->nenv == SOAK_ENV) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(p->env[p->nenv++], sizeof(p->env[0]), fmt, ap);
    va_end(ap);
}

static void base_draw(struct soak_plan *p, struct fab_rng *r)
{
    p->procs = soak_pct(r, 60) ? 2 : (int)soak_pick(r, 3, SOAK_PROCS);
    p->hosts = p->procs > 2 && soak_pct(r, 70) ? 3 : 2;
    p->nics = soak_pct(r, 70) ? (int)soak_pick(r, 2, 4) : (int)soak_pick(r, 5, SOAK_NICS);
    p->comms = soak_pct(r, 80) ? 2 : 3;
    p->laps = soak_pct(r, 70) ? 1 : (int)soak_pick(r, 2, 3);
    p->crossrail = soak_pct(r, 15);
    p->rate = soak_pct(r, 30) ? 0 : soak_pick(r, 10, 80) * 1000000;
    p->nap_us = soak_pct(r, 40) ? 0 : (int)soak_pick(r, 20, 300);
    p->flush = soak_pct(r, 15);
    p->safe_rail = (int)(fab_rng_next(r) % (unsigned)p->nics);
    p->give_up_ms = 20000;
    p->t_packet_ms = 600;
}

/* Half the messages are small; how many may be large follows from what the fabric carries in about
 * a second. */
static void sizes_draw(struct soak_plan *p, struct soak_conn *c, struct fab_rng *r, uint64_t budget)
{
    int kind = (int)(fab_rng_next(r) % 100);
    uint64_t each;

    c->max_size = kind < 50 ? 16384 : kind < 80 ? 300000 : (uint32_t)soak_pick(r, MIB, 5 * MIB);
    c->max_group = soak_pct(r, 40) ? 1 : (int)soak_pick(r, 2, SOAK_GROUP);
    c->slots = c->max_size > MIB ? (int)soak_pick(r, 2, 6) : (int)soak_pick(r, 2, SOAK_SLOTS);
    c->window = (int)soak_pick(r, 1, 8);
    each = budget / (unsigned)c->msgs; /* mean size */
    c->big_pct = (int)(each * 200 / c->max_size);
    if (c->big_pct > 30) {
        c->big_pct = 30;
    }
}

static void pauses_draw(struct soak_conn *c, struct fab_rng *r)
{
    c->send_us = soak_pct(r, 50) ? 0 : soak_pct(r, 70) ? 200 : 3000;
    c->recv_us = soak_pct(r, 50) ? 0 : soak_pct(r, 70) ? 200 : 2000;
    c->test_us = soak_pct(r, 60) ? 0 : soak_pct(r, 70) ? 100 : 1500;
    c->rest_pct = soak_pct(r, 40) ? 0 : 2;
    c->rest_us = soak_pct(r, 80) ? 20000 : 80000;
    c->setup_us = soak_pct(r, 60) ? 0 : 150000;
    c->close_us = soak_pct(r, 60) ? 0 : 10000;
    c->extra = soak_pct(r, 25);
}

static void conn_draw(struct soak_plan *p, struct fab_rng *r, int from, int to, int comm)
{
    struct soak_conn *c;

    if (p->conns == SOAK_CONNS) {
        return;
    }
    c = &p->conn[p->conns++];
    *c = (struct soak_conn){.from = from, .to = to, .comm = comm};
    c->from_dev = c->to_dev = (int)(fab_rng_next(r) % (unsigned)p->nics);
    if (p->crossrail && soak_pct(r, 30)) {
        c->to_dev = (int)(fab_rng_next(r) % (unsigned)p->nics);
    }
}

/* Each communicator is a ring in both directions, with a few connections more. */
static void conns_draw(struct soak_plan *p, struct fab_rng *r)
{
    uint64_t bytes = p->rate ? p->rate * (unsigned)p->nics / 2 : 30 * MIB;
    int more = (int)fab_rng_upto(r, 3), all;

    for (int comm = 0; comm < p->comms; comm++) {
        for (int i = 0; i < p->procs && (p->procs > 2 || i == 0); i++) {
            conn_draw(p, r, i, (i + 1) % p->procs, comm);
            conn_draw(p, r, (i + 1) % p->procs, i, comm);
        }
    }
    while (more-- > 0) {
        int from = (int)(fab_rng_next(r) % (unsigned)p->procs),
            to = (int)(fab_rng_next(r) % (unsigned)p->procs);
        conn_draw(p, r, from, from == to ? (to + 1) % p->procs : to,
                  (int)(fab_rng_next(r) % (unsigned)p->comms));
    }
    if (bytes > 30 * MIB) {
        bytes = 30 * MIB;
    }
    all = (int)soak_pick(r, 300, 1500);
    for (int i = 0; i < p->conns; i++) {
        struct soak_conn *c = &p->conn[i];
        c->msgs = (int)soak_pick(r, 10, 30) + all / (p->conns * p->laps);
        c->msgs = c->msgs > SOAK_MSGS ? SOAK_MSGS : c->msgs;
        sizes_draw(p, c, r, bytes / (unsigned)(p->conns * p->laps));
        pauses_draw(c, r);
    }
}

/* Rails that answer need patience (a busy machine must not look like a dead one to RC); the others
 * are found by the watchdog. */
static void options_draw(struct soak_plan *p, struct fab_rng *r, int slow)
{
    int timeout = slow ? 20 : p->quiet ? (int)soak_pick(r, 17, 18) : (int)soak_pick(r, 15, 16);

    env_add(p, "NCCL_SOCKET_IFNAME=lo");
    env_add(p, "NCCL_IB_TIMEOUT=%d", timeout);
    env_add(p, "NCCL_IB_RETRY_CNT=7");
    env_add(p, "NCCL_R2_GIVE_UP=%d", p->give_up_ms);
    env_add(p, "NCCL_R2_T_PACKET=%d", p->t_packet_ms);
    env_add(p, "NCCL_R2_T_DEAD=%d", p->t_packet_ms + 300);
    env_add(p, "NCCL_R2_T_STUCK=500");
    env_add(p, "NCCL_R2_T_RETURN=%d", (int)soak_pick(r, 30, 300));
    env_add(p, "NCCL_R2_T_FENCE=%d", (int)soak_pick(r, 5, 40));
    env_add(p, "NCCL_R2_T_ACK=%d", soak_pct(r, 60) ? 20 : (int)fab_rng_upto(r, 300));
    env_add(p, "NCCL_R2_RQ_DEPTH=%d", soak_pct(r, 60) ? 64 : 32);
    env_add(p, "NCCL_R2_CUT_MIN=%d", soak_pct(r, 50) ? 65536 : (int)soak_pick(r, 512, 30000));
    if (p->crossrail) {
        env_add(p, "NCCL_R2_BACKUP_SCOPE=any");
    }
    if (soak_pct(r, 40)) {
        env_add(p, "NCCL_R2_SPREAD=on");
    }
    if (soak_pct(r, 15)) {
        env_add(p, "NCCL_R2_BALANCE=off");
    }
    if (p->resort) {
        env_add(p, "NCCL_R2_LAST_RESORT=auto");
    }
    if (p->flush) {
        env_add(p, "NCCL_R2_FLUSH=always");
    }
    if (p->laps ==
        SOAK_LAPS) { /* the receiver whose sender was the last to go remembers it for so long */
        env_add(p, "NCCL_R2_LINGER=500");
    }
    p->reorder = soak_pct(r, 35);
    if (p->reorder) {
        env_add(p, "NCCL_IB_ADAPTIVE_ROUTING=1");
        env_add(p, "NCCL_IB_AR_THRESHOLD=%d", soak_pct(r, 50) ? 8192 : (int)fab_rng_upto(r, 70000));
    }
}

static uint32_t total(const struct soak_plan *p)
{
    uint32_t n = 0;

    for (int i = 0; i < p->conns; i++) {
        n += (uint32_t)(p->conn[i].leave ? p->conn[i].leave : p->conn[i].msgs) * (unsigned)p->laps;
    }
    return n;
}

void soak_plan_draw(struct soak_plan *p, int cls, uint64_t seed)
{
    const char *name = soak_classes[cls].name;
    struct fab_rng r = {seed * 64 + (unsigned)cls};
    int slow = strcmp(name, "slow") == 0, lasting;

    memset(p, 0, sizeof(*p));
    p->cls = cls;
    p->seed = seed;
    base_draw(p, &r);
    lasting = strcmp(name, "back") == 0 || strcmp(name, "all") == 0 || strcmp(name, "resort") == 0;
    if (slow) {
        p->rate = soak_pick(&r, 3, 8) * 1000000;
    }
    if (strcmp(name, "dead") == 0) {
        p->give_up_ms = 1500;
    }
    if (strcmp(name, "dead") == 0 || strcmp(name, "kill") == 0) {
        p->laps = 1;
    }
    if (strcmp(name, "crowd") == 0) {
        p->procs = 4;
        p->hosts = 2;
        p->crossrail = 1;
        p->nics = (int)soak_pick(&r, 2, 4);
        p->safe_rail = 0;
        p->rate = soak_pick(&r, 10, 30) * 1000000;
    }
    if (strcmp(name, "again") == 0) {
        p->laps = SOAK_LAPS;
        p->procs = p->hosts = p->comms = 2;
    }
    conns_draw(p, &r);
    for (int i = 0; lasting && i < p->conns;
         i++) { /* faults take their time here: so does the traffic */
        p->conn[i].send_us = p->conn[i].send_us < 3000 ? 3000 : p->conn[i].send_us;
        p->conn[i].window = 2;
    }
    p->total = total(p);
    soak_classes[cls].draw(p, &r);
    p->total = total(p);
    options_draw(p, &r, slow);
}

static uint32_t size_draw(const struct soak_conn *c, struct fab_rng *r)
{
    static const uint32_t borders[] = {0,     1,     127,    128,    129,      4096,    65535,
                                       65536, 65537, 131072, 262145, 1u << 20, 4u << 20};
    uint32_t b;

    if (soak_pct(r, c->big_pct)) {
        return (uint32_t)fab_rng_upto(r, c->max_size);
    }
    if (soak_pct(r, 10)) {
        b = borders[fab_rng_next(r) % (sizeof(borders) / sizeof(borders[0]))];
        return b <= c->max_size && (b < 5000 || c->big_pct) ? b : 0;
    }
    return (uint32_t)fab_rng_upto(r, soak_pct(r, 40) ? 64 : 4096);
}

static void group_draw(const struct soak_conn *c, struct fab_rng *r, struct soak_msg *msg,
                       uint16_t *order, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        struct soak_msg *m = &msg[i];
        m->size = size_draw(c, r);
        m->cap = soak_pct(r, 5) ? (uint32_t)fab_rng_upto(r, m->size)
                                : m->size + (uint32_t)fab_rng_upto(r, soak_pct(r, 50) ? 0 : 100);
        m->cap = m->cap > c->max_size ? c->max_size : m->cap;
        m->tag = 1000 + first * 3 - (i - first) * 17;
        m->first = (uint16_t)first;
        m->n = (uint16_t)n;
        m->send_skew = (uint8_t)fab_rng_upto(r, 127);
        m->recv_skew = (uint8_t)fab_rng_upto(r, 127);
        order[i] = (uint16_t)i;
    }
    for (int i = n - 1; i > 0; i--) { /* the tags say which is which */
        int k = (int)(fab_rng_next(r) % (unsigned)(i + 1));
        uint16_t t = order[first + i];
        order[first + i] = order[first + k];
        order[first + k] = t;
    }
}

void soak_msgs_draw(const struct soak_plan *p, int conn, int lap, struct soak_msg *msg,
                    uint16_t *order)
{
    const struct soak_conn *c = &p->conn[conn];
    struct fab_rng r = {(p->seed << 20) ^
                        (uint64_t)((p->cls * SOAK_CONNS + conn) * SOAK_LAPS + lap) * 0x51ed2701u};
    int most = c->max_group < c->slots ? c->max_group : c->slots, n;

    for (int first = 0; first < c->msgs; first += n) {
        n = (int)soak_pick(&r, 1, (uint64_t)most);
        n = n > c->msgs - first ? c->msgs - first : n;
        group_draw(c, &r, msg, order, first, n);
    }
}

void soak_plan_print(const struct soak_plan *p)
{
    printf(
        "class %s seed %llu: %d processes on %d hosts with %d NICs, %llu MB/s%s%s%s, %d communicators, %d connections, "
        "%d laps, "
        "%u messages, safe rail %d\n",
        soak_classes[p->cls].name, (unsigned long long)p->seed, p->procs, p->hosts, p->nics,
        (unsigned long long)p->rate / 1000000, p->crossrail ? ", crossrail" : "",
        p->reorder ? ", reordered" : "", p->spines ? ", spines" : "", p->comms, p->conns, p->laps,
        p->total, p->safe_rail);
    for (int i = 0; i < p->nenv; i++) {
        printf("  %s\n", p->env[i]);
    }
    for (int i = 0; i < p->nfaults; i++) {
        const struct soak_fault *f = &p->fault[i];
        printf("  fault %d: %s%s, %.3f ms after ", i,
               f->text[0] ? f->text : soak_kind_name((int)f->kind), f->cont ? " ends" : "",
               (double)f->delay / 1e6);
        if (f->after >= 0) {
            printf("fault %d", f->after);
        } else {
            printf("message %u", f->done);
        }
        if (f->text[0] == '\0') {
            printf(", process %d", f->proc);
        }
        printf("\n");
    }
}
