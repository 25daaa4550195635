/*
 * The options as text: what holds here and why, and the tables of the documents. All write to
 * standard output.
 */
#ifndef R2_CONFIG_SHOW_H
#define R2_CONFIG_SHOW_H

#include "tools/r2_config/values.h"

/* Every option, one a line. */
void show_all(const struct values *v);
/* What is not at its default, one a line; returns how many. */
int show_diff(const struct values *v);
/* Everything about option @name; -1 when there is none, with a suggestion on standard error. */
int show_explain(const struct values *v, const char *name);
/* One JSON object. */
void show_json(const struct values *v);
/* The rows as README's table, and as the list of options of nccl-net-r2(7). */
void show_markdown(void);
void show_man(void);

/* "lock.conf", "environment", "/etc/nccl.conf:3", ...: where what @src says about @row was found.
 */
void show_where(const struct values *v, int row, enum r2_opt_source src, char *out, size_t len);

#endif
