#!/bin/sh
# A rolling upgrade: the plugin as it was on one host, the new one on the other. Releases with the same wire protocol work together,
# others refuse each other at the first connection, before anything is carried, by a line that says which versions these are.
#   upgrade.sh [BUILD]     closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
tmp=$(mktemp -d) || exit 2
name=up$$
trap '"$B/softfab" down --name $name >/dev/null 2>&1; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
# nothing of the caller's settings may decide what is tested
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
passed=0
failed=0
new=$B/libnccl-net-r2.so
"$B/softfab" up --name $name --hosts 2 --nics 2 >/dev/null || exit 1

# host H PLUGIN: one rank of two
host() {
    "$B/softfab" exec --name $name --host "$1" -- env OMPI_COMM_WORLD_RANK="$1" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 \
        OMPI_COMM_WORLD_LOCAL_SIZE=1 NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO NCCL_NET_PLUGIN="$2" \
        timeout -k 5 120 "$B/r2_perf" all_reduce --intra net --rendezvous "$tmp/meet" -b 64K -e 1M -f 4 -n 5 >"$tmp/$1" 2>&1
    echo $? >"$tmp/$1.rc"
}
# both PLUGIN-OF-HOST-0 PLUGIN-OF-HOST-1
both() {
    rm -f "$tmp"/*
    host 0 "$1" &
    host 1 "$2"
    wait
}
# is NAME STATUS: counts, and shows both hosts when it is not as it should be
is() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        for h in 0 1; do
            sed "s/^/    host $h: /" "$tmp/$h" | tail -12
        done
    fi
}
# whether a size has been timed
carried() {
    grep -q '^ *65536 ' "$tmp/0"
}
text() {
    "$B/r2_config" --version "$1" | sed 's/.*: //'
}
wire() {
    text "$1" | sed 's/.* wire=\([0-9]*\).*/\1/'
}
for plugins in "$B/before/release.so $new" "$new $B/before/release.so"; do
    # shellcheck disable=SC2086
    set -- $plugins
    both "$@"
    [ "$(cat "$tmp/0.rc")$(cat "$tmp/1.rc")" = 00 ]
    is "works: $(text "$1"), $(text "$2")" $?
    carried
    is "and carries" $?
    grep -qF "$(text "$1")" "$tmp/0" && grep -qF "$(text "$2")" "$tmp/1"
    is "each host has its own" $?
done
for plugins in "$B/before/wire.so $new" "$new $B/before/wire.so"; do
    # shellcheck disable=SC2086
    set -- $plugins
    both "$@"
    [ "$(cat "$tmp/0.rc")" != 0 ] && [ "$(cat "$tmp/1.rc")" != 0 ] && [ "$(cat "$tmp/0.rc")" != 124 ] && [ "$(cat "$tmp/1.rc")" != 124 ]
    is "refused: wire $(wire "$1") and $(wire "$2")" $?
    grep -q "WARN.*the peer's nccl-net-r2 speaks version $(wire "$2"), this process version $(wire "$1"): all processes of a job need the same plugin" "$tmp/0" ||
        grep -q "WARN.*the peer's nccl-net-r2 speaks version $(wire "$1"), this process version $(wire "$2"): all processes of a job need the same plugin" "$tmp/1"
    is "by a line that names both versions" $?
    ! carried
    is "before anything is carried" $?
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
