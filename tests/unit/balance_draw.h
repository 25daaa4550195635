/* What random worlds of the balance are drawn with. */
#ifndef BALANCE_DRAW_H
#define BALANCE_DRAW_H

#include <stdint.h>

static uint32_t seed; /* set before the first draw of a world */

/* 0 to @n - 1. */
static uint32_t any(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(seed >> 8) * n >> 24);
}

/* Mbit/s of a port. @kind, one for a world: all the same, three sizes, anything. */
static uint32_t some_rate(uint32_t kind)
{
    return kind == 0 ? 400000 : kind == 1 ? 100000u << any(3) : 50000 + any(350000);
}

#endif
