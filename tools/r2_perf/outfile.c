#include "tools/r2_perf/outfile.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/r2_perf/util.h"

static void outfile_free(struct outfile *o)
{
    free(o->path);
    free(o->tmp);
}

/* Closes what was written, and takes it away again. */
static void outfile_drop(struct outfile *o)
{
    int err = errno;
    if (o->f) {
        fclose(o->f);
    }
    unlink(o->tmp);
    outfile_free(o);
    errno = err;
}

int outfile_open(struct outfile *o, const char *path)
{
    struct stat st;
    char real[PATH_MAX];
    bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    o->path = util_str_copy(there && realpath(path, real) ? real : path);
    o->tmp = util_str_format("%s.%d.tmp", o->path, (int)getpid());
    o->f = fopen(o->tmp, "wxe");
    if (!o->f) {
        outfile_free(o);
        return -1;
    }
    return 0;
}

int outfile_close(struct outfile *o)
{
    int rc = fflush(o->f) == 0 && !ferror(o->f) ? 0 : -1;
    rc = fclose(o->f) == 0 ? rc : -1;
    o->f = NULL;
    if (rc != 0 || rename(o->tmp, o->path) != 0) {
        outfile_drop(o);
        return -1;
    }
    outfile_free(o);
    return 0;
}

int outfile_check(const char *path)
{
    static const char some[4096];
    struct outfile o;
    if (outfile_open(&o, path) != 0) {
        return -1;
    }
    errno = 0;
    bool fits = fwrite(some, sizeof(some), 1, o.f) == 1 && fflush(o.f) == 0;
    int err = fits ? 0 : errno ? errno : EIO;
    outfile_drop(&o);
    errno = err;
    return fits ? 0 : -1;
}
