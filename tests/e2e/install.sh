#!/bin/sh
# make install, install-default and uninstall into an empty root: exactly what is promised, and nothing left behind.
#   install.sh [BUILD]     closes with "N passed, N failed, N skipped"
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
. tests/check_lib.sh
skipped=0
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

# The modulefile, as environment modules would read it, with commands that print what they are told.
cat >"$tmp/module.tcl" <<'END'
foreach command {setenv unsetenv prepend-path append-path module-whatis conflict} {
    proc $command args "puts \[concat $command \$args\]"
}
source [lindex $argv 0]
puts -nonewline "help: "
rename puts say
proc puts {channel text} { say $text }
ModulesHelp
END
# module PREFIX: what it says goes to $tmp/module
module() {
    file=$tmp/root$1/share/nccl-net-r2/modulefiles/nccl-net-r2
    tclsh "$tmp/module.tcl" "$file" >"$tmp/module" && cat "$tmp/module"
}
says() {
    cat "$tmp/module"
    grep -qxF -e "$1" "$tmp/module"
}
file=$tmp/root/usr/share/nccl-net-r2/modulefiles/nccl-net-r2
check "modulefile: by its first line it is one" sh -c "head -1 '$file' | grep -q '^#%Module'"
check "modulefile: whole" no grep @ "$file"
if command -v tclsh >/dev/null; then
    check "modulefile" module /usr
    check "modulefile: the plugin that was installed" says "setenv NCCL_NET_PLUGIN /usr/lib/libnccl-net-r2.so"
    check "modulefile: or an error" says "setenv NCCL_NET R2"
    check "modulefile: for each communicator" says "setenv NCCL_NET_PLUGIN_REF_COUNT 1"
    check "modulefile: its version" says "module-whatis {nccl-net-r2 $(cat VERSION): NCCL network plugin that survives the loss of NICs}"
    check "modulefile: help" grep -q "^help: nccl-net-r2 $(cat VERSION): NCCL takes /usr/lib/libnccl-net-r2.so" "$tmp/module"
    check "modulefile: /usr/bin is in PATH anyway" no grep PATH "$tmp/module"
    check "install elsewhere" mk install PREFIX=/opt/r2 LIBDIR=/opt/r2/lib64
    check "modulefile elsewhere" module /opt/r2
    check "modulefile elsewhere: the plugin" says "setenv NCCL_NET_PLUGIN /opt/r2/lib64/libnccl-net-r2.so"
    check "modulefile elsewhere: which is there" test -f "$tmp/root/opt/r2/lib64/libnccl-net-r2.so"
    check "modulefile elsewhere: the tools" says "prepend-path PATH /opt/r2/bin"
    check "uninstall elsewhere" mk uninstall PREFIX=/opt/r2 LIBDIR=/opt/r2/lib64
else
    skipped=12
    echo "SKIP what the modulefile does: tclsh is not here (sh tools/install-deps.sh ci)"
fi

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

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
