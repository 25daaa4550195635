#!/bin/sh
# Memory of a GPU behind the NICs of the software fabric (softfab up --gpu), with a stand-in for CUDA's driver: registered on every NIC, sent and
# received while a NIC goes down, flushed before it is read. Its addresses are none of the processes, so that only the driver's copies can have moved
# the bytes. Usage: gpu_memory.sh [BUILD_DIR]
cd "$(dirname "$0")/../.." || exit 1
fab=gpumem$$
. tests/e2e/gpu_lib.sh
# run ABI FAULT UP_OPTION...
run() {
    abi=$1
    export DRV_FAULT="$2" DRV_LOG=1
    shift 2
    gpu_case "$abi" "$@"
}
# sent NIC: bytes
sent() {
    "$B/softfab" status --name $fab | awk -v nic="$1" '$1 == nic { print $6 + 0; found = 1 } END { if (!found) print 0 }'
}
for abi in 8 12; do
    run $abi true --gpu
    result "v$abi: memory of a GPU" $?
    grep -q 'recv .* flushed by [1-9][0-9]* reads, 0 messages by another NIC' "$tmp/log"
    result "v$abi: the log says how often it was flushed" $?
    run $abi "$B/softfab fault --name $fab 'h0:n0 down'" --gpu
    result "v$abi: memory of a GPU, a NIC down in the middle" $?
    # 40 messages of 700 kB; half of them and more after the fault
    [ "$(sent h0:n1)" -gt 10000000 ] && [ "$(sent h0:n0)" -gt 10000000 ]
    result "v$abi: both NICs have carried some of it" $?
done
# A NIC that registers the GPU's memory and cannot reach it: not one message goes over it, at either end, and each process says so once.
for at in h0:n0 h1:n0; do
    fault_first="$at gpu-dma-fail"
    run 12 true --gpu
    result "memory of a GPU, $at does not reach it" $?
    [ "$(grep -c 'NIC fab0 registers memory of GPU 0 and does not reach it' "$tmp/log")" = 1 ]
    result "the log says it once" $?
    ! grep -q 'DOWN\|completion status' "$tmp/log"
    result "and no path fails over it" $?
    [ "$(sent h0:n1)" -gt 20000000 ] && [ "$(sent h0:n0)" -lt 1000000 ]
    result "the other NIC has carried all of it" $?
done
fault_first=
run 12 true
[ $? != 0 ] && grep -q 'the plugin says 5$' "$tmp/log"
result "a fabric without --gpu: the plugin says that its NICs do not reach it" $?
"$B/softfab" exec --name $fab --host 0 -- "$B/r2_config" --doctor >"$tmp/log" 2>&1
grep -q "^ok *GPU memory: NICs can reach it by DMA-BUF\$" "$tmp/log"
result "the doctor says so, too" $?
run 12 true --gpu
"$B/softfab" exec --name $fab --host 0 -- "$B/r2_config" --doctor >"$tmp/log" 2>&1
grep -q "^ok *GPU memory: NICs can reach it by a peer memory module and DMA-BUF\$" "$tmp/log"
result "the doctor sees that those of one with --gpu do" $?
# No NIC is left in the middle: the rest of it goes over TCP, by the driver's copies (docs/last-resort.md); it is flushed as before.
export NCCL_R2_LAST_RESORT=auto NCCL_IB_TIMEOUT=20 NCCL_R2_GIVE_UP=10000
for fault in down blackhole; do
    run 12 "$B/softfab fault --name $fab 'h0:* $fault'" --gpu
    result "memory of a GPU over TCP: $fault" $?
    grep -q 'switch: .* to tcp0' "$tmp/log" && grep -q 'recv .* flushed by [1-9][0-9]* reads' "$tmp/log"
    result "the log says so, and that it was flushed: $fault" $?
done
export NCCL_R2_LAST_RESORT=off NCCL_R2_GIVE_UP=1000
run 12 "$B/softfab fault --name $fab 'h0:* down'" --gpu
[ $? != 0 ] && grep -q 'no path left for 1000 ms' "$tmp/log"
result "without the last resort the connection ends" $?
unset NCCL_R2_LAST_RESORT NCCL_IB_TIMEOUT NCCL_R2_GIVE_UP
echo "$passed passed, $failed failed"
[ $failed = 0 ]
