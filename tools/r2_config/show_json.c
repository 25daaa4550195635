#include <stdio.h>
#include <string.h>

#include "tools/r2_config/show.h"
#include "tools/r2_perf/json.h"

static const char *const type_names[] = {[R2_OPT_BOOL] = "bool",
                                         [R2_OPT_INT] = "int",
                                         [R2_OPT_ENUM] = "enum",
                                         [R2_OPT_STRING] = "string"};
static const char *const lock_names[] = {[VALUES_LOCK_NONE] = "none",
                                         [VALUES_LOCK_HOLDS] = "holds",
                                         [VALUES_LOCK_IGNORED] = "ignored",
                                         [VALUES_LOCK_UNREADABLE] = "unreadable"};

/* Numbers as numbers, all else as the text that an option would be set to. */
static void value_put(struct json *j, const char *key, const struct r2_opt_row *r,
                      const struct r2_config *cfg, const char *text)
{
    if (r->type == R2_OPT_INT) {
        json_int_put(j, key, *(const int64_t *)((const char *)cfg + r->offset));
    } else {
        json_text_put(j, key, text);
    }
}

static void choices_put(struct json *j, const struct r2_opt_row *r)
{
    const char *c = r->type == R2_OPT_BOOL ? "on|off" : r->choices;
    char word[64];

    json_list_start(j, "choices");
    while (*c) {
        size_t n = strcspn(c, "|");

        snprintf(word, sizeof(word), "%.*s", (int)n, c);
        json_text_put(j, NULL, word);
        c += n + (c[n] == '|');
    }
    json_list_end(j);
}

static void offer_put(struct json *j, const struct values *v, int row, enum r2_opt_source src)
{
    const struct values_offer *o = &v->offer[row][src];
    char why[512];

    if (o->text == NULL) {
        return;
    }
    json_object_start(j, NULL);
    json_text_put(j, "source", values_source_name(src));
    json_text_put(j, "value", o->text);
    if (o->line) {
        json_text_put(j, "file", o->where);
        json_int_put(j, "line", o->line);
    }
    if (values_check(row, o->text, why, sizeof(why)) != 0) {
        json_text_put(j, "refused", why);
    }
    json_object_end(j);
}

static void option_put(struct json *j, const struct values *v, const struct r2_opt_row *r, int row)
{
    static struct r2_config defaults;
    char text[R2_OPT_STRING_MAX], def[R2_OPT_STRING_MAX], where[PATH_MAX + 32];

    r2_config_defaults(&defaults);
    values_text(v, row, text);
    values_default_text(row, def);
    show_where(v, row, v->cfg.source[row], where, sizeof(where));
    json_object_start(j, NULL);
    json_text_put(j, "name", r->name);
    json_text_put(j, "section", values_section(row));
    json_text_put(j, "type", type_names[r->type]);
    value_put(j, "value", r, &v->cfg, text);
    json_text_put(j, "source", values_source_name(v->cfg.source[row]));
    json_text_put(j, "where", where);
    value_put(j, "default", r, &defaults, def);
    if (r->unit[0]) {
        json_text_put(j, "unit", r->unit);
    }
    if (r->type == R2_OPT_INT) {
        json_int_put(j, "min", r->min);
        json_int_put(j, "max", r->max);
    } else if (r->type != R2_OPT_STRING) {
        choices_put(j, r);
    }
    json_list_start(j, "offers");
    for (int s = R2_SRC_LOCK; s > R2_SRC_DEFAULT; s--) {
        offer_put(j, v, row, s);
    }
    json_list_end(j);
    json_text_put(j, "help", r->help);
    json_object_end(j);
}

/* Values that would have been taken, had not a stronger source said something else. */
static void overruled_put(struct json *j, const struct values *v, const struct r2_opt_row *rows,
                          int n)
{
    char holds[R2_OPT_STRING_MAX];

    json_list_start(j, "overruled");
    for (int i = 0; i < n; i++) {
        values_text(v, i, holds);
        for (int s = v->cfg.source[i] - 1; s > R2_SRC_DEFAULT; s--) {
            const char *text = v->offer[i][s].text;

            if (text == NULL || values_same(i, text, holds)) {
                continue;
            }
            json_object_start(j, NULL);
            json_text_put(j, "name", rows[i].name);
            json_text_put(j, "value", text);
            json_text_put(j, "source", values_source_name(s));
            json_text_put(j, "by", values_source_name(v->cfg.source[i]));
            json_text_put(j, "holds", holds);
            json_object_end(j);
        }
    }
    json_list_end(j);
}

void show_json(const struct values *v)
{
    struct json j;
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);

    json_init(&j, stdout);
    json_object_start(&j, NULL);
    json_text_put(&j, "version", R2_VERSION);
    json_text_put(&j, "git", R2_GIT);
    json_text_put(&j, "error", v->cfg.error[0] ? v->cfg.error : NULL);
    json_object_start(&j, "lock");
    json_text_put(&j, "path", v->lock_path);
    json_text_put(&j, "state", lock_names[v->lock]);
    json_object_end(&j);
    json_list_start(&j, "options");
    for (int i = 0; i < n; i++) {
        option_put(&j, v, &rows[i], i);
    }
    json_list_end(&j);
    overruled_put(&j, v, rows, n);
    json_list_start(&j, "warnings");
    for (int i = 0; i < v->warns; i++) {
        json_text_put(&j, NULL, v->warn[i]);
    }
    json_list_end(&j);
    json_object_end(&j);
    putchar('\n');
}
