#include <stdio.h>
#include <string.h>

#include "plugin/base/r2_json.h"
#include "tools/r2_config/show.h"

static const char *const type_names[] = {[R2_OPT_BOOL] = "bool",
                                         [R2_OPT_INT] = "int",
                                         [R2_OPT_ENUM] = "enum",
                                         [R2_OPT_STRING] = "string"};
static const char *const lock_names[] = {[VALUES_LOCK_NONE] = "none",
                                         [VALUES_LOCK_HOLDS] = "holds",
                                         [VALUES_LOCK_IGNORED] = "ignored",
                                         [VALUES_LOCK_UNREADABLE] = "unreadable"};

/* Numbers as numbers, all else as the text that an option would be set to. */
static void value_put(struct r2_json *j, const char *key, const struct r2_opt_row *r,
                      const struct r2_config *cfg, const char *text)
{
    if (r->type == R2_OPT_INT) {
        r2_json_int(j, key, *(const int64_t *)((const char *)cfg + r->offset));
    } else {
        r2_json_text(j, key, text);
    }
}

static void choices_put(struct r2_json *j, const struct r2_opt_row *r)
{
    const char *c = r->type == R2_OPT_BOOL ? "on|off" : r->choices;
    char word[64];

    r2_json_open(j, "choices", '[');
    while (*c) {
        size_t n = strcspn(c, "|");

        snprintf(word, sizeof(word), "%.*s", (int)n, c);
        r2_json_text(j, NULL, word);
        c += n + (c[n] == '|');
    }
    r2_json_close(j, ']');
}

static void offer_put(struct r2_json *j, const struct values *v, int row, enum r2_opt_source src)
{
    const struct values_offer *o = &v->offer[row][src];
    char why[512];

    if (o->text == NULL) {
        return;
    }
    r2_json_open(j, NULL, '{');
    r2_json_text(j, "source", values_source_name(src));
    r2_json_text(j, "value", o->text);
    if (o->line) {
        r2_json_text(j, "file", o->where);
        r2_json_int(j, "line", o->line);
    }
    if (values_check(row, o->text, why, sizeof(why)) != 0) {
        r2_json_text(j, "refused", why);
    }
    r2_json_close(j, '}');
}

static void option_put(struct r2_json *j, const struct values *v, const struct r2_opt_row *r,
                       int row)
{
    static struct r2_config defaults;
    char text[R2_OPT_STRING_MAX], def[R2_OPT_STRING_MAX], where[PATH_MAX + 32];

    r2_config_defaults(&defaults);
    values_text(v, row, text);
    values_default_text(row, def);
    show_where(v, row, v->cfg.source[row], where, sizeof(where));
    r2_json_open(j, NULL, '{');
    r2_json_text(j, "name", r->name);
    r2_json_text(j, "section", r2_config_section(row));
    r2_json_text(j, "type", type_names[r->type]);
    value_put(j, "value", r, &v->cfg, text);
    r2_json_text(j, "source", values_source_name(v->cfg.source[row]));
    r2_json_text(j, "where", where);
    value_put(j, "default", r, &defaults, def);
    if (r->unit[0]) {
        r2_json_text(j, "unit", r->unit);
    }
    if (r->type == R2_OPT_INT) {
        r2_json_int(j, "min", r->min);
        r2_json_int(j, "max", r->max);
    } else if (r->type != R2_OPT_STRING) {
        choices_put(j, r);
    }
    r2_json_open(j, "offers", '[');
    for (int s = R2_SRC_LOCK; s > R2_SRC_DEFAULT; s--) {
        offer_put(j, v, row, s);
    }
    r2_json_close(j, ']');
    r2_json_text(j, "help", r->help);
    r2_json_close(j, '}');
}

/* Values that would have been taken, had not a stronger source said something else. */
static void overruled_put(struct r2_json *j, const struct values *v, const struct r2_opt_row *rows,
                          int n)
{
    char holds[R2_OPT_STRING_MAX];

    r2_json_open(j, "overruled", '[');
    for (int i = 0; i < n; i++) {
        values_text(v, i, holds);
        for (int s = v->cfg.source[i] - 1; s > R2_SRC_DEFAULT; s--) {
            const char *text = v->offer[i][s].text;

            if (text == NULL || values_same(i, text, holds)) {
                continue;
            }
            r2_json_open(j, NULL, '{');
            r2_json_text(j, "name", rows[i].name);
            r2_json_text(j, "value", text);
            r2_json_text(j, "source", values_source_name(s));
            r2_json_text(j, "by", values_source_name(v->cfg.source[i]));
            r2_json_text(j, "holds", holds);
            r2_json_close(j, '}');
        }
    }
    r2_json_close(j, ']');
}

void show_json(const struct values *v)
{
    struct r2_json j;
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);

    r2_json_begin_file(&j, stdout);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "version", R2_VERSION);
    r2_json_text(&j, "git", R2_GIT);
    r2_json_text(&j, "error", v->cfg.error[0] ? v->cfg.error : NULL);
    r2_json_open(&j, "lock", '{');
    r2_json_text(&j, "path", v->lock_path);
    r2_json_text(&j, "state", lock_names[v->lock]);
    r2_json_close(&j, '}');
    r2_json_open(&j, "options", '[');
    for (int i = 0; i < n; i++) {
        option_put(&j, v, &rows[i], i);
    }
    r2_json_close(&j, ']');
    overruled_put(&j, v, rows, n);
    r2_json_open(&j, "warnings", '[');
    for (int i = 0; i < v->warns; i++) {
        r2_json_text(&j, NULL, v->warn[i]);
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    putchar('\n');
}
