/* Files of traffic (plugin/telemetry/r2_traffic.h) that a story is told from. One thread; blocks on
 * the file system. */
#ifndef R2_REPORT_TRAFFIC_H
#define R2_REPORT_TRAFFIC_H

#include "tools/r2_report/story.h"

struct traffic {
    char **path; /* owned */
    int paths;
    uint64_t from, to; /* of all rows; to 0: there are none */
};

/* One more, if it is of @job (NULL: of any). 0; 1: it cannot be read, said; -1: out of memory. */
int traffic_add(struct traffic *t, const char *path, const char *job);
/* What they have goes into @s, before story_tell. -1: out of memory. */
int traffic_tell(const struct traffic *t, struct story *s);
void traffic_free(struct traffic *t);

#endif
