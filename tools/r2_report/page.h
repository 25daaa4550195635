/* The page that r2_report writes, and its parts. One thread; blocks in writes only, whose errors
 * are the file's owner's to look for. */
#ifndef R2_REPORT_PAGE_H
#define R2_REPORT_PAGE_H

#include <stdio.h>

#include "tools/r2_report/story.h"

/* One HTML document, which is well-formed XML and needs nothing else. @dirs: where the events came
 * from. */
void page_write(FILE *f, const struct story *s, int n, char *const *dirs);

/* page_time.c: each NIC by host over time, as SVG; what pictures over time share. */
void page_timeline(FILE *f, const struct story *s);
#define PAGE_WIDTH  980.0
#define PAGE_LEFT   200.0
#define PAGE_RIGHT  20.0
#define PAGE_TOP    (16.0 * PAGE_LEVELS + 24.0)
#define PAGE_LEVELS 4 /* of labels above the rows, so that they do not lie on each other */
struct page_axis {
    uint64_t from, to;
};
extern const char page_picture_style[];
double page_x(const struct page_axis *a, uint64_t when);
void page_ticks(FILE *f, const struct page_axis *a, double bottom);
/* Those within the axis. */
void page_verdicts(FILE *f, const struct story *s, const struct page_axis *a, double bottom);
/* page_traffic.c: what each NIC carried over time, as SVG; nothing where that is not known. */
void page_traffic(FILE *f, const struct story *s);
/* 1.5 MB */
void page_bytes(FILE *f, double bytes);
/* runbook.c: the section of @code of docs/runbook.md, as HTML. 0: there is none. */
int page_runbook(FILE *f, const char *code);

/* @text with what HTML would take for its own escaped, and what is not ASCII as '?'. */
void page_text(FILE *f, const char *text);
/* 00:26:04.669, of UTC; @digits behind the point; in a story of more than a day with month and day.
 * Static, four of them in turn. */
const char *page_clock(uint64_t ns, int digits);

#endif
