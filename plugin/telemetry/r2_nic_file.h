/*
 * The file of a host's NICs over jobs (docs/operating.md, "A NIC's history"):
 * RUN_DIR/nccl-net-r2.UID.nics, one for all processes of a user. For the plugin and r2_stat; the
 * history itself is r2_nic_history.h. All calls block on the local file system alone.
 *
 * Who enters locks the file, makes the next one beside it and renames that: a process that is
 * killed leaves the old one or the new one. What is not as it was written becomes FILE.bad and
 * counts for nothing.
 */
#ifndef R2_NIC_FILE_H
#define R2_NIC_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "r2_nic_history.h"

/* 0, or -1 when it does not fit. */
int r2_nic_file_path(const char *dir, uid_t uid, char *out, size_t len);
/* Whether @name is that of such a file, and whose. Pure. */
int r2_nic_file_name(const char *name, uid_t *uid);

enum r2_nic_file_result {
    R2_NIC_FILE_OK,
    R2_NIC_FILE_NONE,    /* there is no file: the history is empty */
    R2_NIC_FILE_BUSY,    /* another process has it: try again */
    R2_NIC_FILE_DAMAGED, /* it is not as it was written; @why names file and line */
    R2_NIC_FILE_FAILED   /* it cannot be read or written, or is not to be trusted; @why */
};
/* Reads the file of @uid. */
enum r2_nic_file_result r2_nic_file_read(const char *path, uid_t uid, struct r2_nic_history *h,
                                         char *why, size_t why_len);
/* Enters @n notes. DAMAGED: they are entered, into a new file, and the old one is FILE.bad. Does
 * not wait for the lock. */
enum r2_nic_file_result r2_nic_file_enter(const char *path, uid_t uid,
                                          const struct r2_nic_note *note, int n, char *why,
                                          size_t why_len);

#endif
