#!/bin/sh
# Whether standin/nccl_layout.h is what a libnccl.so.2 was built with: layout.sh BUILD [LIBRARY]. Wants gdb and a library with debug information.
cd "$(dirname "$0")/../.." || exit 1
B=${1:-build} lib=${2:-${NCCL_LIB:-}}
if [ ! -x "$B/nccl-standin/release" ]; then
    echo "no CUDA toolkit with nccl.h when this was built"
    exit 77
fi
if ! command -v gdb >/dev/null; then
    echo "no gdb"
    exit 77
fi
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
if [ -z "$lib" ]; then
    lib=$("$B/nccl-standin/release" --file)
fi
if ! release=$("$B/nccl-standin/release" "$lib" 2>"$T/why"); then
    cat "$T/why"
    exit 77
fi
"$B/nccl-standin/$release/layout" >"$T/both"
cut -f1 "$T/both" >"$T/gdb"
cut -f2 "$T/both" >"$T/ours"
gdb -batch -nx -x "$T/gdb" "$lib" 2>/dev/null | sed -n 's/^\$[0-9]* = //p' >"$T/theirs"
if [ ! -s "$T/theirs" ]; then
    echo "$lib has no debug information"
    exit 77
fi
paste "$T/both" "$T/theirs" | awk -F'\t' '$2 != $3 { print "FAIL " $0 }'
passed=$(paste "$T/ours" "$T/theirs" | awk '$1 == $2' | wc -l)
failed=$(($(wc -l <"$T/both") - passed))
echo "$lib, layouts $release"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
