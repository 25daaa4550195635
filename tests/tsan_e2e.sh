#!/bin/sh
# The plugin's real threads under ThreadSanitizer: collectives over the software fabric with faults. Argument: a build folder made with
# SAN=-fsanitize=thread.
B=$1
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=0 exitcode=66 log_path=$log/race" NCCL_IB_TIMEOUT=15 NCCL_IB_RETRY_CNT=5 \
    NCCL_SOCKET_IFNAME=lo timeout 200 "$B/r2_perf" all_reduce -b 64K -e 64K -w 1 --placement out --duration 5s \
    --hosts 2 --nics 4 --rate 20MB/s --fault '1s:h0:n1 down' --fault '2s:h1:n0 blackhole' --fault '3s:h1:n2 qp-error' >"$log/out" 2>&1
rc=$?
if [ $rc = 0 ] && ! ls "$log"/race* >/dev/null 2>&1 && grep -q ', 0 elements wrong' "$log/out"; then
    echo "1 passed, 0 failed"
    exit 0
fi
echo "exit code $rc"
tail -20 "$log/out"
cat "$log"/race* 2>/dev/null | head -80
echo "0 passed, 1 failed"
exit 1
