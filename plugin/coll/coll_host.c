#include "coll_host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_siphash.h"

uint64_t coll_host_key(const char *hostid)
{
    static const uint8_t key[16] = "r2coll host key"; /* the same everywhere: it tells apart */
    char name[256] = "", boot[64] = "", text[512];
    uint64_t hash;

    if (hostid[0] == '\0') {
        FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

        gethostname(name, sizeof(name) - 1);
        if (f != NULL) {
            if (fgets(boot, sizeof(boot), f) == NULL) {
                boot[0] = '\0';
            }
            fclose(f);
        }
        snprintf(text, sizeof(text), "%s %s", name, boot);
        hostid = text;
    }
    hash = r2_siphash(r2_siphash_key(key), hostid, strlen(hostid));
    return hash != 0 ? hash : 1;
}
