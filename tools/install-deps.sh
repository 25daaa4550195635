#!/bin/sh
# Installs what the build and the tests need from Debian's or Ubuntu's packages, if anything is missing. Root is used for apt alone.
#   install-deps.sh build|check|lab|ci
set -eu
what=${1:-check}
build="gcc libc6-dev make libibverbs-dev"
check="check libsubunit-dev libjansson-dev ibverbs-utils perftest ibverbs-providers jq binutils procps iproute2 spin"
lab="qemu-system-x86 busybox-static rdma-core ibverbs-utils ibverbs-providers perftest iproute2 libjansson-dev xz-utils zstd procps"
ci="clang clang-format libclang-rt-14-dev valgrind librsvg2-bin openmpi-bin libopenmpi-dev libhwloc-dev"
case $what in
build) list=$build ;;
check) list="$build $check" ;;
lab) list="$build $lab" ;;
ci) list="$build $check $ci" ;;
*)
    echo "usage: install-deps.sh build|check|lab|ci" >&2
    exit 2
    ;;
esac
missing=
for p in $list; do
    s=$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || true)
    case $s in
    "install ok installed") ;;
    *) missing="$missing $p" ;;
    esac
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-deps: this is no Debian or Ubuntu; please install:$missing" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1; then
    sudo=sudo
else
    echo "install-deps: missing:$missing; run as root: apt-get install$missing" >&2
    exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
