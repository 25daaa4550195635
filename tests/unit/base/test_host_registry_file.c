/* The host registry: files that are none, contents that make no sense, slots that are read. */
#include "tests/unit/fsize.h"
#include "tests/unit/registry_rig.h"

#include <sys/resource.h>

static void refused(const char *word)
{
    ck_assert_ptr_null(r2_host_registry_open(dir, &me, why, sizeof(why)));
    ck_assert_msg(strstr(why, word) != NULL, "'%s' does not say '%s'", why, word);
}

/* A look at those that are known hears what each of them has said since, and nobody who has come
 * since: until all are looked at, which happens when he rings. */
START_TEST(who_is_known_is_heard)
{
    struct r2_host_registry *a = must_open(), *b = must_open(), *c;
    struct r2_host_registry_event e = event_of(2), got;

    r2_host_registry_post(a, &e);
    ck_assert_int_eq(r2_host_registry_next_known(b, &got, NULL), 1);
    ck_assert_uint_eq(got.guid, e.guid);
    ck_assert_int_eq(r2_host_registry_next_known(b, &got, NULL), 0);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    c = must_open();
    r2_host_registry_post(c, &e);
    ck_assert_int_eq(r2_host_registry_next_known(b, &got, NULL), 0);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    r2_host_registry_post(c, &e);
    ck_assert_int_eq(r2_host_registry_next_known(b, &got, NULL), 1);
    r2_host_registry_close(c);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    c = must_open(); /* a slot that was left is nobody's again */
    r2_host_registry_post(c, &e);
    ck_assert_int_eq(r2_host_registry_next_known(b, &got, NULL), 0);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
    r2_host_registry_close(c);
}
END_TEST

START_TEST(what_is_no_registry_is_not_used)
{
    struct r2_host_registry *b = must_open();
    struct stat st;
    char other[128];
    int fd;

    r2_host_registry_close(b);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_ge(st.st_blocks * 512, st.st_size); /* a full file system is no SIGBUS later */
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(chmod(path, i ? 0602 : 0620), 0);
        refused("written by others");
    }
    ck_assert_int_eq(chmod(path, 0600), 0);
    snprintf(other, sizeof(other), "%s/other", dir);
    ck_assert_int_eq(rename(path, other), 0);
    ck_assert_int_eq(symlink(other, path), 0); /* to one that is in order */
    refused(strerror(ELOOP));
    ck_assert_int_eq(rename(other, path), 0);
    ck_assert_int_eq(truncate(path, 4096), 0);
    refused("no host registry of this version");
    ck_assert_int_eq(truncate(path, 4096 + 8192 * R2_HOST_REGISTRY_SLOTS), 0);
    b = must_open(); /* the header is right, the rest is empty */
    r2_host_registry_close(b);
    fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, "garbage!", 8, 8), 8); /* another version */
    refused("no host registry of this version");
    ck_assert_int_eq(pwrite(fd, "garbage!", 8, 0), 8);
    close(fd);
    refused("no host registry of this version");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    refused(strerror(EISDIR));
    rmdir(path);
    if (geteuid() == 0) {
        b = must_open();
        r2_host_registry_close(b);
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        refused("belongs to user 65534");
    }
}
END_TEST

START_TEST(no_directory_is_said)
{
    ck_assert_ptr_null(r2_host_registry_open("/nonexistent/r2", &me, why, sizeof(why)));
    ck_assert_msg(strstr(why, "/nonexistent/r2") != NULL, "%s", why);
    must_open();
}
END_TEST

/* Whatever stands in the slots: every read ends, and what it gives is within its bounds. */
START_TEST(garbage_in_the_slots)
{
    struct r2_host_registry *a = must_open();
    uint64_t x = (uint64_t)_i * 0x9e3779b97f4a7c15ull + 1;
    int fd = open(path, O_RDWR);
    struct r2_host_registry_event e, list[R2_HOST_REGISTRY_EVENTS];
    struct r2_host_registry_nic nic;
    struct r2_host_registry_who who;
    int n = 0;

    for (int i = 512; i < 512 + 64 * 512; i++) { /* the slots 0 to 63 as words */
        uint64_t v;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        v = x % 4 == 0 ? x % 40 : x % 4 == 1 ? UINT64_MAX - x % 40 : x;
        ck_assert_int_eq(pwrite(fd, &v, 8, (off_t)i * 8), 8);
    }
    while (r2_host_registry_next(a, &e, &who)) {
        ck_assert(e.kind > R2_HOST_REGISTRY_NONE && e.kind < R2_HOST_REGISTRY_KINDS);
        ck_assert_int_lt(++n, 64 * R2_HOST_REGISTRY_EVENTS + 1);
    }
    for (int i = 0; i < 64; i++) {
        r2_host_registry_slot(a, i, &who);
        ck_assert_int_le(r2_host_registry_slot_events(a, i, list), R2_HOST_REGISTRY_EVENTS);
        for (int k = 0; k < R2_HOST_REGISTRY_NICS; k++) {
            if (r2_host_registry_slot_nic(a, i, k, &nic)) {
                for (const char *c = nic.name; *c; c++) {
                    ck_assert(*c >= 0x20 && *c < 0x7f);
                }
            }
        }
    }
    close(fd);
    r2_host_registry_close(a);
}
END_TEST

/* A file system that is full: said as that, and nothing is left behind (teardown). */
START_TEST(no_room_is_said)
{
    struct r2_host_registry *b =
        FSIZE_LIMITED(4096, r2_host_registry_open(dir, &me, why, sizeof(why)));

    ck_assert_ptr_null(b);
    ck_assert_msg(strstr(why, strerror(EFBIG)) != NULL, "%s", why);
}
END_TEST

static int has_rung(struct r2_host_registry *b)
{
    struct pollfd p = {.fd = r2_host_registry_fd(b), .events = POLLIN};

    return poll(&p, 1, 0);
}

/* The limit of a process counts in the file that another one has made, too: its bell is silent, and
 * what it says is heard with the next look. */
START_TEST(who_may_write_no_file_is_heard_later)
{
    struct r2_host_registry *a = must_open(), *b = must_open();
    struct r2_host_registry_event e = event_of(1), got;

    r2_host_registry_heard(b);
    fsize_limit(8);
    r2_host_registry_post(a, &e);
    fsize_limit(RLIM_INFINITY);
    ck_assert_int_eq(has_rung(b), 0);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
    r2_host_registry_post(a, &e);
    ck_assert_int_eq(has_rung(b), 1);
    r2_host_registry_close(b);
    r2_host_registry_close(a);
}
END_TEST

/* Without inotify nobody is woken, and all is read with the next look. */
START_TEST(without_a_bell)
{
    struct r2_host_registry_event e = event_of(1), got;
    struct r2_host_registry *a = must_open(), *b;
    struct rlimit old, few;
    int lowest = dup(0);

    close(lowest);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = (rlim_t)lowest + 1; /* one more descriptor: the file */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    b = must_open();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    ck_assert_int_eq(r2_host_registry_fd(b), -1);
    r2_host_registry_heard(b);
    r2_host_registry_post(a, &e);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
    r2_host_registry_post(b, &e);
    ck_assert_int_eq(r2_host_registry_next(a, &got, NULL), 1);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, no_room_is_said);
    tcase_add_test(t, who_may_write_no_file_is_heard_later);
    tcase_add_test(t, without_a_bell);
    tcase_add_test(t, who_is_known_is_heard);
    tcase_add_test(t, what_is_no_registry_is_not_used);
    tcase_add_test(t, no_directory_is_said);
    tcase_add_loop_test(t, garbage_in_the_slots, 0, 20);
}

int main(void)
{
    return run_suite("host registry: files", add);
}
