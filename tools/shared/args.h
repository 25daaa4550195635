/*
 * What the tools say of a command line that they do not take: one line, which names the word that
 * was wrong and the nearest that there is. The usage is what --help is for.
 */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include <getopt.h>

#define ARGS_REFUSAL 256 /* bytes of a refusal, at most */

/* The nearest to @word of @names, which NULL ends: at most three letters differ, fewer in a
 * short one. NULL: none is near. */
const char *args_near(const char *word, const char *const *names);

/*
 * Why getopt_long has just refused an option of @argv: it returned @code, '?' or ':', with opterr 0
 * and short options that begin with ':' (behind '+', if any). Into @out, of ARGS_REFUSAL bytes;
 * returns it.
 */
char *args_refusal(char *out, int code, char *const *argv, const struct option *options);

/* On stderr: "TOOL: what was wrong (TOOL --help)". Returns 2, the exit status of wrong use. */
int args_misuse(const char *tool, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* args_misuse for what args_refusal says. */
int args_refuse(const char *tool, int code, char *const *argv, const struct option *options);

#endif
