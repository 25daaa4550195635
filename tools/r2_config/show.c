#include "tools/r2_config/show.h"

#include <stdio.h>
#include <string.h>

#include "base/r2_config_names.h"

#define WHERE_MAX (PATH_MAX + 32)

void show_where(const struct values *v, int row, enum r2_opt_source src, char *out, size_t len)
{
    const struct values_offer *o = &v->offer[row][src];

    if (src == R2_SRC_DEFAULT || o->line == 0) {
        snprintf(out, len, "%s", values_source_name(src));
    } else if (src == R2_SRC_ENV) {
        snprintf(out, len, "%s:%d", o->where, o->line);
    } else {
        snprintf(out, len, "%s %s:%d", values_source_name(src), o->where, o->line);
    }
}

void show_all(const struct values *v)
{
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);
    char text[R2_OPT_STRING_MAX], where[WHERE_MAX];

    for (int i = 0; i < n; i++) {
        values_text(v, i, text);
        show_where(v, i, v->cfg.source[i], where, sizeof(where));
        printf("%-28s %-8s %-5s (%s)  %s\n", rows[i].name, text[0] ? text : "-", rows[i].unit,
               where, rows[i].help);
    }
}

int show_diff(const struct values *v)
{
    int n, differ = 0;
    const struct r2_opt_row *rows = r2_config_rows(&n);
    char text[R2_OPT_STRING_MAX], def[R2_OPT_STRING_MAX], where[WHERE_MAX];

    for (int i = 0; i < n; i++) {
        if (values_at_default(v, i)) {
            continue;
        }
        values_text(v, i, text);
        values_default_text(i, def);
        show_where(v, i, v->cfg.source[i], where, sizeof(where));
        printf("%s=%s source=%s default=%s\n", rows[i].name, text, where, def);
        differ++;
    }
    return differ;
}

static const char *type_words(const struct r2_opt_row *r)
{
    switch (r->type) {
    case R2_OPT_BOOL:
        return "switch";
    case R2_OPT_INT:
        return "whole number";
    case R2_OPT_ENUM:
        return "one of several words";
    case R2_OPT_STRING:
        return "text";
    }
    return "?";
}

/* One line per source, strongest first. */
static void explain_sources(const struct values *v, int row)
{
    char text[R2_OPT_STRING_MAX], where[WHERE_MAX], why[512];
    int holds = v->cfg.source[row], spoke = R2_SRC_DEFAULT;

    printf("  sources, the strongest first:\n");
    for (int s = R2_SRC_LOCK; s > R2_SRC_DEFAULT; s--) {
        const struct values_offer *o = &v->offer[row][s];

        if (o->text == NULL) {
            printf("    %-12s not set\n", values_source_name(s));
            continue;
        }
        show_where(v, row, s, where, sizeof(where));
        printf("    %-12s %s", values_source_name(s), o->text[0] ? o->text : "(empty)");
        if (o->line) {
            printf(" (%s:%d)", o->where, o->line);
        }
        if (values_check(row, o->text, why, sizeof(why)) != 0) {
            printf("  cannot be taken: %s\n", why);
        } else if (s == holds) {
            printf("  in effect\n");
        } else {
            printf("  overruled by %s\n", values_source_name(spoke));
        }
        spoke = spoke == R2_SRC_DEFAULT ? s : spoke; /* whether or not its value could be taken */
    }
    values_default_text(row, text);
    printf("    %-12s %s%s\n", "default", text[0] ? text : "(empty)",
           holds == R2_SRC_DEFAULT ? "  in effect" : "");
}

int show_explain(const struct values *v, const char *name)
{
    int n, row = values_row_find(name);
    const struct r2_opt_row *r = &r2_config_rows(&n)[row < 0 ? 0 : row];
    char text[R2_OPT_STRING_MAX], range[256], where[WHERE_MAX];
    const char *near;

    if (row < 0) {
        if (r2_config_name_is_nccls(name)) {
            fprintf(
                stderr,
                "r2_config: %s is for NCCL's IB transport: it has no effect with this plugin, see nccl-net-r2(7)\n",
                name);
            return -1;
        }
        near = values_name_near(name);
        fprintf(stderr, "r2_config: there is no option '%s'; %s%s%s\n", name,
                near ? "did you mean " : "r2_config lists them", near ? near : "", near ? "?" : "");
        return -1;
    }
    values_range(r, range, sizeof(range));
    values_text(v, row, text);
    show_where(v, row, v->cfg.source[row], where, sizeof(where));
    printf("%s\n  %s\n", r->name, r->help);
    printf("  section   %s\n", r2_config_section(row));
    printf("  type      %s%s%s\n", type_words(r), r->unit[0] ? ", in " : "", r->unit);
    printf("  values    %s\n", range);
    printf("  default   %s\n", r->def[0] ? r->def : "(empty)");
    printf("  value     %s\n", text[0] ? text : "(empty)");
    printf("  from      %s\n", where);
    explain_sources(v, row);
    return 0;
}

void show_markdown(void)
{
    const struct r2_opt_row *rows;
    char values[256];
    int n;

    rows = r2_config_rows(&n);
    puts("| variable | default | values | meaning |\n|---|---|---|---|");
    for (int i = 0; i < n; i++) {
        values_range(&rows[i], values, sizeof(values));
        printf("| `%s` | %s%s%s | %s | %s |\n", rows[i].name,
               rows[i].def[0] ? rows[i].def : "(empty)", rows[i].unit[0] ? " " : "", rows[i].unit,
               values, rows[i].help);
    }
}

/* What roff would take for its own: a backslash, a hyphen that must stay one, a line that begins
 * like a request. */
static void man_text(const char *s)
{
    if (*s == '.' || *s == '\'') {
        fputs("\\&", stdout);
    }
    for (; *s; s++) {
        if (*s == '\\') {
            fputs("\\e", stdout);
        } else if (*s == '-') {
            fputs("\\-", stdout);
        } else if (*s == '^') {
            fputs("\\(ha", stdout);
        } else if (*s == '\'') {
            fputs("\\(aq", stdout);
        } else {
            putchar(*s);
        }
    }
}

void show_man(void)
{
    static const char *const titles[][2] = {
        {"policy", "Policy"},
        {"times", "Times"},
        {"data_path", "Data path"},
        {"surroundings", "Surroundings"},
        {"nccl", "Variables of NCCL that are obeyed"},
    };
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);
    const char *section = "";
    char range[256];

    for (int i = 0; i < n; i++) {
        if (strcmp(section, r2_config_section(i)) != 0) {
            const char *title = section = r2_config_section(i);

            for (size_t k = 0; k < sizeof(titles) / sizeof(titles[0]); k++) {
                title = strcmp(titles[k][0], section) == 0 ? titles[k][1] : title;
            }
            printf(".SS %s\n", title);
        }
        values_range(&rows[i], range, sizeof(range));
        printf(".TP\n.B %s\n", rows[i].name);
        man_text(rows[i].help);
        printf(".\n.br\nValues: ");
        man_text(range);
        printf("%s%s; default: ", rows[i].unit[0] ? " " : "", rows[i].unit);
        man_text(rows[i].def[0] ? rows[i].def : "empty");
        printf(".\n");
    }
}
