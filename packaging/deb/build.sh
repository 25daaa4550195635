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
mkdir -p "$out/tree/debian/completions"
cp packaging/deb/* "$out/tree/debian/"
cd "$out/tree"
rm debian/build.sh

# page COMMAND SENTENCE: a manual page whose text is what --help prints.
page() {
    printf '.TH %s 1 "" "nccl\\-net\\-r2 %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' "$1" "$version" "$1" "$2"
    "$R2_BUILD/$1" --help | sed "s/\\\\/\\\\e/g; s/-/\\\\-/g; s/^[.']/\\\\\\&&/"
    echo .fi
} >"debian/$1.1"
page r2_perf "nccl\\-tests for a net plugin, without a GPU"
page softfab "RDMA networks of hosts and NICs in software, with faults"
# The options of a tool are those of its --help: _longopt of bash-completion reads it.
for t in r2_config r2_ctl r2_diag r2_perf r2_plan r2_report r2_stat r2_topo; do
    echo "complete -F _longopt $t" >"debian/completions/$t"
done
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
