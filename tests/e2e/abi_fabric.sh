#!/bin/sh
# The plugin through its v8 table, in two processes on two hosts of the software fabric: every rule of NCCL's that is easy to break.
# Usage: abi_fabric.sh [BUILD_DIR [CASE...]]
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build}
[ $# -gt 0 ] && shift
DRIVER=$B/tests/abi/abi_driver
for f in "$DRIVER" "$B/softfab" "$B/softfab-lib/libibverbs.so.1" "$B/libnccl-net-r2.so"; do
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
trap '"$B/softfab" down --name $NAME >/dev/null 2>&1' EXIT
trap 'exit 1' INT TERM
"$B/softfab" up --name $NAME --hosts 2 --nics 4 >/dev/null || exit 1

# two processes with a buffer of a gibibyte each, and the rest of the system
without=
avail=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
if [ $# = 0 ] && [ "${avail:-0}" -lt 3072 ]; then
    echo "SKIP gibibyte: $avail MiB of memory are available, it needs 3072"
    without="--without gibibyte"
fi
# shellcheck disable=SC2086
"$DRIVER" --plugin "$B/libnccl-net-r2.so" --softfab "$B/softfab" --fabric $NAME $without "$@"
