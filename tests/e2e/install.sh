#!/bin/sh
# make install, install-default and uninstall into an empty root: exactly what is promised, and nothing left behind.
#   install.sh [BUILD]     closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
. tests/check_lib.sh
mk() {
    make --no-print-directory -s B="$build" DESTDIR="$tmp/root" PREFIX=/usr "$@"
}
no() {
    ! "$@"
}
same() {
    [ "$(cat "$1")" = "$(cat "$2")" ] || diff "$1" "$2"
}
files() {
    (cd "$tmp/root" && find . ! -type d | sort) >"$tmp/$1"
}
lib=$tmp/root/usr/lib

check "install" mk install
files installed
check "the library" test -f "$lib/libnccl-net-r2.so"
check "its mode" test "$(stat -c %a "$lib/libnccl-net-r2.so")" = 755
check "no libnccl-net.so unless asked for" no test -e "$lib/libnccl-net.so"
# alone: without the build beside it, and by the installed plugin, whatever else the machine has
check "r2_perf, installed, brings up a fabric" env -u LD_LIBRARY_PATH -u NCCL_NET_PLUGIN NCCL_NET=R2 \
    timeout 120 "$tmp/root/usr/bin/r2_perf" all_reduce --nics 4 -b 64K -e 64K -n 2
check "no half written file" no grep '\.tmp' "$tmp/installed"
check "the loader's name is the file's" sh -c "readelf -d '$lib/libnccl-net-r2.so' | grep -q 'SONAME.*\[libnccl-net-r2.so\]'"

# a job that has the old file open keeps it: the new one is another inode
ino=$(stat -c %i "$lib/libnccl-net-r2.so")
exec 3<"$lib/libnccl-net-r2.so"
check "install again" mk install
check "replaced by rename" test "$(stat -c %i "$lib/libnccl-net-r2.so")" != "$ino"
exec 3<&-
files again
check "the same files" same "$tmp/installed" "$tmp/again"

check "install-default" mk install-default
check "libnccl-net.so is ours" test "$(readlink "$lib/libnccl-net.so")" = libnccl-net-r2.so
check "install-default again" mk install-default
mkdir "$tmp/links" && cp -P "$lib"/*.so "$tmp/links/"
check "ldconfig adds no name" sh -c "PATH=\$PATH:/sbin:/usr/sbin ldconfig -n '$tmp/links' && [ \$(ls '$tmp/links' | wc -l) = 2 ]"
check "uninstall" mk uninstall
files left
check "nothing is left" no test -s "$tmp/left"

# somebody else's plugin under NCCL's default name
mkdir -p "$lib"
echo stranger >"$lib/libnccl-net.so"
check "install-default refuses a stranger's file" no mk install-default
check "and leaves it" grep -q stranger "$lib/libnccl-net.so"
check "uninstall beside a stranger" mk uninstall
check "which stays" grep -q stranger "$lib/libnccl-net.so"
rm -f "$lib/libnccl-net.so"
ln -s libother.so "$lib/libnccl-net.so"
check "install-default refuses a stranger's dangling link" no mk install-default
check "and leaves the link" test "$(readlink "$lib/libnccl-net.so")" = libother.so

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
