/* The software fabric's texts: faults, and descriptions of a fabric. Both come from command lines
 * and files of its users. */
#include "fuzz.h"

#include "tests/fabric/model/fab_desc.h"
#include "tests/fabric/model/fab_fault.h"
#include "tests/fabric/model/fab_pkt.h"
#include "tests/fabric/model/fab_spine.h"

static void spine_run(const struct fab_fault *fault)
{
    static const struct fab_desc d = {.hosts = 2, .nics = 2, .spines = 4};
    struct fab_rail r = {.down = 1};
    char err[64] = "";

    FUZZ_CHECK(fault->spine >= -1 && fault->spine < FAB_MAX_SPINES);
    FUZZ_CHECK(fab_fault_spine_fits(fault, &d, err, sizeof(err)) == (err[0] == 0));
    fab_rail_fault(&r, FAB_MAX_SPINES, fault);
    for (int k = 0; k < FAB_MAX_SPINES; k++) {
        FUZZ_CHECK(r.loss_ppm[k] <= 1000000);
    }
    FUZZ_CHECK(fab_spine_pick(fault->value, FAB_MAX_SPINES, r.down) < FAB_MAX_SPINES);
}

static void fault_run(const char *text)
{
    struct fab_link link = {.rate = 1000};
    struct fab_fault fault, other;
    struct fab_hdr h = {.dst = {.host = FAB_MAX_HOSTS - 1, .nic = FAB_MAX_NICS - 1}};
    char err[64] = "";

    if (fab_fault_parse(text, &fault, err, sizeof(err)) != 0) {
        FUZZ_CHECK(err[0] && memchr(err, 0, sizeof(err)) != NULL);
        return;
    }
    FUZZ_CHECK(fault.host >= -1 && fault.host < FAB_MAX_HOSTS && fault.nic >= -1 &&
               fault.nic < FAB_MAX_NICS);
    FUZZ_CHECK((unsigned)fault.kind < FAB_FAULT_KINDS && fab_fault_name(fault.kind));
    spine_run(&fault);
    if (fault.at == FAB_AT_SPINE) {
        return;
    }
    fab_link_fault(&link, &fault, 1000);
    FUZZ_CHECK(link.loss_ppm <= 1000000 && link.corrupt_ppm <= 1000000 && link.dup_ppm <= 1000000);
    if (fab_fault_other(&fault, &other)) {
        FUZZ_CHECK(other.host >= -1 && other.host < FAB_MAX_HOSTS && other.nic >= -1 &&
                   other.nic < FAB_MAX_NICS);
        (void)fab_fault_moves(&other, &link);
    }
    (void)fab_link_tx(&link, &h, 12345);
    (void)fab_link_rx(&link, &h, 12345);
    (void)fab_link_ns(link.rate, 4096);
}

static void desc_run(const char *text)
{
    struct fab_desc *d = malloc(sizeof(*d));
    char err[64] = "";

    FUZZ_CHECK(d != NULL);
    if (fab_desc_parse(d, text, err, sizeof(err)) == 0) {
        FUZZ_CHECK(d->hosts > 0 && d->hosts <= FAB_MAX_HOSTS && d->nics > 0 &&
                   d->nics <= FAB_MAX_NICS);
        FUZZ_CHECK(d->spines > 0 && d->spines <= FAB_MAX_SPINES && d->hash < FAB_HASHES);
        for (int n = 0; n < d->nics; n++) {
            FUZZ_CHECK(memchr(d->nic[0][n].pci, 0, sizeof(d->nic[0][n].pci)) != NULL);
        }
    } else {
        FUZZ_CHECK(err[0] != 0);
    }
    free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};
    unsigned what = fuzz_u8(&in);
    char text[4096];

    fuzz_text(&in, text, sizeof(text));
    if (what & 1) {
        desc_run(text);
    } else {
        fault_run(text);
    }
    return 0;
}
