#!/bin/sh
# The plugin inside NCCL on a machine with a GPU and without RDMA hardware: ranks on one GPU, each a host of its own to NCCL, over the software
# fabric. README.md beside this has the settings.
# Usage: run.sh BUILD_DIR [--dry-run]; closes with "N passed, N failed[, N skipped]"
#   --dry-run: everything but the launch; gpu_coll then runs over stand-ins for CUDA and NCCL, which show nothing about either
cd "$(dirname "$0")/../.." || exit 1
dry=
[ "${2:-}" = --dry-run ] && dry=yes
[ -d "${1:-build}" ] || mkdir -p "${1:-build}" || exit 1
B=$(cd "${1:-build}" && pwd)
RANKS=${RANKS:-2}
case $RANKS in [2-4]) ;; *) echo "RANKS=$RANKS: 2 to 4" && exit 1 ;; esac
BYTES=${BYTES:-1048576}
OPS=${OPS:-all_reduce all_gather reduce_scatter sendrecv alltoall broadcast}
PROTOS=${PROTOS:-Simple LL LL128}
CASES=${CASES:-healthy one two back}
LIMIT=${LIMIT:-300} # s, a bound against hangs
PYTHON=${PYTHON:-python3}
CELLS=${CELLS:-} # of tests/nccl/check_nccl.sh; none named: all
library=${NCCL_LIB:+$NCCL_LIB/libnccl.so.2}
fab=gpu$$
tmp=$(mktemp -d) || exit 1
out=$B/gpu
mkdir -p "$out" || exit 1
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    case $v in NCCL_TESTS | NCCL_TESTS_BUILD | NCCL_LIB | NCCL_HOME | NCCL_DEEP) ;; *) unset "$v" ;; esac
done
export LD_LIBRARY_PATH="$B:${NCCL_LIB:+$NCCL_LIB:}${LD_LIBRARY_PATH:-}"
# what a job would set; hosts of one GPU must not find each other by NVLink, the fabric maps DMA-BUFs of host memory alone, and every change of a path
# is to be seen
export NCCL_NET_PLUGIN=r2 NCCL_NET=R2 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV,TUNING NCCL_SOCKET_IFNAME=lo NCCL_MULTI_RANK_GPU_ENABLE=1 \
    NCCL_MNNVL_ENABLE=0 NCCL_DMABUF_ENABLE=0 NCCL_R2_T_RETURN=200

. tests/gpu/lib.sh
. tests/gpu/evidence.sh
. tests/gpu/nccl_tests.sh
. tests/gpu/matrix.sh
. tests/gpu/dry.sh

step_build
step_loader
step_stand_ins
if [ -n "$dry" ]; then
    step_take
    step_collectives
    step_why_not
    step_nccl_tests
    step_training
    step_library
    step_matrix
else
    if ! libs=$("$B/gpu_coll" --libs 2>&1); then
        echo "$libs"
        echo "this needs CUDA's driver and NCCL; --dry-run does not"
        exit 1
    fi
    echo "$libs"
    table_begin
    collectives gpu_coll
    GDR=yes
    collectives gpu_coll
    GDR=
    if [ -n "${NCCL_TESTS_BUILD:-}" ]; then
        collectives nccl-tests
    elif [ -n "${NCCL_TESTS:-}" ]; then
        tests_build
        [ -z "${NCCL_TESTS_BUILD:-}" ] || collectives nccl-tests
    else
        skip "nccl-tests" "neither NCCL_TESTS names its sources nor NCCL_TESTS_BUILD a build of it"
    fi
    training
    matrix
    echo "tables: $out/table.md, $out/matrix.md"
fi
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
