/* What the NICs of this host have gone through over jobs, and which are advised for drain
 * (plugin/telemetry/r2_nic_history.h). */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_json.h"
#include "plugin/telemetry/r2_nic_file.h"
#include "tools/r2_stat/prom.h"

/* Of all users whose files this one may read. */
struct past {
    struct r2_nic_history all;
    int unread;    /* files */
    char why[700]; /* of the first of them */
};

static void take_file(struct past *p, const char *dir, const char *name, uid_t uid)
{
    struct r2_nic_history *h = malloc(sizeof(*h));
    enum r2_nic_file_result rc = R2_NIC_FILE_FAILED;
    char path[1024], why[700] = "out of memory";

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (h) {
        rc = r2_nic_file_read(path, uid, h, why, sizeof(why));
    }
    if (rc == R2_NIC_FILE_OK) {
        r2_nic_history_merge(&p->all, h);
    } else if (rc != R2_NIC_FILE_NONE && p->unread++ == 0) {
        snprintf(p->why, sizeof(p->why), "%s", why);
    }
    free(h);
}

static struct past *past_take(const struct stat_found *f)
{
    struct past *p = calloc(1, sizeof(*p));

    for (int i = 0; p && i < f->dirs; i++) {
        DIR *d = opendir(f->dir[i]);
        struct dirent *e;
        uid_t uid;

        while (d && (e = readdir(d)) != NULL) {
            if (r2_nic_file_name(e->d_name, &uid) && (geteuid() == 0 || uid == geteuid())) {
                take_file(p, f->dir[i], e->d_name, uid);
            }
        }
        if (d) {
            closedir(d);
        }
    }
    return p;
}

static void json_put(const struct past *p, uint64_t now)
{
    struct r2_json j;

    r2_json_begin_file(&j, stdout);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "schema", "r2.nic-history/1");
    r2_json_int(&j, "files_not_read", p->unread);
    r2_json_open(&j, "nics", '[');
    for (uint32_t i = 0; i < p->all.nics; i++) {
        const struct r2_nic_past *n = &p->all.nic[i];
        struct r2_nic_judged d;
        char guid[24];

        r2_nic_history_judge(n, now, &d);
        snprintf(guid, sizeof(guid), "%016" PRIx64, n->guid);
        r2_json_open(&j, NULL, '{');
        r2_json_text(&j, "device", n->name);
        r2_json_int(&j, "port", n->port);
        r2_json_text(&j, "guid", guid);
        r2_json_text(&j, "verdict", r2_nic_verdict_name(d.verdict));
        r2_json_text(&j, "why", d.why[0] ? d.why : NULL);
        r2_json_int(&j, "jobs_failed", d.jobs);
        r2_json_int(&j, "failures", d.failures);
        r2_json_int(&j, "flaps", d.flaps);
        r2_json_int(&j, "hours_failed", d.failed_hours);
        r2_json_int(&j, "hours_slow", d.slow_hours);
        if (n->failed_at) {
            r2_json_time(&j, "failed_at", n->failed_at * 1000000000, 0);
        } else {
            r2_json_null(&j, "failed_at");
        }
        r2_json_close(&j, '}');
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    putchar('\n');
}

static void text_put(const struct past *p, uint64_t now)
{
    char when[32];

    if (p->all.nics == 0) {
        puts("no NIC of this host has failed or been slow in a job, as far as it is known here");
        return;
    }
    printf("%-16s %-7s %6s %8s %6s %6s  %-12s %s\n", "NIC", "VERDICT", "JOBS", "FAILURES", "FLAPS",
           "SLOW", "LAST FAILURE", "WHY");
    for (uint32_t i = 0; i < p->all.nics; i++) {
        const struct r2_nic_past *n = &p->all.nic[i];
        struct r2_nic_judged d;
        char name[40];

        r2_nic_history_judge(n, now, &d);
        snprintf(name, sizeof(name), "%s/%u", n->name, n->port);
        printf("%-16s %-7s %6u %8u %6u %6u  %-12s %s\n", name, r2_nic_verdict_name(d.verdict),
               d.jobs, d.failures, d.flaps, d.slow_hours,
               stat_time(n->failed_at * 1000000000, false, when, sizeof(when)), d.why);
    }
}

int stat_nic_history(const struct stat_found *f, bool json)
{
    uint64_t now = (uint64_t)time(NULL);
    struct past *p = past_take(f);
    int drain = 0, unread;

    if (p == NULL) {
        fputs("r2_stat: out of memory\n", stderr);
        return 2;
    }
    if (json) {
        json_put(p, now);
    } else {
        text_put(p, now);
    }
    for (uint32_t i = 0; i < p->all.nics; i++) {
        struct r2_nic_judged d;

        r2_nic_history_judge(&p->all.nic[i], now, &d);
        drain |= d.verdict == R2_NIC_DRAIN;
    }
    unread = p->unread;
    if (unread) {
        fflush(stdout);
        fprintf(stderr, "r2_stat: %s\n", p->why);
    }
    free(p);
    return drain ? 1 : unread ? 2 : 0;
}

void prom_nic_history(FILE *f, const struct stat_found *found)
{
    struct past *p = past_take(found);

    for (uint32_t i = 0; p && i < p->all.nics; i++) {
        const struct r2_nic_past *n = &p->all.nic[i];
        struct r2_nic_judged d;

        r2_nic_history_judge(n, (uint64_t)time(NULL), &d);
        if (i == 0) {
            prom_head(f, "r2_nic_drain_advised", "gauge",
                      "1: its history over jobs says that it is to be drained.");
        }
        prom_label(f, "r2_nic_drain_advised{", "device", n->name);
        fprintf(f, ",port=\"%u\",guid=\"%016" PRIx64 "\"} %d\n", n->port, n->guid,
                d.verdict == R2_NIC_DRAIN);
    }
    free(p);
}
