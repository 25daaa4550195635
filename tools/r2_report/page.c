/* The page: what happened, when, what it cost, who is blamed and why, what is to be done. */
#include "tools/r2_report/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EVENTS_SHOWN 2000

static const char page_style[] =
    "body{font:15px/1.45 sans-serif;color:#222;max-width:1000px;margin:24px auto;padding:0 12px}"
    "h1{font-size:24px}h2{font-size:19px;margin-top:32px;border-bottom:1px solid #ccc}"
    "h3{font-size:16px}table{border-collapse:collapse}td,th{padding:3px 10px;text-align:left;"
    "border-bottom:1px solid #e4e4e4;vertical-align:top}td.n{text-align:right;white-space:nowrap}"
    "code{background:#f3f3f3}"
    ".critical{color:#b71c1c}.warning{color:#8a5a00}.bar{background:#6d9fd4;height:11px}"
    "svg{max-width:100%;height:auto}details{margin:8px 0}"
    "body{overflow-wrap:anywhere}th,td:not(:last-child){overflow-wrap:normal}";

void page_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            fputc((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e ? '?' : *text, f);
        }
    }
}

static bool is_days; /* the story is longer than a day */

const char *page_clock(uint64_t ns, int digits)
{
    static char text[4][40];
    static unsigned turn;
    char *out = text[turn++ % 4];
    time_t t = (time_t)(ns / 1000000000);
    struct tm tm;
    size_t n;

    gmtime_r(&t, &tm);
    n = strftime(out, sizeof(text[0]), is_days ? "%m-%d %H:%M:%S" : "%H:%M:%S", &tm);
    if (digits > 0) {
        snprintf(out + n, sizeof(text[0]) - n, ".%09u", (unsigned)(ns % 1000000000));
        out[n + 1 + (size_t)digits] = '\0';
    }
    return out;
}

static void day_put(FILE *f, uint64_t ns)
{
    time_t t = (time_t)(ns / 1000000000);
    char text[32];
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(text, sizeof(text), "%Y-%m-%d", &tm);
    fputs(text, f);
}

static void cell(FILE *f, const char *text)
{
    fputs("<td>", f);
    page_text(f, text);
    fputs("</td>", f);
}

void page_bytes(FILE *f, double v)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int u = 0;

    while (v >= 1000 && u < 5) {
        v /= 1000;
        u++;
    }
    fprintf(f, "%.*f %s", u ? 1 : 0, v, units[u]);
}

static void bytes_put(FILE *f, uint64_t bytes)
{
    page_bytes(f, (double)bytes);
}

/* --- parts --- */

/* Whether events are of more than one job: a run directory has those of all jobs of its host. */
static bool is_of_several(const struct story *s)
{
    for (int i = 1; i < s->events; i++) {
        if (strcmp(s->event[i].job, s->event[0].job) != 0) {
            return true;
        }
    }
    return false;
}

static void head_put(FILE *f, const struct story *s, int n, char *const *dirs)
{
    bool several = is_of_several(s);
    const char *job = several || s->events == 0 ? "" : s->event[0].job;

    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>Incident", f);
    fputs(job[0] ? " of job " : "", f);
    page_text(f, job);
    fprintf(f, "</title><style>%s</style></head><body>\n<h1>Incident", page_style);
    fputs(job[0] ? " of job " : "", f);
    page_text(f, job);
    fputs("</h1>\n<p>", f);
    day_put(f, s->from);
    fprintf(f, ", %s to %s UTC: %d processes on %d hosts, %d events, from ", page_clock(s->from, 1),
            page_clock(s->to, 1), s->processes, s->costs, s->events);
    for (int i = 0; i < n; i++) {
        fputs(i ? ", <code>" : "<code>", f);
        page_text(f, dirs[i]);
        fputs("</code>", f);
    }
    fputs(".</p>\n", f);
    if (several) {
        fputs("<p class=\"warning\">The events are of several jobs; <code>--job</code> takes those "
              "of one.</p>\n",
              f);
    }
    if (s->unread) {
        fprintf(f, "<p class=\"warning\">%d files could not be read and are left out.</p>\n",
                s->unread);
    }
    if (s->wrong) {
        fprintf(f, "<p class=\"warning\">%d lines were no events and are left out.</p>\n",
                s->wrong);
    }
}

static void verdict_line(FILE *f, const struct story_verdict *v)
{
    const struct story_event *e = v->e;

    fprintf(f, "<span class=\"%s\"><strong>",
            strcmp(e->severity, "critical") == 0 ? "critical" : "warning");
    page_text(f, e->code);
    fputs("</strong> ", f);
    if (e->text[strcspn(e->text, " :")] != ':') {
        page_text(f, e->host);
        fputc(':', f);
    }
    page_text(f, e->text);
    fputs("</span>", f);
    fputs(v->revised ? " (revised by a later one)" : "", f);
}

static void summary_put(FILE *f, const struct story *s)
{
    fputs("<h2>What broke</h2>\n", f);
    if (s->verdicts == 0) {
        fputs("<p>No process has blamed anything.</p>\n", f);
        return;
    }
    fputs("<ul>\n", f);
    for (int i = 0; i < s->verdicts; i++) {
        fputs("<li>", f);
        fprintf(
            f, "%s ",
            page_clock(s->verdict[i].e->since ? s->verdict[i].e->since : s->verdict[i].e->when, 3));
        verdict_line(f, &s->verdict[i]);
        fputs("</li>\n", f);
    }
    fputs("</ul>\n", f);
}

/* Bytes that were carried less; -1: nobody knows. */
static void less_put(FILE *f, double less)
{
    if (less < 0) {
        fputc('-', f);
    } else {
        bytes_put(f, (uint64_t)less);
    }
}

static void less_tell(FILE *f, double less)
{
    if (less < 0) {
        return;
    }
    fputs("<p>Until what was lost was back, or the job had ended, its hosts sent and received ", f);
    bytes_put(f, (uint64_t)less);
    fputs(" less than at the rate before: the median of up to ten parts of time in which nothing "
          "was lost. What the job itself did less then is in it, too.</p>\n",
          f);
}

static void cost_put(FILE *f, const struct story *s)
{
    struct story_cost all = {0};

    fputs("<h2>What it cost</h2>\n<table><tr><th>host</th><th>processes</th><th>NIC failures</th>"
          "<th>longest stall</th><th>sent again</th><th>NIC time lost</th><th>carried less</th>"
          "<th>connections given up</th></tr>\n",
          f);
    for (int i = 0; i < s->costs; i++) {
        const struct story_cost *c = &s->cost[i];

        fputs("<tr>", f);
        cell(f, c->host);
        fprintf(
            f,
            "<td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"n\">%.2f ms</td><td class=\"n\">",
            c->processes, c->faults, (double)c->stall_us / 1000);
        bytes_put(f, c->replayed);
        fprintf(f, "</td><td class=\"n\">%.1f s, %.1f %%</td><td class=\"n\">", c->lost_s,
                c->nic_s > 0 ? 100 * c->lost_s / c->nic_s : 0);
        less_put(f, c->less);
        fprintf(f, "</td><td class=\"n\">%d</td></tr>\n", c->giveups);
        all.less = c->less < 0 || all.less < 0 ? -1 : all.less + c->less;
        all.stall_us = c->stall_us > all.stall_us ? c->stall_us : all.stall_us;
        all.lost_s += c->lost_s;
        all.nic_s += c->nic_s;
        all.giveups += c->giveups;
    }
    fprintf(f,
            "</table>\n<p>No connection stood still for longer than %.2f ms at a failure. Of the "
            "time of all NICs of all processes %.1f s of %.1f s (%.2f %%) were lost; every rank of "
            "a collective goes at the pace of the host that has the fewest. %s</p>\n",
            (double)all.stall_us / 1000, all.lost_s, all.nic_s,
            all.nic_s > 0 ? 100 * all.lost_s / all.nic_s : 0,
            all.giveups ? "Connections were given up, which ends a job."
                        : "No connection was given up.");
    less_tell(f, s->costs ? all.less : -1);
}

static void traffic_put(FILE *f, const struct story *s)
{
    uint64_t most = 0;

    for (int i = 0; i < s->nics; i++) {
        uint64_t sum = s->nic[i].sent + s->nic[i].received;

        most = s->nic[i].counted && sum > most ? sum : most;
    }
    fputs("<h2>Traffic by NIC</h2>\n", f);
    if (most == 0) {
        fputs("<p>There was no file of traffic (<code>*.traffic</code>): it stays in the run "
              "directory for a day when its process has ended.</p>\n",
              f);
        return;
    }
    page_traffic(f, s);
    if (s->rates.n) {
        fprintf(f,
                "<p>In parts of %.1f s, all NICs to one scale. Of each process the last %d seconds "
                "in which something moved are known.</p>\n",
                (double)s->rates.width / 1e9, R2_TRAFFIC_ROWS);
    }
    fputs("<table><tr><th>host</th><th>NIC</th><th>sent</th><th>received</th><th></th></tr>\n", f);
    for (int i = 0; i < s->nics; i++) {
        const struct story_nic *n = &s->nic[i];

        if (!n->counted) {
            continue;
        }
        fputs("<tr>", f);
        cell(f, n->host);
        cell(f, n->device);
        fputs("<td class=\"n\">", f);
        bytes_put(f, n->sent);
        fputs("</td><td class=\"n\">", f);
        bytes_put(f, n->received);
        fprintf(f, "</td><td><div class=\"bar\" style=\"width:%.0fpx\"></div></td></tr>\n",
                360.0 * (double)(n->sent + n->received) / (double)most);
    }
    fputs("</table>\n", f);
}

static void verdict_put(FILE *f, const struct story_verdict *v)
{
    const struct story_event *e = v->e;
    char said[40] = "";

    fputs("<h3>", f);
    verdict_line(f, v);
    fputs("</h3>\n<table>\n<tr><th>since</th>", f);
    cell(f, page_clock(e->since ? e->since : e->when, 3));
    fputs("</tr>\n<tr><th>found</th>", f);
    cell(f, page_clock(e->when, 3));
    fputs("</tr>\n<tr><th>by</th><td>", f);
    page_text(f, e->host);
    if (v->said > 1) {
        snprintf(said, sizeof(said), ", and %d more", v->said - 1);
    }
    fprintf(f, ", pid %" PRId64 "%s</td></tr>\n<tr><th>blame</th>", e->pid, said);
    cell(f, e->blame);
    fprintf(f, "</tr>\n<tr><th>confidence</th><td>%d %%</td></tr>\n<tr><th>do</th>", e->confidence);
    cell(f, e->action);
    fputs("</tr>\n<tr><th>evidence</th><td>", f);
    page_text(f, e->how);
    for (int i = 0; i < e->evidences; i++) {
        fputs("<br/>", f);
        page_text(f, e->evidence[i]);
    }
    fputs("</td></tr>\n</table>\n<details open=\"open\"><summary>The runbook on ", f);
    page_text(f, e->code);
    fputs("</summary>\n", f);
    if (!page_runbook(f, e->code)) {
        fputs("<p>This version's runbook does not know it.</p>\n", f);
    }
    fputs("</details>\n", f);
}

static void events_put(FILE *f, const struct story *s)
{
    static const char *const names[STORY_KINDS] = {"?",        "fault", "switch",  "verdict",
                                                   "failback", "drain", "give-up", "start",
                                                   "stop",     "news",  "stall",   "checkpoint"};
    int from = s->events > EVENTS_SHOWN ? s->events - EVENTS_SHOWN : 0;

    fprintf(f, "<h2>Events</h2>\n<details><summary>%s%d of %d</summary>\n<table>\n",
            from ? "the last " : "", s->events - from, s->events);
    for (int i = from; i < s->events; i++) {
        const struct story_event *e = &s->event[i];

        fputs("<tr>", f);
        cell(f, page_clock(e->when, 3));
        cell(f, e->host);
        fprintf(f, "<td class=\"n\">%" PRId64 "</td>", e->pid);
        cell(f, names[e->kind]);
        cell(f, e->code);
        cell(f, e->text);
        fputs("</tr>\n", f);
    }
    fputs("</table>\n</details>\n", f);
}

void page_write(FILE *f, const struct story *s, int n, char *const *dirs)
{
    is_days = s->to - s->from > 86400000000000ull;
    head_put(f, s, n, dirs);
    summary_put(f, s);
    fputs("<h2>Timeline</h2>\n", f);
    if (s->nics) {
        page_timeline(f, s);
        fputs("<p>NICs that nothing happened to are shown where statistics or traffic of their "
              "processes were there. The pointer over a bar says more.</p>\n",
              f);
    } else {
        fputs("<p>Nothing has happened to any NIC.</p>\n", f);
    }
    cost_put(f, s);
    traffic_put(f, s);
    if (s->verdicts) {
        fputs("<h2>Verdicts</h2>\n", f);
    }
    for (int i = 0; i < s->verdicts; i++) {
        verdict_put(f, &s->verdict[i]);
    }
    events_put(f, s);
    fputs("</body></html>\n", f);
}
