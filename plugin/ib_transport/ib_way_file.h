/*
 * The file of UDP source ports that a fabric controller writes and NCCL_R2_WAYS names
 * (docs/health.md, "A file of ports"). A line is a rule:
 *
 *   SOURCE DESTINATION PORT...    # comment
 *
 * SOURCE, DESTINATION: an IP address or GID, alone or with /BITS, or "*". A rule holds for both
 * directions. PORT: 49152 to 65535, or FIRST-LAST; 1 to IB_WAYS_MAX in all. Words are apart by
 * blanks or commas. The first rule that names two ports of the fabric counts.
 */
#ifndef IB_WAY_FILE_H
#define IB_WAY_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "ib_way.h"

#define IB_WAY_RULES_MAX 4096
#define IB_WAY_FILE_MAX  (1024 * 1024) /* bytes */

struct ib_way_file_error {
    unsigned line; /* from 1; 0: of the file as a whole */
    char why[160];
};

/*
 * The rules of @text, @len bytes, into @rule, which has room for IB_WAY_RULES_MAX: how many there
 * are, at least one; or -1 with the first that is wrong in @e, and @rule then means nothing. Pure.
 */
int ib_way_file_parse(const char *text, size_t len, struct ib_way_rule *rule,
                      struct ib_way_file_error *e);

/* Of what the rules say, in their order: hosts with the same file have the same. 0: no rule.
 * Pure. */
uint32_t ib_ways_digest(const struct ib_ways *w);

/* A value of NCCL_R2_WAYS: 0, and @n ways, and the file's path, which lies in @text, or NULL; -1:
 * none of what is allowed. Nothing is the default. Pure. */
int ib_ways_option(const char *text, unsigned *n, const char **path);

/*
 * What the value @option of NCCL_R2_WAYS says, with its file. -1 if that cannot be used, with a
 * sentence for the log in @why (at least 512 bytes): @w is then the default. So it is, without a
 * word, where the value is none of what is allowed, which ends the job elsewhere
 * (nccl/r2_init_texts.h). Init only; blocks on the file system, on regular files alone. To be freed
 * with ib_ways_free().
 */
int ib_ways_load(struct ib_ways *w, const char *option, char *why, size_t why_len);
void ib_ways_free(struct ib_ways *w);

#endif
