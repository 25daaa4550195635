/* What the processes of a command wait for, inside a VM: the words of `exec` when its limit ends
 * something. The agent's loop. */
#ifndef R2_LAB_EXPLAIN_H
#define R2_LAB_EXPLAIN_H

#include "tests/lab/lab_util.h"

/*
 * Adds text to @out, a line for each thread of control group job@number: process, thread, name,
 * state, where the kernel has it, the number of the system call, and the functions of the kernel's
 * stack; then what the kernel has said last of things that are wrong. Threads that end count: one
 * that does not get through its exit is what is looked for. Of a process that has ended, but for
 * others of its threads, the exit status. Reads nothing that waits for the process itself.
 */
void lab_explain_job(unsigned number, struct lab_buf *out);

#endif
