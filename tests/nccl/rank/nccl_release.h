/*
 * Releases of NCCL that the stand-in for CUDA has layouts of. What the host part and the kernels
 * share is no interface of NCCL's: it changes from one release to the next, so a release that was
 * not looked at is refused, never taken for its neighbour.
 */
#ifndef NCCL_RANK_RELEASE_H
#define NCCL_RANK_RELEASE_H

#include <stddef.h>

/* The folder of the kernels for a release as ncclGetVersion() has it, such as "228" for 22809; NULL
 * when the release is not known. Pure. */
const char *nccl_release_folder(int version);
/* "2.28.9" */
void nccl_release_print(int version, char *text, size_t bytes);
/* Why there is no folder for a release, in one line. Pure. */
void nccl_release_refuse(int version, char *text, size_t bytes);

#endif
