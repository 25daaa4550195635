/* What the stand-in for NCCL asks of that for CUDA. */
#ifndef R2_FAKE_CUDA_H
#define R2_FAKE_CUDA_H

/* Where the bytes of "GPU" memory at @ptr are in this process; NULL: it is none. */
void *fake_cuda_host(const void *ptr);

#endif
