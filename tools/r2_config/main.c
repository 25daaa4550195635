/*
 * r2_config: the options of libnccl-net-r2.so, from the same rows that the plugin reads.
 *   r2_config              every option with its value here, and where that came from
 *   r2_config --markdown   the table of README.md
 * Exit: 0, 1 when a value cannot be taken (the plugin would fail the job at listen), 2 for a wrong command line.
 */
#include <stdio.h>
#include <string.h>

#include "r2_config.h"
#include "r2_log.h"

extern char **environ;

static const char *source_name(int s)
{
    static const char *const names[] = {"default", "profile", "environment", "lock.conf"};

    return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "?";
}

static void range(const struct r2_opt_row *r, char *out, size_t len)
{
    if (r->type == R2_OPT_BOOL) {
        snprintf(out, len, "on, off");
    } else if (r->type == R2_OPT_INT) {
        snprintf(out, len, "%lld to %lld", (long long)r->min, (long long)r->max);
    } else if (r->type == R2_OPT_ENUM) {
        size_t n = 0;

        for (const char *c = r->choices; *c && n + 3 < len; c++) {
            n += (size_t)snprintf(out + n, len - n, *c == '|' ? ", " : "%c", *c);
        }
    } else {
        snprintf(out, len, "text");
    }
}

static void markdown(void)
{
    const struct r2_opt_row *rows;
    char values[256];
    int n;

    rows = r2_config_rows(&n);
    puts("| variable | default | values | meaning |\n|---|---|---|---|");
    for (int i = 0; i < n; i++) {
        range(&rows[i], values, sizeof(values));
        printf("| `%s` | %s%s%s | %s | %s |\n", rows[i].name, rows[i].def[0] ? rows[i].def : "(empty)",
               rows[i].unit && rows[i].unit[0] ? " " : "", rows[i].unit ? rows[i].unit : "", values, rows[i].help);
    }
}

static void to_stderr(enum r2_log_level level, const char *file, int line, const char *msg)
{
    (void)file;
    (void)line;
    if (level == R2_LOG_WARN) {
        fprintf(stderr, "%s\n", msg);
    }
}

static int effective(void)
{
    static struct r2_config cfg;
    struct r2_config_sources src = {.environ_names = environ};
    const struct r2_opt_row *rows;
    char text[R2_OPT_STRING_MAX];
    int n;

    r2_log_sink_set(to_stderr);
    r2_config_load(&cfg, &src);
    r2_log_flush();
    rows = r2_config_rows(&n);
    for (int i = 0; i < n; i++) {
        r2_config_text(&cfg, i, text, sizeof(text));
        printf("%-30s %-12s %-4s (%s)  %s\n", rows[i].name, text[0] ? text : "-", rows[i].unit ? rows[i].unit : "",
               source_name(cfg.source[i]), rows[i].help);
    }
    if (cfg.error[0]) {
        fprintf(stderr, "r2_config: %s\n", cfg.error);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return effective();
    }
    if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        markdown();
        return 0;
    }
    fprintf(argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr,
            "usage: r2_config             options of libnccl-net-r2.so as they hold here, with their sources\n"
            "       r2_config --markdown  the table of README.md\n");
    return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
}
