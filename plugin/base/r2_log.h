/*
 * Log lines: formatted into a bounded queue, handed to the sink by r2_log_flush().
 *
 * NCCL's logger takes a mutex and writes to a pipe that can block, so nobody calls it between a
 * fault and the switch: a line is queued at once (short internal lock, never held across the sink)
 * and flushed by the service thread when it has nothing better to do, and by API calls before they
 * return an error, so that the reason is the last WARN before the error. When the queue is full the
 * oldest INFO line is dropped and counted; the count is logged when there is room again.
 */
#ifndef R2_LOG_H
#define R2_LOG_H

#include <stddef.h>

enum r2_log_level { R2_LOG_WARN = 0, R2_LOG_INFO, R2_LOG_TRACE };

/* @msg has no newline and already carries the prefix "NET/R2 : ". Called without any lock of ours
 * held. */
typedef void (*r2_log_sink_fn)(enum r2_log_level level, const char *file, int line,
                               const char *msg);

/* Sets the sink (NULL: lines are dropped). Any thread; lines queued before go to the new sink. */
void r2_log_sink_set(r2_log_sink_fn sink);

/* Lines above @level are not queued. Default R2_LOG_INFO. */
void r2_log_level_set(enum r2_log_level level);

/* Queues one line, cut at 900 bytes. Any thread; does not block on I/O. Not for the data path on
 * success. */
void r2_log_write(enum r2_log_level level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * Lines of which each of many connections has one when something happens to all of them, or each of
 * many peers. The first R2_LOG_FIRST of a kind are queued as ever; the rest is counted, and one
 * line at INFO says how many there were once none of the kind came for R2_LOG_QUIET_NS of real
 * time: then it begins anew. At level TRACE all are queued.
 */
enum r2_log_kind {
    R2_LOG_CONNECTED, /* a connection stands */
    R2_LOG_DOWN,      /* an incarnation ended */
    R2_LOG_FENCED,
    R2_LOG_SETTLED,
    R2_LOG_BACK, /* the next incarnation is up */
    R2_LOG_ENDS, /* a connection ended with an error */
    R2_LOG_KEPT, /* a queue pair could not be destroyed */
    R2_LOG_NO_PROBE,
    R2_LOG_CHANNEL_LOST,
    R2_LOG_INBAND, /* control messages go over NICs as well */
    R2_LOG_KINDS
};
#define R2_LOG_FIRST    16
#define R2_LOG_QUIET_NS 2000000000ull
/* As r2_log_write. */
void r2_log_many(enum r2_log_kind kind, enum r2_log_level level, const char *file, int line,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* For harnesses that count lines: @first of a kind instead. Before anything is logged. */
void r2_log_many_first(unsigned first);
/* Queues now what was counted only: the end of an instance. Any thread. */
void r2_log_many_over(void);

/* Hands all queued lines to the sink, in order. May block in the sink. Concurrent calls keep the
 * order. */
void r2_log_flush(void);

/* Lines dropped since start because the queue was full. */
unsigned long r2_log_dropped(void);

#define R2_WARN(...)            r2_log_write(R2_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define R2_INFO(...)            r2_log_write(R2_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define R2_TRACE(...)           r2_log_write(R2_LOG_TRACE, __FILE__, __LINE__, __VA_ARGS__)
#define R2_INFO_MANY(kind, ...) r2_log_many(kind, R2_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define R2_WARN_MANY(kind, ...) r2_log_many(kind, R2_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)

#endif
