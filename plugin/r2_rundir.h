/*
 * The run directory, which the processes of a host share (docs/design-host.md): where it is, which files of it may be trusted, and the form of a
 * drain file. For the plugin and its tools.
 */
#ifndef R2_RUNDIR_H
#define R2_RUNDIR_H

#include <stddef.h>
#include <sys/types.h>

/*
 * @asked (NCCL_R2_RUN_DIR), or, when that is empty, the first usual directory that this process can write. NULL with the reason in @why. Looks
 * at the file system.
 */
const char *r2_rundir_find(const char *asked, char *why, size_t why_len);

/* Path of the drain file of @uid in @dir. 0, or -1 when it does not fit. */
int r2_rundir_drain_path(const char *dir, uid_t uid, char *out, size_t len);

/* Whether file @fd, opened at @path, belongs to @uid and only @uid may write it; else the reason in @why. */
int r2_rundir_file_safe(int fd, const char *path, uid_t uid, char *why, size_t why_len);

/*
 * The names of a drain file, one NIC per line ('#' begins a comment), as a list in the syntax of NCCL_IB_HCA with '='.
 * -1 with the reason in @why: it is too long, or a line cannot be a name. Pure.
 */
int r2_rundir_drain_parse(const char *text, size_t len, char *list, size_t room, char *why, size_t why_len);

/*
 * Reads the drain file of @uid at @path: its list as above, empty without a file. -1 with the reason in @why: it cannot be read or must not be
 * trusted. At most R2_RUNDIR_DRAIN_MAX bytes.
 */
#define R2_RUNDIR_DRAIN_MAX 4096
int r2_rundir_drain_read(const char *path, uid_t uid, char *list, size_t room, char *why, size_t why_len);

#endif
