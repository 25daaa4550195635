#include "coll_tuner.h"

#include <stdio.h>
#include <string.h>

#include "base/r2_seam.h"

bool coll_tuner_file(const char *net, char *file, size_t bytes)
{
    for (const char *name = net; name != NULL;) {
        size_t length = strcspn(name, ",");
        bool is_short = length == 2 && strncmp(name, "r2", 2) == 0;
        int n = is_short ? snprintf(file, bytes, "libnccl-net-r2.so")
                         : snprintf(file, bytes, "%.*s", (int)length, name);

        if (n > 0 && (size_t)n < bytes && r2_seam_is_plugin(file)) {
            return true;
        }
        name = name[length] == ',' ? name + length + 1 : NULL;
    }
    file[0] = '\0';
    return false;
}
