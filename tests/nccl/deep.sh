# The rest of the matrix: sourced by check_nccl.sh with NCCL_DEEP=1.
# shellcheck shell=sh disable=SC2086
for op in all_reduce reduce_scatter reduce; do
    for o in sum prod max min avg; do
        cell "$op-$o" -- $op $F -b 512K -e 512K -n 2 -o $o -d all
    done
done
for algo in Ring Tree; do
    for proto in Simple LL LL128; do
        cell "all_reduce-$algo-$proto" NCCL_ALGO=$algo NCCL_PROTO=$proto -- all_reduce $F -b 4 -e 1M -f 16 -n 3
        fault "down-$algo-$proto" 1 NCCL_ALGO=$algo NCCL_PROTO=$proto -- all_reduce $F $D --fault '1s:h0:n1 down'
        fault "blackhole-$algo-$proto" 1 NCCL_ALGO=$algo NCCL_PROTO=$proto -- all_reduce $F $D --fault '1s:h1:n0 blackhole'
    done
done
for op in all_gather reduce_scatter broadcast reduce sendrecv alltoall; do
    for what in down blackhole fatal remove hang ack-lost; do
        fault "$what-$op" 1 -- $op $F $D --fault "1s:h1:n1 $what"
    done
done
for n in 1 2 8; do
    cell "nics-$n" -- all_reduce --nics $n --rate 100MB/s $S
done
cell "large" -- all_reduce $F -b 256M -e 256M -n 1
cell "odd" -- all_reduce $F -b 1000003 -e 1000003 -n 3 -d uint8
cell "unaligned" -- all_reduce $F $S -u 1
cell "three-hosts-two-gpus" -- all_reduce $F $S --hosts 3 --ranks-per-host 2
cell "pxn" STANDIN_NVLINK=12 -- alltoall $F $S --ranks-per-host 2
cell "sm90" STANDIN_SM=90 -- all_reduce $F $S
cell "by-address" STANDIN_DMABUF=0 -- all_reduce $F $S
cell "host-memory" NCCL_NET_GDR_LEVEL=0 -- all_reduce $F $S
cell "channels-16" NCCL_MIN_NCHANNELS=16 -- all_reduce $F $S
cell "buffsize-64k" NCCL_BUFFSIZE=65536 -- all_reduce $F $S
cell "not-shared" NCCL_NET_SHARED_BUFFERS=0 -- alltoall $F $S
fault "three-in-a-row" 3 -- all_reduce $F -b 4M -e 4M --duration 6s --placement out \
    --fault '1s:h0:n0 down' --fault '2s:h0:n1 down' --fault '3s:h0:n2 down'
fault "both-ends" 2 -- all_reduce $F $D --fault '1s:h0:n1 down' --fault '1s:h1:n1 down'
fault "fail-back" 2 -- all_reduce $F -b 4M -e 4M --duration 7s --placement out --fault '1s:h0:n0 down' --fault '2s:h0:n0 up'
