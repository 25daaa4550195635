#include "oob_ifsel.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int oob_ifsel_match(const char *spec, const char *name)
{
    size_t name_len = strlen(name);
    int not = spec[0] == '^', exact, found = 0, entries = 0;

    spec += not ;
    exact = spec[0] == '=';
    spec += exact;
    while (*spec != '\0') {
        size_t entry = strcspn(spec, ","), len = strcspn(spec, ":,");
        if (len > 0) {
            entries++;
            found |= exact ? len == name_len && memcmp(spec, name, len) == 0
                           : strncmp(spec, name, len) == 0;
        }
        spec += entry + (spec[entry] == ',');
    }
    if (entries == 0) {
        found = 1;
    }
    return found ^ not ;
}

static int is_link_local(const struct oob_if *i)
{
    return i->family == 6 ? i->addr[0] == 0xfe && (i->addr[1] & 0xc0) == 0x80
                          : i->addr[0] == 169 && i->addr[1] == 254;
}

/* Docker's bridges are br- and 12 hexadecimal digits; br-ex and the like have a host's address. */
static bool is_of_docker(const char *name)
{
    return strncmp(name, "docker", 6) == 0 || (strncmp(name, "br-", 3) == 0 && strlen(name) == 15 &&
                                               strspn(name + 3, "0123456789abcdef") == 12);
}

/* Bridges and ends of pairs of containers and virtual machines, which have the same addresses on
 * each host: Docker's, libvirt's, Podman's, LXC's and those of Kubernetes' plugins. */
static bool is_of_this_host(const char *name)
{
    static const char *const first[] = {"virbr", "veth",  "cni",  "cali",        "podman",
                                        "lxcbr", "lxdbr", "kube", "nodelocaldns"};

    if (is_of_docker(name)) {
        return true;
    }
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        if (strncmp(name, first[i], strlen(first[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Smaller is better; used where the choice is ours. */
static int rank(const struct oob_if *i, const char *const *avoid)
{
    int avoided = 0;

    for (; avoid != NULL && *avoid != NULL; avoid++) {
        avoided |= strcmp(*avoid, i->name) == 0;
    }
    return strcmp(i->name, "lo") == 0 ? 8
           : is_of_this_host(i->name) ? 4 + is_link_local(i)
                                      : 2 * is_link_local(i) + avoided;
}

static bool is_loopback6(const struct oob_if *i)
{
    static const uint8_t one[16] = {[15] = 1};

    return i->family == 6 && memcmp(i->addr, one, sizeof(one)) == 0;
}

int oob_ifsel_pick(const struct oob_if *list, int n, const char *spec, const char *family,
                   const char *const *avoid, char *why, size_t why_len)
{
    int want = 0, best = -1, best_rank = 0, choose = spec[0] == '\0' || spec[0] == '^';

    if (strcmp(family, "AF_INET") == 0) {
        want = 4;
    } else if (strcmp(family, "AF_INET6") == 0) {
        want = 6;
    } else if (family[0] != '\0') {
        snprintf(why, why_len, "NCCL_SOCKET_FAMILY=%s: expected AF_INET or AF_INET6", family);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        int r = choose ? rank(&list[i], avoid) : 0;
        /* ::1 stands on lo beside 127.0.0.1: only when IPv6 is asked for */
        if (!list[i].up || (want != 0 && list[i].family != want) ||
            (want != 6 && is_loopback6(&list[i]))) {
            continue;
        }
        if (!oob_ifsel_match(spec, list[i].name)) {
            continue;
        }
        if (best < 0 || r < best_rank) {
            best = i;
            best_rank = r;
        }
    }
    if (best < 0) {
        int used = snprintf(why, why_len, "no interface that is up matches '%s'%s%s; this host has",
                            spec, family[0] ? " with " : "", family);
        for (int i = 0; i < n && used > 0 && (size_t)used < why_len; i++) {
            if (i == 0 || strcmp(list[i].name, list[i - 1].name) != 0) {
                used += snprintf(why + used, why_len - (size_t)used, " %s", list[i].name);
            }
        }
    }
    return best;
}

/* Smaller is better. */
static int address_rank(const struct oob_if *i)
{
    return 2 * is_link_local(i) + (i->family != 4);
}

int oob_ifsel_address(const struct oob_if *list, int n, int i, const char *family)
{
    int best = i;

    for (int k = 0; k < n; k++) {
        if (strcmp(list[k].name, list[i].name) == 0 && list[k].up &&
            (family[0] == '\0' || list[k].family == list[i].family) &&
            address_rank(&list[k]) < address_rank(&list[best])) {
            best = k;
        }
    }
    return best;
}

static int address_take(struct oob_if *out, const struct sockaddr *sa)
{
    memset(out->addr, 0, sizeof(out->addr));
    out->scope = 0;
    if (sa->sa_family == AF_INET) {
        out->family = 4;
        memcpy(out->addr, &((const struct sockaddr_in *)sa)->sin_addr, 4);
        return 1;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)sa;
        out->family = 6;
        memcpy(out->addr, &s6->sin6_addr, 16);
        out->scope = s6->sin6_scope_id;
        return 1;
    }
    return 0;
}

int oob_ifsel_read(struct oob_if *list, int max)
{
    struct ifaddrs *all;
    int n = 0;

    if (getifaddrs(&all) != 0) {
        return -1;
    }
    for (struct ifaddrs *a = all; a != NULL && n < max; a = a->ifa_next) {
        if (a->ifa_addr == NULL || !address_take(&list[n], a->ifa_addr)) {
            continue;
        }
        snprintf(list[n].name, sizeof(list[n].name), "%.*s", OOB_IFNAME_MAX - 1, a->ifa_name);
        list[n].up = (a->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
        n++;
    }
    freeifaddrs(all);
    return n;
}
