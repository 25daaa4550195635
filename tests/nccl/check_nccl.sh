#!/bin/sh
# The released NCCL on a stand-in for CUDA, its traffic through the plugin over the software fabric (tests/nccl/README.md): every element of every iteration
# is checked. A line per cell: its name, what came out, and what the plugin says of its faults.
# Usage: check_nccl.sh BUILD [PATTERNS]   PATTERNS: of cells' names, as the shell has them, with spaces between; NCCL_DEEP=1: the
# whole matrix; NCCL_TABLE=FILE: a table of the cells, in Markdown; NCCL_KEEP=DIR: logs of cells that failed;
# NCCL_LIB=FILE: another libnccl.so.2; STANDIN=off: on the GPUs of this machine, with the driver that the loader finds (tests/gpu/run.sh)
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build} filter=${2:-}
case $B in /*) ;; *) B=$PWD/$B ;; esac
if [ ! -x "$B/r2_nccl" ]; then
    echo "no CUDA toolkit with nccl.h when this was built (CUDA=DIR names one; Debian: none, NVIDIA's: cuda-toolkit with libnccl-dev)"
    exit 77
fi
T=$(mktemp -d) || exit 1
fab=nccl$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_R2_EVENT_FILE="$T/events"
passed=0 failed=0 skipped=0 gpus=''
. tests/nccl/cell_lib.sh
if [ "${STANDIN:-}" = off ]; then
    . tests/nccl/cell_gpu.sh
    gpu_begin
fi
F="--nics 4 --rate 100MB/s"
S="-b 2M -e 2M -n 4"
D="-b 4M -e 4M --duration 2s --placement out"
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
    cp "$T/out" "$T/first"
    table_begin
    cell sizes -- all_reduce $F -b 4 -e 1M -f 8 -n 3
    cell nothing -- all_reduce $F -b 0 -e 0 -n 3
    cell all_reduce-ring-simple NCCL_ALGO=Ring NCCL_PROTO=Simple -- all_reduce $F $S
    cell all_reduce-tree-simple NCCL_ALGO=Tree NCCL_PROTO=Simple -- all_reduce $F $S
    cell all_reduce-ring-ll NCCL_ALGO=Ring NCCL_PROTO=LL -- all_reduce $F -b 256K -e 256K -n 4
    cell all_reduce-ring-ll128 NCCL_ALGO=Ring NCCL_PROTO=LL128 -- all_reduce $F $S
    for op in all_gather reduce_scatter broadcast reduce sendrecv alltoall gather scatter; do
        cell $op -- $op $F $S
    done
    cell group -- all_reduce $F $S -m 4
    cell registered -- all_gather $F $S -R 1
    cell four-ranks -- all_reduce $F $S --hosts 2 --ranks-per-host 2
    cell three-hosts -- all_gather $F $S --hosts 3
    fault down-simple 1 h0:n1 NCCL_PROTO=Simple -- all_reduce $F $D --fault '1s:h0:n1 down'
    fault down-ll128 1 h1:n0 NCCL_PROTO=LL128 -- all_reduce $F $D --fault '1s:h1:n0 down'
    # before 2.28 the two channels that NCCL gives a pair of ranks are on one NIC; with four, every NIC of NCCL's rings carries
    fault blackhole-pairs 1 h1:n0 NCCL_NCHANNELS_PER_NET_PEER=4 -- alltoall $F $D --fault '1s:h1:n0 blackhole'
    fault fatal-ring 1 h0:n0 -- all_gather $F $D --fault '1s:h0:n0 fatal'
    fault two-in-a-row 2 h0:n0,h1:n1 -- reduce_scatter $F $D --fault '1s:h0:n0 down' --fault '2s:h1:n1 blackhole'
    theirs ib -- all_reduce $F $S
    resorts resort-host-memory 1 NCCL_NET_GDR_LEVEL=0 -- all_reduce $F $D --fault '1s:h1:* down'
    resorts resort-gpu 1 FABRIC_GPU=1 STANDIN_DMABUF=0 -- all_reduce $F $D --fault '1s:h1:* down'
    without resort-no-nics h1:n0,h1:n1,h1:n2,h1:n3 FABRIC_FAULT=h1:*,remove NCCL_R2_LAST_RESORT=lo -- all_reduce $F -b 1M -e 1M -n 4 --hosts 3
    dies all-nics-lost 'NET/R2' NCCL_R2_GIVE_UP=2000 -- all_reduce $F $D --duration 20s --fault '1s:h0:* down'
}
if [ -n "${NCCL_DEEP:-}" ]; then
    . tests/nccl/deep.sh
fi
table_end
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
