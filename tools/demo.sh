#!/bin/sh
# make demo: all_reduce over a software fabric of 2 hosts x 4 NICs, one NIC taken down in the middle.
set -eu
B=${1:-build}
OUT=$B/demo
mkdir -p "$OUT"
rm -f "$OUT/demo.json" "$OUT/demo.svg"
echo "# all_reduce over libnccl-net-r2.so: 2 hosts x 4 NICs of 20 MB/s; after 2 s the second NIC of host 0 goes down"
NCCL_NET_PLUGIN=${NCCL_NET_PLUGIN:-$B/libnccl-net-r2.so} NCCL_DEBUG=${NCCL_DEBUG:-WARN} \
    "$B/r2_perf" all_reduce -b 4M -e 4M -w 1 -c 1 --placement out --duration 5s \
    --hosts 2 --nics 4 --rate 20MB/s --latency 20us \
    --buffsize 256K --fault '2s:h0:n1 down' --json "$OUT/demo.json" --plot "$OUT/demo.svg"
echo "# plot: $OUT/demo.svg   figures: $OUT/demo.json"
