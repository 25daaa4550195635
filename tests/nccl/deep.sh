# The rest of the matrix: sourced by check_nccl.sh with NCCL_DEEP=1.
# shellcheck shell=sh disable=SC2086,SC2154
OPS="all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall gather scatter"

# --- operations, protocols, types, sizes ---
for op in all_reduce reduce_scatter reduce; do
    for o in sum prod max min avg; do
        cell "$op-$o-all-types" -- $op $F -b 512K -e 512K -n 2 -o $o -d all
    done
done
for op in $OPS; do
    cell "$op-sizes" -- $op $F -b 4 -e 4M -f 16 -n 2
    cell "$op-odd" -- $op $F -b 1000003 -e 1000003 -n 3 -d uint8
    cell "$op-unaligned" -- $op $F -b 1M -e 1M -n 3 -u 3
    cell "$op-group" -- $op $F -b 256K -e 256K -n 3 -m 5
    cell "$op-registered" -- $op $F $S -R 1
    case $op in
    sendrecv | alltoall | gather | scatter) ;;
    *)
        for proto in Simple LL LL128; do
            cell "$op-Ring-$proto" NCCL_ALGO=Ring NCCL_PROTO=$proto -- $op $F -b 4 -e 1M -f 16 -n 3
        done
        ;;
    esac
done
for proto in Simple LL LL128; do
    cell "all_reduce-Tree-$proto" NCCL_ALGO=Tree NCCL_PROTO=$proto -- all_reduce $F -b 4 -e 1M -f 16 -n 3
done
for op in broadcast reduce gather scatter; do
    cell "$op-each-root" -- $op $F -b 1M -e 1M -n 2 -r -1 --hosts 3
done
cell "nothing-of-each-type" -- all_reduce $F -b 0 -e 0 -n 2 -d all
for op in all_reduce alltoall; do
    cell "$op-256M" -- $op $F -b 256M -e 256M -n 1
done
cell "blocking" -- all_reduce $F -b 1M -e 1M -n 4 -z 1

# --- shapes: ranks, hosts, GPUs, NICs, channels ---
for shape in "2 1" "3 1" "4 1" "2 2" "3 2" "4 2"; do
    for op in all_reduce all_gather alltoall; do
        cell "$op-$(echo "$shape" | tr ' ' x)" -- $op $F -b 1M -e 1M -n 2 --hosts ${shape% *} --ranks-per-host ${shape#* }
    done
done
for n in 1 2 3 4 5 6 7 8; do
    cell "nics-$n" -- all_reduce --nics $n --rate 100MB/s $S
done
cell "tree-4x2" NCCL_ALGO=Tree -- all_reduce $F -b 1M -e 1M -n 2 --hosts 4 --ranks-per-host 2
cell "channels-16" NCCL_MIN_NCHANNELS=16 -- all_reduce $F $S
cell "channels-16-3x2" NCCL_MIN_NCHANNELS=16 -- all_reduce $F $S --hosts 3 --ranks-per-host 2
cell "channels-1" NCCL_MAX_NCHANNELS=1 -- all_reduce $F $S
cell "rings-crossed" NCCL_CROSS_NIC=1 -- all_gather $F $S --hosts 3 --ranks-per-host 2
for op in alltoall sendrecv gather; do
    cell "pxn-$op" STANDIN_NVLINK=12 -- $op $F $S --ranks-per-host 2
    cell "no-pxn-$op" STANDIN_NVLINK=12 NCCL_PXN_DISABLE=1 -- $op $F $S --ranks-per-host 2
done
cell "pxn-4x2" STANDIN_NVLINK=12 -- alltoall $F -b 1M -e 1M -n 2 --hosts 4 --ranks-per-host 2

# --- memory ---
for op in all_reduce alltoall; do
    cell "$op-sm90" STANDIN_SM=90 -- $op $F $S
    cell "$op-by-address" STANDIN_DMABUF=0 -- $op $F $S
    cell "$op-host-memory" NCCL_NET_GDR_LEVEL=0 -- $op $F $S
    cell "$op-gpu" FABRIC_GPU=1 STANDIN_DMABUF=0 -- $op $F $S
    cell "$op-gpu-ll128" FABRIC_GPU=1 STANDIN_DMABUF=0 NCCL_PROTO=LL128 -- $op $F $S
    cell "$op-gpu-sm90" FABRIC_GPU=1 STANDIN_DMABUF=0 STANDIN_SM=90 -- $op $F $S
    cell "$op-gpu-registered" FABRIC_GPU=1 STANDIN_DMABUF=0 -- $op $F $S -R 1
done
cell "buffsize-64k" NCCL_BUFFSIZE=65536 -- all_reduce $F $S
cell "not-shared" NCCL_NET_SHARED_BUFFERS=0 -- alltoall $F $S

# --- NICs that are not there from the start ---
for what in down blackhole fatal remove call-error mr-fail; do
    without "from-start-$what" h0:n1 FABRIC_FAULT=h0:n1,$what -- all_reduce $F $S -n 20
done
without "from-start-gpu-dma-fail" h0:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 FABRIC_FAULT=h0:n1,gpu-dma-fail -- all_reduce $F $S -n 20
without "from-start-two" h0:n1,h1:n2 FABRIC_FAULT=h0:n1,down FABRIC_FAULT=h1:n2,down -- all_reduce $F $S -n 20
for proto in Simple LL LL128; do
    without "resort-no-nics-gpu-$proto" h1:n0,h1:n1,h1:n2,h1:n3 FABRIC_FAULT=h1:*,remove FABRIC_GPU=1 STANDIN_DMABUF=0 NCCL_PROTO=$proto NCCL_R2_LAST_RESORT=lo -- all_reduce $F -b 1M -e 1M -n 4 --hosts 3
done
without "resort-no-nics-alltoall" h1:n0,h1:n1,h1:n2,h1:n3 FABRIC_FAULT=h1:*,remove NCCL_R2_LAST_RESORT=lo -- alltoall $F -b 1M -e 1M -n 4 --hosts 3

# --- each kind of fault in the middle of each operation ---
# Rings of ranks with one GPU each use the two NICs beside it, 0 and 1: a fault of another one would be missed by nobody.
# A NIC whose link or device is gone carries nothing afterwards.
for op in $OPS; do
    for what in down blackhole blackhole-tx blackhole-rx hang fatal remove send-error unplug; do
        fault "$what-$op" 1 h1:n1 -- $op $F $D --fault "1s:h1:n1 $what"
    done
    fault "cut-$op" 1 h0:n1 -- $op $F $D --fault "1s:h0:n1 cut h1:n1"
    fault "cut-tx-$op" 1 h0:n1 -- $op $F $D --fault "1s:h0:n1 cut-tx h1:n1"
    fault "silent-death-$op" 2 h1:n0 -- $op $F $D --fault "500ms:h1:n0 silent-death" --fault "1s:h1:n0 fatal"
    # What a NIC gets over is tried again with automatic fail-back: here it stays out.
    for what in qp-error gid-change send-stuck; do
        fault "$what-$op" 1 h0:n1 NCCL_R2_FAILBACK=manual -- $op $F $D --fault "1s:h0:n1 $what"
    done
    fault "ack-lost-$op" 1 h1:n1 NCCL_R2_FAILBACK=manual -- $op $F $D --fault "1s:h1:n1 ack-lost"
    for what in "loss 1%" "corrupt 1%" "dup 1%" "delay 5ms" "rate 20MB/s" call-error mr-fail; do
        bears "$(echo "$what" | cut -d' ' -f1)-$op" 1 -- $op $F $D --fault "1s:h1:n1 $what"
    done
done
for algo in Ring Tree; do
    for proto in Simple LL LL128; do
        for what in down blackhole fatal; do
            fault "$what-$algo-$proto" 1 h1:n1 NCCL_ALGO=$algo NCCL_PROTO=$proto -- all_reduce $F $D --fault "1s:h1:n1 $what"
        done
    done
done
for provider in send-refused bnxt ionic mana mlx4; do
    for what in down fatal; do
        fault "$what-$provider" 1 h1:n1 FABRIC_FAULT=h1:n1,provider,$provider -- all_reduce $F $D --fault "1s:h1:n1 $what"
    done
done
fault "retry7-down" 1 h1:n1 FABRIC_FAULT=h1:n1,retry7-forever -- all_reduce $F $D --fault "1s:h1:n1 down"
fault "recv-kept-down" 1 h1:n1 FABRIC_FAULT=h1:n1,recv-kept -- all_reduce $F $D --fault "1s:h1:n1 down"
bears "mr-hang" 1 -- all_reduce $F $D --fault "1s:h1:n1 mr-hang"
fault "plane-cut" 1 h0:n1,h1:n1,h2:n1 -- all_reduce $F $D --hosts 3 --fault '1s:*:n1 cut *:n1'
for op in all_reduce alltoall; do
    fault "down-gpu-$op" 1 h0:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 -- $op $F $D --fault '1s:h0:n1 down'
    fault "down-gpu-sm90-$op" 1 h0:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 STANDIN_SM=90 -- $op $F $D --fault '1s:h0:n1 down'
    fault "fatal-gpu-$op" 1 h1:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 -- $op $F $D --fault '1s:h1:n1 fatal'
    fault "down-registered-$op" 1 h0:n1 -- $op $F $D -R 1 --fault '1s:h0:n1 down'
    fault "fatal-registered-$op" 1 h1:n1 -- $op $F $D -R 1 --fault '1s:h1:n1 fatal'
    fault "down-group-$op" 1 h0:n1 -- $op $F -b 512K -e 512K --duration 2s --placement out -m 4 --fault '1s:h0:n1 down'
    fault "down-4x2-$op" 1 h2:n1 -- $op $F $D --hosts 4 --ranks-per-host 2 --fault '1s:h2:n1 down'
done
fault "down-pxn" 1 h0:n1 STANDIN_NVLINK=12 -- alltoall $F $D --ranks-per-host 2 --fault '1s:h0:n1 down'
fault "fatal-pxn" 1 h0:n1 STANDIN_NVLINK=12 -- alltoall $F $D --ranks-per-host 2 --fault '1s:h0:n1 fatal'
for op in sendrecv gather; do
    fault "down-pxn-$op" 1 h0:n1 STANDIN_NVLINK=12 -- $op $F $D --ranks-per-host 2 --fault '1s:h0:n1 down'
done
fault "down-pxn-4x2" 1 h2:n1 STANDIN_NVLINK=12 -- alltoall $F $D --hosts 4 --ranks-per-host 2 --fault '1s:h2:n1 down'
# memory of the GPU that the NICs reach by the driver's copies; a NIC that no longer reaches it is left
for op in all_reduce alltoall; do
    for what in blackhole hang ack-lost qp-error gpu-dma-fail; do
        fault "$what-gpu-$op" 1 h1:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 NCCL_R2_FAILBACK=manual -- $op $F $D --fault "1s:h1:n1 $what"
    done
    fault "down-gpu-registered-$op" 1 h0:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 -- $op $F $D -R 1 --fault '1s:h0:n1 down'
    fault "down-gpu-ll128-$op" 1 h0:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 NCCL_PROTO=LL128 -- $op $F $D --fault '1s:h0:n1 down'
done
# sizes, types, channels; eight bytes go by one channel, over NIC 0
fault "down-small" 1 - -- all_reduce $F -b 8 -e 8 --duration 2s --placement out --fault '1s:h0:n0 down'
fault "down-odd" 1 h0:n1 -- all_gather $F -b 1000003 -e 1000003 -d uint8 --duration 2s --placement out --fault '1s:h0:n1 down'
fault "down-64M" 1 h0:n1 -- all_reduce $F -b 64M -e 64M --duration 2s --placement out --fault '1s:h0:n1 down'
fault "down-unaligned" 1 h0:n1 -- reduce_scatter $F $D -u 3 --fault '1s:h0:n1 down'
fault "down-bfloat16-avg" 1 h0:n1 -- all_reduce $F $D -d bfloat16 -o avg --fault '1s:h0:n1 down'
fault "down-in-place" 1 h0:n1 -- all_gather $F -b 4M -e 4M --duration 2s --placement in --fault '1s:h0:n1 down'
fault "down-channels-16" 1 h0:n1 NCCL_MIN_NCHANNELS=16 -- all_reduce $F $D --fault '1s:h0:n1 down'
# fabrics: writes that overtake each other, several ways between two NICs
fault "reorder-down" 1 h0:n1 FABRIC_UP=--reorder -- all_reduce $F $D --fault '1s:h0:n1 down'
fault "reorder-blackhole" 1 h1:n1 FABRIC_UP=--reorder -- alltoall $F $D --fault '1s:h1:n1 blackhole'
for what in blackhole down "loss 5%" "rate 20MB/s"; do
    bears "spine-${what%% *}" 1 FABRIC_UP=--spines FABRIC_UP=4 -- all_reduce $F $D --fault "1s:spine 1 $what"
done
bears "spine-blackhole-by-qp" 1 FABRIC_UP=--spines FABRIC_UP=4 FABRIC_UP=--hash FABRIC_UP=qp -- all_gather $F $D --fault '1s:spine 1 blackhole'

# --- several faults ---
for op in $OPS; do
    fault "three-in-a-row-$op" 3 h0:n0,h0:n1,h0:n2 -- $op $F $D \
        --fault '500ms:h0:n0 down' --fault '1s:h0:n1 blackhole' --fault '1500ms:h0:n2 fatal'
    fault "both-ends-$op" 2 h0:n1,h1:n1 -- $op $F $D --fault '1s:h0:n1 down' --fault '1s:h1:n1 down'
done
fault "both-ends-apart" 2 h0:n1,h1:n2 -- all_reduce $F $D --fault '1s:h0:n1 down' --fault '1s:h1:n2 blackhole'
for op in all_reduce alltoall; do
    fault "all-but-one-both-ends-$op" 6 h0:n0,h0:n1,h0:n2,h1:n0,h1:n1,h1:n2 -- $op $F $D --fault '500ms:h0:n0 down' --fault '700ms:h1:n1 blackhole' \
        --fault '900ms:h0:n2 fatal' --fault '1100ms:h1:n0 down' --fault '1300ms:h0:n1 down' --fault '1500ms:h1:n2 down'
    fault "three-in-a-row-gpu-$op" 3 h0:n0,h0:n1,h0:n2 FABRIC_GPU=1 STANDIN_DMABUF=0 -- $op $F $D \
        --fault '500ms:h0:n0 down' --fault '1s:h0:n1 blackhole' --fault '1500ms:h0:n2 fatal'
done
fault "one-of-two" 1 h0:n0 -- all_reduce --nics 2 --rate 100MB/s $D --fault '1s:h0:n0 down'
fault "seven-of-eight" 7 h0:n0,h0:n1,h0:n2,h0:n3,h0:n4,h0:n5,h0:n6 -- all_reduce --nics 8 --rate 100MB/s $D --fault '500ms:h0:n0 down' \
    --fault '600ms:h0:n1 down' --fault '700ms:h0:n2 down' --fault '800ms:h0:n3 down' --fault '900ms:h0:n4 down' --fault '1s:h0:n5 down' \
    --fault '1100ms:h0:n6 down'
fault "from-start-then-down" 1 h0:n0,h0:n1 FABRIC_FAULT=h0:n1,down -- all_reduce $F $D --fault '1s:h0:n0 down'
returns "fail-back-down" 2 h0:n0 NCCL_R2_T_RETURN=100 -- all_reduce $F $D --fault '1s:h0:n0 down' --fault '2s:h0:n0 up'
returns "fail-back-hang" 2 h0:n0 NCCL_R2_T_RETURN=100 -- all_reduce $F $D --fault '1s:h0:n0 hang' --fault '3s:h0:n0 unhang'
returns "fail-back-qp-error" 1 h0:n0 NCCL_R2_T_RETURN=100 -- all_reduce $F $D --fault '1s:h0:n0 qp-error'
for op in all_gather alltoall; do
    returns "fail-back-down-$op" 2 h0:n0 NCCL_R2_T_RETURN=100 -- $op $F $D --fault '1s:h0:n0 down' --fault '2s:h0:n0 up'
done
returns "fail-back-gpu" 2 h0:n0 NCCL_R2_T_RETURN=100 FABRIC_GPU=1 STANDIN_DMABUF=0 -- all_reduce $F $D --fault '1s:h0:n0 down' --fault '2s:h0:n0 up'
returns "fail-back-registered" 2 h0:n0 NCCL_R2_T_RETURN=100 -- all_gather $F $D -R 1 --fault '1s:h0:n0 down' --fault '2s:h0:n0 up'
returns "fail-back-cut" 2 h0:n0 NCCL_R2_T_RETURN=100 -- all_reduce $F $D --fault '1s:h0:n0 cut h1:n0' --fault '2s:h0:n0 heal h1:n0'
returns "fail-back-blackhole" 2 h0:n0 NCCL_R2_T_RETURN=100 -- all_reduce $F $D --fault '1s:h0:n0 blackhole' --fault '2s:h0:n0 restore'
returns "fail-back-send-error" 2 h0:n0 NCCL_R2_T_RETURN=100 -- all_reduce $F $D --fault '1s:h0:n0 send-error' --fault '2s:h0:n0 up'
drained "drain" fab1 h0:n1 -- all_reduce $F $D
drained "drain-alltoall" fab0 h0:n0 -- alltoall $F $D
drained "drain-gpu" fab1 h0:n1 FABRIC_GPU=1 STANDIN_DMABUF=0 -- all_reduce $F $D
drained "drain-registered" fab1 h0:n1 -- all_reduce $F $D -R 1
# --- no NIC of a host is left: TCP ---
GPU="FABRIC_GPU=1 STANDIN_DMABUF=0"
for op in sendrecv all_gather reduce_scatter alltoall broadcast reduce gather scatter; do
    resorts "resort-$op" 1 NCCL_NET_GDR_LEVEL=0 -- $op $F $D --fault '1s:h1:* down'
    resorts "resort-gpu-$op" 1 $GPU -- $op $F $D --fault '1s:h0:* down'
done
for algo in Ring Tree; do
    for proto in Simple LL LL128; do
        resorts "resort-$algo-$proto" 1 NCCL_ALGO=$algo NCCL_PROTO=$proto NCCL_NET_GDR_LEVEL=0 -- all_reduce $F $D --fault '1s:h1:* down'
        resorts "resort-gpu-$algo-$proto" 1 NCCL_ALGO=$algo NCCL_PROTO=$proto $GPU -- all_reduce $F $D --fault '1s:h1:* down'
    done
done
resorts "resort-gpu-dmabuf" 1 -- all_reduce $F $D --fault '1s:h1:* down'
resorts "resort-gpu-sm90" 1 $GPU STANDIN_SM=90 -- all_reduce $F $D --fault '1s:h1:* down'
for what in blackhole fatal; do
    resorts "resort-$what" 1 NCCL_NET_GDR_LEVEL=0 -- all_reduce $F $D --fault "1s:h1:* $what"
    resorts "resort-gpu-$what" 1 $GPU -- all_reduce $F $D --fault "1s:h1:* $what"
done
resorts "resort-registered" 1 -- all_gather $F $D -R 1 --fault '1s:h0:* down'
resorts "resort-gpu-registered" 1 $GPU -- all_gather $F $D -R 1 --fault '1s:h0:* down'
resorts "resort-three-hosts" 1 NCCL_NET_GDR_LEVEL=0 -- all_reduce $F $D --hosts 3 --fault '1s:h1:* down'
resorts "resort-gpu-three-hosts" 1 $GPU -- all_gather $F $D --hosts 3 --fault '1s:h1:* down'
resorts "resort-2x2" 1 NCCL_NET_GDR_LEVEL=0 -- all_reduce $F $D --ranks-per-host 2 --fault '1s:h1:* down'
resorts "resort-gpu-2x2" 1 $GPU -- alltoall $F $D --ranks-per-host 2 --fault '1s:h1:* down'
for op in all_reduce alltoall; do
    resorts "resort-back-$op" 2 NCCL_NET_GDR_LEVEL=0 -- $op --nics 1 --rate 100MB/s $D --fault '1s:h0:n0 down' --fault '4s:h0:n0 up'
    resorts "resort-back-gpu-$op" 2 $GPU -- $op --nics 1 --rate 100MB/s $D --fault '1s:h0:n0 down' --fault '4s:h0:n0 up'
done
resorts "resort-back-silent" 2 $GPU -- all_reduce $F $D --fault '1s:h1:* blackhole' --fault '5s:h1:* restore'
resorts "resort-back-gpu-ll128" 2 $GPU NCCL_PROTO=LL128 -- all_reduce $F $D --fault '1s:h1:* down' --fault '4s:h1:* up'
told "stall-told-fatal" 1 h1:n1 NCCL_PROTO=Simple -- all_reduce $F -b 32M -e 32M --duration 2s --placement out --fault '1s:h1:n1 fatal'
told "stall-told-hang" 1 h1:n1 NCCL_PROTO=Simple -- all_reduce $F -b 32M -e 32M --duration 2s --placement out --fault '1s:h1:n1 hang'
theirs "ib-crossrail" -- alltoall $F $S --ranks-per-host 2 --crossrail
