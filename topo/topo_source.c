#include "topo_load.h"

#include <string.h>

int topo_source_parse(const char *text, struct topo_source *source)
{
    size_t n = strlen(text);

    source->xml = NULL;
    if (strcmp(text, "sysfs") == 0) {
        source->from = TOPO_FROM_SYSFS;
    } else if (strcmp(text, "hwloc") == 0) {
        source->from = TOPO_FROM_HWLOC;
    } else if (n > 4 && strcmp(text + n - 4, ".xml") == 0) {
        source->from = TOPO_FROM_XML;
        source->xml = text;
    } else {
        return -1;
    }
    return 0;
}
