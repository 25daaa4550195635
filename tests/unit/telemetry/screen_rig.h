/* A pseudo terminal in which r2_stat --watch runs, and a statistics file made by hand. */
#ifndef TEST_SCREEN_RIG_H
#define TEST_SCREEN_RIG_H

#include <check.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "plugin/telemetry/r2_event.h"
#include "plugin/telemetry/r2_stat.h"
#include "tests/unit/suite.h"

#define COLUMNS 80
#define ROWS    24
#define LIMIT_S 60 /* a bound against hangs */
#define LATER   100000000000ull

static char dir[64];
static struct r2_stat *stat_file;
static struct r2_stat_nic nic[4];
static uint64_t updated;
static const char *job;  /* its number */
static uint8_t severity; /* of events */

/* The terminal. */
static struct {
    int fd;
    pid_t pid;
    char cell[ROWS][COLUMNS + 1], colour[ROWS][COLUMNS];
    int columns, rows, row, column, wraps, frames;
    char now; /* colour: last digit of 3x; 0: none */
    char sequence[32];
    int n; /* of the sequence; 0: there is none */
    bool is_own;
} term;

static void sequence_end(char last)
{
    const char *p = term.sequence + 2;

    if (last == 'H') {
        term.row = term.column = 0;
        term.frames++;
    } else if (last == 'K') {
        memset(term.cell[term.row] + term.column, ' ', (size_t)(COLUMNS - term.column));
        memset(term.colour[term.row] + term.column, 0, (size_t)(COLUMNS - term.column));
    } else if (last == 'm') {
        const char *three = strchr(p, '3');

        term.now = three && three[1] >= '0' ? (char)(three[1] - '0') : 0;
    } else if (last == 'h' || last == 'l') {
        term.is_own = strcmp(p, "?1049h") == 0 || (term.is_own && strcmp(p, "?1049l") != 0);
    } else {
        ck_abort_msg("an unexpected sequence that ends in %c", last);
    }
}

static void take(char c)
{
    if (term.n > 0) {
        ck_assert_int_lt(term.n, (int)sizeof(term.sequence) - 1);
        term.sequence[term.n++] = c;
        term.sequence[term.n] = '\0';
        if (term.n > 2 && c >= '@') {
            term.n = 0;
            sequence_end(c);
        }
    } else if (c == '\033') {
        term.sequence[term.n++] = c;
    } else if (c == '\r') {
        term.column = 0;
    } else if (c == '\n') {
        ck_assert_msg(++term.row < term.rows, "it has scrolled");
    } else if (term.column == term.columns) {
        term.wraps++;
    } else {
        ck_assert_msg(c >= ' ' && c <= '~', "a control character: %d", c);
        term.colour[term.row][term.column] = term.now;
        term.cell[term.row][term.column++] = c;
    }
}

/* The line that has @what in it; NULL: none. */
static const char *line_of(const char *what, int *row)
{
    for (int i = 0; i < ROWS; i++) {
        if (strstr(term.cell[i], what)) {
            *row = i;
            return term.cell[i];
        }
    }
    return NULL;
}

static const char *all(void)
{
    static char text[ROWS * (COLUMNS + 1) + 1];

    for (size_t i = 0; i < ROWS; i++) {
        char *line = text + i * (COLUMNS + 1);

        memcpy(line, term.cell[i], COLUMNS);
        line[COLUMNS] = '\n';
    }
    return text;
}

/* Reads until @what is on the screen, or, without @is_there, is not; its line. */
static int wait_for(const char *what, bool is_there)
{
    time_t end = time(NULL) + LIMIT_S;
    int row = -1;

    for (;;) {
        struct pollfd p = {.fd = term.fd, .events = POLLIN};
        char bytes[4096];
        ssize_t n;

        /* between two whole screens */
        if (term.frames > 0 && poll(&p, 1, 20) == 0 && (line_of(what, &row) != NULL) == is_there) {
            return row;
        }
        ck_assert_msg(time(NULL) < end, "%s'%s' in:\n%s", is_there ? "no " : "still ", what, all());
        if (poll(&p, 1, 100) == 1) {
            n = read(term.fd, bytes, sizeof(bytes));
            ck_assert_msg(n > 0, "it has ended; '%s' was to come:\n%s", what, all());
            for (ssize_t i = 0; i < n; i++) {
                take(bytes[i]);
            }
        }
    }
}

static void blank(void)
{
    for (int i = 0; i < ROWS; i++) {
        memset(term.cell[i], ' ', COLUMNS);
    }
}

static void resize(int columns, int rows)
{
    struct winsize w = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};

    term.columns = columns;
    term.rows = rows;
    ck_assert_int_eq(ioctl(term.fd, TIOCSWINSZ, &w), 0);
}

static void start_with(int rows, int flags, const char *interval, const char *more)
{
    char self[PATH_MAX] = "", tool[PATH_MAX + 16];

    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
    snprintf(tool, sizeof(tool), "%s/../../r2_stat", dirname(self));
    memset(&term, 0, sizeof(term));
    blank();
    term.fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(term.fd, 0);
    ck_assert_int_eq(grantpt(term.fd) | unlockpt(term.fd), 0);
    resize(COLUMNS, rows);
    term.pid = fork();
    ck_assert_int_ge(term.pid, 0);
    if (term.pid == 0) {
        int fd;

        setsid();
        fd = open(ptsname(term.fd), O_RDWR);
        ioctl(fd, TIOCSCTTY, 0);
        fcntl(fd, F_SETFL, O_RDWR | flags);
        dup2(fd, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv("TERM", "xterm", 1);
        execl(tool, tool, "--run-dir", dir, "--watch", interval, more, NULL);
        _exit(127);
    }
}

static void start(const char *interval, const char *more)
{
    start_with(ROWS, 0, interval, more);
}

static void key(const char *keys)
{
    ck_assert_int_eq(write(term.fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static bool is_usual(void)
{
    struct termios t;

    ck_assert_int_eq(tcgetattr(term.fd, &t), 0);
    return (t.c_lflag & (ICANON | ECHO)) == (ICANON | ECHO);
}

/* It ends by itself, and the terminal is as it was. */
static void end(void)
{
    int status;

    while (term.pid) {
        char bytes[4096];
        ssize_t n = read(term.fd, bytes, sizeof(bytes));

        for (ssize_t i = 0; i < n; i++) {
            take(bytes[i]);
        }
        if (n <= 0) {
            ck_assert_int_eq(waitpid(term.pid, &status, 0), term.pid);
            ck_assert_int_eq(status, 0);
            term.pid = 0;
        }
    }
    ck_assert(!term.is_own);
    ck_assert_int_eq(term.wraps, 0);
    ck_assert(is_usual());
}

/* What the process has written by @updated. */
static void put(uint64_t events)
{
    struct r2_stat_who who = {.command = "test",
                              .host = "h0",
                              .scheduler = "slurm",
                              .pid = 4711,
                              .start = updated,
                              .updated = updated,
                              .nics = 4,
                              .cuda_dev = -1,
                              .history = events,
                              .faults = events > 0,
                              .switches = events > 0,
                              .stall_max_ns = 8730000,
                              .replayed_bytes = 262144,
                              .conns_all = 1,
                              .conns = 1};
    struct r2_stat_conn conn = {
        .id = 1, .is_send = 1, .npaths = 4, .standing = 1, .peer_host = "h1", .bytes = 5000000};

    for (unsigned i = 0; i < 4; i++) {
        conn.path[i] = (struct r2_stat_path){
            .nic = (uint8_t)i, .peer_nic = (uint8_t)i, .state = R2_STAT_PATH_UP, .share = 25};
        snprintf(conn.path[i].peer_name, sizeof(conn.path[i].peer_name), "rocep193s0f%u", i);
    }
    snprintf(who.job, sizeof(who.job), "%s", job);
    r2_stat_begin(stat_file);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_int_eq(r2_stat_put_nic(stat_file, i, &nic[i]), 1);
    }
    ck_assert_int_eq(r2_stat_put_conn(stat_file, 0, &conn), 1);
    for (uint64_t i = 1; i <= events; i++) {
        struct r2_stat_event e = {.no = i,
                                  .when = updated,
                                  .kind = R2_EVENT_SWITCH,
                                  .severity = severity,
                                  .stall_ns = -1,
                                  .replayed_bytes = -1};

        snprintf(e.text, sizeof(e.text),
                 "event number %d, which has so much to say that one line of eighty columns, and "
                 "even a second one, are not enough",
                 (int)i);
        ck_assert_int_eq(r2_stat_put_event(stat_file, &e), 1);
    }
    ck_assert_int_eq(r2_stat_put_who(stat_file, &who), 1);
    r2_stat_end(stat_file);
}

static void setup(void)
{
    struct timespec ts;
    char why[700];

    unsetenv("NO_COLOR");
    job = "81233";
    severity = R2_EVENT_WARNING;
    clock_gettime(CLOCK_REALTIME, &ts);
    /* to come: rates of a process that has not written since stay as they are */
    updated = (uint64_t)ts.tv_sec * 1000000000 + LATER;
    snprintf(dir, sizeof(dir), "/tmp/r2-screen-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    stat_file = r2_stat_create(dir, geteuid(), 7, why, sizeof(why));
    ck_assert_msg(stat_file != NULL, "%s", why);
    for (unsigned i = 0; i < 4; i++) {
        nic[i] = (struct r2_stat_nic){.port = 1,
                                      .guid = 100 + i,
                                      .since = updated,
                                      .over = 1,
                                      .why = "as found at the start"};
        snprintf(nic[i].name, sizeof(nic[i].name), "rocep193s0f%u", i);
        memcpy(nic[i].device, nic[i].name, sizeof(nic[i].device));
    }
    put(0);
}

static void teardown(void)
{
    if (term.pid > 0) {
        kill(term.pid, SIGKILL);
        waitpid(term.pid, NULL, 0);
    }
    r2_stat_remove(stat_file);
    ck_assert_msg(rmdir(dir) == 0, "something is left in %s", dir);
}

#endif
