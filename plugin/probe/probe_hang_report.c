/* A report of probe_hang.h by itself: names of what it says, ranges, age. */
#include "probe_hang_int.h"

#include "base/r2_time.h"

static const char *const kind_names[PROBE_HANG_KINDS] = {
    [PROBE_HANG_NONE] = "not-known",      [PROBE_HANG_CYCLE] = "wait-for-each-other",
    [PROBE_HANG_DEAF] = "cannot-tell",    [PROBE_HANG_MOVES] = "works",
    [PROBE_HANG_IDLE] = "posted-nothing", [PROBE_HANG_PATH] = "path-silent",
    [PROBE_HANG_GONE] = "no-channel",     [PROBE_HANG_STOPPED] = "process-silent"};

const char *probe_hang_kind_name(enum probe_hang_kind k)
{
    return (unsigned)k < PROBE_HANG_KINDS ? kind_names[k] : "?";
}

int probe_hang_is_hang(enum probe_hang_kind k)
{
    return k == PROBE_HANG_CYCLE || k >= PROBE_HANG_IDLE;
}

int probe_hang_report_is_valid(const struct probe_hang_report *w)
{
    return w->kind < PROBE_HANG_KINDS && w->hops <= PROBE_HANG_HOPS_MAX &&
           w->age_ms <= PROBE_HANG_AGE_MAX && w->low_age_ms <= PROBE_HANG_AGE_MAX &&
           (w->kind == PROBE_HANG_NONE || w->root.id != 0);
}

/* --- age --- */

uint32_t probe_hang_ms(uint64_t ns)
{
    return ns / R2_NS_PER_MS < UINT32_MAX ? (uint32_t)(ns / R2_NS_PER_MS) : UINT32_MAX;
}

static uint32_t later(uint32_t ms, uint64_t ns)
{
    uint32_t more = probe_hang_ms(ns);

    return more < UINT32_MAX - ms ? ms + more : UINT32_MAX;
}

void probe_hang_age(struct probe_hang_report *w, uint64_t ns)
{
    w->age_ms = later(w->age_ms, ns);
    w->low_age_ms = later(w->low_age_ms, ns);
    w->stood_ms = later(w->stood_ms, ns);
}
