/*
 * Memory of our own that NICs are given: whole pages that nothing else uses. Before kernel 5.12
 * libibverbs keeps the pages of a registration from forked children (MADV_DONTFORK, with
 * RDMAV_FORK_SAFE or ibv_fork_init): a child that touches anything else on such a page, a
 * neighbour in the heap, dies. Pages that go back to the kernel also lose the mark that a
 * deregistration which failed leaves behind. Any thread.
 */
#ifndef R2_PAGES_H
#define R2_PAGES_H

#include <stddef.h>

/* At least @len bytes, zeroed. NULL with ENOMEM. */
void *r2_pages_get(size_t len);
/* @len as for get. NULL is accepted. */
void r2_pages_put(void *mem, size_t len);

#endif
