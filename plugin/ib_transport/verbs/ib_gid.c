#include "ib_gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib_sysfs.h"

#define SCORE_USABLE  1
#define SCORE_IPV4    2
#define SCORE_GLOBAL  4
#define SCORE_VERSION 8
#define SCORE_BEST    (SCORE_USABLE | SCORE_IPV4 | SCORE_GLOBAL | SCORE_VERSION)

#define GID_INDEX_MAX 255

static bool gid_is_ipv4(const uint8_t *raw)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(raw, mapped, sizeof(mapped)) == 0;
}

static bool gid_is_link_local(const uint8_t *raw)
{
    if (gid_is_ipv4(raw)) {
        return raw[12] == 169 && raw[13] == 254;
    }
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

/* --- rule --- */

static int family_of(const char *text)
{
    return strcmp(text, "AF_INET") == 0    ? 4
           : strcmp(text, "AF_INET6") == 0 ? 6
           : text[0] == '\0'               ? 0
                                           : -1;
}

/* ADDRESS/BITS. Returns its family, or 0. */
static int range_parse(const char *text, uint8_t prefix[16], int *bits)
{
    char address[INET6_ADDRSTRLEN], *end;
    size_t n = strcspn(text, "/");
    long value;
    int family;

    if (n >= sizeof(address) || text[n] != '/' || text[n + 1] < '0' || text[n + 1] > '9') {
        return 0;
    }
    memcpy(address, text, n);
    address[n] = '\0';
    memset(prefix, 0, 16);
    if (inet_pton(AF_INET, address, prefix + 12) == 1) {
        prefix[10] = prefix[11] = 0xff;
        family = 4;
    } else if (inet_pton(AF_INET6, address, prefix) == 1) {
        family = 6;
    } else {
        return 0;
    }
    value = strtol(text + n + 1, &end, 10);
    if (*end != '\0' || value > (family == 4 ? 32 : 128)) {
        return 0;
    }
    *bits = (int)value + (family == 4 ? 96 : 0);
    return family;
}

int ib_gid_rule_parse(struct ib_gid_rule *rule, const struct r2_config *cfg, char *why,
                      size_t why_len)
{
    struct ib_gid_rule given = {.version = (int)cfg->ib_roce_version,
                                .family = family_of(cfg->ib_addr_family)};
    int of_range = 0;

    *rule = (struct ib_gid_rule){.version = given.version};
    if (given.family < 0) {
        snprintf(why, why_len, "NCCL_IB_ADDR_FAMILY=%.64s: expected AF_INET or AF_INET6",
                 cfg->ib_addr_family);
        return -1;
    }
    if (cfg->ib_addr_range[0]) {
        of_range = range_parse(cfg->ib_addr_range, given.prefix, &given.bits);
        if (of_range == 0) {
            snprintf(why, why_len,
                     "NCCL_IB_ADDR_RANGE=%.64s: expected ADDRESS/BITS, as 10.0.0.0/8 or fd00::/8",
                     cfg->ib_addr_range);
            return -1;
        }
    }
    if (given.family && of_range && given.family != of_range) {
        snprintf(why, why_len,
                 "NCCL_IB_ADDR_RANGE=%.64s: expected a range of NCCL_IB_ADDR_FAMILY=%s",
                 cfg->ib_addr_range, cfg->ib_addr_family);
        return -1;
    }
    given.family = of_range ? of_range : given.family;
    *rule = given;
    return 0;
}

int ib_gid_fits(const struct ib_gid_rule *rule, const union ibv_gid *gid)
{
    int whole = rule->bits / 8, rest = rule->bits % 8;

    if (rule->family && rule->family != (gid_is_ipv4(gid->raw) ? 4 : 6)) {
        return 0;
    }
    return memcmp(gid->raw, rule->prefix, (size_t)whole) == 0 &&
           (rest == 0 || (gid->raw[whole] ^ rule->prefix[whole]) >> (8 - rest) == 0);
}

/* --- entries --- */

int ib_gid_score(const union ibv_gid *gid, int version, int preferred)
{
    static const uint8_t zero[16];
    const uint8_t *raw = gid->raw;
    int score = SCORE_USABLE;

    /* an empty slot, or a link-local prefix whose interface part is not there yet */
    if (memcmp(raw, zero, 16) == 0 || (raw[0] == 0xfe && memcmp(raw + 8, zero, 8) == 0)) {
        return 0;
    }
    if (gid_is_ipv4(raw)) {
        score |= SCORE_IPV4;
    }
    if (!gid_is_link_local(raw)) {
        score |= SCORE_GLOBAL;
    }
    if (version == preferred) {
        score |= SCORE_VERSION;
    }
    return score;
}

static int gid_version(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int index)
{
    struct ibv_gid_entry entry;
    int version = ib_sysfs_roce_version(ctx->device->ibdev_path, port, index);

    if (version == 0 && v->query_gid_ex &&
        v->query_gid_ex(ctx, port, (uint32_t)index, &entry, 0, sizeof(entry)) == 0) {
        version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 1;
    }
    return version;
}

static int gid_read(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int index,
                    union ibv_gid *gid)
{
    int rc;

    memset(gid, 0, sizeof(*gid));
    errno = 0;
    rc = v->query_gid(ctx, port, index, gid);
    return ib_verbs_err(rc);
}

static bool is_usable(const union ibv_gid *gid)
{
    return ib_gid_score(gid, 0, 0) != 0;
}

static bool is_same(const union ibv_gid *a, const union ibv_gid *b)
{
    return memcmp(a->raw, b->raw, sizeof(a->raw)) == 0;
}

/* 0 and *@e; else an errno: EADDRNOTAVAIL where the entry is empty. */
static int entry_read(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int index,
                      struct ib_gid_entry *e)
{
    int rc = gid_read(v, ctx, port, index, &e->gid);

    if (rc != 0 || !is_usable(&e->gid)) {
        return rc != 0 ? rc : EADDRNOTAVAIL;
    }
    e->index = (uint8_t)index;
    e->version = (uint8_t)gid_version(v, ctx, port, index);
    return 0;
}

/* The errors of single entries are passed over: a table has holes. */
static int gid_search(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int entries,
                      const struct ib_gid_rule *rule, struct ib_gid_entry *e)
{
    int best_score = 0;

    for (int i = 0; i < entries && best_score < SCORE_BEST; i++) {
        struct ib_gid_entry at;
        int score;

        if (gid_read(v, ctx, port, i, &at.gid) != 0 || !is_usable(&at.gid) ||
            !ib_gid_fits(rule, &at.gid)) {
            continue; /* the common case in a long table: no need to ask for its version */
        }
        at.index = (uint8_t)i;
        at.version = (uint8_t)gid_version(v, ctx, port, i);
        score = ib_gid_score(&at.gid, at.version, rule->version);
        if (score > best_score) {
            best_score = score;
            *e = at;
        }
    }
    return best_score ? 0 : EADDRNOTAVAIL;
}

/* Whether @e is the address @home. A version that is not known, of an entry that was going when it
 * was read perhaps, is any. */
static bool is_home(const struct ib_gid_entry *home, const struct ib_gid_entry *e)
{
    return is_same(&home->gid, &e->gid) &&
           (home->version == e->version || home->version == 0 || e->version == 0);
}

/* Whether peers that reach @home reach @e: by family, version and scope. */
static bool is_alike(const struct ib_gid_entry *home, const struct ib_gid_entry *e)
{
    return ib_gid_score(&home->gid, 0, 0) == ib_gid_score(&e->gid, 0, 0) &&
           (home->version == e->version || home->version == 0 || e->version == 0);
}

/* Where @home is: the kernel has each address once for each version. A link-local one stands there
 * for each VLAN of the port, too, and nothing tells them apart: it is followed nowhere. */
static bool home_find(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int entries,
                      int preferred, const struct ib_gid_entry *home, struct ib_gid_entry *e)
{
    bool found = false;

    for (int i = 0; i < entries && !gid_is_link_local(home->gid.raw); i++) {
        struct ib_gid_entry at;

        if (gid_read(v, ctx, port, i, &at.gid) != 0 || !is_same(&home->gid, &at.gid)) {
            continue;
        }
        at.index = (uint8_t)i;
        at.version = (uint8_t)gid_version(v, ctx, port, i);
        if (is_home(home, &at) && (!found || at.version == preferred)) {
            *e = at;
            found = true;
        }
    }
    return found;
}

/*
 * NCCL_IB_GID_INDEX: the address that this entry had first, wherever it is; else what the entry has
 * now, where it is of the same kind: queue pairs of another one do not reach their peers.
 */
static int gid_given(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int entries,
                     const struct r2_config *cfg, const struct ib_gid_entry *home,
                     struct ib_gid_entry *e)
{
    int given = (int)cfg->ib_gid_index, version = (int)cfg->ib_roce_version;
    struct ib_gid_entry now;
    int rc;

    if (given >= entries) {
        return ERANGE;
    }
    rc = entry_read(v, ctx, port, given, &now);
    if (is_usable(&home->gid) && (rc != 0 || !is_home(home, &now))) {
        if (home_find(v, ctx, port, entries, version, home, e)) {
            return 0;
        }
        rc = rc == 0 && !is_alike(home, &now) ? EADDRNOTAVAIL : rc;
    }
    if (rc == 0) {
        *e = now;
    }
    return rc;
}

static int roce_choose(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, int entries,
                       const struct r2_config *cfg, const struct ib_gid_entry *home,
                       struct ib_gid_entry *e)
{
    struct ib_gid_rule rule;
    char why[192];

    if (cfg->ib_gid_index >= 0) {
        return gid_given(v, ctx, port, entries, cfg, home, e);
    }
    /* what is wrong with it ends the job at listen */
    ib_gid_rule_parse(&rule, cfg, why, sizeof(why));
    return gid_search(v, ctx, port, entries, &rule, e);
}

int ib_gid_choose(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port,
                  const struct ibv_port_attr *attr, const struct r2_config *cfg,
                  const struct ib_gid_entry *home, struct ib_gid_entry *e)
{
    int entries = attr->gid_tbl_len < GID_INDEX_MAX + 1 ? attr->gid_tbl_len : GID_INDEX_MAX + 1;
    int i = 0;

    if (attr->link_layer == IBV_LINK_LAYER_ETHERNET) {
        return roce_choose(v, ctx, port, entries, cfg, home, e);
    }
    if (cfg->ib_flid_gid < entries && gid_read(v, ctx, port, (int)cfg->ib_flid_gid, &e->gid) == 0 &&
        ib_gid_flid(e->gid.raw)) {
        i = (int)cfg->ib_flid_gid;
    }
    e->index = (uint8_t)i;
    e->version = 0;
    return gid_read(v, ctx, port, i, &e->gid);
}

void ib_gid_home_note(struct ib_gid_entry *home, int given, const struct ib_gid_entry *e)
{
    if (is_usable(&home->gid)) {
        home->version =
            home->version == 0 && is_same(&home->gid, &e->gid) ? e->version : home->version;
    } else if (given >= 0) {
        *home = *e; /* of that entry: there was nothing to follow */
    }
}
