/* Threads of ours in other people's processes. */
#ifndef R2_THREAD_H
#define R2_THREAD_H

#include <pthread.h>

/* Starts one that no signal is delivered to: handlers are the program's. 0, or an errno. Any
 * thread; does not block. */
int r2_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
