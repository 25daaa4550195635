#include "r2_conf_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int r2_conf_line_parse(const char *line, struct r2_conf_pair *out)
{
    size_t len = strlen(line), name_len;
    const char *eq;

    if (len > 0 && line[len - 1] == '\n') {
        len--;
    }
    if (len > 0 && line[len - 1] == '\r') {
        len--;
    }
    if (len == 0 || line[0] == '#') {
        return 0;
    }
    eq = memchr(line, '=', len);
    if (eq == NULL) {
        return 0;
    }
    name_len = (size_t)(eq - line);
    len -= name_len + 1;
    if (name_len > R2_CONF_WORD_MAX) {
        name_len = R2_CONF_WORD_MAX;
    }
    if (len > R2_CONF_WORD_MAX) {
        len = R2_CONF_WORD_MAX;
    }
    memcpy(out->name, line, name_len);
    out->name[name_len] = '\0';
    memcpy(out->value, eq + 1, len);
    out->value[len] = '\0';
    return 1;
}

int r2_conf_file_read(const char *path, void (*pair)(void *arg, const struct r2_conf_pair *p),
                      void *arg)
{
    char line[R2_CONF_LINE_MAX + 1];
    struct r2_conf_pair p;
    int failed, saved;
    FILE *f = fopen(path, "re");

    if (f == NULL) {
        return -1;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        if (r2_conf_line_parse(line, &p)) {
            pair(arg, &p);
        }
    }
    failed = ferror(f);
    saved = errno;
    fclose(f);
    errno = saved;
    return failed ? -1 : 0;
}

/* Root of the first user namespace: the identity map covers all ids. Root of a container's own
 * namespace is an ordinary user. */
static bool root_is_real(void)
{
    unsigned long long inside = 1, outside = 1, count = 0;
    FILE *f;
    int n;

    if (geteuid() != 0) {
        return 0;
    }
    f = fopen("/proc/self/uid_map", "re");
    if (f == NULL) {
        return 1;
    }
    n = fscanf(f, "%llu %llu %llu", &inside, &outside, &count);
    fclose(f);
    return n != 3 || (inside == 0 && outside == 0 && count == UINT_MAX);
}

/* May somebody other than the administrator write what @st describes, when real root asks? */
static int others_write(const struct stat *st)
{
    return st->st_uid != 0 || (st->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

bool r2_conf_file_is_ours(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat file, folder;
    int sticky;

    if (stat(path, &file) != 0) {
        return 0;
    }
    snprintf(dir, sizeof(dir), "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash ? path : ".");
    if (stat(dir, &folder) != 0) {
        return 1;
    }
    sticky = (folder.st_mode & S_ISVTX) != 0;
    if (root_is_real()) {
        return others_write(&file) || (!sticky && others_write(&folder));
    }
    if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0) {
        return 1;
    }
    /* a folder that we may write lets us put another file in its place, unless sticky keeps us off
     * the files of others
     */
    if (faccessat(AT_FDCWD, dir, W_OK, AT_EACCESS) != 0) {
        return 0;
    }
    return !sticky || file.st_uid == geteuid() || folder.st_uid == geteuid();
}

int r2_conf_name_distance(const char *a, const char *b, int limit)
{
    int row[64], diag, up;
    int la = (int)strnlen(a, 63), lb = (int)strnlen(b, 63);

    if (la == 63 || lb == 63 || abs(la - lb) > limit) {
        return limit + 1;
    }
    for (int j = 0; j <= lb; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= la; i++) {
        diag = row[0];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int same = toupper((unsigned char)a[i - 1]) == toupper((unsigned char)b[j - 1]);
            int best = diag + !same;
            up = row[j];
            if (up + 1 < best) {
                best = up + 1;
            }
            if (row[j - 1] + 1 < best) {
                best = row[j - 1] + 1;
            }
            diag = up;
            row[j] = best;
        }
    }
    return row[lb] > limit ? limit + 1 : row[lb];
}
