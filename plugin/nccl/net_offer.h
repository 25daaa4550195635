/*
 * Tables that NCCL may have only when the user has named this library for them
 * (docs/abi.md): the name that NCCL looks up is an indirect function of the loader's, and
 * what it finds there is decided when it looks.
 */
#ifndef NET_OFFER_H
#define NET_OFFER_H

typedef void (*net_offer_fn)(void);

/* @table if @variable names this library, else NULL. Called by the loader, within dlsym(): takes no
 * lock, logs nothing. */
net_offer_fn net_offer(const char *variable, const void *table);

/* @symbol, exported, is @table or nothing. */
#define NET_OFFER(symbol, variable, table)                                                         \
    __attribute__((used)) static net_offer_fn symbol##_find(void)                                  \
    {                                                                                              \
        return net_offer(variable, &(table));                                                      \
    }                                                                                              \
    void symbol(void);                                                                             \
    __attribute__((visibility("default"), ifunc(#symbol "_find"))) void symbol(void)

#endif
