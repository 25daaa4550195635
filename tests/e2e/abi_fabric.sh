#!/bin/sh
# The plugin through its tables, in two processes on two hosts of the software fabric: every rule of NCCL's that is easy to break, for each
# version of the net ABI, and a NIC that goes down under a collective. ABI="8 12" chooses versions.
# Usage: abi_fabric.sh [BUILD_DIR [CASE...]]
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
[ $# -gt 0 ] && shift
DRIVER=$B/tests/abi/abi_driver
for f in "$DRIVER" "$B/softfab" "$B/r2_perf" "$B/softfab-lib/libibverbs.so.1" "$B/libnccl-net-r2.so"; do
    if [ ! -e "$f" ]; then
        echo "$f is not built"
        exit 1
    fi
done
# nothing of the caller's settings may decide what is tested
for v in $(env | sed -n 's/^\(NCCL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$v"
done
NAME=abi$$
TMP=$(mktemp -d) || exit 1
trap '"$B/softfab" down --name $NAME >/dev/null 2>&1; rm -rf "$TMP"' EXIT
trap 'exit 1' INT TERM
"$B/softfab" up --name $NAME --hosts 2 --nics 4 >/dev/null || exit 1
passed=0
failed=0
skipped=0

# two processes with a buffer of a gibibyte each, and the rest of the system; it takes long, so not with every version
avail=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
gibibyte="8 12"
if [ $# = 0 ] && [ "${avail:-0}" -lt 3072 ]; then
    echo "SKIP gibibyte: $avail MiB of memory are available, it needs 3072"
    gibibyte=
    skipped=2
fi

for abi in ${ABI:-8 9 10 11 12}; do
    echo "net ABI v$abi:"
    without=
    case " $gibibyte " in *" $abi "*) ;; *) [ $# = 0 ] && without="--without gibibyte" ;; esac
    # shellcheck disable=SC2086
    "$DRIVER" --plugin "$B/libnccl-net-r2.so" --abi "$abi" --softfab "$B/softfab" --fabric $NAME $without "$@" 2>&1 | tee "$TMP/log"
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$TMP/log" | tail -1)
    if [ -z "$counts" ]; then
        echo "FAIL the driver of v$abi came to no end"
        counts="0 1"
    fi
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
    [ $# = 0 ] || continue
    # r2_perf ends well only if every element was right and both faults were done
    if timeout 120 "$B/r2_perf" all_reduce --abi "$abi" --fabric $NAME -b 1M -e 1M --placement out --duration 1s --after 300ms \
        --fault '200ms:h0:n1 down' --fault '600ms:h0:n1 up' --json "$TMP/$abi.json" >"$TMP/log" 2>&1 &&
        grep -q "\"plugin_abi\":$abi," "$TMP/$abi.json"; then
        passed=$((passed + 1))
    else
        echo "FAIL all_reduce over v$abi while a NIC goes down:"
        sed 's/^/    /' "$TMP/log"
        failed=$((failed + 1))
    fi
done
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ]
