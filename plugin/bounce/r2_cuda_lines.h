/*
 * In which pieces bytes are copied to memory of a GPU such that of each line of 128 bytes the last
 * 8 come behind the others: there NCCL's LL128 protocol has its flag, which a kernel polls. Pure.
 */
#ifndef R2_CUDA_LINES_H
#define R2_CUDA_LINES_H

#include <stddef.h>
#include <stdint.h>

#define R2_CUDA_LINE   128u
#define R2_CUDA_FLAG   8u
#define R2_CUDA_PIECES 6

/* @rows times @width bytes, the first at @off, each a line behind the one before. */
struct r2_cuda_piece {
    size_t off, width, rows;
};

/* Pieces of [@dst, @dst + @len) into @out, in the order in which they are to be copied; how many.
 * Each byte is in one of them, and those of a line's flag behind all other bytes. */
int r2_cuda_lines_cut(uint64_t dst, size_t len, struct r2_cuda_piece out[R2_CUDA_PIECES]);

#endif
