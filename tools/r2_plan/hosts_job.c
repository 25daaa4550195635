/* From the hosts that were read to what the planner asks. */
#include <stdarg.h>
#include <string.h>

#include "tools/r2_plan/tool.h"

struct verdict {
    char *why;
    size_t room;
};

static bool host_refuse(const struct verdict *v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static bool host_refuse(const struct verdict *v, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(v->why, v->room, fmt, args);
    va_end(args);
    return false;
}

/* NICs of a host: as many as the one with most has. */
static bool nics_count(const struct hosts *h, struct job *j, const struct verdict *v)
{
    j->nics = 0;
    for (int i = 0; i < h->hosts; i++) {
        const struct host *host = h->host[i];

        if (host->nics == 0) {
            return host_refuse(v, "of host %s no NIC is known", host->name);
        }
        if (host_usable(host) == 0) {
            return host_refuse(v, "host %s has no usable NIC: no all_reduce can include it",
                               host->name);
        }
        j->nics = host->nics > j->nics ? host->nics : j->nics;
    }
    return true;
}

/* The planner has one rate for all NICs; those of usable ones count. */
static bool rate_find(const struct hosts *h, struct job *j, const struct verdict *v)
{
    const struct host *of = NULL;
    const struct host_nic *first = NULL;

    for (int i = 0; j->rate_by != RATE_SAID && i < h->hosts; i++) {
        for (int k = 0; k < h->host[i]->nics; k++) {
            const struct host_nic *n = &h->host[i]->nic[k];

            if (n->mbps == 0 || !host_nic_is_usable(n)) {
                continue;
            }
            if (first == NULL) {
                first = n;
                of = h->host[i];
            } else if (n->mbps != first->mbps) {
                return host_refuse(
                    v,
                    "%s of host %s has %g Gb/s, %s of %s %g: the planner takes NICs as "
                    "alike; --rate GBPS says with which rate",
                    first->name, of->name, first->mbps / 1000.0, n->name, h->host[i]->name,
                    n->mbps / 1000.0);
            }
        }
    }
    if (first != NULL) {
        j->gbps = first->mbps / 1000.0;
        j->rate_by = RATE_READ;
    }
    return true;
}

struct rails {
    int bit[TOOL_RAILS]; /* of each rail; -1: no NIC is on it */
    int rails;
};

/* Whether every NIC has a rail, no two of a host the same, and there are as many as a host has
 * NICs: then a NIC's number is known, be others of its host there or not. */
static bool rails_find(const struct hosts *h, const struct job *j, struct rails *r)
{
    bool is_there[TOOL_RAILS] = {0};

    for (int i = 0; i < h->hosts; i++) {
        bool has[TOOL_RAILS] = {0};

        for (int k = 0; k < h->host[i]->nics; k++) {
            int rail = h->host[i]->nic[k].rail;

            if (rail < 0 || rail >= TOOL_RAILS || has[rail]) {
                return false;
            }
            has[rail] = is_there[rail] = true;
        }
    }
    r->rails = 0;
    for (int rail = 0; rail < TOOL_RAILS; rail++) {
        r->bit[rail] = is_there[rail] ? r->rails++ : -1;
    }
    return r->rails == j->nics;
}

bool hosts_job(const struct hosts *h, struct job *j, char *why, size_t room)
{
    const struct verdict v = {why, room};
    struct rails r;
    bool is_railed;

    j->nodes = h->hosts;
    if (!nics_count(h, j, &v) || !rate_find(h, j, &v)) {
        return false;
    }
    job_begin(j);
    is_railed = rails_find(h, j, &r);
    for (int i = 0; i < h->hosts; i++) {
        const struct host *host = h->host[i];
        uint32_t left = 0;

        for (int k = 0; k < host->nics; k++) {
            if (host_nic_is_usable(&host->nic[k])) {
                left |= 1u << (is_railed ? r.bit[host->nic[k].rail] : k);
            }
        }
        j->is_counted |= !is_railed && left != j->rails[i];
        job_rails_set(j, i, left);
    }
    j->hosts = h;
    return true;
}
