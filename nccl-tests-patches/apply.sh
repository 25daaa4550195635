#!/bin/sh
# Puts faults and checked iterations into a source tree of nccl-tests.
#   apply.sh DIR                 changes DIR
#   apply.sh --mbox FILE DIR     leaves DIR, a git checkout, as it is, and writes the same as two mails for `git am` in it
# The patches are lines of ours alone, without context: they hold for exactly the file that they were made for, which is looked at first.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mbox=
if [ "${1:-}" = --mbox ] && [ $# = 3 ]; then
    mbox=$2
    shift 2
fi
if [ $# != 1 ] || [ ! -f "$1/src/common.cu" ]; then
    echo "usage: apply.sh [--mbox FILE] DIR    DIR: the sources of nccl-tests" >&2
    exit 2
fi
dir=$1
id=$(git hash-object --no-filters "$dir/src/common.cu")
patch=
for p in "$here"/v*.patch; do
    if grep -q "^index $id\\.\\." "$p"; then
        patch=$p
    fi
done
if [ -z "$patch" ]; then
    echo "$dir/src/common.cu is that of none of these releases, or is changed already:" "$(cd "$here" && echo v*.patch)" >&2
    exit 1
fi
release=$(basename "$patch" .patch)
put() {
    cp "$here"/r2_fault.h "$here"/r2_fault_report.h "$here"/r2_fault_bench.h "$1/src/"
}
hook() {
    # the ceiling: git looks for no repository around a plain tree, which it would take paths from
    (cd "$1" && GIT_CEILING_DIRECTORIES=$(dirname "$(pwd)") git apply --unidiff-zero "$patch")
}
if [ -z "$mbox" ]; then
    put "$dir"
    hook "$dir"
    echo "$dir: nccl-tests $release with --fault"
    exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git clone -q --no-hardlinks "$dir" "$tmp/t"
if [ "$(git hash-object --no-filters "$tmp/t/src/common.cu")" != "$id" ]; then
    echo "$dir/src/common.cu is not the one of its HEAD" >&2
    exit 1
fi
commit() {
    git -C "$tmp/t" add -A
    git -C "$tmp/t" -c user.name=nccl-net-r2 -c user.email=nccl-net-r2@localhost commit -q -m "$1"
}
put "$tmp/t"
commit "Faults in the middle of a measurement, times of each iteration"
hook "$tmp/t"
commit "Options --fault, --fault_after, --fault_json"
git -C "$tmp/t" format-patch -q -2 --stdout >"$tmp/mbox"
mv "$tmp/mbox" "$mbox"
echo "$mbox: for git am in nccl-tests $release"
