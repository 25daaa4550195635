/* Where fabrics live: one directory each, which appears whole and goes whole. */
#include "tests/fabric/shm/seg.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Memory first: the segment is mapped and written by everybody. */
static const char *dir_base(void)
{
    const char *env = getenv("SOFTFAB_RUN");

    if (env != NULL && *env != '\0') {
        return env;
    }
    if (access("/dev/shm", W_OK | X_OK) == 0) {
        return "/dev/shm";
    }
    env = getenv("XDG_RUNTIME_DIR");
    if (env != NULL && access(env, W_OK | X_OK) == 0) {
        return env;
    }
    return "/tmp";
}

int seg_dir_path(const char *name, char *path, size_t path_len, char *why, size_t why_len)
{
    if (name == NULL) {
        name = "default";
    }
    size_t len = strlen(name);
    if (len == 0 || len >= SEG_NAME_MAX ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != len) {
        snprintf(why, why_len, "fabric name '%s' is not 1 to %d letters, digits, - or _", name,
                 SEG_NAME_MAX - 1);
        return -1;
    }
    int n = snprintf(path, path_len, "%s/softfab-%u-%s", dir_base(), (unsigned)geteuid(), name);
    if (n < 0 || (size_t)n >= path_len || n >= SEG_PATH_MAX - 40) {
        snprintf(why, why_len, "run directory %s is too long a path", dir_base());
        return -1;
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

int seg_dir_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return -1;
    }
    return 0;
}

pid_t seg_dir_inhabitant(const char *path)
{
    char file[SEG_PATH_MAX + 16];
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = SEG_SLOTS};
    int fd;

    snprintf(file, sizeof(file), "%s/alive", path);
    fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int rc = fcntl(fd, F_GETLK, &fl);
    close(fd);
    if (rc != 0) {
        return -1;
    }
    return fl.l_type == F_UNLCK ? 0 : fl.l_pid;
}

/* Trees that a killed creator or remover left beside @path: "<path>.new.PID" and "<path>.old.PID"
 * of processes that are gone. */
static void leftovers_remove(const char *path)
{
    char parent[SEG_PATH_MAX], full[SEG_PATH_MAX + 300];
    const char *base = strrchr(path, '/');

    snprintf(parent, sizeof(parent), "%.*s", (int)(base - path), path);
    DIR *d = opendir(parent);
    if (d == NULL) {
        return;
    }
    base++;
    size_t len = strlen(base);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strncmp(e->d_name, base, len) != 0 || (strncmp(e->d_name + len, ".new.", 5) != 0 &&
                                                   strncmp(e->d_name + len, ".old.", 5) != 0)) {
            continue;
        }
        pid_t pid = (pid_t)atoi(e->d_name + len + 5);
        char proc[32];
        snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
        if (pid > 0 && pid != getpid() && access(proc, F_OK) != 0) {
            snprintf(full, sizeof(full), "%s/%s", parent, e->d_name);
            seg_dir_remove(full);
        }
    }
    closedir(d);
}

int seg_dir_install(const char *tmp, const char *path, char *why, size_t why_len)
{
    char old[SEG_PATH_MAX + 32];

    leftovers_remove(path);
    snprintf(old, sizeof(old), "%s.old.%d", path, (int)getpid());
    /* rename() replaces only an empty directory: of two creators at once one is refused and says
     * so. */
    for (int tries = 0; rename(tmp, path) != 0; tries++) {
        if (errno != ENOTEMPTY && errno != EEXIST) {
            snprintf(why, why_len, "cannot name %s: %s", path, strerror(errno));
            return -1;
        }
        pid_t pid = seg_dir_inhabitant(path);
        if (pid > 0 || tries > 2) {
            snprintf(why, why_len, "a fabric of this name is up at %s and process %d lives in it",
                     path, (int)pid);
            return -1;
        }
        if (rename(path, old) == 0) {
            seg_dir_remove(old);
        }
    }
    return 0;
}
