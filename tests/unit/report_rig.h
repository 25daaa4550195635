/* What the suites of statistics and events share: whole instances over the fabric that have a run
 * directory, and what stands in their files. */
#ifndef REPORT_RIG_H
#define REPORT_RIG_H

#include "tests/unit/drain_rig.h"

#include "plugin/telemetry/r2_report_int.h"
#include "probe/diagnosis/r2_gossip.h"

static struct r2_stat_view view;
static char events[64 * 1024];

/* Both ends share a run directory, as two processes of one host do. */
static inline void report_begin(void)
{
    host_dir(0);
    memcpy(rig->side[1].inst->share.run_dir, rig->side[0].inst->share.run_dir, sizeof(dir));
    for (int i = 0; i < 2; i++) {
        r2_report_free(
            rig->side[i].inst); /* of an instance without a run directory, for its event file */
        r2_report_open(rig->side[i].inst, NULL);
        ck_assert_ptr_nonnull(rig->side[i].inst->telemetry.report);
    }
    join();
}

static inline void begin(int nics, const char *const *more)
{
    create(nics, more);
    report_begin();
}

static inline struct r2_report *report(int side)
{
    return rig->side[side].inst->telemetry.report;
}

/* Reads what stands there now: the next look at the ports has written it. */
static inline const struct r2_stat_view *look(int side)
{
    const char *path;
    char why[600] = "";

    rig_run(rig, 400 * RIG_MS);
    r2_stat_view_free(&view);
    path = r2_stat_path(report(side)->stat);
    ck_assert_msg(r2_stat_read(path, geteuid(), &view, why, sizeof(why)) == 1, "%s", why);
    ck_assert_int_eq(view.whole, 1);
    return &view;
}

static inline const char *lines(void)
{
    char path[128];
    FILE *f;
    size_t n;

    ck_assert_int_eq(r2_event_path(dir, geteuid(), path, sizeof(path)), 0);
    f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    n = fread(events, 1, sizeof(events) - 1, f);
    fclose(f);
    events[n] = '\0';
    return events;
}

static inline void end(void)
{
    r2_stat_view_free(&view);
    stop();
    teardown();
    host_dir_remove();
}

static inline const struct r2_stat_event *event_find(const struct r2_stat_view *v,
                                                     enum r2_event_kind kind)
{
    for (int i = 0; i < v->events; i++) {
        if (v->event[i].kind == kind) {
            return &v->event[i];
        }
    }
    return NULL;
}

static inline void report_put(int side, const struct probe_subject *s, enum probe_blame blame)
{
    struct probe_report w;

    memset(&w, 0, sizeof(w));
    w.subject = *s;
    w.blame = (uint8_t)blame;
    w.confidence = 80;
    w.origin = 4711;
    snprintf(w.host, sizeof(w.host), "host1");
    snprintf(w.nic, sizeof(w.nic), "fab0");
    rig_enter(&rig->side[side]);
    probe_gossip_next_version(rig->side[side].inst->diagnosis.gossip, &w);
    r2_gossip_heard(rig->side[side].inst, &w, "host7");
}

#endif
