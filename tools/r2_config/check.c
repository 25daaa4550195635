#include "tools/r2_config/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_conf_file.h"
#include "base/r2_config_names.h"
#include "tools/r2_config/values.h"

#define OURS "NCCL_R2_"

typedef void (*check_report_fn)(const char *path, int line, const char *kind, const char *text);

struct reading {
    const char *path;
    int line;
    struct check *counts;
    check_report_fn report;
    int seen[VALUES_ROWS]; /* line that set the row, 0 */
    int crlf_told;
};

static __attribute__((format(printf, 3, 4))) void say(struct reading *r, const char *kind,
                                                      const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    r->counts->errors += strcmp(kind, "error") == 0;
    r->counts->warnings += strcmp(kind, "warning") == 0;
    r->counts->notes += strcmp(kind, "note") == 0;
    if (r->report) {
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        r->report(r->path, r->line, kind, text);
    }
}

/* Names are compared as they stand: a blank or "export" makes another name. */
static void name_check(struct reading *r, const char *name)
{
    const char *near = NULL, *bare = name + strspn(name, " \t");
    char trimmed[R2_CONF_WORD_MAX + 1];

    if (strncmp(bare, "export ", 7) == 0 || strncmp(bare, "set ", 4) == 0) {
        bare += strcspn(bare, " ");
        bare += strspn(bare, " ");
    }
    snprintf(trimmed, sizeof(trimmed), "%.*s", (int)strcspn(bare, " \t"), bare);
    if (name[0] == '\0') {
        say(r, "error", "there is no name before '='");
    } else if (trimmed[0] == '#') {
        say(r, "warning", "sets a variable named '%.64s': a comment begins in column 1", name);
    } else if (strcmp(trimmed, name) != 0) {
        say(r, strncmp(trimmed, "NCCL_", 5) == 0 ? "error" : "warning",
            "sets a variable named '%.64s': blanks and words before a name become part of it",
            name);
    } else if (strncmp(name, OURS, strlen(OURS)) == 0) {
        near = values_name_near(name);
        say(r, "error", "unknown option %.64s%s%s%s", name, near ? "; did you mean " : "",
            near ? near : "", near ? "?" : "");
    } else {
        if (!r2_config_name_odd(name, &near)) {
            near = values_name_near(name);
            near = near && strncmp(near, OURS, strlen(OURS)) == 0
                       ? near
                       : NULL; /* rows of NCCL's have strange neighbours */
        }
        if (near) {
            say(r, "warning", "unknown name %.64s; did you mean %s?", name, near);
        } else if (r2_config_name_is_nccls(name)) {
            say(r, "note", "%.64s is for NCCL's IB transport: it has no effect with this plugin",
                name);
        } else if (strcmp(name, "NCCL_CONF_FILE") == 0) {
            say(r, "warning", "NCCL_CONF_FILE is read from the environment alone, before any file");
        } else {
            say(r, "note",
                "%.64s is for NCCL or others: set from nccl.conf, passed over in lock.conf and profiles",
                name);
        }
    }
}

/* A value that the row takes and that may not be what was meant. */
static void text_check(struct reading *r, const char *value)
{
    size_t len = strlen(value);

    if (len && (value[0] == '"' || value[0] == '\'')) {
        say(r, "warning", "the quotes are part of the value");
    }
    if (strstr(value, " #")) {
        say(r, "warning", "what follows '#' is part of the value: a comment is a line of its own");
    }
    if (len && (value[0] == ' ' || value[len - 1] == ' ' || value[len - 1] == '\t')) {
        say(r, "warning", "the blanks around the value are part of it");
    }
}

static void option_check(struct reading *r, int row, const struct r2_conf_pair *p)
{
    int n;
    const struct r2_opt_row *o = &r2_config_rows(&n)[row];
    char why[512];

    if (r->seen[row]) {
        say(r, "warning", "%s is set in line %d already: the first counts", p->name, r->seen[row]);
        return;
    }
    if (p->value[0] == '\0' && o->type != R2_OPT_STRING) {
        say(r, "warning", "%s without a value: as if the line were not there", p->name);
        return;
    }
    r->seen[row] = r->line;
    if (values_check(row, p->value, why, sizeof(why)) != 0) {
        say(r, "error", "%s", why);
        return;
    }
    r->counts->taken++;
    say(r, "taken", "%s=%s%s%s", p->name, p->value, o->unit[0] ? " " : "", o->unit);
    if (o->type == R2_OPT_STRING) {
        text_check(r, p->value);
    }
    if (strcmp(o->field, "profile") == 0) {
        say(r, "note", "in a profile this names no other one");
    }
}

/* What the parser leaves out of a line without telling. */
static void line_check(struct reading *r, const char *line, size_t len)
{
    size_t name = strcspn(line, "=");

    if (len > 1 && line[len - 1] == '\n' && line[len - 2] == '\r' && !r->crlf_told) {
        r->crlf_told = 1;
        say(r, "warning", "lines end in CR LF: NCCL before 2.30 takes the CR into the value");
    }
    if (name > R2_CONF_WORD_MAX) {
        say(r, "error", "the name is cut at %d bytes", R2_CONF_WORD_MAX);
    }
    if (len > name && len - name - 1 > R2_CONF_WORD_MAX + 2) {
        say(r, "error", "the value is cut at %d bytes", R2_CONF_WORD_MAX);
    }
}

static void line_take(struct reading *r, const char *line)
{
    struct r2_conf_pair p;
    size_t len = strlen(line);
    int row;

    if (line[0] == '#') {
        return;
    }
    if (!r2_conf_line_parse(line, &p)) {
        if (strspn(line, " \t\r\n") != len) {
            say(r, "warning", "passed over: there is no '=' in it%s",
                line[strspn(line, " \t")] == '#' ? ", and a comment begins in column 1" : "");
        }
        return;
    }
    line_check(r, line, len);
    row = values_row_find(p.name);
    if (row < 0) {
        name_check(r, p.name);
    } else {
        option_check(r, row, &p);
    }
}

int check_file(const char *path, struct check *c, check_report_fn report)
{
    struct reading r = {.path = path, .counts = c, .report = report};
    char line[R2_CONF_LINE_MAX + 1];
    FILE *f = fopen(path, "re");
    int whole = 1, failed, saved;

    memset(c, 0, sizeof(*c));
    if (f == NULL) {
        return -1;
    }
    while (fgets(line, sizeof(line), f)) {
        size_t len = strlen(line);

        r.line += whole;
        if (!whole) {
            say(&r, "error",
                "the line is longer than %d bytes: its rest is read as a line of its own",
                R2_CONF_LINE_MAX);
        }
        whole = (len > 0 && line[len - 1] == '\n') || feof(f);
        line_take(&r, line);
    }
    failed = ferror(f);
    saved = errno;
    fclose(f);
    if (!failed && c->warnings > 0 && c->taken + c->notes + c->errors == 0) {
        say(&r, "error", "nothing in this file sets anything: is it one of options?");
    }
    errno = saved;
    return failed ? -1 : 0;
}

static void finding_print(const char *path, int line, const char *kind, const char *text)
{
    printf("%s:%d: %s: %s\n", path, line, kind, text);
}

int check_print(const char *path)
{
    struct check c;

    if (check_file(path, &c, finding_print) != 0) {
        fprintf(stderr, "r2_config: %s cannot be read: %s\n", path, strerror(errno));
        return 1;
    }
    printf("%s: %d taken, %d errors, %d warnings\n", path, c.taken, c.errors, c.warnings);
    return c.errors ? 1 : 0;
}
