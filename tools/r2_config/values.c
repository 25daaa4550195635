#include "tools/r2_config/values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_conf_file.h"
#include "nccl/r2_init_texts.h"
#include "base/r2_log.h"
#include "ib_transport/ib_way_file.h"

#define OURS      "NCCL_R2_"
#define NEAR_MISS 3

extern char **environ;

const char *values_source_name(enum r2_opt_source s)
{
    static const char *const names[] = {"default", "profile", "environment", "lock.conf"};

    return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "?";
}

int values_row_find(const char *name)
{
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);

    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The rows' names, and what is left of them without their prefix: "T_DEAD", "failover". */
const char *values_name_near(const char *name)
{
    static const char *const prefixes[] = {"", "NCCL_R2_", "NCCL_IB_", "NCCL_"};
    int n, best_distance = NEAR_MISS + 1;
    const struct r2_opt_row *rows = r2_config_rows(&n);
    const char *best = NULL;
    char whole[128];

    for (size_t p = 0; p < sizeof(prefixes) / sizeof(prefixes[0]); p++) {
        /* of a short name with a prefix guessed any other short one is near */
        int limit = p == 0 ? NEAR_MISS : strlen(name) > 4 ? 2 : 0;

        snprintf(whole, sizeof(whole), "%s%.100s", prefixes[p], name);
        for (int i = 0; i < n; i++) {
            int d = r2_conf_name_distance(whole, rows[i].name, limit);

            if (d <= limit && d < best_distance) {
                best_distance = d;
                best = rows[i].name;
            }
        }
    }
    return best;
}

void values_range(const struct r2_opt_row *r, char *out, size_t len)
{
    size_t n = 0;

    switch (r->type) {
    case R2_OPT_BOOL:
        snprintf(out, len, "on, off");
        break;
    case R2_OPT_INT:
        snprintf(out, len, "%lld to %lld", (long long)r->min, (long long)r->max);
        break;
    case R2_OPT_ENUM:
        for (const char *c = r->choices; *c && n + 3 < len; c++) {
            n += (size_t)snprintf(out + n, len - n, *c == '|' ? ", " : "%c", *c);
        }
        break;
    case R2_OPT_STRING:
        snprintf(out, len, "text");
        break;
    }
}

int values_check(int row, const char *value, char *why, size_t why_len)
{
    int n, rc;
    const struct r2_opt_row *r = &r2_config_rows(&n)[row];
    struct r2_config *scratch = malloc(sizeof(*scratch));

    if (scratch == NULL) {
        snprintf(why, why_len, "out of memory");
        return -1;
    }
    r2_config_defaults(scratch);
    rc = r2_config_set(scratch, r->name, value, why, why_len);
    rc = rc == 0 ? r2_init_text_check(scratch, row, why, why_len) : rc;
    free(scratch);
    return rc;
}

void values_text(const struct values *v, int row, char *out)
{
    r2_config_text(&v->cfg, row, out, R2_OPT_STRING_MAX);
}

void values_default_text(int row, char *out)
{
    static struct r2_config defaults;
    static int filled;

    if (!filled) {
        r2_config_defaults(&defaults);
        filled = 1;
    }
    r2_config_text(&defaults, row, out, R2_OPT_STRING_MAX);
}

int values_at_default(const struct values *v, int row)
{
    char here[R2_OPT_STRING_MAX], def[R2_OPT_STRING_MAX];

    values_text(v, row, here);
    values_default_text(row, def);
    return strcmp(here, def) == 0;
}

int values_same(int row, const char *a, const char *b)
{
    int n;
    const struct r2_opt_row *r = &r2_config_rows(&n)[row];
    struct r2_config scratch;
    char text[2][R2_OPT_STRING_MAX], why[512];

    for (int i = 0; i < 2; i++) {
        r2_config_defaults(&scratch);
        if (r2_config_set(&scratch, r->name, i ? b : a, why, sizeof(why)) != 0) {
            return strcmp(a, b) == 0;
        }
        r2_config_text(&scratch, row, text[i], sizeof(text[i]));
    }
    return strcmp(text[0], text[1]) == 0;
}

/* --- nccl.conf: by NCCL into the environment, before the plugin reads it --- */

int values_conf_paths(const char *root, char (*path)[PATH_MAX])
{
    const char *file = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    int n = 0;

    if (file && *file) {
        snprintf(path[n++], PATH_MAX, "%s", file);
    } else if (home && *home) {
        snprintf(path[n++], PATH_MAX, "%s/.nccl.conf", home);
    }
    snprintf(path[n++], PATH_MAX, "%s/etc/nccl.conf", root);
    return n;
}

static int offer_put(struct values *v, int row, enum r2_opt_source src, const char *text,
                     const char *where, int line)
{
    int n;
    const struct r2_opt_row *r = &r2_config_rows(&n)[row];
    struct values_offer *o = &v->offer[row][src];

    if (o->text || (text[0] == '\0' && r->type != R2_OPT_STRING)) {
        return 0; /* the first counts; nothing takes an option back, but for text it is a value */
    }
    o->text = strdup(text);
    snprintf(o->where, sizeof(o->where), "%s", where);
    o->line = line;
    return o->text ? 0 : -1;
}

/* One file line by line; 0, -1 with errno when it cannot be read. */
static int file_offer(struct values *v, const char *path, enum r2_opt_source src)
{
    char line[R2_CONF_LINE_MAX + 1];
    struct r2_conf_pair p;
    FILE *f = fopen(path, "re");
    int number = 0, rc = 0, failed;

    if (f == NULL) {
        return -1;
    }
    while (rc == 0 && fgets(line, sizeof(line), f)) {
        int row;

        number += 1;
        if (!r2_conf_line_parse(line, &p)) {
            continue;
        }
        row = values_row_find(p.name);
        if (src == R2_SRC_ENV) {
            if (getenv(p.name) || setenv(p.name, p.value, 0) != 0) {
                continue; /* what is set stays; a name that cannot be a variable is none */
            }
        }
        if (row >= 0) {
            rc = offer_put(v, row, src, p.value, path, number);
        }
    }
    failed = ferror(f);
    fclose(f);
    return rc != 0 || failed ? -1 : 0;
}

static void environment_offer(struct values *v)
{
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);

    for (int i = 0; i < n; i++) {
        const char *text = getenv(rows[i].name);

        if (text) {
            offer_put(v, i, R2_SRC_ENV, text, "", 0);
        }
    }
}

/* --- the plugin's own words --- */

static void line_keep(struct values *v, const char *line)
{
    if (v->warns < VALUES_LINES) {
        v->warn[v->warns] = strdup(line);
        v->warns += v->warn[v->warns] != NULL;
    }
}

static struct values *reading; /* whose warnings the sink takes; the sink has no argument */

static void warning_keep(enum r2_log_level level, const char *file, int line, const char *msg)
{
    static const char prefix[] = "NET/R2 : ";

    if (level == R2_LOG_WARN && reading) {
        msg += strncmp(msg, prefix, sizeof(prefix) - 1) == 0 ? sizeof(prefix) - 1 : 0;
        line_keep(reading, msg);
    }
}

static void text_refuse(void *arg, const char *why)
{
    struct values *v = arg;

    R2_WARN("%s", why);
    if (v->cfg.error[0] == '\0') {
        snprintf(v->cfg.error, sizeof(v->cfg.error), "%s", why);
    }
}

/* NCCL's own variables whose numbers and switches the plugin leaves at their default with a line at
 * INFO: here a warning. */
static void refused_say(struct values *v)
{
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);
    char why[512], def[R2_OPT_STRING_MAX], line[900];

    for (int i = 0; i < n; i++) {
        const char *text = v->offer[i][R2_SRC_ENV].text;

        if (rows[i].type == R2_OPT_STRING || strncmp(rows[i].name, OURS, strlen(OURS)) == 0 ||
            text == NULL || v->offer[i][R2_SRC_LOCK].text ||
            values_check(i, text, why, sizeof(why)) == 0) {
            continue; /* of ours it is an error; another value than the lock's is overruled,
                         whatever it is */
        }
        values_default_text(i, def);
        snprintf(line, sizeof(line), "%s; the plugin goes on with the default, %s", why, def);
        line_keep(v, line);
    }
}

/* As the plugin does when it has found NICs. */
static void ways_read(struct values *v)
{
    char why[600];

    if (ib_ways_load(&v->ways, v->cfg.ways, why, sizeof(why)) != 0) {
        line_keep(v, why);
    }
}

static void lock_read(struct values *v)
{
    if (r2_conf_file_is_ours(v->lock_path)) {
        v->lock = VALUES_LOCK_IGNORED;
    } else if (file_offer(v, v->lock_path, R2_SRC_LOCK) == 0) {
        v->lock = VALUES_LOCK_HOLDS;
    } else {
        v->lock = errno == ENOENT || errno == ENOTDIR ? VALUES_LOCK_NONE : VALUES_LOCK_UNREADABLE;
    }
}

struct values *values_read(const char *root)
{
    struct values *v = calloc(1, sizeof(*v));
    struct r2_config_sources src = {0};
    char path[2][PATH_MAX];
    int files;

    if (v == NULL) {
        return NULL;
    }
    environment_offer(v);
    files = values_conf_paths(root, path);
    for (int i = 0; i < files; i++) {
        file_offer(v, path[i], R2_SRC_ENV); /* absent, as a rule */
    }
    snprintf(v->lock_path, sizeof(v->lock_path), "%s" R2_LOCK_PATH, root);
    src.environ_names = environ;
    src.lock_path = v->lock_path;
    reading = v;
    r2_log_sink_set(warning_keep);
    r2_config_load(&v->cfg, &src);
    r2_init_texts_check(&v->cfg, text_refuse, v);
    r2_log_flush();
    reading = NULL;
    r2_log_sink_set(NULL);
    lock_read(v);
    if (v->cfg.profile[0]) {
        file_offer(
            v, v->cfg.profile,
            R2_SRC_PROFILE); /* one that cannot be read is the error of the options already */
    }
    refused_say(v);
    ways_read(v);
    return v;
}

void values_free(struct values *v)
{
    for (int i = 0; i < VALUES_ROWS; i++) {
        for (int s = 0; s <= R2_SRC_LOCK; s++) {
            free(v->offer[i][s].text);
        }
    }
    for (int i = 0; i < v->warns; i++) {
        free(v->warn[i]);
    }
    ib_ways_free(&v->ways);
    free(v);
}
