#!/bin/sh
# The released NCCL on a stand-in for CUDA, its traffic through the plugin over the software fabric (tests/nccl/README.md): every element of every iteration
# is checked. A line per cell: its name, what came out, and what the plugin says of its faults.
# Usage: check_nccl.sh BUILD [FILTER]   NCCL_DEEP=1: the whole matrix; NCCL_LIB=FILE: another libnccl.so.2
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build} filter=${2:-}
case $B in /*) ;; *) B=$PWD/$B ;; esac
if [ ! -x "$B/r2_nccl" ]; then
    echo "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one; Debian: none, NVIDIA's: cuda-toolkit with libnccl-dev)"
    exit 77
fi
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_R2_RUN_DIR="$T"
passed=0 failed=0
say() { # say OK? TEXT
    if [ "$1" = 1 ]; then
        passed=$((passed + 1))
        echo "ok   $2"
    else
        failed=$((failed + 1))
        echo "FAIL $2"
        tail -n 15 "$T/out" | sed 's/^/     | /'
        grep -h 'WARN' "$T"/log.* 2>/dev/null | tail -n 5 | sed 's/^/     | /'
    fi
}
# run NAME CODE SETTINGS... -- OPTIONS...: one job of r2_nccl, which must end with CODE; 1 when this cell is not wanted
run() {
    name=$1 code=$2
    shift 2
    case $name in *"$filter"*) ;; *) return 1 ;; esac
    rm -f "$T"/log.*
    settings=
    while [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    env $settings NCCL_DEBUG_FILE="$T/log.%p" timeout -k 5 "${NCCL_LIMIT:-120}" "$B/r2_nccl" "$@" -T 60s >"$T/out" 2>&1
    rc=$?
    bad=$(sed -n 's/^# Out of bounds values : \([0-9]*\).*/\1/p' "$T/out")
    row=$(awk '/^ *[0-9]+ +[0-9]+ +[a-z]/ { t = $6; b = $8 } END { if (t != "") printf "%s us, %s GB/s", t, b }' "$T/out")
    summary=$(sed -n 's/.*NET\/R2 : summary: //p' "$T"/log.* 2>/dev/null | sort | uniq | head -n 2 | tr '\n' ';')
    return 0
}
# cell NAME SETTINGS... -- OPTIONS...: data right, over this plugin
cell() {
    n=$1
    shift
    run "$n" 0 "$@" || return 0
    ok=0
    [ $rc = 0 ] && [ "$bad" = 0 ] && grep -q 'Using network R2' "$T"/log.* && ok=1
    say $ok "$n: exit $rc, values wrong ${bad:-none checked}, $row"
}
# fault NAME FAULTS SETTINGS... -- OPTIONS...: the same with so many faults, which the plugin has noticed
fault() {
    n=$1 want=$2
    shift 2
    run "$n" 0 "$@" || return 0
    ok=0
    [ $rc = 0 ] && [ "$bad" = 0 ] && [ "$(grep -c '^# r2 fault .*(command took' "$T/out")" = "$want" ] &&
        grep -q 'summary: faults [1-9]' "$T"/log.* && ok=1
    say $ok "$n: exit $rc, values wrong ${bad:-none checked}, $row; $summary"
}
# dies NAME TEXT SETTINGS... -- OPTIONS...: NCCL ends the communicator with an error that has TEXT in it
dies() {
    n=$1 text=$2
    shift 2
    run "$n" 3 "$@" || return 0
    ok=0
    [ $rc = 3 ] && grep -q "^# error: .*$text" "$T/out" && ok=1
    say $ok "$n: exit $rc, $(sed -n 's/^# error: //p' "$T/out" | cut -c1-160)"
}
F="--nics 4 --rate 100MB/s"
S="-b 2M -e 2M -n 4"
D="-b 4M -e 4M --duration 4s --placement out"
# shellcheck disable=SC2086
{
    if ! NCCL_DEBUG=WARN timeout 60 "$B/r2_nccl" all_reduce $F -b 8 -e 8 -n 1 >"$T/out" 2>&1; then
        case $(sed -n 's/^# error: //p' "$T/out") in
        *"cannot open shared object"* | *"does not know the layouts"*)
            sed -n 's/^# error: //p' "$T/out" | head -n 1
            exit 77
            ;;
        esac
    fi
    cell sizes -- all_reduce $F -b 4 -e 1M -f 8 -n 3
    cell nothing -- all_reduce $F -b 0 -e 0 -n 3
    cell all_reduce-ring-simple NCCL_ALGO=Ring NCCL_PROTO=Simple -- all_reduce $F $S
    cell all_reduce-tree-simple NCCL_ALGO=Tree NCCL_PROTO=Simple -- all_reduce $F $S
    cell all_reduce-ring-ll NCCL_ALGO=Ring NCCL_PROTO=LL -- all_reduce $F -b 256K -e 256K -n 4
    cell all_reduce-ring-ll128 NCCL_ALGO=Ring NCCL_PROTO=LL128 -- all_reduce $F $S
    cell all_gather -- all_gather $F $S
    cell reduce_scatter -- reduce_scatter $F $S
    cell broadcast -- broadcast $F $S
    cell reduce -- reduce $F $S
    cell sendrecv -- sendrecv $F $S
    cell alltoall -- alltoall $F $S
    cell four-ranks -- all_reduce $F $S --hosts 2 --ranks-per-host 2
    cell three-hosts -- all_gather $F $S --hosts 3
    fault down-all_reduce 1 NCCL_PROTO=Simple -- all_reduce $F $D --fault '1s:h0:n1 down'
    fault down-ll128 1 NCCL_PROTO=LL128 -- all_reduce $F $D --fault '1s:h1:n0 down'
    fault blackhole-alltoall 1 -- alltoall $F $D --fault '1s:h1:n0 blackhole'
    fault fatal-all_gather 1 -- all_gather $F $D --fault '1s:h0:n0 fatal'
    fault two-in-a-row 2 -- reduce_scatter $F $D --fault '1s:h0:n0 down' --fault '2s:h1:n1 blackhole'
    dies all-nics-lost 'NET/R2' NCCL_R2_GIVE_UP=2000 -- all_reduce $F $D --fault '1s:h0:* down'
}
if [ -n "${NCCL_DEEP:-}" ]; then
    . tests/nccl/deep.sh
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
