#!/bin/sh
# The surface: table to the byte, JSON, exit codes, options, finding the plugin, launch under mpirun.
. "$(dirname "$0")/r2_perf_lib.sh"

run all_reduce -b 8 -e 8K -f 4 -n 2
expect "a table" 0
# what nccl-tests 2.19.6 prints for these arguments, numbers that vary replaced
{
    echo '# nccl-tests version V nccl-headers=N nccl-library=N'
    echo '# Collective test starting: all_reduce_perf'
    printf '# nThread %d nGpus %d minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: %d agg iters: %d ' \
        1 1 8 8192 4 factor 1 2 1
    printf 'validation: %d graph: %d unalign: %d\n#\n# Using devices\n' 1 0 0
    printf '#  Rank %2d Group %2d Pid P on %10s device %2d [B] D\n' 0 0 h0 0 1 0 h1 0
    printf '#\n# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          \n' \
        '' '' '' '' ''
    for words in "size count type redop root time algbw busbw #wrong time algbw busbw #wrong" \
        "(B) (elements) _ _ _ (us) (GB/s) (GB/s) _ (us) (GB/s) (GB/s) _"; do
        set -- $words
        printf '# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s\n' "$@" 0 '' | sed 's/_/ /g'
    done
    for size in 8 32 128 512 2048 8192; do
        printf '%12i  %12i  %8s  %6s  %6i  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n' $size $((size / 4)) float sum -1 \
            T A B 0 T A B 0
    done
    printf '# %-20s : %d %s\n# %-20s : %s %s\n#\n# Collective test concluded: %s\n#\n\n' "Out of bounds values" 0 OK \
        "Avg bus bandwidth" X "" all_reduce_perf
} >"$TMP/want"
sed -e 's/version [0-9.]* nccl-headers=[0-9]* nccl-library=[0-9]*/version V nccl-headers=N nccl-library=N/' \
    -e 's/Pid *[0-9]* on/Pid P on/' -e 's/\[[0-9a-f:]*\] .*/[B] D/' -e 's/\(bandwidth    : \)[0-9.e+-]* /\1X /' \
    "$TMP/out" | awk '
    /^ *[0-9]/ { printf "%s", substr($0, 1, 52); for (i = 6; i <= 13; i++) {
        w = i % 4 == 2 ? 7 : 6; c = i % 4 == 2 ? "T" : i % 4 == 3 ? "A" : i % 4 == 0 ? "B" : $i
        printf "  %" w "s", c } print ""; next } { print }' >"$TMP/got"
check "the table is that of nccl-tests" diff "$TMP/want" "$TMP/got"
check "every row is of one width" awk '/^ *[0-9]/ { if (length($0) != 118) exit 1; n++ } END { exit n != 6 }' "$TMP/out"

run sendrecv -b 1M -e 1M -n 2
check "sendrecv in place is not checked" grep -q 'N/A$' "$TMP/out"
run all_gather --hosts 3 -b 1000 -e 1000 -n 2
check "split sizes are rounded as nccl-tests does" grep -q '^ *960  *80 ' "$TMP/out"
run all_reduce -b 1K -e 1K -n 4 -I 1 -K 1 -S 1
check "-I and -S add columns" awk '/^ *[0-9]/ { n = NF } END { exit n != 23 }' "$TMP/out"

# JSON: read back by an independent reader where there is one
run all_reduce -b 1K -e 4K -f 2 -n 3 -J "$TMP/a.json"
run all_reduce -b 1K -e 4K -f 2 -n 3 --json "$TMP/a.json"
check "JSON is never overwritten" test -s "$TMP/a.json.0"
if command -v jq >/dev/null; then
    check "JSON" jq -e '.version == 3 and (.results | length) == 3 and .results[2].size == 4096 and
        .results[0].out_of_place.nwrong == 0 and .results[0].root == "    -1" and .config.iterations == 3 and
        .config.step_factor == 2 and (.config.devices | length) == 2 and .out_of_bounds.okay == "true" and
        .average_bus_bandwidth.okay == "unchecked" and .errors == [] and .r2.wrong == 0 and
        .r2.checked_operations > 0 and (.end_time | length) == 19' "$TMP/a.json" >"$TMP/out"
    SECRET_TOKEN=hush run all_reduce -b 8 -e 8 -J "$TMP/b.json"
    check "strangers' environment stays out" jq -e '[.env[] | select(test("SECRET"))] == []' "$TMP/b.json" >"$TMP/out"
    TCPTEST_ERROR=5 run all_reduce -b 1M -e 1M -n 9 -J "$TMP/c.json"
    check "JSON of a failed run" jq -e '.errors[0] | test("remote error")' "$TMP/c.json" >"$TMP/out"
else
    echo "skipped: jq is not installed; JSON is not read back"
fi

# usage errors: 6, and the message names the option
for bad in "--bogus 1" "-d fp8" "-o mulsum" "-n x" "-n 0" "-b 8 -e 4" "-t 2" "-G 1" "-R 1" "-g 2" "--fault 2s:h0" \
    "--fault-cmd now:true" "--intra pcie" "-T soon" "--channels 99" "-n" "extra" "--buffsize 5000" "-K 5" "-r 64" \
    "--spines 4" "--nics 2 --spines 65" "--trace="; do
    run all_reduce $bad
    expect "usage: $bad" 6
    [ -s "$TMP/err" ] && pass || fail "usage: $bad says nothing"
done
run broadcast -r 7 -b 8 -e 8
expect "no such root" 6
run
expect "no operation" 6
run --help
expect "help" 0
NCCL_TESTS_SPLIT=2 run all_reduce
expect "NCCL_TESTS_SPLIT" 6
NCCL_TESTS_MIN_BW=100000 run all_reduce -b 8 -e 8
expect "slower than NCCL_TESTS_MIN_BW" 7
NCCL_TESTS_MIN_BW=0 run all_reduce -b 8 -e 8
expect "not slower than NCCL_TESTS_MIN_BW" 0

# the plugin is found as NCCL finds it
plugin()
{
    env LD_LIBRARY_PATH="$B/tests" NCCL_NET_PLUGIN="$1" timeout 60 "$PERF" all_reduce -b 8 -e 8 -n 1 >"$TMP/out" 2>"$TMP/err"
    RC=$?
}
plugin tcptest
expect "by name" 0
plugin none,nosuch,tcptest
expect "by list" 0
plugin libnccl-net-tcptest.so
expect "by file name" 0
# the newest table that there is; this one has no other
if command -v jq >/dev/null; then
    run all_reduce -b 8 -e 8 -J "$TMP/abi.json"
    check "the table of the plugin" jq -e '.r2.plugin_abi == 8' "$TMP/abi.json" >"$TMP/out"
fi
run all_reduce -b 8 -e 8 --abi 8
expect "--abi of a table that is there" 0
run all_reduce -b 8 -e 8 --abi 12
expect "--abi of a table that is not there" 3
says "--abi of a table that is not there" '^# error: .*has no ncclNetPlugin_v12'
run all_reduce -b 8 -e 8 --abi 13
expect "--abi of no version" 6
plugin nosuch
expect "not there" 3
says "not there" '^# error: .*libnccl-net-nosuch.so'
NCCL_NET=tcpTest run all_reduce -b 8 -e 8
expect "NCCL_NET agrees" 0
NCCL_NET=IB run all_reduce -b 8 -e 8
expect "NCCL_NET disagrees" 3
printf '# x\nNCCL_NET_PLUGIN=%s\r\n NCCL_NET=IB\nTCPTEST_NDEV=3\n' "$TCP" >"$TMP/nccl.conf"
NCCL_CONF_FILE=$TMP/nccl.conf timeout 60 "$PERF" all_reduce -b 8 -e 8 >"$TMP/out" 2>"$TMP/err"
RC=$?
expect "nccl.conf" 0
says "nccl.conf" 'TCPTEST: tcptest0 tcptest1 tcptest2$'
NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET NCCL_DEBUG_FILE=$TMP/log.%h run all_reduce -b 8 -e 8
check "NCCL_DEBUG_FILE" grep -q '^h0:[0-9]*:[0-9]* \[0\] NCCL INFO NET/TCPTEST : 2 devices$' "$TMP/log.h0"
NCCL_DEBUG=INFO run all_reduce -b 8 -e 8
check "subsystems are filtered" sh -c "! grep -q 'NCCL INFO NET/TCPTEST' '$TMP/err'"
ln -s "$PERF" "$TMP/reduce_scatter_perf"
NCCL_NET_PLUGIN=$TCP timeout 60 "$TMP/reduce_scatter_perf" -b 1K -e 1K >"$TMP/out" 2>"$TMP/err"
says "the program's name is the operation" 'starting: reduce_scatter_perf'

if command -v mpirun >/dev/null; then
    mpi()
    {
        env NCCL_NET_PLUGIN="$TCP" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun \
            --oversubscribe -np 3 "$PERF" all_reduce -b 1M -e 1M -n 3 --intra net "$@" >"$TMP/out" 2>"$TMP/err"
        RC=$?
    }
    mpi
    expect "mpirun" 0
    check "mpirun has three ranks" awk '/^#  Rank/ { n++ } END { exit n != 3 }' "$TMP/out"
    mpi --rendezvous "$TMP/meet"
    expect "mpirun with a file" 0
    check "the file is gone" test ! -e "$TMP/meet"
    TCPTEST_HANG=20 mpi -T 2s
    expect "mpirun, timeout" 4
else
    echo "skipped: mpirun is not installed"
fi
finish
