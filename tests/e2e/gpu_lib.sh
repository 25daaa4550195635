# What the scripts about GPU memory over the software fabric share: a folder and a fabric of their own, no option of whoever calls, counted results. To be
# read in from the repository's root, with the build folder in $1 and a name for the fabric in $fab. Sets $B, $tmp.
B=$(cd "${1:-build}" && pwd) || exit 1
tmp=$(mktemp -d) || exit 1
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
passed=0 failed=0
result() { # NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok     $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        tail -25 "$tmp/log" | sed 's/^/    | /'
    fi
}
# gpu_case ABI UP_OPTION...: memory of a GPU of the stand-in, sent and received, on a new fabric; $fault_first is there from the start, $DRV_FAULT is run in the middle
gpu_case() {
    abi=$1
    shift
    "$B/softfab" down --name "$fab" >/dev/null 2>&1
    "$B/softfab" up --name "$fab" --hosts 2 --nics 2 "$@" >/dev/null || exit 1
    [ -z "${fault_first:-}" ] || "$B/softfab" fault --name "$fab" "$fault_first" >/dev/null || exit 1
    LD_LIBRARY_PATH=${cuda-$B/gpu-fake/cuda} "$B/tests/abi/abi_driver" --plugin "$B/libnccl-net-r2.so" --abi "$abi" --softfab "$B/softfab" --fabric "$fab" \
        gpu_memory >"$tmp/log" 2>&1
}
