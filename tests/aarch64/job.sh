#!/bin/sh
# A job of several processes for aarch64 over the software fabric, with faults, on pages of 4 KiB and of 64 KiB; run by with_qemu.sh.
#   job.sh BUILD     closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/../.." || exit 2
B=$1
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
. tests/check_lib.sh
machine() {
    readelf -h "$1" | grep -q 'Machine:.*AArch64'
}
# all_reduce PAGE FAULT: every element is right, and the fault was seen
all_reduce() {
    QEMU_PAGESIZE=$1 timeout 240 "$B/r2_perf" all_reduce --hosts 2 --nics 4 --rate 20MB/s -b 1M -e 1M --duration 4s --fault "1s:$2" >"$tmp/perf" 2>&1
    rc=$? # not 0 where the fault did not fire
    grep -v busbw "$tmp/perf"
    [ $rc = 0 ] && grep -q ' 0 elements wrong' "$tmp/perf" && grep -Eq 'failovers seen: [1-9]' "$tmp/perf"
}
doctor() {
    export QEMU_PAGESIZE=$1
    "$B/softfab" up --name "$fabric" --hosts 1 --nics 2 || return 1
    "$B/softfab" exec --name "$fabric" --host 0 -- "$B/r2_config" --doctor
    "$B/softfab" exec --name "$fabric" --host 0 -- "$B/r2_config" --doctor | grep -q '^ok.*libnccl-net-r2.so'
    rc=$?
    "$B/softfab" down --name "$fabric" && return $rc
}
fabric=a64$$
for f in libnccl-net-r2.so r2_perf softfab softfab-lib/libibverbs.so.1; do check "$f is for aarch64" machine "$B/$f"; done
for page in 4096 65536; do
    check "a port goes down, pages of $page bytes" all_reduce $page 'h0:n1 down'
    check "a silent NIC, pages of $page bytes" all_reduce $page 'h0:n1 blackhole'
    check "r2_config --doctor, pages of $page bytes" doctor $page
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
