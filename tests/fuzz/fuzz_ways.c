/* The file of UDP source ports that NCCL_R2_WAYS names: a controller's, or a slip of the pen. */
#include "fuzz.h"

#include <arpa/inet.h>

#include "ib_transport/ib_way_file.h"

static struct ib_way_rule rule[IB_WAY_RULES_MAX], again[IB_WAY_RULES_MAX];

static size_t net_print(char *to, size_t room, const struct ib_way_net *net)
{
    char text[INET6_ADDRSTRLEN];

    FUZZ_CHECK(net->bits <= 128 && inet_ntop(AF_INET6, net->gid, text, sizeof(text)) != NULL);
    return (size_t)snprintf(to, room, "%s/%u ", text, net->bits);
}

/* Given again in other words the rules are the same. */
static void print_run(const struct ib_ways *w)
{
    static char text[IB_WAY_RULES_MAX * 256];
    struct ib_way_file_error e;
    struct ib_ways other = {.n = w->n, .rule = again};
    size_t n = 0;

    for (unsigned i = 0; i < w->rules; i++) {
        const struct ib_way_rule *r = &w->rule[i];

        FUZZ_CHECK(r->ports > 0 && r->ports <= IB_WAYS_MAX && r->line > i);
        n += net_print(text + n, sizeof(text) - n, &r->end[0]);
        n += net_print(text + n, sizeof(text) - n, &r->end[1]);
        for (unsigned k = 0; k < r->ports; k++) {
            FUZZ_CHECK(r->port[k] >= IB_WAY_PORT_MIN);
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%u,", r->port[k]);
        }
        text[n++] = '\n';
    }
    FUZZ_CHECK(ib_way_file_parse(text, n, again, &e) == (int)w->rules);
    other.rules = w->rules;
    FUZZ_CHECK(ib_ways_digest(&other) == ib_ways_digest(w));
}

/* Between two ports: both ends come to the same, whatever number they begin with. */
static void lookup_run(const struct ib_ways *w, const uint8_t *a, const uint8_t *b, unsigned way)
{
    unsigned n = ib_ways_count(w, a, b), mine = ib_way_fold(w, way, a, b);
    uint32_t label = ib_way_label(w, way, a, b);

    FUZZ_CHECK(n >= 1 && n <= IB_WAYS_MAX && n == ib_ways_count(w, b, a));
    FUZZ_CHECK(n <= ib_ways_most(w, a) && n <= ib_ways_most(w, b));
    FUZZ_CHECK(mine == ib_way_fold(w, way, b, a) && mine == ib_way_fold(w, mine, a, b));
    FUZZ_CHECK(label == ib_way_label(w, way, b, a) && label == ib_way_label(w, mine, a, b));
    FUZZ_CHECK(label < 1u << 20 && (label == 0 || ib_way_udp_port(label) >= IB_WAY_PORT_MIN));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};
    unsigned way = fuzz_u8(&in), n;
    struct ib_way_file_error e = {0};
    struct ib_ways w = {.n = 1 + way % IB_WAYS_MAX, .rule = rule};
    const char *path, *text;
    const uint8_t *at;
    char option[300];
    size_t len;
    int rules;

    fuzz_text(&in, option, sizeof(option));
    if (ib_ways_option(option, &n, &path) == 0) {
        FUZZ_CHECK(n >= 1 && n <= IB_WAYS_MAX && (path == NULL || path == option));
    }
    len = fuzz_bytes(&in, IB_WAY_FILE_MAX, &at);
    text = at ? (const char *)at : "";
    rules = ib_way_file_parse(text, len, rule, &e);
    FUZZ_CHECK(memchr(e.why, 0, sizeof(e.why)) != NULL);
    if (rules < 0) {
        FUZZ_CHECK(e.why[0] != 0);
        return 0;
    }
    FUZZ_CHECK(rules > 0 && rules <= IB_WAY_RULES_MAX);
    w.rules = (unsigned)rules;
    print_run(&w);
    for (unsigned i = 0; i < w.rules && i < 64; i++) {
        lookup_run(&w, rule[i].end[0].gid, rule[i].end[1].gid, way);
        lookup_run(&w, rule[i].end[0].gid, rule[0].end[1].gid, way);
    }
    return 0;
}
