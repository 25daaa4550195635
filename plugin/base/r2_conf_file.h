/*
 * Files of options: the lock file and profiles. The format is that of nccl.conf, by NCCL's own
 * rules, so that a line means the same in all of them.
 */
#ifndef R2_CONF_FILE_H
#define R2_CONF_FILE_H

#include <stdbool.h>

#define R2_CONF_LINE_MAX 4095
#define R2_CONF_WORD_MAX 1023

struct r2_conf_pair {
    char name[R2_CONF_WORD_MAX + 1], value[R2_CONF_WORD_MAX + 1];
};

/*
 * Splits one line (with or without its line end) at the first '='. No trimming, no quotes, '#' only
 * in column 0; both words are cut at R2_CONF_WORD_MAX. 0: a comment or no '='. Pure.
 */
int r2_conf_line_parse(const char *line, struct r2_conf_pair *out);

/*
 * Calls @pair for each pair of @path, in order. 0, or -1 with errno when the file cannot be opened
 * or read. Blocks on the file system; init only.
 */
int r2_conf_file_read(const char *path, void (*pair)(void *arg, const struct r2_conf_pair *p),
                      void *arg);

/*
 * Could this process write or replace @path? Then it cannot bind it. Not zero: yes. Real root can
 * write everything, so for it the owner and the mode decide: a file of root's that only root may
 * write is the administrator's.
 */
bool r2_conf_file_is_ours(const char *path);

/*
 * Edit distance of two names without regard to case, when it is at most @limit; else @limit + 1.
 * Pure. Names of 63 bytes and more are never near.
 */
int r2_conf_name_distance(const char *a, const char *b, int limit);

#endif
