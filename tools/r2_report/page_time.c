/* The timeline: a row for each NIC, by host; what it was not in use for is coloured. */
#include <stdio.h>
#include <string.h>

#include "tools/r2_report/page.h"
#include "tools/shared/svg.h"

#define ROW   20.0
#define TICKS 6

const char page_picture_style[] =
    "text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.r{fill:#d9eadd}.t0{fill:#c62828}"
    ".t1{fill:#ee9b3c}.t2{fill:#6d9fd4}.t3{fill:#a58bd0}.a{fill:#666;font-size:11px}"
    ".v{fill:#c62828;font-weight:bold}";

static const char *const whys[] = {[STORY_LOST] = "lost",
                                   [STORY_PEERS] = "left for a fault of the other end",
                                   [STORY_DRAINED] = "drained",
                                   [STORY_REHEARSED] = "rehearsal"};

double page_x(const struct page_axis *a, uint64_t when)
{
    double at = when < a->from ? 0 : when > a->to ? 1 : 0;

    if (when >= a->from && when <= a->to) {
        at = (double)(when - a->from) / (double)(a->to - a->from);
    }
    return PAGE_LEFT + at * (PAGE_WIDTH - PAGE_LEFT - PAGE_RIGHT);
}

static double rows_height(const struct story *s)
{
    double y = 0;

    for (int i = 0; i < s->nics; i++) {
        y += ROW + (i == 0 || strcmp(s->nic[i].host, s->nic[i - 1].host) != 0 ? ROW : 0);
    }
    return y;
}

void page_ticks(FILE *f, const struct page_axis *a, double bottom)
{
    int digits = a->to - a->from < 60000000000ull ? 1 : 0;

    for (int i = 0; i <= TICKS; i++) {
        uint64_t when = a->from + (a->to - a->from) / TICKS * (unsigned)i;
        double x = page_x(a, when);

        svg_line(f, x, PAGE_TOP, x, bottom, "stroke=\"#ddd\"");
        svg_text(f, i == TICKS ? x - 45 : x - 20, bottom + 16, "a", page_clock(when, digits));
    }
}

static void span_draw(FILE *f, const struct page_axis *a, const struct story_span *span, double y)
{
    double x = page_x(a, span->from), width = page_x(a, span->to) - x;

    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"t%d\"><title>",
            x, y + 3, width < 2 ? 2 : width, ROW - 6, span->why);
    fprintf(f, "%s from %s", whys[span->why], page_clock(span->from, 3));
    fprintf(f, " to %s%s, pid %lld: ", page_clock(span->to, 3),
            span->open ? " (it had not come back)" : "", (long long)span->pid);
    page_text(f, span->began->text);
    fputs("</title></rect>\n", f);
}

static void rows_draw(FILE *f, const struct story *s, const struct page_axis *a)
{
    double y = PAGE_TOP;

    for (int i = 0; i < s->nics; i++) {
        const struct story_nic *n = &s->nic[i];

        if (i == 0 || strcmp(n->host, s->nic[i - 1].host) != 0) {
            svg_text(f, 8, y + 14, "h", n->host);
            y += ROW;
        }
        svg_text(f, 24, y + 14, "n", n->device);
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"r\"/>\n",
                PAGE_LEFT, y + 3, PAGE_WIDTH - PAGE_LEFT - PAGE_RIGHT, ROW - 6);
        for (int k = 0; k < n->spans; k++) {
            span_draw(f, a, &n->span[k], y);
        }
        y += ROW;
    }
}

void page_verdicts(FILE *f, const struct story *s, const struct page_axis *a, double bottom)
{
    double last[PAGE_LEVELS] = {-1000, -1000, -1000, -1000};

    for (int i = 0; i < s->verdicts; i++) {
        const struct story_event *e = s->verdict[i].e;
        uint64_t when = e->since ? e->since : e->when;
        double x = page_x(a, when), at = x > PAGE_WIDTH - 60 ? x - 52 : x + 3;
        int level = 0;

        if (when < a->from || when > a->to) {
            continue;
        }
        while (level < PAGE_LEVELS - 1 && at - last[level] < 56) {
            level++;
        }
        last[level] = at;
        svg_line(f, x, 16.0 * level + 8, x, bottom, "stroke=\"#c62828\" stroke-dasharray=\"3 3\"");
        svg_text(f, at, 16.0 * level + 18, "v", e->code);
    }
}

static void legend_draw(FILE *f, double y)
{
    double x = PAGE_LEFT;

    for (int i = 0; i < 4; i++) {
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"12\" class=\"t%d\"/>\n", x, y,
                i);
        svg_text(f, x + 20, y + 11, "a", whys[i]);
        x += 60 + 6.2 * (double)strlen(whys[i]);
    }
}

void page_timeline(FILE *f, const struct story *s)
{
    struct page_axis a = {.from = s->from, .to = s->to};
    double bottom = PAGE_TOP + rows_height(s);

    for (int i = 0; i < s->verdicts; i++) {
        uint64_t since = s->verdict[i].e->since;

        a.from = since && since < a.from ? since : a.from;
    }
    a.to = a.to > a.from ? a.to : a.from + 1000000000;
    svg_begin(f, PAGE_WIDTH, bottom + 50, page_picture_style);
    page_ticks(f, &a, bottom);
    rows_draw(f, s, &a);
    page_verdicts(f, s, &a, bottom);
    legend_draw(f, bottom + 28);
    svg_end(f);
}
