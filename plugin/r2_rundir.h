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
 * The names of a drain file, one NIC per line ('#' begins a comment), as a list in the syntax of NCCL_IB_HCA with '='. A name is a device, or a
 * device and its port (mlx5_0:2); at most R2_RUNDIR_NAMES. -1 with the reason in @why: it is too long, or a line cannot be a name. Pure.
 */
#define R2_RUNDIR_NAMES 64
int r2_rundir_drain_parse(const char *text, size_t len, char *list, size_t room, char *why, size_t why_len);

/*
 * Reads the drain file of @uid at @path: its text, or its list as above; empty without a file. Else, with the reason in @why, R2_RUNDIR_BAD: it
 * must not be trusted, or is no such file; R2_RUNDIR_LATER: it could not be read now.
 */
#define R2_RUNDIR_DRAIN_MAX 4096
#define R2_RUNDIR_BAD       (-1)
#define R2_RUNDIR_LATER     (-2)
int r2_rundir_drain_text(const char *path, uid_t uid, char text[R2_RUNDIR_DRAIN_MAX + 1], size_t *len, char *why, size_t why_len);
int r2_rundir_drain_read(const char *path, uid_t uid, char *list, size_t room, char *why, size_t why_len);

#endif
