#!/bin/sh
# In a VM: waits until somebody listens on a TCP port. The kernel tells nobody, so its table is read every 50 ms.
#   guest_listen.sh PORT [SECONDS]
port=$(printf ':%04X' "$1") left=$((${2:-20} * 20))
while [ "$left" -gt 0 ]; do
    while read -r _ local _ state _; do
        case $local/$state in *"$port"/0A) exit 0 ;; esac
    done </proc/net/tcp
    while read -r _ local _ state _; do
        case $local/$state in *"$port"/0A) exit 0 ;; esac
    done </proc/net/tcp6
    left=$((left - 1))
    sleep 0.05
done
echo "nobody listens on port $1" >&2
exit 1
