/* Description of a fabric: text form, addresses. */
#include "fab_desc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The epoch has 7 bits in an address. */
#define EPOCH_MASK 127

static int fail(char *err, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *err, size_t len, const char *fmt, ...)
{
    va_list ap;

    if (err && len) {
        va_start(ap, fmt);
        vsnprintf(err, len, fmt, ap);
        va_end(ap);
    }
    return -1;
}

/* Number with a unit: *scale out of the table, matched in full. */
struct unit {
    const char *name;
    double scale;
};

static int parse_unit(const char *text, const struct unit *units, double *out)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || !(v >= 0) || v > 1e18) {
        return -1;
    }
    for (; units->name; units++) {
        if (strcmp(end, units->name) == 0) {
            *out = v * units->scale;
            return *out <= 9e18 ? 0 : -1;
        }
    }
    return -1;
}

int fab_parse_rate(const char *text, uint64_t *bytes_per_s)
{
    static const struct unit units[] = {
        {"B/s", 1},      {"kB/s", 1e3},   {"KB/s", 1e3},       {"MB/s", 1e6},
        {"GB/s", 1e9},   {"KiB/s", 1024}, {"MiB/s", 1048576.}, {"GiB/s", 1073741824.},
        {"b/s", .125},   {"kb/s", 125},   {"Kb/s", 125},       {"Mb/s", 125e3},
        {"Gb/s", 125e6}, {"kbit/s", 125}, {"Mbit/s", 125e3},   {"Gbit/s", 125e6},
        {NULL, 0},
    };
    double v;

    if (strcmp(text, "0") == 0 || strcmp(text, "unlimited") == 0) {
        *bytes_per_s = 0;
        return 0;
    }
    if (parse_unit(text, units, &v) || v < 1) {
        return -1;
    }
    *bytes_per_s = (uint64_t)v;
    return 0;
}

int fab_parse_time(const char *text, uint64_t *ns)
{
    static const struct unit units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
    double v;

    if (strcmp(text, "0") == 0) {
        *ns = 0;
        return 0;
    }
    if (parse_unit(text, units, &v)) {
        return -1;
    }
    *ns = (uint64_t)v;
    return 0;
}

int fab_parse_percent(const char *text, uint32_t *ppm)
{
    static const struct unit units[] = {{"%", 1e4}, {NULL, 0}};
    double v;

    if (parse_unit(text, units, &v) || v > 1e6) {
        return -1;
    }
    *ppm = (uint32_t)(v + .5);
    return 0;
}

static const char *const hashes[FAB_HASHES] = {"ports", "qp"};

const char *fab_hash_name(enum fab_hash hash)
{
    return hash < FAB_HASHES ? hashes[hash] : "unknown";
}

int fab_parse_hash(const char *text, enum fab_hash *hash)
{
    for (int i = 0; i < FAB_HASHES; i++) {
        if (strcmp(text, hashes[i]) == 0) {
            *hash = (enum fab_hash)i;
            return 0;
        }
    }
    return -1;
}

int fab_desc_init(struct fab_desc *d, int hosts, int nics, uint64_t rate, uint64_t latency_ns,
                  char *err, size_t err_len)
{
    if (hosts < 1 || hosts > FAB_MAX_HOSTS) {
        return fail(err, err_len, "hosts %d: must be 1 to %d", hosts, FAB_MAX_HOSTS);
    }
    if (nics < 1 || nics > FAB_MAX_NICS) {
        return fail(err, err_len, "nics %d: must be 1 to %d", nics, FAB_MAX_NICS);
    }
    d->leaf = 0;
    d->hosts = hosts;
    d->nics = nics;
    d->crossrail = d->reorder = false;
    d->spines = 1;
    d->hash = FAB_HASH_PORTS;
    for (int h = 0; h < hosts; h++) {
        for (int n = 0; n < nics; n++) {
            struct fab_nic_desc *nd = &d->nic[h][n];
            int node = n >= (nics + 1) / 2;
            int root = node * 0x80 + n / 2 * 0x10;

            snprintf(nd->pci, sizeof nd->pci,
                     "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:%02x.0/0000:%02x:00.0",
                     root, root, root + 1, root + 2, n & 1, root + 3 + (n & 1));
            nd->numa = node;
            nd->rate = rate;
            nd->latency_ns = latency_ns;
            nd->ib = (struct fab_ib){0};
            nd->ece = (struct fab_ece){FAB_ECE_VENDOR, FAB_ECE_OPTIONS};
        }
    }
    return 0;
}

static int parse_int(const char *text, int min, int max, int *out)
{
    char *end;
    long v;

    if (!text) {
        return -1;
    }
    v = strtol(text, &end, 10);
    if (end == text || *end || v < min || v > max) {
        return -1;
    }
    *out = (int)v;
    return 0;
}

/* One "key value" of a nic line. */
static int nic_attr(struct fab_nic_desc *nd, const char *key, const char *val)
{
    if (strcmp(key, "pci") == 0 && strlen(val) < sizeof nd->pci) {
        snprintf(nd->pci, sizeof nd->pci, "%s", val);
        return 0;
    }
    if (strcmp(key, "numa") == 0) {
        return parse_int(val, -1, 1023, &nd->numa);
    }
    if (strcmp(key, "rate") == 0) {
        return fab_parse_rate(val, &nd->rate);
    }
    if (strcmp(key, "latency") == 0) {
        return fab_parse_time(val, &nd->latency_ns);
    }
    return -1;
}

/* "nic N key value ...", for host @host or, -1, for all. */
static int nic_line(struct fab_desc *d, int host, char **save, int line, char *err, size_t err_len)
{
    const char *word = strtok_r(NULL, " \t", save);
    const char *key, *val;
    int nic;

    if (parse_int(word, 0, d->nics - 1, &nic)) {
        return fail(err, err_len, "line %d: nic %s: must be 0 to %d", line,
                    word ? word : "(missing)", d->nics - 1);
    }
    while ((key = strtok_r(NULL, " \t", save)) != NULL) {
        val = strtok_r(NULL, " \t", save);
        if (!val) {
            return fail(err, err_len, "line %d: %s: value missing", line, key);
        }
        for (int h = 0; h < d->hosts; h++) {
            if ((host < 0 || h == host) && nic_attr(&d->nic[h][nic], key, val)) {
                return fail(err, err_len, "line %d: %s %s: not a pci, numa, rate or latency value",
                            line, key, val);
            }
        }
    }
    return 0;
}

struct parse {
    int hosts, nics;
    uint64_t rate, latency;
    bool built;
    int line;
    char *err;
    size_t err_len;
};

static int build(struct fab_desc *d, struct parse *p)
{
    bool crossrail = d->crossrail, reorder = d->reorder;
    enum fab_hash hash = d->hash;
    int spines = d->spines;

    if (p->built) {
        return 0;
    }
    if (!p->hosts || !p->nics) {
        return fail(p->err, p->err_len, "line %d: hosts and nics must come before it", p->line);
    }
    if (fab_desc_init(d, p->hosts, p->nics, p->rate, p->latency, p->err, p->err_len)) {
        return -1;
    }
    d->crossrail = crossrail;
    d->reorder = reorder;
    d->spines = spines;
    d->hash = hash;
    p->built = true;
    return 0;
}

/* Statements about the whole fabric; they come before those about single NICs. */
static int global_word(struct parse *p, const char *word, const char *val)
{
    if (p->built) {
        return fail(p->err, p->err_len,
                    "line %d: %s: must come before lines that name a host or a nic", p->line, word);
    }
    if (strcmp(word, "hosts") == 0 && parse_int(val, 1, FAB_MAX_HOSTS, &p->hosts)) {
        return fail(p->err, p->err_len, "line %d: hosts %s: must be 1 to %d", p->line,
                    val ? val : "", FAB_MAX_HOSTS);
    }
    if (strcmp(word, "nics") == 0 && parse_int(val, 1, FAB_MAX_NICS, &p->nics)) {
        return fail(p->err, p->err_len, "line %d: nics %s: must be 1 to %d", p->line,
                    val ? val : "", FAB_MAX_NICS);
    }
    if (strcmp(word, "rate") == 0 && (!val || fab_parse_rate(val, &p->rate))) {
        return fail(p->err, p->err_len, "line %d: rate %s: want a rate like 100MB/s", p->line,
                    val ? val : "");
    }
    if (strcmp(word, "latency") == 0 && (!val || fab_parse_time(val, &p->latency))) {
        return fail(p->err, p->err_len, "line %d: latency %s: want a time like 10us", p->line,
                    val ? val : "");
    }
    return 0;
}

/* "spines N", "hash qp". */
static int spine_line(struct fab_desc *d, const char *word, char **save, int line, char *err,
                      size_t err_len)
{
    const char *val = strtok_r(NULL, " \t", save);

    if (strcmp(word, "spines") == 0 && parse_int(val, 1, FAB_MAX_SPINES, &d->spines)) {
        return fail(err, err_len, "line %d: spines %s: must be 1 to %d", line, val ? val : "",
                    FAB_MAX_SPINES);
    }
    if (strcmp(word, "hash") == 0 && (!val || fab_parse_hash(val, &d->hash))) {
        return fail(err, err_len, "line %d: hash %s: want ports or qp", line, val ? val : "");
    }
    word = strtok_r(NULL, " \t", save);
    return word ? fail(err, err_len, "line %d: %s: unexpected", line, word) : 0;
}

static int parse_line(struct fab_desc *d, struct parse *p, char *line)
{
    char *save = NULL;
    const char *word = strtok_r(line, " \t", &save);
    const char *val;
    int host;

    if (!word) {
        return 0;
    }
    if (strcmp(word, "nic") == 0) {
        return build(d, p) ? -1 : nic_line(d, -1, &save, p->line, p->err, p->err_len);
    }
    if (strcmp(word, "host") == 0) {
        if (build(d, p)) {
            return -1;
        }
        val = strtok_r(NULL, " \t", &save);
        if (parse_int(val, 0, d->hosts - 1, &host)) {
            return fail(p->err, p->err_len, "line %d: host %s: must be 0 to %d", p->line,
                        val ? val : "(missing)", d->hosts - 1);
        }
        word = strtok_r(NULL, " \t", &save);
        if (!word || strcmp(word, "nic")) {
            return fail(p->err, p->err_len, "line %d: %s: want nic after the host", p->line,
                        word ? word : "(end)");
        }
        return nic_line(d, host, &save, p->line, p->err, p->err_len);
    }
    if (strcmp(word, "crossrail") == 0) {
        d->crossrail = true;
        return 0;
    }
    if (strcmp(word, "reorder") == 0) {
        d->reorder = true;
        return 0;
    }
    if (strcmp(word, "spines") == 0 || strcmp(word, "hash") == 0) {
        return spine_line(d, word, &save, p->line, p->err, p->err_len);
    }
    if (strcmp(word, "hosts") && strcmp(word, "nics") && strcmp(word, "rate") &&
        strcmp(word, "latency")) {
        return fail(p->err, p->err_len, "line %d: %s: unknown statement", p->line, word);
    }
    val = strtok_r(NULL, " \t", &save);
    if (global_word(p, word, val)) {
        return -1;
    }
    word = strtok_r(NULL, " \t", &save);
    return word ? fail(p->err, p->err_len, "line %d: %s: unexpected", p->line, word) : 0;
}

int fab_desc_parse(struct fab_desc *d, const char *text, char *err, size_t err_len)
{
    struct parse p = {.err = err, .err_len = err_len};
    char line[512];

    d->crossrail = d->reorder = false;
    d->spines = 1;
    d->hash = FAB_HASH_PORTS;
    while (*text) {
        size_t n = strcspn(text, "\n");
        size_t use = strcspn(text, "#\n");

        p.line++;
        if (use >= sizeof line) {
            return fail(err, err_len, "line %d: longer than %zu characters", p.line,
                        sizeof line - 1);
        }
        memcpy(line, text, use);
        line[use] = 0;
        line[strcspn(line, "\r")] = 0;
        if (parse_line(d, &p, line)) {
            return -1;
        }
        text += n + (text[n] == '\n');
    }
    return build(d, &p);
}

void fab_nic_name(int nic, char *name, size_t len)
{
    snprintf(name, len, "fab%d", nic);
}

static void eui_make(int host, int nic, uint32_t epoch, uint8_t eui[8])
{
    const uint8_t b[8] = {0x00,          0xfa,        0xb0, 0xff, 0xfe, epoch & EPOCH_MASK,
                          (uint8_t)host, (uint8_t)nic};

    memcpy(eui, b, 8);
}

uint64_t fab_nic_guid(int host, int nic)
{
    uint64_t guid;

    eui_make(host, nic, 0, (uint8_t *)&guid);
    return guid;
}

void fab_gid_make(int host, int nic, uint32_t epoch, int index, union ibv_gid *gid)
{
    memset(gid, 0, sizeof *gid);
    if (index < 2) {
        gid->raw[0] = 0xfe;
        gid->raw[1] = 0x80;
        eui_make(host, nic, epoch, gid->raw + 8);
        return;
    }
    gid->raw[10] = gid->raw[11] = 0xff;
    gid->raw[12] = 10;
    gid->raw[13] = (uint8_t)(10 + (epoch & EPOCH_MASK));
    gid->raw[14] = (uint8_t)nic;
    gid->raw[15] = (uint8_t)(host + 1);
}

int fab_desc_resolve(const struct fab_desc *d, int from_nic, const union ibv_gid *gid,
                     struct fab_addr *dst)
{
    union ibv_gid back;
    int index = gid->raw[0] == 0xfe ? 1 : 3;

    if (index == 1) {
        *dst = (struct fab_addr){.host = gid->raw[14], .nic = gid->raw[15], .epoch = gid->raw[13]};
    } else {
        *dst = (struct fab_addr){.host = (uint16_t)(gid->raw[15] - 1),
                                 .nic = gid->raw[14],
                                 .epoch = (uint32_t)gid->raw[13] - 10};
    }
    if (dst->host >= d->hosts || dst->nic >= d->nics || dst->epoch > EPOCH_MASK) {
        return ETIMEDOUT;
    }
    fab_gid_make(dst->host, dst->nic, dst->epoch, index, &back);
    if (memcmp(back.raw, gid->raw, 16) != 0) {
        return ETIMEDOUT;
    }
    return dst->nic == from_nic || d->crossrail ? 0 : ETIMEDOUT;
}

void fab_gid_ib(const struct fab_ib *ib, int index, union ibv_gid *gid)
{
    if (index > 1 || (index == 1 && !ib->flid)) {
        memset(gid, 0, sizeof *gid);
        return;
    }
    gid->raw[6] = (uint8_t)(ib->subnet >> 8);
    gid->raw[7] = (uint8_t)ib->subnet;
    gid->raw[4] = index ? (uint8_t)(ib->flid >> 8) : 0;
    gid->raw[5] = index ? (uint8_t)ib->flid : 0;
}

/* Whether port @to has GID @gid. */
static bool has_gid(const struct fab_desc *d, const struct fab_addr *to, const union ibv_gid *gid)
{
    const struct fab_ib *ib = &d->nic[to->host][to->nic].ib;
    union ibv_gid own;

    for (int i = 0; i < 2; i++) {
        fab_gid_make(to->host, to->nic, to->epoch, i, &own);
        fab_gid_ib(ib, i, &own);
        if (memcmp(own.raw, gid->raw, 16) == 0) {
            return true;
        }
    }
    return false;
}

int fab_desc_route(const struct fab_desc *d, int host, int nic, const struct ibv_ah_attr *ah,
                   struct fab_addr *dst)
{
    const struct fab_ib *from = &d->nic[host][nic].ib;
    union ibv_gid bare = ah->grh.dgid;
    struct fab_addr named;
    int known;

    if (!from->lid) {
        return fab_desc_resolve(d, nic, &ah->grh.dgid, dst);
    }
    memset(bare.raw + 4, 0, 4);
    known = ah->is_global && fab_desc_resolve(d, nic, &bare, &named) == 0 &&
            has_gid(d, &named, &ah->grh.dgid);
    *dst = (struct fab_addr){.host = (uint16_t)host, .nic = (uint16_t)nic, .epoch = UINT32_MAX};
    if (known && d->nic[named.host][named.nic].ib.subnet != from->subnet) {
        if (ah->dlid == d->nic[named.host][named.nic].ib.flid) {
            *dst = named;
        }
        return 0;
    }
    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            const struct fab_ib *ib = &d->nic[h][n].ib;
            if ((ah->dlid & -(1 << ib->lmc)) != ib->lid || ib->subnet != from->subnet ||
                (n != nic && !d->crossrail)) {
                continue;
            }
            if (!ah->is_global || (known && named.host == h && named.nic == n)) {
                *dst = (struct fab_addr){
                    .host = (uint16_t)h, .nic = (uint16_t)n, .epoch = known ? named.epoch : 0};
            }
        }
    }
    return 0;
}
