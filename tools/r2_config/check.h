/*
 * Files of options, read as NCCL reads nccl.conf and as the plugin reads lock.conf and profiles:
 * what would be taken, and what would not be what was meant.
 */
#ifndef R2_CONFIG_CHECK_H
#define R2_CONFIG_CHECK_H

struct check {
    int taken;    /* options of this plugin that would be set */
    int notes;    /* variables for others */
    int errors;   /* values that would be refused, names that nobody knows, text that gets lost */
    int warnings; /* lines that do less, or other, than it looks */
};

/*
 * Checks @path; with @report not NULL each finding is handed to it. 0, or -1 with errno when the
 * file cannot be read. Main thread; blocks on the file system.
 */
int check_file(const char *path, struct check *c,
               void (*report)(const char *path, int line, const char *kind, const char *text));

/* The same with all findings and a summary on standard output. Exit status: 0 no error, 1 errors or
 * no such file. */
int check_print(const char *path);

#endif
