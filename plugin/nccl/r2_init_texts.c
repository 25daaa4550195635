#include "r2_init_texts.h"

#include <stdio.h>
#include <string.h>

#include "ib_transport/ib_way_file.h"
#include "ib_transport/verbs/ib_gid.h"
#include "ib_transport/verbs/ib_hca.h"

int r2_init_topo_source(const char *text, struct topo_source *source)
{
    source->root = "";
    source->xml = NULL;
    if (strcmp(text, "off") == 0) {
        return 0;
    }
    if (strchr(text, '/') != NULL && topo_source_parse(text, source) != 0) {
        source->from = TOPO_FROM_SYSFS;
        source->root = text;
        return 1;
    }
    return topo_source_parse(strcmp(text, "auto") == 0 ? "sysfs" : text, source) == 0 ? 1 : -1;
}

/* @why: the reason without the variable. */
static int nics_check(const char *value, char *why, size_t why_len)
{
    struct ib_hca_filter f;

    return ib_hca_parse(&f, value, why, why_len);
}

/* A NIC that is to be spared has to be named: an item of nothing would be none. */
static int drain_check(const char *value, char *why, size_t why_len)
{
    struct ib_hca_filter f;

    if (ib_hca_parse(&f, value, why, why_len) != 0) {
        return -1;
    }
    if (value[0] == '\0' || f.count > 0 || f.exclude) {
        return 0;
    }
    snprintf(why, why_len, "it names no NIC");
    return -1;
}

static int family_check(const char *value, char *why, size_t why_len)
{
    if (value[0] == '\0' || strcmp(value, "AF_INET") == 0 || strcmp(value, "AF_INET6") == 0) {
        return 0;
    }
    snprintf(why, why_len, "expected AF_INET or AF_INET6");
    return -1;
}

static int topo_check(const char *value, char *why, size_t why_len)
{
    struct topo_source source;

    if (r2_init_topo_source(value, &source) >= 0) {
        return 0;
    }
    snprintf(
        why, why_len,
        "expected auto, sysfs, hwloc, off, a directory (with a '/'), or a file that ends in .xml");
    return -1;
}

/* Its file is read later: what is wrong with that ends no job. */
static int ways_check(const char *value, char *why, size_t why_len)
{
    const char *path;
    unsigned n;

    if (ib_ways_option(value, &n, &path) == 0) {
        return 0;
    }
    snprintf(why, why_len,
             "expected a whole number from 1 to %d, off, or a file of ports (with a '/')",
             IB_WAYS_MAX);
    return -1;
}

/* Family and range are read together: the one that is wrong is the one that the reason begins with.
 */
static int address_check(const struct r2_config *cfg, const struct r2_opt_row *r, char *why,
                         size_t why_len)
{
    struct ib_gid_rule rule;
    size_t n = strlen(r->name);

    return ib_gid_rule_parse(&rule, cfg, why, why_len) != 0 && strncmp(why, r->name, n) == 0 &&
                   why[n] == '='
               ? -1
               : 0;
}

int r2_init_text_check(const struct r2_config *cfg, int row, char *why, size_t why_len)
{
    static const struct {
        const char *field;
        int (*check)(const char *value, char *why, size_t why_len);
    } known[] = {
        {"ib_hca", nics_check}, {"backup_nics", nics_check},     {"drain", drain_check},
        {"topo", topo_check},   {"socket_family", family_check}, {"ways", ways_check},
    };
    int n;
    const struct r2_opt_row *r = &r2_config_rows(&n)[row];
    const char *value = (const char *)cfg + r->offset;
    char reason[256];

    if (strcmp(r->field, "ib_addr_family") == 0 || strcmp(r->field, "ib_addr_range") == 0) {
        return address_check(cfg, r, why, why_len);
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].field, r->field) != 0 ||
            known[i].check(value, reason, sizeof(reason)) == 0) {
            continue;
        }
        snprintf(why, why_len, "%s=%.100s: %s", r->name, value, reason);
        return -1;
    }
    return 0;
}

void r2_init_texts_check(const struct r2_config *cfg, void (*refuse)(void *arg, const char *why),
                         void *arg)
{
    char why[512];
    int n;

    r2_config_rows(&n);
    for (int i = 0; i < n; i++) {
        if (r2_init_text_check(cfg, i, why, sizeof(why)) != 0) {
            refuse(arg, why);
        }
    }
}
