/*
 * What the launcher and the ranks it started share: one mapped page, first error wins. Under mpirun
 * there is no launcher and the page is private to the process, so that the same code serves.
 */
#ifndef R2_PERF_BOARD_H
#define R2_PERF_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>

#define BOARD_TEXT 1500

enum board_state { BOARD_CLEAR, BOARD_TAKEN, BOARD_WRITTEN };

struct board {
    _Atomic int state;   /* enum board_state. TAKEN by compare-and-swap; WRITTEN with release, read
                            with acquire */
    _Atomic int printed; /* rank 0 has shown the error: exchanged, so exactly one shows it */
    int code;            /* enum perf_exit; valid once WRITTEN */
    char text[BOARD_TEXT]; /* valid once WRITTEN */
};

/* Map the board behind @fd (-1: a private one). NULL when it cannot be mapped; never unmapped. */
struct board *board_map(int fd);
/* A file descriptor of a new, empty board that survives exec; -1 with errno. Caller closes. */
int board_create(void);
/* Record an error unless there is one. True when this was the first. Any thread, any process. */
bool board_error_post(struct board *b, int code, const char *text);
/* True when an error has been recorded and its text can be read. */
bool board_error_seen(struct board *b);

#endif
