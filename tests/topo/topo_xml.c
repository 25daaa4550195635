/* hwloc's XML of a tree: topo_xml DIR FILE. What r2_topo --xml is tested with. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    hwloc_topology_t h;

    if (argc != 3) {
        fprintf(stderr, "usage: topo_xml DIR FILE\n");
        return 2;
    }
    setenv("HWLOC_FSROOT", argv[1], 1);
    setenv("HWLOC_COMPONENTS", "-x86", 1); /* CPUID is not the tree's */
    if (hwloc_topology_init(&h) != 0 ||
        hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_ALL) != 0 ||
        hwloc_topology_load(h) != 0 || hwloc_topology_export_xml(h, argv[2], 0) != 0) {
        perror("topo_xml");
        return 1;
    }
    hwloc_topology_destroy(h);
    return 0;
}
