/*
 * The logger handed to the plugin, with NCCL's levels and line format. Lines go to stderr, or to
 * NCCL_DEBUG_FILE. Also remembers what the report needs: the last warning, and how many lines told
 * of a path that went down.
 */
#ifndef R2_PERF_LOG_H
#define R2_PERF_LOG_H

#include <stddef.h>
#include <stdint.h>

/* Read NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE. @host: printed on each line (copied).
 * Once, before others. */
void log_setup(const char *host);

/* For struct abi_net init: any thread; takes a mutex and may block in write. */
void log_line_write(int level, unsigned long flags, const char *file, int line, const char *fmt,
                    ...) __attribute__((format(printf, 5, 6)));

/* Copy the text of the last WARN, empty when there was none. Any thread. */
void log_warning_get(char *text, size_t bytes);
/*
 * What our own plugin says of a switch (plugin/telemetry/r2_report_case.c): connections left a NIC,
 * and the one that waited longest did so for stall_ns, the figure of the event. Other plugins say
 * no such thing.
 */
struct log_switch {
    uint64_t began_ns, end_ns; /* util_now_ns(): the first of them lost a path; the line came */
    uint64_t stall_ns;         /* 0: nothing waited */
    uint64_t over;             /* 0: some still waited when it was said: the figure is not known */
};
#define LOG_SWITCHES_MAX 256
/* Copies those seen so far, oldest first, to @out (LOG_SWITCHES_MAX); more than that are not kept.
 * Any thread. */
int log_switches_get(struct log_switch *out);
/* Lines seen so far that contain both "NET/R2" and "DOWN", whatever level was printed. Any thread.
 */
uint64_t log_failovers_count(void);

#endif
