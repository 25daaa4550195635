#include "tools/r2_perf/board.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct board *board_map(int fd)
{
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *p = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, flags, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

int board_create(void)
{
    int fd = memfd_create("r2_perf_board", 0);
    if (fd >= 0 && ftruncate(fd, sizeof(struct board)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool board_error_post(struct board *b, int code, const char *text)
{
    int clear = BOARD_CLEAR;
    if (!atomic_compare_exchange_strong_explicit(&b->state, &clear, BOARD_TAKEN,
                                                 memory_order_acquire, memory_order_relaxed)) {
        return false;
    }
    b->code = code;
    snprintf(b->text, sizeof(b->text), "%s", text);
    atomic_store_explicit(&b->state, BOARD_WRITTEN, memory_order_release);
    return true;
}

bool board_error_seen(struct board *b)
{
    return atomic_load_explicit(&b->state, memory_order_acquire) == BOARD_WRITTEN;
}
