#include "r2_cuda_lines.h"

#define DATA (R2_CUDA_LINE - R2_CUDA_FLAG)

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int add(struct r2_cuda_piece *out, int n, size_t off, size_t width, size_t rows)
{
    if (width == 0 || rows == 0) {
        return n;
    }
    out[n] = (struct r2_cuda_piece){off, width, rows};
    return n + 1;
}

int r2_cuda_lines_cut(uint64_t dst, size_t len, struct r2_cuda_piece out[R2_CUDA_PIECES])
{
    size_t into = (size_t)(dst % R2_CUDA_LINE); /* of the first line, where it is not whole */
    size_t head = into ? least(len, R2_CUDA_LINE - into) : 0;
    size_t head_data = into < DATA ? least(head, DATA - into) : 0;
    size_t lines = (len - head) / R2_CUDA_LINE;
    size_t tail = head + lines * R2_CUDA_LINE, tail_data = least(len - tail, DATA);
    int n = 0;

    n = add(out, n, 0, head_data, 1);
    n = add(out, n, head, DATA, lines);
    n = add(out, n, tail, tail_data, 1);
    n = add(out, n, head_data, head - head_data, 1);
    n = add(out, n, head + DATA, R2_CUDA_FLAG, lines);
    return add(out, n, tail + tail_data, len - tail - tail_data, 1);
}
