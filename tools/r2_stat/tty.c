/* --watch on a terminal: what is drawn when, and keys. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_time.h"
#include "tools/r2_stat/screen.h"

#define FIRST_S 0.5                            /* until there are rates */
#define ENTER   "\033[?1049h\033[?25l\033[?7l" /* a screen of its own, no cursor, no wrap */
#define LEAVE   "\033[?7h\033[?25h\033[?1049l"

static volatile sig_atomic_t is_over, is_stopped;

static const double steps[] = {0.1, 0.5, 1, 2, 5, 10, 30, 60, 300};
#define STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

struct tty {
    struct termios before;
    bool is_raw; /* until it is as before */
    bool has_keys;
    sigset_t open; /* signals while it waits */
};

static void on_signal(int sig)
{
    is_over = is_over || sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT;
    is_stopped = is_stopped || sig == SIGTSTP;
}

/* 0; -1: the terminal is gone. */
static int tell(const char *what, size_t n)
{
    while (n > 0) {
        struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
        ssize_t k = write(STDOUT_FILENO, what, n);

        if (k < 0 && errno == EAGAIN) { /* others that have the terminal open may want that */
            poll(&out, 1, -1);
        } else if (k < 0 && errno != EINTR) {
            return -1;
        }
        what += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return 0;
}

static void enter(struct tty *t)
{
    struct termios raw;

    t->is_raw = false;
    if (tcgetattr(STDIN_FILENO, &t->before) == 0) {
        raw = t->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        t->is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    }
    t->has_keys = t->is_raw;
    tell(ENTER, sizeof(ENTER) - 1);
}

static void leave(struct tty *t)
{
    tell(LEAVE, sizeof(LEAVE) - 1);
    if (t->is_raw) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
    }
}

static void signals_take(struct tty *t)
{
    static const int sigs[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
    struct sigaction a = {.sa_handler = on_signal};
    sigset_t held;

    sigemptyset(&held);
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
        sigaddset(&held, sigs[i]);
        sigaction(sigs[i], &a, NULL);
    }
    sigprocmask(SIG_BLOCK, &held, &t->open);
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
        sigdelset(&t->open, sigs[i]);
    }
}

/* 0; -1: the terminal is gone. */
static int draw(struct screen_page *pg, struct screen_view *v, const struct stat_found *f,
                const struct rates *r, uint64_t looked)
{
    struct winsize w = {0};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    int rc = 0;

    v->columns = 80;
    v->rows = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0) {
        v->columns = w.ws_col;
        v->rows = w.ws_row;
    }
    screen_make(pg, v, f, r, looked);
    if (out) {
        screen_paint(out, pg, v);
        fclose(out);
        rc = tell(text, n);
    }
    free(text);
    return rc;
}

static double step_of(double seconds, int by)
{
    int i = 0;

    if (by > 0) {
        while (i < STEPS - 1 && steps[i] <= seconds) {
            i++;
        }
        return steps[i] > seconds ? steps[i] : seconds;
    }
    for (i = STEPS - 1; i > 0 && steps[i] >= seconds; i--) {
    }
    return steps[i] < seconds ? steps[i] : seconds;
}

/* A key, or the last letter of what an arrow or page key sends. */
static void key_do(struct screen_view *v, char key)
{
    int page = v->rows > 4 ? v->rows - 3 : 1;

    switch (key) {
    case 'q':
        is_over = 1;
        break;
    case 'c':
        v->more.conns = !v->more.conns;
        break;
    case 'h':
        v->more.history = !v->more.history;
        break;
    case 'l':
        v->more.sends = !v->more.sends;
        break;
    case 'p':
        v->is_paused = !v->is_paused;
        break;
    case '?':
        v->is_help = !v->is_help;
        break;
    case '+':
    case '-':
        v->seconds = step_of(v->seconds, key == '+' ? 1 : -1);
        break;
    case 'j':
    case 'B':
        v->top++;
        break;
    case 'k':
    case 'A':
        v->top--;
        break;
    case ' ':
    case '6':
        v->top += page;
        break;
    case 'b':
    case '5':
        v->top -= page;
        break;
    default:
        break;
    }
}

static void keys_read(struct tty *t, struct screen_view *v)
{
    char key[64];
    ssize_t n = read(STDIN_FILENO, key, sizeof(key));

    if (n <= 0) {
        t->has_keys = n < 0 && errno == EINTR; /* nobody types any more */
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        bool is_sequence =
            key[i] == '\033' && i + 2 < n && (key[i + 1] == '[' || key[i + 1] == 'O');

        if (is_sequence) {
            i += 2;
            if (strchr("AB56", key[i])) {
                key_do(v, key[i]);
            }
            while (i < n - 1 && key[i] < '@') { /* to its end */
                i++;
            }
        } else if (!strchr("AB56", key[i])) {
            key_do(v, key[i]);
        }
    }
}

/* Until @until (ns, CLOCK_MONOTONIC), a key, or a signal. */
static void rest(struct tty *t, struct screen_view *v, uint64_t until)
{
    struct pollfd in = {.fd = t->has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    uint64_t now = r2_clock_ns(CLOCK_MONOTONIC), left = until > now ? until - now : 0;
    struct timespec ts = {.tv_sec = (time_t)(left / 1000000000),
                          .tv_nsec = (long)(left % 1000000000)};

    if (ppoll(&in, 1, v->is_paused ? NULL : &ts, &t->open) == 1) {
        keys_read(t, v);
    }
    if (is_stopped) {
        leave(t);
        is_stopped = 0;
        raise(SIGSTOP);
        enter(t);
    }
}

int stat_watch_tty(struct stat_found *f, double seconds, struct stat_more more)
{
    const char *plain = getenv("NO_COLOR");
    struct screen_view v = {
        .more = more, .seconds = seconds, .has_colours = plain == NULL || plain[0] == '\0'};
    struct screen_page pg = {0};
    struct rates r = {0};
    struct tty t;
    uint64_t next = 0, looked = 0;
    bool is_first = true;
    int rc = 0;

    signals_take(&t);
    enter(&t);
    while (!is_over && rc == 0) {
        uint64_t now = r2_clock_ns(CLOCK_MONOTONIC);

        if (now >= next && !v.is_paused) {
            stat_free(f);
            stat_take(f);
            looked = r2_clock_ns(CLOCK_REALTIME);
            rates_take(&r, f, looked);
            next = now + (uint64_t)((is_first && v.seconds > FIRST_S ? FIRST_S : v.seconds) * 1e9);
            is_first = false;
        }
        v.has_keys = t.has_keys;
        rc = draw(&pg, &v, f, &r, looked);
        if (rc == 0) {
            rest(&t, &v, next);
        }
        if (next > r2_clock_ns(CLOCK_MONOTONIC) + (uint64_t)(v.seconds * 1e9)) {
            next = 0; /* it is to look more often now */
        }
    }
    leave(&t);
    stat_free(f);
    rates_free(&r);
    screen_free(&pg);
    return rc ? 1 : 0;
}
