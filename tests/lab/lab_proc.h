/* The lab's own processes, from the run folder, and the boot of a VM as its console shows it. */
#ifndef R2_LAB_PROC_H
#define R2_LAB_PROC_H

#include "tests/lab/lab_util.h"

/* A descriptor of the process whose number is in "NAME.pid", if it still runs and is ours: its
 * command line has the lab's name, which is random. The descriptor goes on meaning that process
 * when its number is given to another. The caller closes it. -1: no such process. */
int lab_proc_open(const char *name);

/* Kills it with SIGKILL and waits until it is gone. Returns 1, 0 when it was not there, -1 when it
 * will not go (printed). */
int lab_proc_kill(const char *name);

/* Blocks until the console file of VM @host ("h0.console") has the line that the agent is up.
 * Returns 0, or -1 when the VM ended or the deadline passed; then the console's last lines were
 * printed. */
int lab_proc_await_boot(const char *host, uint64_t deadline);

#endif
