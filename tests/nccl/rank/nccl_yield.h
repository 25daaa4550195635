/*
 * What a call that waits for nothing yet is in a rank on the stand-in: sched_yield(), and recv(),
 * poll() and accept() that return at once and have nothing. NCCL's proxy threads look for work
 * without end and yield in between, its set-up asks sockets in a loop: on a GPU's host each has a
 * core, here dozens of them share two with everything else. Since Linux 6.18 (and 6.12.63) a yield
 * gives away the rest of the slice, so that threads which do nothing but yield carry each other's
 * virtual time ahead by a slice a call; on such a kernel several jobs at once stood for minutes,
 * and no other process of the machine ran ("rcu_preempt kthread starved"). A thread that waits in a
 * loop sleeps instead.
 */
#ifndef NCCL_RANK_YIELD_H
#define NCCL_RANK_YIELD_H

/* From now on such calls of a thread, but for the first ones in a row, sleep for 20 us (and the
 * timer slack of the system). Call it before NCCL is loaded; not on a real GPU, whose measurements
 * are NCCL's own. Does not block. */
void nccl_yield_sleep(void);

#endif
