#include "net_offer.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/r2_seam.h"

net_offer_fn net_offer(const char *variable, const void *table)
{
    return r2_seam_is_plugin(getenv(variable)) ? (net_offer_fn)(uintptr_t)table : NULL;
}
