#include "r2_symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *r2_symbols_find(void *lib, const struct r2_symbol *rows, size_t n, void *table)
{
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(lib, rows[i].name);

        memcpy((char *)table + rows[i].offset, &p, sizeof(p));
        if (p == NULL && !rows[i].optional) {
            return rows[i].name;
        }
    }
    return NULL;
}
