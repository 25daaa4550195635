# The matrix on the GPUs of this machine, over the software fabric: what a cell takes there, and which cells cannot be. Sourced by check_nccl.sh with STANDIN=off.
# shellcheck shell=sh disable=SC2154

# Bus addresses that NICs and bridges of topo.xml have: a GPU at one of them would be taken for it.
gpu_places_taken=$(sed -n 's/.*<pci busid="\([^"]*\)" class="0x0[62][07].*/\1/p' tests/nccl/topo.xml)

# The GPUs take the places that the stand-in's have, so that each cell uses the NICs that it uses there. Threads run on all processors: those of topo.xml have one each.
gpu_topology_write() { # FIRST SECOND, which may be none
    sed -e "s/busid=\"0000:05:00.0\"/busid=\"GPU0\"/" -e "s/busid=\"0000:95:00.0\"/busid=\"GPU1\"/" -e 's/ affinity="[0-9a-f]*"/ affinity="ffffffff,ffffffff"/' \
        -e "s/GPU0/$1/" -e "${2:+s/GPU1/$2/}" tests/nccl/topo.xml | sed '/GPU1/d'
}
# Ends the script where there is no GPU, or one in the place of a NIC.
gpu_begin() {
    if ! "$B/nccl-standin/gpus" >"$T/gpus" 2>&1; then
        echo "no GPU: $(tail -n 1 "$T/gpus")"
        exit 77
    fi
    gpus=$(grep -c . "$T/gpus")
    gpu_sm=$(awk 'NR == 1 { print $2 }' "$T/gpus")
    gpu_name="$gpus GPU: $(sed -n '1s/^[^ ]* [^ ]* //p' "$T/gpus")"
    first=$(awk 'NR == 1 { print $1 }' "$T/gpus") second=$(awk 'NR == 2 { print $1 }' "$T/gpus")
    for place in $gpu_places_taken; do
        case $first,$second in *"$place"*)
            echo "the GPU at $place is where topo.xml has a NIC or a bridge: CUDA_VISIBLE_DEVICES without it"
            exit 77
            ;;
        esac
    done
    gpu_topology_write "$first" "$second" >"$T/topo.xml"
    # Hosts that share a GPU are to find each other by the network alone, and the fabric maps DMA-BUFs of host memory only.
    export NCCL_TOPO_FILE="$T/topo.xml" NCCL_DMABUF_ENABLE=0 NCCL_MNNVL_ENABLE=0 NCCL_MULTI_RANK_GPU_ENABLE=1
}
# gpu_lacks ARGUMENTS OF A CELL: why it cannot be here; nothing if it can. Settings of the stand-in stand for GPUs that are none.
gpu_lacks() {
    case " $* " in
    *" NCCL_NET=IB "*)
        echo "NCCL's IB transport wants a /sys with the fabric's NICs, where the GPU's is not"
        return
        ;;
    *" STANDIN_SM=90 "*)
        [ "$gpu_sm" -ge 90 ] || echo "the GPU's compute capability is $gpu_sm, not 90"
        ;;
    esac
    case " $* " in
    *" FABRIC_GPU=1 "*) ;;
    *" STANDIN_DMABUF=0 "*) echo "the fabric reaches memory of a GPU by copies of the driver's alone (the cells with FABRIC_GPU=1)" ;;
    esac
    ranks=$(printf '%s\n' "$@" | sed -n '/^--ranks-per-host$/{n;p;}')
    if [ "${ranks:-1}" -gt "$gpus" ] && [ "$(nccl_version)" -lt 23000 ]; then
        echo "$ranks ranks of a host want as many GPUs, and there is $gpus: NCCL before 2.30 refuses two on one (Duplicate GPU detected)"
    fi
}
# gpu_settings SETTINGS: what takes their place. Memory of the GPU is sent and received where the fabric reaches it; NCCL does not flush from compute
# capability 9.0 on unless told to.
gpu_settings() {
    out='' flush=NCCL_NET_FORCE_FLUSH=1
    for s in "$@"; do
        case $s in
        STANDIN_SM=90) flush='' ;;
        STANDIN_*) ;;
        *) out="$out $s" ;;
        esac
    done
    case " $* " in *" FABRIC_GPU=1 "*) out="$out NCCL_NET_GDR_LEVEL=SYS $flush" ;; esac
    echo "$out"
}
