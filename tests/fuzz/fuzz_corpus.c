/*
 * Runs a fuzz target over files, without libFuzzer: fuzz_TARGET FILE|FOLDER... Counts as
 * tests/run.sh reads it. An input that fails ends the process, and its name is said.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS_MAX 60 /* against a hang in one input: the slowest takes a fraction of a second */

static char running[4096];
static int passed;

/* Only what a signal handler may call. */
static void died(int sig)
{
    static const char text[] = "input: ";

    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ||
        write(STDERR_FILENO, running, strlen(running)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
        _exit(2);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static int file_run(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *data;
    size_t n;

    if (f == NULL || fstat(fileno(f), &st) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    data = malloc(st.st_size ? (size_t)st.st_size
                             : 1); /* the exact size: a read behind it is seen by a checker */
    n = data ? fread(data, 1, (size_t)st.st_size, f) : 0;
    fclose(f);
    if (data == NULL || n != (size_t)st.st_size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        return -1;
    }
    snprintf(running, sizeof(running), "%s", path);
    alarm(SECONDS_MAX);
    LLVMFuzzerTestOneInput(data, n);
    alarm(0);
    free(data);
    passed++;
    return 0;
}

static int folder_run(const char *path)
{
    struct dirent **list;
    char name[4096];
    int n = scandir(path, &list, NULL, alphasort), rc = 0;

    if (n < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && file_run(name) != 0) {
            rc = -1;
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

int main(int argc, char **argv)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    int failed = 0;

    for (unsigned i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        signal(fatal[i], died);
    }
    for (int i = 1; i < argc; i++) {
        struct stat st;
        int is_dir = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode);

        failed += (is_dir ? folder_run(argv[i]) : file_run(argv[i])) != 0;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed == 0;
}
