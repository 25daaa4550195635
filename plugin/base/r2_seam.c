#include "r2_seam.h"

#include <dlfcn.h>

const struct r2_seam *r2_seam_find(void)
{
    return dlsym(RTLD_DEFAULT, R2_SEAM_SYMBOL);
}
