#include "r2_numa.h"

#include <limits.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES 1024 /* that a mask has room for: the kernel's largest CONFIG_NODES_SHIFT */
#define BITS  (CHAR_BIT * sizeof(unsigned long))

int r2_numa_prefer(int node)
{
    unsigned long mask[NODES / BITS] = {0};
    int mode = MPOL_DEFAULT;

    if (node < 0 || node >= NODES || syscall(SYS_get_mempolicy, &mode, NULL, 0ul, NULL, 0ul) != 0 ||
        mode != MPOL_DEFAULT) {
        return -1;
    }
    mask[(unsigned)node / BITS] = 1ul << (unsigned)node % BITS;
    return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, NODES + 1ul) == 0
               ? 0
               : -1; /* the kernel counts one bit less than it is told */
}

void r2_numa_forget(void)
{
    syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul);
}
