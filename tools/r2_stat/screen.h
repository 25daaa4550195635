/*
 * What --watch shows on a terminal, as lines that are no longer than it is wide; tty.c puts them
 * there. One thread; nothing blocks.
 */
#ifndef R2_STAT_SCREEN_H
#define R2_STAT_SCREEN_H

#include <stdio.h>

#include "tools/r2_stat/rates.h"

#define SCREEN_COLUMNS 250 /* of a wider terminal the rest stays empty */

enum screen_colour {
    SCREEN_PLAIN,
    SCREEN_BAR,  /* the first and the last line */
    SCREEN_HEAD, /* of a job, of a table */
    SCREEN_NOTE, /* an administrator's doing */
    SCREEN_WARN,
    SCREEN_BAD,
    SCREEN_COLOURS
};

struct screen_line {
    char text[SCREEN_COLUMNS + 1];
    enum screen_colour colour;
};

/* How it is to be seen. */
struct screen_view {
    struct stat_more more;
    int columns, rows; /* of the terminal */
    int top;           /* first line that is seen of what lies between bars */
    double seconds;    /* between looks */
    bool is_paused, is_help, has_keys, has_colours;
};

struct screen_page {
    struct screen_line *line; /* between the bars: all of them, seen or not */
    int lines, room, columns;
    struct screen_line bar[2];
};

/* Makes @pg, zeroes or a page that was made before, of a look at @now (ns, CLOCK_REALTIME), and
 * brings @v->top to where there are lines; without memory, lines are missing. screen_free at the
 * end. */
void screen_make(struct screen_page *pg, struct screen_view *v, const struct stat_found *f,
                 const struct rates *r, uint64_t now);
/* What a terminal is told, from its upper left corner on: as many lines as it has. */
void screen_paint(FILE *out, const struct screen_page *pg, const struct screen_view *v);
void screen_free(struct screen_page *pg);

/* Until it is to end, on a terminal. Exit status. */
int stat_watch_tty(struct stat_found *f, double seconds, struct stat_more more);

#endif
