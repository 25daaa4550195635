/* Times of suites, in ns: 5 * MS. */
#ifndef SUPPORT_TIMES_H
#define SUPPORT_TIMES_H

#include "plugin/base/r2_time.h"

#define US R2_NS_PER_US
#define MS R2_NS_PER_MS
#define S  R2_NS_PER_S

#endif
