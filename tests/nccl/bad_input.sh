#!/bin/sh
# Libraries and calls that the stand-in for CUDA, or the plugin that is NCCL's own IB transport, cannot serve: each ends with one clear line that names what
# was wrong, at once, and never with a result. Usage: bad_input.sh BUILD
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
if [ ! -x "$B/r2_nccl" ] || [ ! -x "$B/nccl-standin/deny_text" ]; then
    echo "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one)"
    exit 77
fi
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
export NCCL_DEBUG=WARN NCCL_R2_RUN_DIR="$T"
unset NCCL_HOME NCCL_SEAM STANDIN
passed=0 failed=0 skipped=0 mine=${NCCL_LIB:-}
# says NAME TEXT COMMAND...: it fails, says a line with TEXT, has no row of results, and does not hang
says() {
    name=$1 text=$2
    shift 2
    "$@" >"$T/out" 2>&1
    rc=$?
    if [ $rc != 0 ] && [ $rc != 124 ] && [ $rc != 137 ] && [ $rc != 139 ] && grep -qF -- "$text" "$T/out" && ! grep -q '^# Out of bounds' "$T/out"; then
        passed=$((passed + 1))
        echo "ok   $name: exit $rc, $(grep -F -- "$text" "$T/out" | head -n 1 | cut -c1-150)"
    else
        failed=$((failed + 1))
        echo "FAIL $name: exit $rc, not \"$text\""
        tail -n 8 "$T/out" | sed 's/^/     | /'
    fi
}
skip() {
    skipped=$((skipped + 1))
    echo "skip $1: $2"
}
job() { # job LIBRARY: one small job
    NCCL_LIB=$1 timeout -k 5 200 "$B/r2_nccl" all_reduce --nics 1 -b 8 -e 8 -n 1
}
bad=$B/nccl-standin/bad/libnccl.so.2
known=22809
echo "no library" >"$T/text.so"

# What NCCL yields with is the program's own (rank/nccl_yield.c): the loader finds it where it is exported.
for p in r2_nccl r2_nccl_life; do
    if nm -D --defined-only "$B/$p" | grep -q ' T sched_yield$'; then
        passed=$((passed + 1))
        echo "ok   $p has a sched_yield of its own"
    else
        failed=$((failed + 1))
        echo "FAIL $p exports no sched_yield: NCCL finds the C library's"
    fi
done

says "no library" "$T/none.so: cannot open shared object file" job "$T/none.so"
says "a text" "$T/text.so: " job "$T/text.so"
says "a folder" "$T: " job "$T"
says "an operation that is none" "r2_nccl: 'nosuch' is not an operation" "$B/r2_nccl" nosuch
says "another library" "has no ncclGetVersion" job "$B/libnccl-net-r2.so"

export NCCL_BAD_VERSION
NCCL_BAD_VERSION=21903
says "an older release" "NCCL 2.19.3: the stand-in for CUDA does not know the layouts of this release, which is older" job "$bad"
NCCL_BAD_VERSION=22805
says "a patch release between" "NCCL 2.28.5: the stand-in for CUDA does not know the layouts of this release" job "$bad"
NCCL_BAD_VERSION=23101
says "a newer release" "NCCL 2.31.1: the stand-in for CUDA does not know the layouts of this release, which is newer" job "$bad"
says "a newer release, its name" "NCCL 2.31.1" "$B/nccl-standin/release" "$bad"

NCCL_BAD_VERSION=$known
says "a function that is not provided" "cudaProfilerStart is called, and the stand-in does not have it" job "$bad"
says "the runtime is nowhere" "neither needs libcudart.so nor has the runtime inside" job "$B/nccl-standin/bad/none/libnccl.so.2"
if ! "$B/nccl-standin/gpus" >/dev/null 2>&1; then
    says "CUDA as it is here, where it is not" "libcuda.so.1: cannot open shared object file" env STANDIN=off NCCL_LIB="$bad" timeout -k 5 200 "$B/r2_nccl" all_reduce --nics 1 -b 8 -e 8 -n 1
fi
NCCL_SEAM=shared
export NCCL_SEAM
says "the other seam" "has CUDA's runtime inside, and NCCL_SEAM=shared forbids to redirect it" job "$bad"
unset NCCL_SEAM
if command -v strip >/dev/null; then
    strip -s -o "$T/libnccl.so.2" "$bad"
    says "a stripped library" "$T/libnccl.so.2 is stripped: it has no symbols" job "$T/libnccl.so.2"
else
    skip "a stripped library" "no strip (binutils)"
fi
if "$B/nccl-standin/deny_text" true; then
    NCCL_LIB=$bad
    export NCCL_LIB
    says "text that cannot be written" "cannot be written to in memory (Permission denied)" \
        "$B/nccl-standin/deny_text" timeout -k 5 200 "$B/r2_nccl" all_reduce --nics 1 -b 8 -e 8 -n 1
else
    skip "text that cannot be written" "filters of system calls are not to be had here"
fi
# NCCL's own IB transport as a plugin (ib/nccl_ib.c).
own() { # own LIBRARY: one small job of r2_perf
    NCCL_LIB=$1 NCCL_NET_PLUGIN=$B/bench/libnccl-net-ib.so timeout -k 5 200 "$B/r2_perf" all_reduce --nics 2 -b 8 -e 1M -f 8 -n 2
}
unset NCCL_BAD_VERSION
says "own transport: no library" "libnccl-net-ib.so: $T/none.so: cannot open shared object file" own "$T/none.so"
says "own transport: no table then" "libnccl-net-ib.so has no ncclNetPlugin_v8 to v12" own "$T/none.so"
says "own transport: another library" "libnccl-net-ib.so: $B/libnccl-net-r2.so has no ncclGetVersion" own "$B/libnccl-net-r2.so"
NCCL_BAD_VERSION=23007
export NCCL_BAD_VERSION
says "own transport: another release" "is NCCL 2.30: its own transport's table is not that of 2.28" own "$bad"
NCCL_BAD_VERSION=$known
says "own transport: a library without it" "has no ncclNetIb of 176 bytes" own "$bad"
if [ -e "$T/libnccl.so.2" ]; then
    says "own transport: a stripped library" "$T/libnccl.so.2 is stripped: it has no symbols" own "$T/libnccl.so.2"
else
    skip "own transport: a stripped library" "no strip (binutils)"
fi
unset NCCL_BAD_VERSION
if ! release=$(NCCL_LIB=$mine "$B/nccl-standin/release" 2>/dev/null) || [ "$release" != 228 ]; then
    skip "own transport" "no libnccl.so.2 of NCCL 2.28 was found (NCCL_LIB=FILE)"
elif ! unshare -m true 2>/dev/null; then
    skip "own transport" "it wants a /sys of its own, as root"
elif own "$mine" >"$T/out" 2>&1 && grep -q '^# Out of bounds values : 0 OK' "$T/out" && grep -q 'IB: fab0 fab1' "$T/out"; then
    passed=$((passed + 1))
    echo "ok   own transport: r2_perf drives it, data right"
else
    failed=$((failed + 1))
    echo "FAIL own transport: r2_perf does not drive it"
    tail -n 8 "$T/out" | sed 's/^/     | /'
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
