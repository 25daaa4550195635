#!/bin/sh
# Sending by way of a bounce buffer (NCCL_R2_RELAY), with a stand-in for CUDA's driver, on a host whose second NIC is on the other socket than the GPU: from when the
# first NIC is down what is sent is copied before, to memory of the host or of the GPU on that side. All bytes are compared. Usage: relay.sh [BUILD_DIR]
cd "$(dirname "$0")/../.." || exit 1
fab=relay$$
. tests/e2e/gpu_lib.sh
cat >"$tmp/two.machine" <<'END'
cpu GenuineIntel 6 143
node 0 socket 0
node 1 socket 1
links nvlink * * 3600000
root 0000:15 node=0
  bridge 0000:15:01.0 link=32x16
    bridge 0000:16:00.0 link=32x16
      bridge 0000:17:00.0 link=32x16
        nic 0000:18:00.0 link=32x16 name=fab0 guid=a088:c203:0001:0000 rate=400
      bridge 0000:17:01.0 link=32x16
        gpu 0000:3b:00.0 link=32x16 max=32x16 id=10de:2330
root 0000:97 node=1
  bridge 0000:97:01.0 link=32x16
    bridge 0000:98:00.0 link=32x16
      bridge 0000:99:00.0 link=32x16
        nic 0000:9a:00.0 link=32x16 name=fab1 guid=a088:c203:0002:0000 rate=400
      bridge 0000:99:01.0 link=32x16
        gpu 0000:3c:00.0 link=32x16 max=32x16 id=10de:2330
END
mkdir "$tmp/two" && "$B/topo_make" "$tmp/two.machine" "$tmp/two" || exit 1

# run RELAY FAULT: 40 messages of 700 kB; the fault comes with the 20th. How many parts were copied goes into $copies.
run() {
    rm -f "$tmp/count"
    export FAKE_CUDA_GPUS=2 NCCL_R2_RELAY="$1" NCCL_R2_TOPO="$tmp/two" FAKE_CUDA_COUNT="$tmp/count" DRV_LOG=1 DRV_FAULT="$2"
    gpu_case 12 --gpu
    rc=$?
    copies=$(awk '{ n += $1 } END { print n + 0 }' "$tmp/count")
    return $rc
}
down="$B/softfab fault --name $fab 'h0:n0 down'"
run off "$down"
result "off: the other NIC sends from the GPU's memory" $?
[ "$copies" = 0 ] && ! grep -q 'bounce buffer' "$tmp/log"
result "off: nothing is copied" $?
NCCL_R2_WATCHDOG=off # a machine without a free core is no failure
export NCCL_R2_WATCHDOG
run host true
result "host: the near NIC" $?
[ "$copies" = 0 ] && grep -q 'NIC fab1: 16 MiB of bounce buffer of host' "$tmp/log"
result "host: there is bounce buffer for the far one, and nothing is copied while the near one carries" $?
unset NCCL_R2_WATCHDOG
run host "$down"
result "host: by way of the host over the far NIC" $?
[ "$copies" -ge 15 ] && [ "$copies" -le 45 ] # 20 messages or so, perhaps in two parts
result "host: what it sends is copied before ($copies parts)" $?
run gpu "$down"
result "gpu: by way of the GPU beside the far NIC" $?
[ "$copies" -ge 15 ] && grep -q 'NIC fab1: 16 MiB of bounce buffer of GPU 1' "$tmp/log"
result "gpu: what the far NIC sends is copied there before ($copies parts)" $?
NCCL_R2_RELAY_MEMORY=4
export NCCL_R2_RELAY_MEMORY
run host "$down"
result "memory: messages larger than a ring" $?
[ "$copies" -ge 30 ] && grep -q '4 MiB of bounce buffer' "$tmp/log" # two parts each
result "memory: in parts that it takes ($copies)" $?
unset NCCL_R2_RELAY_MEMORY
# A driver that cannot be opened: said, and everything else is as without.
mkdir "$tmp/broken" && : >"$tmp/broken/libcuda.so.1"
LD_LIBRARY_PATH="$tmp/broken" NCCL_R2_RELAY=host NCCL_DEBUG=INFO NCCL_NET_PLUGIN="$B/libnccl-net-r2.so" "$B/r2_perf" sendrecv --hosts 2 --nics 2 --softfab "$B/softfab" \
    -b 64K -e 64K -n 5 >"$tmp/log" 2>&1 && grep -q '^# Out of bounds values : 0 OK' "$tmp/log"
result "no driver: messages go as without" $?
grep -q 'NCCL_R2_RELAY has no effect: .*libcuda.so.1' "$tmp/log"
result "no driver: it is said" $?
echo "$passed passed, $failed failed"
[ $failed = 0 ]
