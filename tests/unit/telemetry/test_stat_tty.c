/*
 * r2_stat --watch and its terminal: windows of any size, signals, a terminal that is gone, takes
 * nothing, or gives no more keys.
 */
#include "tests/unit/telemetry/screen_rig.h"

START_TEST(small_windows)
{
    put(3);
    start("300", "-cHl");
    wait_for("HISTORY", true);
    for (int rows = 3; rows > 0; rows--) {
        blank();
        resize(COLUMNS, rows);
        ck_assert_int_eq(wait_for(", every 300 s", true), 0);
        ck_assert_int_eq(wait_for("q quit", rows > 2), rows > 2 ? 2 : -1);
        ck_assert_int_eq(wait_for("job slurm", rows > 1), rows > 1 ? 1 : -1);
        for (int columns = 2; columns > 0; columns--) {
            blank();
            resize(columns, rows);
            wait_for("h", true); /* the host */
        }
    }
    key("q");
    end();
}
END_TEST

START_TEST(signals)
{
    static const int all_of_them[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    start("300", NULL);
    wait_for("job slurm", true);
    ck_assert_int_eq(kill(term.pid, all_of_them[_i]), 0);
    end();
}
END_TEST

/* While it is stopped the terminal is the shell's. */
START_TEST(stopped)
{
    int status = 0;
    char byte;

    start("300", NULL);
    wait_for("job slurm", true);
    for (int i = 0; i < 2; i++) {
        ck_assert(term.is_own && !is_usual());
        key("\032");
        while (term.is_own) {
            ck_assert_int_eq(read(term.fd, &byte, 1), 1);
            take(byte);
        }
        ck_assert_int_eq(waitpid(term.pid, &status, WUNTRACED), term.pid);
        ck_assert(WIFSTOPPED(status) && is_usual());
        ck_assert_int_eq(kill(term.pid, SIGCONT), 0);
        while (!term.is_own) {
            ck_assert_int_eq(read(term.fd, &byte, 1), 1);
            take(byte);
        }
        key("?");
        wait_for("pause; again", i == 0);
    }
    key("q");
    end();
}
END_TEST

/* Somebody has given it its lines back, and then the end of them. */
START_TEST(no_more_keys)
{
    struct termios t;

    start("300", NULL);
    wait_for("q quit ", true);
    ck_assert_int_eq(tcgetattr(term.fd, &t), 0);
    t.c_lflag |= ICANON;
    ck_assert_int_eq(tcsetattr(term.fd, TCSANOW, &t), 0);
    key("\004");
    wait_for("interrupt it to end", true);
    ck_assert_int_eq(kill(term.pid, SIGTERM), 0);
    end();
}
END_TEST

START_TEST(terminal_gone)
{
    int status;

    start("0.1", NULL);
    wait_for("job slurm", true);
    close(term.fd);
    ck_assert_int_eq(waitpid(term.pid, &status, 0), term.pid);
    ck_assert(WIFEXITED(status));
    term.pid = 0;
}
END_TEST

static bool is_asleep(void)
{
    char path[64], text[400] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)term.pid);
    f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    return strstr(text, ") S ") || strstr(text, ") Z ");
}

/* What it writes at once is more than a terminal takes, and it is not to wait for that in write. */
START_TEST(writes_do_not_block)
{
    char bytes[4096];
    int status, there = 0;
    size_t all_of_it = 0;
    ssize_t n;

    start_with(60000, O_NONBLOCK, "300", NULL);
    while (there < 1000 || !is_asleep()) {
        ck_assert_int_eq(ioctl(term.fd, FIONREAD, &there), 0);
    }
    key("q");
    while ((n = read(term.fd, bytes, sizeof(bytes))) > 0) {
        all_of_it += (size_t)n;
    }
    ck_assert_int_eq(waitpid(term.pid, &status, 0), term.pid);
    term.pid = 0;
    ck_assert_int_eq(status, 0);
    ck_assert_uint_gt(all_of_it, 60000 * strlen("\r\n\033[K\033[m"));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, small_windows);
    tcase_add_loop_test(t, signals, 0, 4);
    tcase_add_test(t, stopped);
    tcase_add_test(t, no_more_keys);
    tcase_add_test(t, terminal_gone);
    tcase_add_test(t, writes_do_not_block);
}

int main(void)
{
    return suite_run("stat_tty", 2 * LIMIT_S, setup, teardown, add);
}
