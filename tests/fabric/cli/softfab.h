/* The command softfab: one function per subcommand. Each gets the arguments behind its name and
 * returns the exit status. */
#ifndef SOFTFAB_H
#define SOFTFAB_H

#include "tests/fabric/shm/seg.h"

#include "plugin/base/r2_json.h"
#include "tools/shared/args.h"

int softfab_up(int argc, char **argv);
int softfab_exec(int argc, char **argv);
int softfab_fault(int argc, char **argv);
int softfab_status(int argc, char **argv);
int softfab_down(int argc, char **argv);

/* Writes "softfab: ..." to stderr. Returns 1, the exit status. */
int softfab_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for wrong use: points to the help, returns 2. */
int softfab_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for an option that getopt_long refused with @code. */
int softfab_refuse(const char *command, int code, char *const *argv, const struct option *opts);
/* A whole number 0..max; -1: @text is none. */
int softfab_number(const char *text, int max);
/* "20MB/s", "unlimited". */
void softfab_rate_text(uint64_t v, char *buf, size_t len);
/* softfab_spines.c: their part of the status. text: nothing where there is one spine. */
void softfab_spines_text(struct seg *seg);
void softfab_spines_json(struct r2_json *j, struct seg *seg);
/* Opens the fabric of that name as an observer. 0, or the exit status after a message. */
int softfab_open(struct seg_map *m, const char *name);

#endif
