#!/bin/sh
# The life of communicators inside the released NCCL on a stand-in for CUDA (tests/nccl/README.md): made, broken, aborted, shrunk, split and made again in one
# process, every element of every collective checked. A line per scenario, with what NCCL said below it.
# Usage: life.sh BUILD [FILTER]   NCCL_LIB=FILE: another libnccl.so.2
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build} filter=${2:-}
case $B in /*) ;; *) B=$PWD/$B ;; esac
life=$B/r2_nccl_life
if [ ! -x "$life" ]; then
    echo "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one; Debian: none, NVIDIA's: cuda-toolkit with libnccl-dev)"
    exit 77
fi
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0
ok() {
    passed=$((passed + 1))
    echo "ok   $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAIL $1"
    sed 's/^/     | /' "$T/out"
    grep -h 'WARN' "$T"/log.* 2>/dev/null | tail -n 12 | cut -c1-300 | sed 's/^/     | /'
}
# refused NAME CODE TEXT ARGUMENTS...: ends with CODE and says TEXT
refused() {
    name=$1 code=$2 text=$3
    shift 3
    case $name in *"$filter"*) ;; *) return ;; esac
    timeout -k 5 60 "$life" "$@" >"$T/out" 2>&1
    rc=$?
    if [ $rc = "$code" ] && grep -q "$text" "$T/out"; then
        ok "$name: exit $rc"
    else
        bad "$name: exit $rc, not $code with '$text'"
    fi
}
scenario() {
    case $1 in *"$filter"*) ;; *) return ;; esac
    rm -f "$T"/log.*
    timeout -k 5 "${NCCL_LIMIT:-600}" "$life" --log "$T" "$1" >"$T/out" 2>&1
    rc=$?
    case $(sed -n 's/^# error: //p' "$T/out") in
    *"cannot open shared object"* | *"does not know the layouts"*)
        sed -n 's/^# error: //p' "$T/out" | head -n 1
        exit 77
        ;;
    esac
    if grep '^SKIP' "$T/out"; then
        skipped=$((skipped + 1))
    elif [ $rc = 0 ] && grep -q 'Using network R2' "$T"/log.*; then
        ok "$(sed -n 's/^done //p' "$T/out")"
        sed -n 's/^rank /     rank /p' "$T/out"
    else
        bad "$1: exit $rc"
    fi
}
for s in $("$life" --list); do
    scenario "$s"
done
refused no-such-scenario 6 "there is no scenario 'immortal'" immortal
refused no-scenario 6 'which scenario' --log "$T"
refused no-such-option 6 "'--fast' is no option" --fast lost
refused no-log-folder 6 'no folder that can be written to' --log "$T/none" lost
NCCL_LIB=$T/none.so
export NCCL_LIB
refused no-library 3 '# error: .*none.so: cannot open shared object' lost
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ]
