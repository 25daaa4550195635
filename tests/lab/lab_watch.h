/* The event loop of the agent and of the switch: descriptors with a function each, one thread. */
#ifndef R2_LAB_WATCH_H
#define R2_LAB_WATCH_H

#include <stdint.h>

struct lab_watch {
    /* Gets EPOLL* bits. May close and free anything: one event is handled at a time. */
    void (*ready)(struct lab_watch *w, uint32_t events);
    int fd;          /* -1: none */
    uint32_t events; /* asked for at present; 0: not in the epoll set, so that a hang-up does not
                        wake the loop either */
};

/* Before all others. Ends the program on failure. */
void lab_watch_init(void);
/* Asks for @events (EPOLL* bits) from now on. Nothing happens when w->fd is -1. Ends the program on
 * failure. */
void lab_watch_set(struct lab_watch *w, uint32_t events);
/* Leaves the loop and closes the descriptor. Nothing happens when w->fd is -1. */
void lab_watch_close(struct lab_watch *w);
/* Blocks until one descriptor is ready and calls its function. */
void lab_watch_run(void);

#endif
