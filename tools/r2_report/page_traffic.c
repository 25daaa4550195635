/* Traffic over time: a row for each NIC, by host, all to one scale. */
#include <stdio.h>
#include <string.h>

#include "tools/r2_report/page.h"
#include "tools/shared/svg.h"

#define STRIP 40.0
#define HEAD  20.0 /* a host's name */
#define SPACE 6.0  /* between rows */

static double rate_sum(const struct story_rate *r)
{
    return r->sent + r->received;
}

/* The part in which a NIC carried most. */
static int peak_of(const struct story *s, const struct story_nic *n)
{
    int at = 0;

    for (int i = 1; i < s->rates.n; i++) {
        at = rate_sum(&n->rate[i]) > rate_sum(&n->rate[at]) ? i : at;
    }
    return at;
}

static uint64_t part_begin(const struct story *s, int i)
{
    return s->rates.from + (uint64_t)i * s->rates.width;
}

static void per_second(FILE *f, const struct story *s, double bytes)
{
    page_bytes(f, bytes * 1e9 / (double)s->rates.width);
    fputs("/s", f);
}

/* What is lower than @most by so much of the row. */
static double height_of(double bytes, double most)
{
    return most > 0 ? (STRIP - SPACE) * bytes / most : 0;
}

/* The area under @n's rates, of what was sent alone or of all. */
static void area_draw(FILE *f, const struct story *s, const struct story_nic *n,
                      const struct page_axis *a, double floor, double most, bool all)
{
    svg_path_begin(f);
    fprintf(f, "M%.1f %.1f", page_x(a, a->from), floor);
    for (int i = 0; i < s->rates.n; i++) {
        double y = floor - height_of(all ? rate_sum(&n->rate[i]) : n->rate[i].sent, most);

        fprintf(f, "L%.1f %.1fL%.1f %.1f", page_x(a, part_begin(s, i)), y,
                page_x(a, part_begin(s, i + 1)), y);
    }
    fprintf(f, "L%.1f %.1fZ", page_x(a, a->to), floor);
    svg_path_end(f, all ? "fill=\"#9dc3e6\"" : "fill=\"#3f7fbf\"");
}

/* Behind the rates: where the NIC was not simply up. */
static void states_draw(FILE *f, const struct story *s, const struct story_nic *n,
                        const struct page_axis *a, double y)
{
    static const char *const words[R2_TRAFFIC_STATES] = {
        "up", "drained", "left by all connections", "down", "fatal", "gone"};
    static const char class[R2_TRAFFIC_STATES] = {0, '2', '1', '0', '0', '0'};

    for (int i = 0, k; i < s->rates.n; i = k) {
        uint8_t state = n->rate[i].state;

        for (k = i + 1; k < s->rates.n && n->rate[k].state == state; k++) {
        }
        if (state == R2_TRAFFIC_UP) {
            continue;
        }
        fprintf(f,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"t%c\" "
                "opacity=\"0.3\"><title>%s from %s",
                page_x(a, part_begin(s, i)), y,
                page_x(a, part_begin(s, k)) - page_x(a, part_begin(s, i)), STRIP - SPACE,
                class[state], words[state], page_clock(part_begin(s, i), 0));
        fprintf(f, " to %s</title></rect>\n", page_clock(part_begin(s, k), 0));
    }
}

static void row_draw(FILE *f, const struct story *s, const struct story_nic *n,
                     const struct page_axis *a, double y, double most)
{
    double floor = y + STRIP - SPACE;
    int peak = peak_of(s, n);

    fprintf(f, "<g><title>");
    page_text(f, n->device);
    fputs(": at most ", f);
    per_second(f, s, rate_sum(&n->rate[peak]));
    fprintf(f, ", at %s</title>\n", page_clock(part_begin(s, peak), 0));
    states_draw(f, s, n, a, y);
    area_draw(f, s, n, a, floor, most, true);
    area_draw(f, s, n, a, floor, most, false);
    svg_line(f, PAGE_LEFT, floor, PAGE_WIDTH - PAGE_RIGHT, floor, "stroke=\"#bbb\"");
    fputs("</g>\n", f);
    svg_text(f, 24, floor - 12, "n", n->device);
    fprintf(f, "<text x=\"24\" y=\"%.1f\" class=\"a\">at most ", floor);
    per_second(f, s, rate_sum(&n->rate[peak]));
    fputs("</text>\n", f);
}

static void states_legend_draw(FILE *f, double y)
{
    static const struct {
        const char *fill, *text;
        double opacity;
    } row[] = {{"#3f7fbf", "sent", 1},
               {"#9dc3e6", "received", 1},
               {"#c62828", "down, fatal or gone", 0.3},
               {"#ee9b3c", "left by all connections", 0.3},
               {"#6d9fd4", "drained", 0.3}};
    double x = PAGE_LEFT;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        fprintf(f,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"12\" fill=\"%s\" "
                "opacity=\"%.1f\"/>\n",
                x, y, row[i].fill, row[i].opacity);
        svg_text(f, x + 20, y + 11, "a", row[i].text);
        x += 50 + 6.2 * (double)strlen(row[i].text);
    }
}

void page_traffic(FILE *f, const struct story *s)
{
    struct page_axis a = {.from = s->rates.from, .to = part_begin(s, s->rates.n)};
    double most = 0, bottom = PAGE_TOP, y = PAGE_TOP;
    const char *host = "";

    for (int i = 0; i < s->nics && s->rates.n; i++) {
        const struct story_nic *n = &s->nic[i];

        if (n->rate) {
            double top = rate_sum(&n->rate[peak_of(s, n)]);

            most = top > most ? top : most;
            bottom += STRIP + (strcmp(n->host, host) != 0 ? HEAD : 0);
            host = n->host;
        }
    }
    if (bottom == PAGE_TOP) {
        return;
    }
    svg_begin(f, PAGE_WIDTH, bottom + 50, page_picture_style);
    page_ticks(f, &a, bottom);
    host = "";
    for (int i = 0; i < s->nics; i++) {
        const struct story_nic *n = &s->nic[i];

        if (n->rate && strcmp(n->host, host) != 0) {
            svg_text(f, 8, y + 14, "h", n->host);
            y += HEAD;
            host = n->host;
        }
        if (n->rate) {
            row_draw(f, s, n, &a, y, most);
            y += STRIP;
        }
    }
    page_verdicts(f, s, &a, bottom);
    states_legend_draw(f, bottom + 28);
    svg_end(f);
}
