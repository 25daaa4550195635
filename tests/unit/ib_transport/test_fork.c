/*
 * A child forked in the middle of a job (a DataLoader), with libibverbs as it is before kernel
 * 5.12 where RDMAV_FORK_SAFE is set: pages of registered memory are not there in the child. It
 * uses its heap, all of it, and incarnations.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/race_rig.h"

#define AREAS 4096

static struct {
    uintptr_t from, end;
} area[AREAS];
static int areas, kept; /* areas of the heap; registered pages of the process, kept from children */

/*
 * What the process has: of the heap, and of what a child will lack. Flags of an area come behind
 * it.
 */
static void read_areas(void)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];

    ck_assert_ptr_nonnull(f);
    areas = kept = 0;
    while (fgets(line, sizeof(line), f)) {
        unsigned long from, end;

        if (sscanf(line, "%lx-%lx ", &from, &end) == 2 && strstr(line, "[heap]")) {
            ck_assert_int_lt(areas, AREAS);
            area[areas].from = from;
            area[areas++].end = end;
        }
        kept += strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dc") != NULL;
    }
    fclose(f);
}

/* Touches every page of the heap, in a child. Returns the signal that ended it, 0: none. */
static int child_touches(void)
{
    pid_t pid;
    int status;

    read_areas();
    ck_assert_int_gt(areas, 0);
    pid = fork();
    if (pid == 0) {
        long sum = 0;

        for (int i = 0; i < areas; i++) {
            for (uintptr_t at = area[i].from; at < area[i].end; at += 4096) {
                sum += *(const unsigned char *)at;
            }
        }
        _exit((int)(sum & 63)); /* so that it is read */
    }
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Row: without and with adaptive routing, whose size records have memory of their own; flush lanes.
 */
START_TEST(a_forked_child_has_all_its_heap)
{
    ck_assert_int_eq(setenv("RDMAV_FORK_SAFE", "1", 1), 0);
    start(4, (const char *[]){_i ? "NCCL_IB_ADAPTIVE_ROUTING=1" : "NCCL_IB_ADAPTIVE_ROUTING=0",
                              "NCCL_R2_FLUSH=always", "NCCL_R2_SPREAD=on", NULL});
    messages(8, 20000);
    recv_burst(4, 20000);
    send_burst(2);
    ck_assert_int_eq(child_touches(), 0);
    ck_assert_int_gt(kept, 0);
    send_post(2);
    send_post(3);
    finish(4, RIG_S);
    fire("h0:n0 qp-error");
    messages(8, 20000);
    wait_returned(0, 2);
    ck_assert_int_eq(child_touches(), 0);
    stop();
}
END_TEST

/* A device that is gone takes no registration back: its pages are not the heap's all the same. */
START_TEST(and_after_its_nic_has_gone)
{
    int before;

    ck_assert_int_eq(setenv("RDMAV_FORK_SAFE", "1", 1), 0);
    start(2, (const char *[]){"NCCL_IB_ADAPTIVE_ROUTING=1", NULL});
    messages(8, 20000);
    ck_assert_int_eq(child_touches(), 0);
    before = kept;
    fire("h0:n0 remove");
    messages(8, 20000);
    rig_run(rig, RIG_S);
    ck_assert_int_gt(before, 0);
    ck_assert_int_eq(child_touches(), 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_forked_child_has_all_its_heap, 0, 2);
    tcase_add_test(t, and_after_its_nic_has_gone);
}

/* A sanitizer has its own heap, which the kernel does not call so. */
#ifdef __has_feature
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define HAS_OWN_HEAP 1
#else
#define HAS_OWN_HEAP 0
#endif

int main(void)
{
    if (HAS_OWN_HEAP) {
        puts("the sanitizer has its own heap, not the process's");
        return 77;
    }
    return run_suite("fork", add);
}
