/* The page that r2_report writes, and its parts. One thread; blocks in writes only, whose errors
 * are the file's owner's to look for. */
#ifndef R2_REPORT_PAGE_H
#define R2_REPORT_PAGE_H

#include <stdio.h>

#include "tools/r2_report/story.h"

/* One HTML document, which is well-formed XML and needs nothing else. @dirs: where the events came
 * from. */
void page_write(FILE *f, const struct story *s, int n, char *const *dirs);

/* page_time.c: each NIC by host over time, as SVG. */
void page_timeline(FILE *f, const struct story *s);
/* runbook.c: the section of @code of docs/runbook.md, as HTML. 0: there is none. */
int page_runbook(FILE *f, const char *code);

/* @text with what HTML would take for its own escaped, and what is not ASCII as '?'. */
void page_text(FILE *f, const char *text);
/* 00:26:04.669, of UTC; @digits behind the point; in a story of more than a day with month and day.
 * Static, four of them in turn. */
const char *page_clock(uint64_t ns, int digits);

#endif
