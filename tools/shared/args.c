#include "tools/shared/args.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/r2_conf_file.h"

#define EXIT_USAGE 2
#define WORD       64  /* bytes of a word that is compared, and shown */
#define OPTIONS    256 /* that are looked at */

/* Letters that may differ; two that changed places are two. */
static int limit_of(const char *word)
{
    size_t len = strnlen(word, WORD);

    return len < 4 ? 1 : len < 10 ? 2 : 3;
}

const char *args_near(const char *word, const char *const *names)
{
    int least = limit_of(word) + 1;
    const char *best = NULL;

    for (; *names; names++) {
        int d = r2_conf_name_distance(word, *names, least - 1);

        if (d < least) {
            least = d;
            best = *names;
        }
    }
    return best;
}

/* The long options whose names begin with @word, at most two. */
static int begun(const char *word, const struct option *options, const char *names[2])
{
    int n = 0;

    for (const struct option *o = options; o->name && n < 2; o++) {
        if (strncmp(o->name, word, strlen(word)) == 0) {
            names[n++] = o->name;
        }
    }
    return n;
}

static const char *option_near(const char *word, const struct option *options)
{
    const char *names[OPTIONS], *two[2];
    int n = 0;

    if (word[0] && begun(word, options, two) == 1) {
        return two[0];
    }
    for (const struct option *o = options; o->name && n < OPTIONS - 1; o++) {
        names[n++] = o->name;
    }
    names[n] = NULL;
    return args_near(word, names);
}

static const struct option *option_of(int value, const struct option *options)
{
    for (; options->name; options++) {
        if (options->val == value && options->flag == NULL) {
            return options;
        }
    }
    return NULL;
}

/* getopt_long knows no such name, or several that begin so. @given: the whole word. */
static void name_refusal(char *out, const char *given, const struct option *options)
{
    char word[WORD];
    const char *two[2], *near;

    snprintf(word, sizeof(word), "%.*s", (int)strcspn(given, "="), given);
    given = word;
    if (given[2] && begun(given + 2, options, two) == 2) {
        snprintf(out, ARGS_REFUSAL, "option '%s' may be --%s or --%s", given, two[0], two[1]);
        return;
    }
    near = option_near(given + 2, options);
    if (near) {
        snprintf(out, ARGS_REFUSAL, "unknown option '%s': did you mean --%s?", given, near);
    } else {
        snprintf(out, ARGS_REFUSAL, "unknown option '%s'", given);
    }
}

static void letter_refusal(char *out, char letter, const struct option *options)
{
    const struct option *o = isalnum((unsigned char)letter) ? options : NULL;
    int n = 0;
    const char *name = NULL;

    for (; o && o->name; o++) { /* -j of a tool that has --json alone */
        if (o->name[0] == letter) {
            name = o->name;
            n++;
        }
    }
    if (n == 1) {
        snprintf(out, ARGS_REFUSAL, "unknown option '-%c': did you mean --%s?", letter, name);
    } else {
        snprintf(out, ARGS_REFUSAL, "unknown option '-%c'", letter);
    }
}

char *args_refusal(char *out, int code, char *const *argv, const struct option *options)
{
    const char *word = argv[optind - 1];
    const struct option *o = optopt ? option_of(optopt, options) : NULL;

    if (optopt == 0) {
        name_refusal(out, word, options);
    } else if (code == ':' && o) {
        snprintf(out, ARGS_REFUSAL, "option --%s needs a value", o->name);
    } else if (code == ':') {
        snprintf(out, ARGS_REFUSAL, "option -%c needs a value", optopt);
    } else if (o) {
        snprintf(out, ARGS_REFUSAL, "option --%s takes no value", o->name);
    } else {
        letter_refusal(out, (char)optopt, options);
    }
    return out;
}

int args_misuse(const char *tool, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", tool);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (%s --help)\n", tool);
    return EXIT_USAGE;
}

int args_refuse(const char *tool, int code, char *const *argv, const struct option *options)
{
    char why[ARGS_REFUSAL];

    return args_misuse(tool, "%s", args_refusal(why, code, argv, options));
}
