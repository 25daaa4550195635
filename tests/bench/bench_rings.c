/*
 * What a fabric of several ways leaves of a job's rate: 16 hosts with a NIC each below two leaf
 * switches, 8 uplinks of a NIC's rate at either, rings of which each hop changes the leaf, as NCCL
 * builds them where hosts come in turn; then one uplink fewer. Virtual time, whole instances: which
 * way a path takes, and when it leaves it, the plugin decides.
 *
 * A host passes on what it has received, a window of messages behind; an operation is so many
 * messages over every hop, and its next one begins at a host when all rings have done theirs there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

#define HOSTS      DUO_ENDS
#define LEAF       8
#define SPINES     8
#define RATE       50000000ull /* bytes/s of a NIC, and of each uplink */
#define SIZE       16384u
#define WINDOW     BENCH_WINDOW
#define MESSAGES   64    /* of an operation, per hop */
#define STEP_LEAST 30000 /* ns between two looks of a host: the run says, up to twice as many */
#define SETTLE     (1000 * DUO_MS)
#define MEASURED   (1000 * DUO_MS)
#define HANG       (1500 * DUO_MS) /* with which a pass ends */
#define MAX_RINGS  4

/* From a host of a ring to the next one. */
struct hop {
    struct r2_comm *tx, *rx;
    struct ib_mr *tx_mr, *rx_mr;
    struct r2_req *s_req[WINDOW], *r_req[WINDOW];
    uint64_t s_posted, s_done, r_posted, r_done;
};

struct rings {
    struct duo d;
    int n;
    uint64_t step;                    /* ns */
    int order[HOSTS];                 /* the hosts around the rings */
    struct hop hop[MAX_RINGS][HOSTS]; /* [i]: from order[i] to the next */
};

struct load {
    int rings, qps; /* queue pairs of a connection */
};

struct setting {
    const char *ways; /* NCCL_R2_WAYS */
    int free;         /* uplinks have no limit: what NICs alone carry */
};

struct figures {
    double before, after; /* bytes/s of a NIC */
};

static uint8_t out[SIZE], in[SIZE];

static void order_make(struct rings *r, unsigned seed)
{
    uint32_t x = seed * 2654435761u + 1;

    for (int i = 0; i < HOSTS; i++) {
        r->order[i] = i / 2 + i % 2 * LEAF; /* leaves in turn */
    }
    for (int i = HOSTS - 1; i > 1; i--) { /* among those of its leaf */
        int k, t = r->order[i];

        x = x * 1664525 + 1013904223;
        k = (int)((x >> 8) % (unsigned)(i / 2 + 1)) * 2 + i % 2;
        r->order[i] = r->order[k];
        r->order[k] = t;
    }
}

static void hop_open(struct rings *r, int ring, int i)
{
    struct hop *h = &r->hop[ring][i];

    if (duo_connect_hosts(&r->d, r->order[i], r->order[(i + 1) % HOSTS], 0, &h->tx, &h->rx) != 0 ||
        r2_net_reg(h->tx, out, SIZE, IB_PTR_HOST, 0, -1, &h->tx_mr) != R2_OK ||
        r2_net_reg(h->rx, in, SIZE, IB_PTR_HOST, 0, -1, &h->rx_mr) != R2_OK) {
        bench_die("no connection from host %d to host %d", r->order[i], r->order[(i + 1) % HOSTS]);
    }
}

static void hop_close(struct hop *h)
{
    r2_net_dereg(h->tx, h->tx_mr);
    r2_net_dereg(h->rx, h->rx_mr);
    r2_net_close(h->tx);
    r2_net_close(h->rx);
}

static void rings_open(struct rings *r, const struct load *l, const struct setting *s,
                       unsigned seed)
{
    static struct fab_desc desc;
    struct r2_config cfg;
    char why[160], text[16];

    snprintf(text, sizeof(text), "%d", l->qps);
    bench_config(&cfg, "NCCL_R2_WAYS", s->ways, "NCCL_IB_QPS_PER_CONNECTION", text, (char *)NULL);
    if (fab_desc_init(&desc, HOSTS, 1, RATE, 1000, why, sizeof(why)) != 0) {
        bench_die("fabric: %s", why);
    }
    desc.spines = SPINES;
    desc.leaf = LEAF;
    memset(r, 0, sizeof(*r));
    r->n = l->rings;
    r->step = STEP_LEAST + seed % 8 * STEP_LEAST / 8;
    order_make(r, seed);
    duo_create_on(&r->d, &desc, &cfg);
    for (int ring = 0; ring < r->n; ring++) {
        for (int i = 0; i < HOSTS; i++) {
            hop_open(r, ring, i);
        }
    }
    if (!s->free) {
        snprintf(why, sizeof(why), "rail 0 spine * rate %lluB/s", (unsigned long long)RATE);
        duo_fault(&r->d, why);
    }
}

static void rings_close(struct rings *r)
{
    for (int ring = 0; ring < r->n; ring++) {
        for (int i = 0; i < HOSTS; i++) {
            hop_close(&r->hop[ring][i]);
        }
    }
    duo_run(&r->d, 100 * DUO_MS);
    duo_destroy(&r->d);
}

/* --- traffic --- */

static void receive(struct hop *h, const struct hop *next, uint64_t limit)
{
    void *data = in, *mr = h->rx_mr;
    size_t size = SIZE;
    int tag = 1, done = 0;
    uint64_t room = h->r_done < next->s_done ? h->r_done : next->s_done;

    if (h->r_posted < limit && h->r_posted - room < WINDOW) {
        struct r2_req **req = &h->r_req[h->r_posted % WINDOW];

        if (r2_net_irecv(h->rx, 1, &data, &size, &tag, (struct ib_mr **)&mr, req) != R2_OK) {
            bench_die("irecv: %s", h->rx->fo.why);
        }
        h->r_posted += *req != NULL;
    }
    if (h->r_posted > h->r_done &&
        r2_net_test(h->r_req[h->r_done % WINDOW], &done, NULL) != R2_OK) {
        bench_die("receive: %s", h->rx->fo.why);
    }
    h->r_done += (unsigned)done;
}

static void transmit(struct hop *h, const struct hop *before, uint64_t limit)
{
    int done = 0;

    if (h->s_posted < limit && h->s_posted - h->s_done < WINDOW &&
        h->s_posted < before->r_done + WINDOW) {
        struct r2_req **req = &h->s_req[h->s_posted % WINDOW];

        if (r2_net_isend(h->tx, out, SIZE, 1, h->tx_mr, req) != R2_OK) {
            bench_die("isend: %s", h->tx->fo.why);
        }
        h->s_posted += *req != NULL;
    }
    if (h->s_posted > h->s_done &&
        r2_net_test(h->s_req[h->s_done % WINDOW], &done, NULL) != R2_OK) {
        bench_die("send: %s", h->tx->fo.why);
    }
    h->s_done += (unsigned)done;
}

/* Messages of each hop up to the end of the operation that host order[i] is in. */
static uint64_t host_limit(const struct rings *r, int i)
{
    uint64_t done = UINT64_MAX;

    for (int ring = 0; ring < r->n; ring++) {
        const struct hop *to = &r->hop[ring][i], *from = &r->hop[ring][(i + HOSTS - 1) % HOSTS];

        done = to->s_done < done ? to->s_done : done;
        done = from->r_done < done ? from->r_done : done;
    }
    return (done / MESSAGES + 1) * MESSAGES;
}

static void turn(struct rings *r)
{
    for (int i = 0; i < HOSTS; i++) {
        uint64_t limit = host_limit(r, i);

        for (int ring = 0; ring < r->n; ring++) {
            struct hop *to = &r->hop[ring][i], *from = &r->hop[ring][(i + HOSTS - 1) % HOSTS];

            receive(from, to, limit);
            transmit(to, from, limit);
        }
    }
    duo_run(&r->d, r->step);
}

static uint64_t received(const struct rings *r)
{
    uint64_t n = 0;

    for (int ring = 0; ring < r->n; ring++) {
        for (int i = 0; i < HOSTS; i++) {
            n += r->hop[ring][i].r_done;
        }
    }
    return n;
}

/* For @ns: bytes/s of a NIC. */
static double pass(struct rings *r, uint64_t ns)
{
    uint64_t from = received(r), at = from, moved = duo_now(&r->d), end = moved + ns;

    while (duo_now(&r->d) < end) {
        turn(r);
        if (received(r) != at) {
            at = received(r);
            moved = duo_now(&r->d);
        } else if (duo_now(&r->d) - moved > HANG) {
            bench_die("nothing moves");
        }
    }
    return (double)(at - from) * SIZE / HOSTS / ((double)ns / 1e9);
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return a < b ? -1 : a > b;
}

/* Sorts them. */
static double median(double *v, unsigned n)
{
    qsort(v, n, sizeof(*v), by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Which uplink is lost goes by the seed, too. */
static void run(const struct load *l, const struct setting *s, unsigned seed, struct figures *f)
{
    static struct rings r;
    char fault[64];

    rings_open(&r, l, s, seed);
    (void)pass(&r, SETTLE);
    f->before = pass(&r, MEASURED);
    snprintf(fault, sizeof(fault), "rail 0 spine %u down", seed % SPINES);
    duo_fault(&r.d, fault);
    (void)pass(&r, SETTLE);
    f->after = pass(&r, MEASURED);
    if (fab_inproc_spine(r.d.f, 0, (int)(seed % SPINES))->moved == 0) {
        bench_die("nothing had gone over uplink %u", seed % SPINES);
    }
    rings_close(&r);
}

struct spread {
    double middle, least, most;
};

/* Sorts @v, of a link's rate. */
static struct spread spread_of(double *v, unsigned n)
{
    struct spread s;

    s.middle = median(v, n);
    s.least = v[0];
    s.most = v[n - 1];
    return s;
}

/* What NICs alone carry: nothing is lost there. */
static struct spread alone(const struct load *l, unsigned seeds)
{
    static const struct setting none = {.ways = "8", .free = 1};
    static double rate[BENCH_RINGS_SEEDS];
    static struct rings r;

    for (unsigned i = 0; i < seeds; i++) {
        rings_open(&r, l, &none, i);
        (void)pass(&r, SETTLE);
        rate[i] = pass(&r, MEASURED) / RATE;
        rings_close(&r);
    }
    return spread_of(rate, seeds);
}

static void put(const char *name, const struct spread *s)
{
    printf(" \"%s\": %.4f, \"%s_least\": %.4f, \"%s_most\": %.4f,", name, s->middle, name, s->least,
           name, s->most);
}

/* Figures are of a link's rate, @nics what NICs alone carry. */
static void row(const struct load *l, const struct setting *s, unsigned seeds,
                const struct spread *nics)
{
    static double before[BENCH_RINGS_SEEDS], after[BENCH_RINGS_SEEDS], ratio[BENCH_RINGS_SEEDS];
    struct spread healthy, lost;

    for (unsigned i = 0; i < seeds; i++) {
        struct figures f;

        run(l, s, i, &f);
        before[i] = f.before / RATE;
        after[i] = f.after / RATE;
        ratio[i] = f.after / f.before;
    }
    healthy = spread_of(before, seeds);
    lost = spread_of(after, seeds);
    printf("{\"rings\": %d, \"qps\": %d, \"ways\": \"%s\", \"seeds\": %u,", l->rings, l->qps,
           s->ways, seeds);
    put("nics", nics);
    put("healthy", &healthy);
    put("lost", &lost);
    printf(" \"ratio\": %.4f}", median(ratio, seeds));
}

int bench_rings_run(unsigned seeds)
{
    static const struct load load[] = {{2, 1}, {4, 1}, {2, 2}, {1, 4}, {2, 4}, {1, 8}};
    static const struct setting setting[] = {{.ways = "8"}, {.ways = "off"}};
    const char *sep = "";

    printf("{\"hosts\": %d, \"leaves\": %d, \"uplinks\": %d, \"rate\": %llu, \"rows\": [", HOSTS,
           HOSTS / LEAF, SPINES, RATE);
    for (unsigned i = 0; i < sizeof(load) / sizeof(load[0]); i++) {
        struct spread nics = alone(&load[i], seeds);

        for (unsigned k = 0; k < sizeof(setting) / sizeof(setting[0]); k++, sep = ",") {
            printf("%s\n  ", sep);
            row(&load[i], &setting[k], seeds, &nics);
            fflush(stdout);
        }
    }
    printf("\n]}\n");
    return 0;
}
