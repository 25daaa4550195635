#include "tests/lab/lab_spine.h"

#include <arpa/inet.h>
#include <string.h>

#define ETHERTYPE_AT 12
#define IP_AT        14
#define IP_LEN       20u
#define UDP          17
#define ROCE_PORT    4791

int lab_spine_of(const uint8_t *frame, size_t len)
{
    const uint8_t *ip = frame + IP_AT, *udp;
    size_t head;
    uint32_t from, to, hash;

    if (len < IP_AT + IP_LEN || frame[ETHERTYPE_AT] != 0x08 || frame[ETHERTYPE_AT + 1] != 0 ||
        ip[0] >> 4 != 4 || ip[9] != UDP) {
        return -1;
    }
    head = (size_t)(ip[0] & 15) * 4;
    udp = ip + head;
    if (head < IP_LEN || len < IP_AT + head + 8 || (udp[2] << 8 | udp[3]) != ROCE_PORT) {
        return -1;
    }
    memcpy(&from, ip + 12, 4);
    memcpy(&to, ip + 16, 4);
    hash = (ntohl(from) + ntohl(to)) * 0x9e3779b1u ^ (uint32_t)(udp[0] << 8 | udp[1]) * 0x85ebca6bu;
    hash = (hash ^ hash >> 16) * 0xc2b2ae35u;
    return (int)((hash ^ hash >> 15) % LAB_SPINES);
}
