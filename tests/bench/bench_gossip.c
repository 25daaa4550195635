/*
 * How long gossip takes through a job, and how many messages, in virtual time: every process has
 * the product's own table (probe_gossip), the channel between two of them delays, reorders and
 * loses, and what is not confirmed is said again. Processes of a host share a registry.
 *
 * Each seed is run twice, without loss and with it. Without loss the last process must know within
 * the bound: the longest way through the graph when every step takes its longest time. At the end
 * all tables must be equal.
 */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/probe/probe_gossip.h"
#include "plugin/probe/probe_verdict.h"
#include "tests/support/times.h"

#define LATENCY_MIN   (50 * US) /* a message: 100 us on average */
#define LATENCY_MAX   (150 * US)
#define REGISTRY_MIN  (500 * US) /* from one process of a host to the next: 1 ms on average */
#define REGISTRY_MAX  (1500 * US)
#define REPEAT_FIRST  (5000 * US)
#define REPEAT_LAST   (100000 * US)
#define LOSS_PER_MILL 10
#define CHANNELS      8
#define MAX_LINKS     64
#define WORDS         2
#define SEEDS_MAX     1000

enum shape { RING, RING_ONE_CHANNEL, TREE, ALL_TO_ALL };

struct job {
    const char *name;
    enum shape shape;
    int hosts, per_host;
};

static const struct job jobs[] = {
    {"ring, 1 process per host", RING, 3, 1},
    {"ring", RING, 8, 8},
    {"ring", RING, 64, 8},
    {"ring", RING, 512, 8},
    {"ring of one channel", RING_ONE_CHANNEL, 512, 8},
    {"tree", TREE, 8, 8},
    {"tree", TREE, 512, 8},
    {"all to all", ALL_TO_ALL, 8, 8},
};

struct link {
    int to, back; /* our number there */
    uint64_t send_at, interval;
    uint8_t said; /* bit per word: said once */
};

struct proc {
    struct probe_gossip gossip;
    struct link link[MAX_LINKS];
    int links;
    uint64_t origin, heard_at, final_at; /* when it knew of the subject; of the word that wins */
    unsigned sent;
};

enum kind { REPORT, OK, REPEAT, REGISTRY };

struct event {
    uint64_t at, seq;
    enum kind kind;
    int to, link, word;
};

static struct sim {
    const struct job *job;
    struct proc *p;
    int procs, final;
    struct probe_report word[WORDS];
    struct event *heap;
    size_t n, room;
    uint64_t now, seq, rng;
    unsigned loss;
    unsigned reports, repeated, oks, registry, lost, fan_out;
} s;

static uint64_t draw(uint64_t below)
{
    s.rng = s.rng * 6364136223846793005ull + 1442695040888963407ull;
    return (s.rng >> 33) % below;
}

/* --- events: a binary heap --- */

static int before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void event_add(uint64_t delay, enum kind kind, int to, int link, int word)
{
    struct event e = {s.now + delay, s.seq++, kind, to, link, word};
    size_t i = s.n++;

    if (s.n > s.room) {
        s.room = s.room ? 2 * s.room : 4096;
        s.heap = realloc(s.heap, s.room * sizeof(*s.heap));
        if (!s.heap) {
            bench_die("no memory");
        }
    }
    for (; i > 0 && before(&e, &s.heap[(i - 1) / 2]); i = (i - 1) / 2) {
        s.heap[i] = s.heap[(i - 1) / 2];
    }
    s.heap[i] = e;
}

static struct event event_next(void)
{
    struct event first = s.heap[0], last = s.heap[--s.n];
    size_t i = 0, c;

    while ((c = 2 * i + 1) < s.n) {
        c += c + 1 < s.n && before(&s.heap[c + 1], &s.heap[c]);
        if (!before(&s.heap[c], &last)) {
            break;
        }
        s.heap[i] = s.heap[c];
        i = c;
    }
    s.heap[i] = last;
    return first;
}

/* --- jobs --- */

static void link_make(int p, int q)
{
    struct proc *a = &s.p[p], *b = &s.p[q];

    for (int i = 0; i < a->links; i++) {
        if (a->link[i].to == q) {
            return;
        }
    }
    if (a->links == MAX_LINKS || b->links == MAX_LINKS) {
        bench_die("more than %d neighbours", MAX_LINKS);
    }
    a->link[a->links] = (struct link){.to = q, .back = b->links};
    b->link[b->links] = (struct link){.to = p, .back = a->links};
    probe_gossip_join(&a->gossip, a->links++);
    probe_gossip_join(&b->gossip, b->links++);
}

static int rank(int host, int local)
{
    return host * s.job->per_host + local % s.job->per_host;
}

/* Parent of @host in a binary tree in which the hosts stand in order: its lowest bit goes one up.
 * -1: the root. */
static int parent(int host, int hosts)
{
    int bit = host & -host, up;

    if (host == 0) {
        return -1;
    }
    up = (host ^ bit) | bit << 1;
    return up < hosts ? up : host ^ bit;
}

/* A channel's inter-host connections. A ring enters a host at one process and leaves at the one
 * before it. */
static void channel_make(int c)
{
    int hosts = s.job->hosts, per_host = s.job->per_host;

    for (int h = 0; h < hosts; h++) {
        if (s.job->shape == TREE) {
            int mirrored = c >= CHANNELS / 2,
                up = parent(h, hosts); /* two trees: inner nodes of one are leaves of the other */

            if (up >= 0) {
                link_make(rank(mirrored ? hosts - 1 - h : h, c),
                          rank(mirrored ? hosts - 1 - up : up, c));
            }
        } else {
            link_make(rank(h, c + per_host - 1), rank((h + 1) % hosts, c));
        }
    }
}

static void job_make(void)
{
    int channels = s.job->shape == RING_ONE_CHANNEL || s.job->per_host == 1 ? 1 : CHANNELS;

    s.procs = s.job->hosts * s.job->per_host;
    s.p = calloc((size_t)s.procs, sizeof(*s.p)); /* all zero is an empty table */
    if (!s.p) {
        bench_die("no memory");
    }
    for (int p = 0; p < s.procs; p++) {
        s.p[p].origin = draw(1ull << 31) << 16 | (uint64_t)p;
        s.p[p].heard_at = s.p[p].final_at = UINT64_MAX;
    }
    if (s.job->shape != ALL_TO_ALL) {
        for (int c = 0; c < channels; c++) {
            channel_make(c);
        }
        return;
    }
    for (int p = 0; p < s.procs; p++) {
        for (int q = p + 1; q < s.procs; q++) {
            if (p / s.job->per_host != q / s.job->per_host) {
                link_make(p, q);
            }
        }
    }
}

/* --- what a process does --- */

static int word_number(const struct probe_report *w)
{
    return w->origin == s.word[0].origin ? 0 : 1;
}

static void message(int p, int link, enum kind kind, int word)
{
    struct link *l = &s.p[p].link[link];

    s.p[p].sent++;
    if (draw(1000) < s.loss) {
        s.lost++;
    } else {
        event_add(LATENCY_MIN + draw(LATENCY_MAX - LATENCY_MIN), kind, l->to, l->back, word);
    }
}

static void repeat_at(int p, int link, uint64_t interval)
{
    struct link *l = &s.p[p].link[link];

    l->interval = interval;
    l->send_at = s.now + interval;
    event_add(interval, REPEAT, p, link, 0);
}

/* A word that is new to @p goes to everybody who has not been told, and into the registry if it did
 * not come from there.
 */
static void relay(int p, int word, int to_registry)
{
    struct proc *x = &s.p[p];
    unsigned fan_out = 0;

    for (int k = 0; k < x->links; k++) {
        const struct probe_report *w;

        for (int i = 0; (w = probe_gossip_unsent(&x->gossip, k, &i)) != NULL;) {
            if (word_number(w) != word) {
                continue; /* the other one has its own repetition */
            }
            if (x->link[k].said >> word & 1) {
                bench_die("a process tells a neighbour twice that has lost nothing");
            }
            x->link[k].said |= (uint8_t)(1u << word);
            message(p, k, REPORT, word);
            repeat_at(p, k, REPEAT_FIRST);
            s.reports++;
            fan_out++;
        }
    }
    s.fan_out = fan_out > s.fan_out ? fan_out : s.fan_out;
    for (int k = 0; to_registry && k < s.job->per_host; k++) {
        int mate = rank(p / s.job->per_host, k);

        if (mate != p) {
            s.registry++;
            event_add(REGISTRY_MIN + draw(REGISTRY_MAX - REGISTRY_MIN), REGISTRY, mate, -1, word);
        }
    }
}

static void take(int p, int word, int from, int to_registry)
{
    struct proc *x = &s.p[p];

    if (!probe_gossip_put(&x->gossip, &s.word[word], from)) {
        return;
    }
    x->heard_at = x->heard_at == UINT64_MAX ? s.now : x->heard_at;
    x->final_at = word == s.final ? s.now : x->final_at;
    relay(p, word, to_registry);
}

static void repeat(int p, int link)
{
    struct proc *x = &s.p[p];
    const struct probe_report *w;
    int n = 0;

    if (x->link[link].send_at != s.now) {
        return; /* put off by a later word */
    }
    for (int i = 0; (w = probe_gossip_unsent(&x->gossip, link, &i)) != NULL; n++) {
        message(p, link, REPORT, word_number(w));
        s.repeated++;
    }
    if (n) {
        uint64_t twice = 2 * x->link[link].interval;

        repeat_at(p, link, twice < REPEAT_LAST ? twice : REPEAT_LAST);
    }
}

static void event_run(const struct event *e)
{
    const struct probe_report *w = &s.word[e->word];

    s.now = e->at;
    switch (e->kind) {
    case REPORT:
        take(e->to, e->word, e->link, 1);
        message(e->to, e->link, OK, e->word);
        s.oks++;
        break;
    case OK:
        probe_gossip_sent(&s.p[e->to].gossip, e->link, &w->subject, w->version, w->origin);
        break;
    case REPEAT:
        repeat(e->to, e->link);
        break;
    case REGISTRY:
        take(e->to, e->word, -1, 0);
        break;
    }
}

/* --- the bound --- */

static uint64_t *dist;

static void reach(int p, uint64_t at)
{
    if (at < dist[p]) {
        dist[p] = at;
        event_add(at - s.now, REGISTRY, p, -1, 0);
    }
}

/* When the last process knows what @origin says at 0, if nothing is lost and every step takes its
 * longest time. Leaves no event behind. */
static uint64_t bound(int origin)
{
    uint64_t last = 0;

    dist = malloc((size_t)s.procs * sizeof(*dist));
    if (!dist) {
        bench_die("no memory");
    }
    memset(dist, 0xff, (size_t)s.procs * sizeof(*dist));
    s.now = 0;
    reach(origin, 0);
    while (s.n) {
        struct event e = event_next();
        struct proc *x = &s.p[e.to];

        s.now = e.at;
        if (e.at > dist[e.to]) {
            continue;
        }
        last = e.at;
        for (int k = 0; k < x->links; k++) {
            reach(x->link[k].to, e.at + LATENCY_MAX);
        }
        for (int k = 0; k < s.job->per_host; k++) {
            reach(rank(e.to / s.job->per_host, k), e.at + REGISTRY_MAX);
        }
    }
    free(dist);
    s.now = 0;
    return last;
}

/* --- a run --- */

struct run {
    uint64_t heard, final, bound;
    unsigned reports, repeated, oks, registry, lost, sent_max, fan_out;
    uint64_t suppressed;
};

static void word_make(int i, int origin)
{
    struct probe_report *w = &s.word[i];

    memset(w, 0, sizeof(*w));
    w->subject = (struct probe_subject){.a = 1, .pa = 1};
    w->origin = s.p[origin].origin;
    w->blame = PROBE_BLAME_LOCAL_LINK;
    probe_gossip_next_version(&s.p[origin].gossip, w);
}

static void result_take(struct run *r)
{
    for (int p = 0; p < s.procs; p++) {
        const struct proc *x = &s.p[p];
        const struct probe_report *w = probe_gossip_find(&x->gossip, &s.word[0].subject);

        if (!w || memcmp(w, &s.word[s.final], sizeof(*w)) != 0 || x->gossip.count != 1) {
            bench_die("process %d of %d does not end with the last word", p, s.procs);
        }
        r->heard = x->heard_at > r->heard ? x->heard_at : r->heard;
        r->final = x->final_at > r->final ? x->final_at : r->final;
        r->sent_max = x->sent > r->sent_max ? x->sent : r->sent_max;
        r->suppressed += x->gossip.known + x->gossip.stale;
    }
    r->reports = s.reports;
    r->repeated = s.repeated;
    r->oks = s.oks;
    r->registry = s.registry;
    r->lost = s.lost;
    r->fan_out = s.fan_out;
}

/* Both ends of a connection find out at once, or one of them does. */
static struct run job_run(const struct job *job, uint64_t seed, unsigned loss, int both)
{
    struct run r = {0};
    int end[WORDS];

    s = (struct sim){
        .job = job, .rng = seed * 0x9e3779b97f4a7c15ull, .heap = s.heap, .room = s.room};
    job_make();
    do {
        end[0] = (int)draw((uint64_t)s.procs);
    } while (s.p[end[0]].links ==
             0); /* a process without a connection to another host finds out nothing */
    end[1] = s.p[end[0]].link[draw((uint64_t)s.p[end[0]].links)].to;
    word_make(0, end[0]);
    word_make(1, end[1]);
    s.final = both && s.word[1].origin > s.word[0].origin;
    r.bound = bound(end[s.final]);
    s.loss = loss;
    take(end[0], 0, -1, 1);
    if (both) {
        take(end[1], 1, -1, 1);
    }
    while (s.n) {
        struct event e = event_next();

        event_run(&e);
    }
    result_take(&r);
    if (loss == 0 && (r.final > r.bound || s.repeated > 0 || s.lost > 0)) {
        bench_die("%s of %d: %llu ns without loss, the bound is %llu", job->name, s.procs,
                  (unsigned long long)r.final, (unsigned long long)r.bound);
    }
    free(s.p);
    return r;
}

static int compare(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return a < b ? -1 : a > b;
}

static void spread_print(const char *name, uint64_t *v, unsigned n)
{
    qsort(v, n, sizeof(*v), compare);
    printf("\"%s\": {\"min_ms\": %.3f, \"median_ms\": %.3f, \"max_ms\": %.3f}, ", name,
           (double)v[0] / 1e6, (double)v[n / 2] / 1e6, (double)v[n - 1] / 1e6);
}

static void job_print(const struct job *job, unsigned seeds)
{
    static uint64_t heard[SEEDS_MAX], final[SEEDS_MAX], whole[SEEDS_MAX], sent[SEEDS_MAX];
    struct run most = {0};
    uint64_t lost = 0;

    for (unsigned i = 0; i < seeds; i++) {
        struct run calm = job_run(job, i + 1, 0, (int)(i & 1)),
                   r = job_run(job, i + 1, LOSS_PER_MILL, (int)(i & 1));

        heard[i] = r.heard;
        final[i] = r.final;
        whole[i] = calm.final;
        sent[i] = r.reports + r.repeated + r.oks;
        lost += r.lost;
        most.bound = r.bound > most.bound ? r.bound : most.bound;
        most.repeated = r.repeated > most.repeated ? r.repeated : most.repeated;
        most.sent_max = r.sent_max > most.sent_max ? r.sent_max : most.sent_max;
        most.fan_out = r.fan_out > most.fan_out ? r.fan_out : most.fan_out;
        most.suppressed = r.suppressed > most.suppressed ? r.suppressed : most.suppressed;
        most.registry = r.registry > most.registry ? r.registry : most.registry;
    }
    if (lost == 0 && seeds * (unsigned)(job->hosts * job->per_host) > 1000) {
        bench_die("%s: nothing was lost", job->name);
    }
    printf("{\"job\": \"%s\", \"hosts\": %d, \"processes\": %d, ", job->name, job->hosts,
           job->hosts * job->per_host);
    spread_print("no_loss", whole, seeds);
    printf("\"bound_ms\": %.3f, ", (double)most.bound / 1e6);
    spread_print("heard", heard, seeds);
    spread_print("last_word", final, seeds);
    qsort(sent, seeds, sizeof(sent[0]), compare);
    printf(
        "\"messages_median\": %llu, \"messages_max\": %llu, \"of_one_process_max\": %u, \"fan_out_max\": %u, ",
        (unsigned long long)sent[seeds / 2], (unsigned long long)sent[seeds - 1], most.sent_max,
        most.fan_out);
    printf("\"repeated_max\": %u, \"suppressed_max\": %llu, \"registry_max\": %u, \"lost\": %llu}",
           most.repeated, (unsigned long long)most.suppressed, most.registry,
           (unsigned long long)lost);
}

int bench_gossip_run(unsigned seeds)
{
    printf(
        "{\"seeds\": %u, \"latency_us\": [%llu, %llu], \"registry_us\": [%llu, %llu], \"loss_percent\": %.1f, "
        "\"repeat_ms\": [%llu, %llu], \"jobs\": [",
        seeds, LATENCY_MIN / US, LATENCY_MAX / US, REGISTRY_MIN / US, REGISTRY_MAX / US,
        LOSS_PER_MILL / 10.0, REPEAT_FIRST / US / 1000, REPEAT_LAST / US / 1000);
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        printf("%s\n    ", i ? "," : "");
        job_print(&jobs[i], seeds);
        fflush(stdout);
    }
    printf("\n  ]}\n");
    free(s.heap);
    s.heap = NULL;
    return 0;
}
