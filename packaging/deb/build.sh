#!/bin/sh
# The Debian packages of what BUILD has, into BUILD/deb.
#   build.sh BUILD
set -eu
cd "$(dirname "$0")/../.."
R2_SOURCE=$PWD
R2_BUILD=$(cd "$1" && pwd)
export R2_SOURCE R2_BUILD
version=$(cat VERSION)
out=$R2_BUILD/deb
rm -rf "$out"
mkdir -p "$out/tree/debian"
cp packaging/deb/* "$out/tree/debian/"
cd "$out/tree"
rm debian/build.sh

sh "$R2_SOURCE/packaging/pages.sh" "$R2_BUILD" "$out/tree/debian"
cat >debian/changelog <<END
nccl-net-r2 ($version) unstable; urgency=medium

  * What is new: /usr/share/doc/nccl-net-r2/NEWS.md of the package nccl-net-r2.

 -- The nccl-net-r2 maintainers <maintainers@nccl-net-r2.invalid>  $(date -u -R -r "$R2_SOURCE/NEWS.md")
END
dpkg-buildpackage --build=binary --no-sign >"$out/log" 2>&1 || {
    tail -30 "$out/log" >&2
    exit 1
}
cd "$out"
rm -rf tree ./*.buildinfo ./*.changes
ls ./*.deb
