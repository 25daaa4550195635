/* NCCL_R2_WAYS: the value, and its file as it is at init. */
#include "ib_way_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

int ib_ways_option(const char *text, unsigned *n, const char **path)
{
    size_t digits = strspn(text, "0123456789");

    *n = IB_WAYS_DEFAULT;
    *path = strchr(text, '/') ? text : NULL;
    if (*path || text[0] == '\0') {
        return 0;
    }
    if (strcasecmp(text, "off") == 0) {
        *n = 1;
        return 0;
    }
    if (text[digits] != '\0' || digits > 2 || atoi(text) < 1 || atoi(text) > IB_WAYS_MAX) {
        return -1;
    }
    *n = (unsigned)atoi(text);
    return 0;
}

/* Up to @room bytes of @fd; -1 with errno. */
static ssize_t read_all(int fd, char *to, size_t room)
{
    size_t len = 0;
    ssize_t n;

    do {
        n = read(fd, to + len, room - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        len += n > 0 ? (size_t)n : 0;
    } while (len < room && n != 0 && (n > 0 || errno == EINTR));
    return n < 0 ? -1 : (ssize_t)len;
}

/* What the file has, and how much; NULL with the reason in @why. */
static char *text_read(const char *path, size_t *len, char *why, size_t why_len)
{
    /* what is no file may keep whoever opens it waiting */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char *text = NULL;
    struct stat st;
    ssize_t n = -1;

    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_len, "%s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        snprintf(why, why_len, S_ISDIR(st.st_mode) ? "it is a directory" : "it is no regular file");
    } else if ((text = malloc(IB_WAY_FILE_MAX + 1)) == NULL) {
        snprintf(why, why_len, "out of memory");
    } else if ((n = read_all(fd, text, IB_WAY_FILE_MAX + 1)) < 0) {
        snprintf(why, why_len, "%s", strerror(errno));
    } else if (n > IB_WAY_FILE_MAX) {
        snprintf(why, why_len, "it is larger than %d KiB", IB_WAY_FILE_MAX / 1024);
        n = -1;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (n < 0) {
        free(text);
        return NULL;
    }
    *len = (size_t)n;
    return text;
}

/* -1 with "PATH:LINE: reason" or "PATH: reason" in @why. */
static int rules_read(struct ib_ways *w, const char *path, char *why, size_t why_len)
{
    struct ib_way_file_error e = {.line = 0};
    struct ib_way_rule *rule = NULL, *less;
    size_t len;
    char *text = text_read(path, &len, e.why, sizeof(e.why));
    int n = -1;

    if (text && (rule = malloc(IB_WAY_RULES_MAX * sizeof(*rule))) == NULL) {
        snprintf(e.why, sizeof(e.why), "out of memory");
    } else if (text) {
        n = ib_way_file_parse(text, len, rule, &e);
    }
    free(text);
    if (n > 0) {
        less = realloc(rule, (size_t)n * sizeof(*rule));
        w->rule = less ? less : rule;
        w->rules = (unsigned)n;
        return 0;
    }
    free(rule);
    if (e.line) {
        snprintf(why, why_len, "%s:%u: %s", path, e.line, e.why);
    } else {
        snprintf(why, why_len, "%s: %s", path, e.why);
    }
    return -1;
}

int ib_ways_load(struct ib_ways *w, const char *option, char *why, size_t why_len)
{
    const char *path;
    char reason[512];

    memset(w, 0, sizeof(*w));
    if (ib_ways_option(option, &w->n, &path) != 0 || path == NULL ||
        rules_read(w, path, reason, sizeof(reason)) == 0) {
        return 0;
    }
    snprintf(why, why_len, "NCCL_R2_WAYS: %s. The file is not used: %d ways, as without it", reason,
             IB_WAYS_DEFAULT);
    return -1;
}

void ib_ways_free(struct ib_ways *w)
{
    free(w->rule);
    memset(w, 0, sizeof(*w));
}
