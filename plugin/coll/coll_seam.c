/* What the plugin finds in this process (base/r2_seam.h). */
#include "base/r2_seam.h"
#include "coll_make.h"

__attribute__((visibility("default"))) extern const struct r2_seam r2coll_seam_v1;
const struct r2_seam r2coll_seam_v1 = {coll_make_is_shadow, coll_ctl_nics};
