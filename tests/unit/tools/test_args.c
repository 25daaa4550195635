/* What is said of a command line: each way in which getopt_long refuses an option. */
#include <check.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tools/shared/args.c"

static const struct option options[] = {
    {"json", no_argument, NULL, 1},        {"connections", no_argument, NULL, 'c'},
    {"check", no_argument, NULL, 2},       {"run-dir", required_argument, NULL, 3},
    {"watch", optional_argument, NULL, 4}, {NULL, 0, NULL, 0}};

/* What is said of the first option of "x WORD [MORE]" that is refused; "": none is. */
static const char *said_of(const char *word, const char *more)
{
    static char out[ARGS_REFUSAL], words[2][400];
    char *argv[] = {(char *)"x", words[0], more ? words[1] : NULL, NULL};
    int argc = more ? 3 : 2, code;

    snprintf(words[0], sizeof(words[0]), "%s", word);
    snprintf(words[1], sizeof(words[1]), "%s", more ? more : "");
    opterr = optind = 0;
    while ((code = getopt_long(argc, argv, ":cr:", options, NULL)) != -1) {
        if (code == '?' || code == ':') {
            return args_refusal(out, code, argv, options);
        }
    }
    return "";
}

static const struct {
    const char *word, *more, *said;
} cases[] = {
    {"--json", "-c", ""},
    {"--run", "x", ""}, /* what begins one name alone is that */
    {"--jsn", NULL, "unknown option '--jsn': did you mean --json?"},
    {"--jsno=7", NULL, "unknown option '--jsno': did you mean --json?"},
    {"--jsonl", NULL, "unknown option '--jsonl': did you mean --json?"},
    {"--rundir", "x", "unknown option '--rundir': did you mean --run-dir?"},
    {"--nothing-like-it", NULL, "unknown option '--nothing-like-it'"},
    {"--=", NULL, "unknown option '--'"},
    {"--c", NULL, "option '--c' may be --connections or --check"},
    {"--json=1", NULL, "option --json takes no value"},
    {"--connections=1", NULL, "option --connections takes no value"},
    {"--run-dir", NULL, "option --run-dir needs a value"},
    {"-r", NULL, "option -r needs a value"},
    {"-cr", NULL, "option -r needs a value"},
    {"-Z", NULL, "unknown option '-Z'"},
    {"-cZ", "--json", "unknown option '-Z'"},
    {"-w", NULL, "unknown option '-w': did you mean --watch?"},
    {"--json", "-w7", "unknown option '-w': did you mean --watch?"},
    {"-?", NULL, "unknown option '-?'"},
};

START_TEST(refusals)
{
    const char *said = said_of(cases[_i].word, cases[_i].more);

    ck_assert_str_eq(said, cases[_i].said);
}
END_TEST

/* However long a word is, the line ends, and says its beginning. */
START_TEST(a_long_word)
{
    char word[300] = "--";
    const char *said;

    memset(word + 2, 'x', sizeof(word) - 3);
    word[sizeof(word) - 1] = '\0';
    said = said_of(word, NULL);
    ck_assert_uint_lt(strlen(said), ARGS_REFUSAL);
    ck_assert_int_eq(strncmp(said, "unknown option '--xxx", 21), 0);
}
END_TEST

START_TEST(the_nearest_of_some_names)
{
    static const char *const names[] = {"drain", "undrain", "status", "up", NULL};

    ck_assert_str_eq(args_near("drian", names), "drain");
    ck_assert_str_eq(args_near("undrian", names), "undrain");
    ck_assert_str_eq(args_near("DRAIN", names), "drain");
    ck_assert_str_eq(args_near("u", names), "up");
    ck_assert_ptr_null(args_near("zz", names));
    ck_assert_ptr_null(args_near("failback", names));
    ck_assert_ptr_null(args_near("", (const char *const[]){"json", NULL}));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, refusals, 0, (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(t, a_long_word);
    tcase_add_test(t, the_nearest_of_some_names);
}

int main(void)
{
    return suite_run("command lines", 60, NULL, NULL, add);
}
