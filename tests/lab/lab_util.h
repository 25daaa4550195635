/* What the lab's programs share: clock, growing buffers, files of one line, sockets named below the
 * current folder. No threads. */
#ifndef R2_LAB_UTIL_H
#define R2_LAB_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/base/r2_time.h"

#define LAB_NS_PER_MS R2_NS_PER_MS
#define LAB_NS_PER_S  R2_NS_PER_S

/* Nanoseconds of the monotonic clock. */
uint64_t lab_clock_now(void);

/* Milliseconds until @deadline_ns, rounded up, for poll(); 0 when it has passed, -1 for a deadline
 * of UINT64_MAX. */
int lab_clock_left_ms(uint64_t deadline_ns);

/* A queue of bytes: put at the end, taken from the front. All zero is empty. The owner calls
 * lab_buf_free. */
struct lab_buf {
    char *mem;
    size_t head, tail, cap;
};

static inline size_t lab_buf_len(const struct lab_buf *b)
{
    return b->tail - b->head;
}

/* Room for @n more bytes behind the tail; the caller fills some of them and adds their number to
 * b->tail. Ends the program when there is no memory. */
char *lab_buf_room(struct lab_buf *b, size_t n);
void lab_buf_put(struct lab_buf *b, const void *data, size_t n);
void lab_buf_take(struct lab_buf *b, size_t n);
void lab_buf_free(struct lab_buf *b);

/* Prints "lab: ..." on standard error and ends the program with @status. */
__attribute__((noreturn, format(printf, 2, 3))) void lab_die(int status, const char *fmt, ...);
/* As lab_die, but returns -1. */
__attribute__((format(printf, 1, 2))) int lab_complain(const char *fmt, ...);

/* Reads the first line of @path, without its end, into @out. Returns 0, or -1 with errno (ENODATA
 * for an empty file).
 */
int lab_file_line(const char *path, char *out, size_t size);

/* A whole decimal number from @min to @max. Returns 0, or -1 with @out untouched. */
int lab_number_parse(const char *text, long min, long max, long *out);
/* A decimal number with a fraction from @min to @max. Returns 0, or -1 with @out untouched. */
int lab_real_parse(const char *text, double min, double max, double *out);

/* A UNIX stream socket at @path, which is relative because a socket's name holds 107 bytes at most.
 * Return the descriptor, close-on-exec, or -1 with errno. lab_unix_listen replaces what is there.
 * Neither blocks for a peer. */
int lab_unix_listen(const char *path);
int lab_unix_connect(const char *path);

#endif
