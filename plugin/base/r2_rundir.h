/*
 * The run directory, which the processes of a host share (docs/control.md): where it is, which
 * files of it may be trusted, and the form of the administrator's files. For the plugin and its
 * tools.
 */
#ifndef R2_RUNDIR_H
#define R2_RUNDIR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/*
 * @wanted (NCCL_R2_RUN_DIR), or, when that is empty, the first usual directory that this process
 * can write. NULL with the reason in @why. Looks at the file system.
 */
const char *r2_rundir_find(const char *wanted, char *why, size_t why_len);

/* The usual directories, the first before the second. */
#define R2_RUNDIR_OWN    "/run/nccl-net-r2"
#define R2_RUNDIR_COMMON "/dev/shm"

/* What an administrator commands once, unlike a drain, which holds for as long as it stands. */
enum r2_rundir_kind { R2_RUNDIR_FAILBACK, R2_RUNDIR_REHEARSE };

/* Path of the drain file, of a file of commands, of @uid in @dir. 0, or -1 when it does not fit. */
int r2_rundir_drain_path(const char *dir, uid_t uid, char *out, size_t len);
int r2_rundir_commands_path(const char *dir, uid_t uid, enum r2_rundir_kind kind, char *out,
                            size_t len);

/* Which content of a file it is; all zero without a file. ctime, not mtime: a file whose mode is
 * mended is another one. A link is not followed. */
struct r2_rundir_stamp {
    ino_t ino;
    off_t size;
    struct timespec ctime;
};
/* 1; 0: there is no file. */
int r2_rundir_stamp_get(const char *path, struct r2_rundir_stamp *out);
int r2_rundir_stamp_same(const struct r2_rundir_stamp *a, const struct r2_rundir_stamp *b);

/* A directory as it was when it was checked last; zeroed: it never was. */
struct r2_rundir_dir {
    dev_t dev;
    ino_t ino;
    struct timespec mtime;
    int settled; /* mtime was old enough then for any later change to show in it */
};
/*
 * 1: no file was made in @dir, renamed into it or removed since the call before this one, so that
 * one that was looked for in vain behind that call is not there. 0: one may have been. Keeps in
 * @seen what it has found. Does not block on a local file system.
 */
int r2_rundir_dir_same(const char *dir, struct r2_rundir_dir *seen);

/* Whether file @fd, opened at @path, belongs to @uid and only @uid may write it; else the reason in
 * @why. */
int r2_rundir_file_safe(int fd, const char *path, uid_t uid, char *why, size_t why_len);

/*
 * The names of a drain file, one NIC per line ('#' begins a comment), as a list in the syntax of
 * NCCL_IB_HCA with '='. A name is a device, or a device and its port (mlx5_0:2); at most
 * R2_RUNDIR_NAMES. -1 with the reason in @why: it is too long, or a line cannot be a name. Pure.
 */
#define R2_RUNDIR_NAMES 64
int r2_rundir_drain_parse(const char *text, size_t len, char *list, size_t room, char *why,
                          size_t why_len);
/*
 * What the file says beside @name: the comment of the last line about just this name, without what
 * is not printable; empty: nothing. Pure. reason: the same without the "since TIME: " that r2_ctl
 * puts before the administrator's own note; points into @note.
 */
#define R2_RUNDIR_NOTE 128
void r2_rundir_drain_note(const char *text, size_t len, const char *name, char *note, size_t room);
const char *r2_rundir_drain_reason(const char *note);

/*
 * The commands of a file of them: lines "NAME NUMBER", NAME as above or * for all NICs, NUMBER not
 * 0 and another one with each command. A rehearsal has one NIC, and how long it lasts behind the
 * number, which is the time (CLOCK_REALTIME, us) that it begins at: "NAME NUMBER MS".
 * @out has room for R2_RUNDIR_NAMES. Returns how many; -1 with the reason in @why. Pure.
 */
#define R2_RUNDIR_REHEARSE_MS 3600000 /* the longest rehearsal */
struct r2_rundir_command {
    char name[64];
    uint64_t number;
    uint32_t ms; /* of a rehearsal; 0: it ends */
};
int r2_rundir_commands_parse(const char *text, size_t len, enum r2_rundir_kind kind,
                             struct r2_rundir_command *out, char *why, size_t why_len);

/*
 * Reads the file of @uid at @path: its text, or the list of a drain file as above; empty without a
 * file. Else, with the reason in @why, R2_RUNDIR_BAD: it must not be trusted, or is no such file;
 * R2_RUNDIR_LATER: it could not be read now.
 */
#define R2_RUNDIR_TEXT_MAX 4096
#define R2_RUNDIR_BAD      (-1)
#define R2_RUNDIR_LATER    (-2)
int r2_rundir_text(const char *path, uid_t uid, char text[R2_RUNDIR_TEXT_MAX + 1], size_t *len,
                   char *why, size_t why_len);
int r2_rundir_drain_read(const char *path, uid_t uid, char *list, size_t room, char *why,
                         size_t why_len);
/* Likewise, with the text that the list is from. */
int r2_rundir_drain_text(const char *path, uid_t uid, char text[R2_RUNDIR_TEXT_MAX + 1],
                         size_t *len, char *list, size_t room, char *why, size_t why_len);

#endif
