#!/bin/sh
# The plugin's real threads under ThreadSanitizer: collectives over the software fabric with faults, and connections that go on without the out-of-band
# channel. Argument: a build folder made with SAN=-fsanitize=thread.
B=$1
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=0 exitcode=66 log_path=$log/race"
passed=0 failed=0 skipped=0
# judge NAME STATUS RIGHT: STATUS 0 and a line that matches in its output, and no report
judge() {
    if [ "$2" = 0 ] && ! ls "$log"/race* >/dev/null 2>&1 && grep -q "$3" "$log/out"; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "$1: exit code $2"
    tail -20 "$log/out"
    cat "$log"/race* 2>/dev/null | head -80
    rm -f "$log"/race*
}

NCCL_IB_TIMEOUT=15 NCCL_IB_RETRY_CNT=5 NCCL_SOCKET_IFNAME=lo timeout 200 "$B/r2_perf" all_reduce -b 64K -e 64K -w 1 --placement out --duration 5s \
    --hosts 2 --nics 4 --rate 20MB/s --fault '1s:h0:n1 down' --fault '2s:h1:n0 blackhole' --fault '3s:h1:n2 qp-error' >"$log/out" 2>&1
judge "collectives with faults" $? ', 0 elements wrong'
timeout -k 10 300 sh tests/e2e/oob_cut.sh "$B" >"$log/out" 2>&1
rc=$?
if [ $rc = 77 ]; then
    skipped=1
    echo "skipped: without the channel: $(tail -1 "$log/out")"
else
    judge "without the out-of-band channel" $rc '^[1-9][0-9]* passed, 0 failed'
fi
echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ] && [ $passed -gt 0 ]
