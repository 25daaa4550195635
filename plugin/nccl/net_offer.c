#include "net_offer.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool net_offer_is_named(const char *value)
{
    static const char own[] = "libnccl-net-r2.so";
    const char *slash = value ? strrchr(value, '/') : NULL;
    const char *name = slash ? slash + 1 : value;

    return name &&
           (strncmp(name, own, sizeof(own) - 1) == 0 || strcmp(name, "libnccl-net.so") == 0);
}

net_offer_fn net_offer(const char *variable, const void *table)
{
    return net_offer_is_named(getenv(variable)) ? (net_offer_fn)(uintptr_t)table : NULL;
}
