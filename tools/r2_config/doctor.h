/*
 * Why does the plugin not load here, or not see a NIC: one line per check on standard output,
 *     ok|WARN|FAIL  what: detail -> what to do
 */
#ifndef R2_CONFIG_DOCTOR_H
#define R2_CONFIG_DOCTOR_H

#include "tools/r2_config/values.h"

/*
 * Runs all checks, each at most @limit_s seconds (the plugin's init half of that). @root stands
 * before /etc, /sys, /dev
 * ("" outside of rehearsals). The plugin itself is run in a child process. Exit status: 0 nothing
 * failed, 1 something did. Main thread, without other threads; may block in drivers: a check that
 * does not return ends the process with a FAIL line.
 */
#define DOCTOR_LIMIT_S 60 /* drivers may hang for good, healthy ones take milliseconds */
int doctor_run(struct values *v, const char *root, int limit_s);

#endif
