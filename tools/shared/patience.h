/* What takes long says so, on stderr: when a line is due. */
#ifndef TOOLS_PATIENCE_H
#define TOOLS_PATIENCE_H

#include <stdbool.h>

#ifndef PATIENCE_FIRST_S
#define PATIENCE_FIRST_S 3 /* so long nobody wonders */
#endif
#define PATIENCE_NEXT_S 10

/* Zeroes: nothing has been said. */
struct patience {
    double said_s; /* when it was last */
};

/* Whether something is to be said after @waited_s seconds; then it counts as said. Pure. */
static inline bool patience_is_due(struct patience *p, double waited_s)
{
    if (waited_s < (p->said_s > 0 ? p->said_s + PATIENCE_NEXT_S : PATIENCE_FIRST_S)) {
        return false;
    }
    p->said_s = waited_s;
    return true;
}

#endif
