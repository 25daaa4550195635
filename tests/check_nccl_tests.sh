#!/bin/sh
# nccl-tests-patches against sources of nccl-tests, where there are some: NCCL_TESTS=DIR, a git clone with its tags. Where nvcc and NCCL's header are, the
# patched file is compiled, too.
# Usage: check_nccl_tests.sh [BUILD_DIR]; closes with "N passed, N failed[, N skipped]"
cd "$(dirname "$0")/.." || exit 1
P=nccl-tests-patches
passed=0 failed=0 skipped=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ok() {
    passed=$((passed + 1))
    echo "ok     $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAILED $1"
}
skip() { # NAME WHY
    skipped=$((skipped + 1))
    echo "SKIP $1: $2"
}
expect() { # NAME COMMAND...
    name=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then ok "$name"; else
        bad "$name"
        sed 's/^/    | /' "$tmp/log"
    fi
}
refuses() { # WORD COMMAND...: the command fails and says WORD
    word=$1
    shift
    if "$@" >"$tmp/said" 2>&1; then
        echo "it did not fail: $*"
        return 1
    fi
    cat "$tmp/said"
    grep -q "$word" "$tmp/said"
}
only_added() { # each line of the patch is one of ours
    ! sed 1,4d "$1" | grep -vE '^(@@ -[0-9]+,0 \+[0-9]+(,[0-9]+)? @@$|\+)'
}
applied() { # TREE TAG: without our lines and files it is the release
    git -C "$1" diff --numstat "$2" -- . | awk '$2 != 0 { bad = 1 } { n++ } END { exit bad || n < 1 }' &&
        grep -q r2_fault_report "$1/src/common.cu" && cmp "$P/r2_fault.h" "$1/src/r2_fault.h" && cmp "$P/r2_fault_bench.h" "$1/src/r2_fault_bench.h"
}
# The one file that is patched, by nccl-tests' own rules, for one GPU
compiled() { # TREE
    MAKEFLAGS='' MFLAGS='' make -C "$1/src" BUILDDIR="$1/build" NVCC="$nvcc" CUDA_HOME="$cuda" NCCL_HOME="$nccl" \
        NVCC_GENCODE=-gencode=arch=compute_80,code=sm_80 "$1/build/common.o"
}
. tests/gpu/nccl_tests.sh
tools_find
compiler=
[ -z "$nvcc" ] || ! echo '#include <nccl.h>' | "$nvcc" ${nccl:+"-I$nccl/include"} -x cu -E - >/dev/null 2>&1 || compiler=$nvcc

mkdir -p "$tmp/other/src"
echo 'int main(void);' >"$tmp/other/src/common.cu"
expect "another file is refused" refuses 'none of these releases' sh $P/apply.sh "$tmp/other"
expect "a folder without nccl-tests is refused" refuses usage: sh $P/apply.sh "$tmp"
for p in "$P"/v*.patch; do
    tag=$(basename "$p" .patch)
    expect "$tag: nothing but lines of ours" only_added "$p"
    if [ -z "${NCCL_TESTS:-}" ]; then
        skip "$tag applied" "NCCL_TESTS names no clone of nccl-tests"
        continue
    fi
    expect "$tag: is there" git -c advice.detachedHead=false clone -q --branch "$tag" "$NCCL_TESTS" "$tmp/$tag"
    expect "$tag: as mails" sh $P/apply.sh --mbox "$tmp/$tag.mbox" "$tmp/$tag"
    expect "$tag: applies" sh $P/apply.sh "$tmp/$tag"
    expect "$tag: adds, changes nothing" applied "$tmp/$tag" "$tag"
    expect "$tag: not twice" refuses 'changed already' sh $P/apply.sh "$tmp/$tag"
    git -C "$tmp/$tag" stash -qu
    expect "$tag: git am" git -C "$tmp/$tag" -c user.name=t -c user.email=t@localhost am -q "$tmp/$tag.mbox"
    expect "$tag: git am gives the same" applied "$tmp/$tag" "$tag"
    if [ -n "$compiler" ]; then
        expect "$tag: compiles" compiled "$tmp/$tag"
    else
        skip "$tag compiled" "there is no nvcc that finds NCCL's header"
    fi
done
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ]
