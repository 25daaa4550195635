/* Tables of functions that are looked up in a library opened at run time. */
#ifndef R2_SYMBOLS_H
#define R2_SYMBOLS_H

#include <stddef.h>

struct r2_symbol {
    const char *name;
    size_t offset; /* of the pointer to it, in the table */
    int optional;  /* NULL where the library has none */
};

/*
 * Fills @table from @lib, a handle of dlopen(), by @n rows. NULL; or the name of the first that is
 * missing and not optional. Without a version: each symbol's default one, which is what headers
 * describe. Any thread; does not block.
 */
const char *r2_symbols_find(void *lib, const struct r2_symbol *rows, size_t n, void *table);

#endif
