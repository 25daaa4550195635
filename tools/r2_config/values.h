/*
 * What every source says about every option here, and what the plugin would make of it: the
 * plugin's own loader over the environment that NCCL would hand to it, which includes the lines of
 * nccl.conf files.
 */
#ifndef R2_CONFIG_VALUES_H
#define R2_CONFIG_VALUES_H

#include <limits.h>
#include <stddef.h>

#include "base/r2_config.h"
#include "ib_transport/ib_way.h"

#define VALUES_ROWS  ((int)sizeof(((struct r2_config *)0)->source)) /* as many as there can be */
#define VALUES_LINES 64

/* What one source says about one option. */
struct values_offer {
    char *text; /* NULL: nothing */
    char where[PATH_MAX];
    int line; /* of the file @where; 0: not from a file */
};

enum values_lock {
    VALUES_LOCK_NONE,
    VALUES_LOCK_HOLDS,
    VALUES_LOCK_IGNORED,    /* this process could write it: it binds nobody */
    VALUES_LOCK_UNREADABLE, /* the plugin ends the job */
};

struct values {
    struct r2_config cfg;
    struct ib_ways ways;                                     /* of NCCL_R2_WAYS, with its file */
    struct values_offer offer[VALUES_ROWS][R2_SRC_LOCK + 1]; /* by row and enum r2_opt_source;
                                                                [R2_SRC_DEFAULT] is empty */
    char lock_path[PATH_MAX];
    enum values_lock lock;
    char *warn[VALUES_LINES]; /* what the plugin would warn of, and values that it would leave aside
                                 without a warning */
    int warns;
};

/*
 * Reads everything. @root stands before the paths of lock.conf and /etc/nccl.conf ("" outside of
 * rehearsals). Variables of nccl.conf files are set in this process as NCCL sets them. NULL: out of
 * memory. Main thread, before others exist; blocks on the file system. The caller frees with
 * values_free().
 */
struct values *values_read(const char *root);
void values_free(struct values *v);

/* The nccl.conf files that NCCL reads here, in its order, existing or not; their number (at most
 * 2). */
int values_conf_paths(const char *root, char (*path)[PATH_MAX]);

/* Text of the value that holds, and of the default; @out has R2_OPT_STRING_MAX bytes. */
void values_text(const struct values *v, int row, char *out);
void values_default_text(int row, char *out);
int values_at_default(const struct values *v, int row);

/* "lock.conf", "environment", "profile", "default". */
const char *values_source_name(enum r2_opt_source s);

/* Row by name, -1; the name that @name nearly is, NULL. Knows the rows of NCCL's own variables,
 * too. */
int values_row_find(const char *name);
const char *values_name_near(const char *name);

/* What is allowed: "on, off", "1 to 8", "rail, any", "text". */
void values_range(const struct r2_opt_row *r, char *out, size_t len);

/* Do two texts mean the same value of ? */
int values_same(int row, const char *a, const char *b);

/*
 * Would the plugin take @value for @row? 0, or -1 with the reason in @why. Sees more than the row's
 * type: texts are looked at as the plugin does (r2_init_texts.h).
 */
int values_check(int row, const char *value, char *why, size_t why_len);

#endif
