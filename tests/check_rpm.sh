#!/bin/sh
# The RPM packages: that they have what the Debian packages have, what rpmlint says, that nothing is found by what the fabric's library
# and the plugin export, and that what they install works alone, in a folder that holds nothing else but the libraries it is linked with.
# Root, no network; what this machine cannot do is a skip.
#   check_rpm.sh [BUILD]     closes with "N passed, N failed[, N skipped]"
set -u
cd "$(dirname "$0")/.." || exit 2
B=${1:-build}
command -v rpmbuild >/dev/null || {
    echo "rpmbuild is not here (sh tools/install-deps.sh rpm)"
    exit 77
}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
root=$tmp/root
libdir=$(rpm --eval '%_libdir')
all="nccl-net-r2 nccl-net-r2-softfab nccl-net-r2-tools"
skipped=0
. tests/check_lib.sh
. tests/packages_lib.sh
rpm_of() {
    echo "$B/rpm/$1-$(cat VERSION)-1.$(rpm --eval '%_target_cpu').rpm"
}
# The Debian packages' contents, but for where distributions have their folders, and lintian's file; documents and licences aside.
contents() {
    for p in $all; do
        rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$(rpm_of "$p")" | awk -v p="$p" '$1 !~ /^d/ { print p, $2 }' |
            grep -v -e /usr/share/doc/ -e /usr/share/licenses/ | sort
    done >"$tmp/have"
    sed '1,/^# CONTENTS$/d; s/^# //' tests/check_packages.sh |
        sed "/lintian/d; s, /lib/systemd, /usr/lib/systemd,; s,/usr/lib/TRIPLET,$libdir," | sort >"$tmp/want"
    sort "$tmp/have" | diff "$tmp/want" -
}
# No package needs another one to work.
depends() {
    for p in $all; do
        rpm -qp --requires "$(rpm_of "$p")" | sort -u >"$tmp/requires"
        grep -q '^libc\.so\.6' "$tmp/requires" || return 1
        if grep -Ev '^(lib(c|m|dl|pthread)\.so\.[0-9]+\(|ld-linux|rtld\(|rpmlib\(|/bin/sh$)' "$tmp/requires"; then return 1; fi
    done
}
provides() {
    for p in $all; do
        rpm -qp --provides "$(rpm_of "$p")" >"$tmp/provides"
        grep -q "^$p = " "$tmp/provides" && ! grep -v "^$p[ (]" "$tmp/provides" || return 1
    done
}
lint() {
    rpmlint -c packaging/rpm/rpmlint.toml "$B"/rpm/*.rpm | tee "$tmp/lint"
    grep -q ' 3 packages .* 0 errors, 0 warnings' "$tmp/lint"
}
db() {
    rpm --root "$root" --dbpath /var/lib/rpm "$@"
}
# Their dependencies, which depends() has looked at, are no packages of this folder. No script runs: it has no shell.
installed() {
    mkdir -p "$root/var/lib/rpm" && db -i --nodeps --noscripts "$B"/rpm/*.rpm && [ "$(db -qa | wc -l)" = 3 ]
}
whole() {
    for p in $all; do db -V --nodeps --noscripts "$p" || return 1; done
}
# The folder that a loader of such a distribution searches; this machine's may have another one.
loader() {
    libraries "$libdir" && echo "$libdir" >"$root/etc/ld.so.conf" && PATH=$PATH:/sbin:/usr/sbin ldconfig -r "$root"
}
removed() {
    # shellcheck disable=SC2086
    db -e --noscripts $all && ! find "$root" -name '*nccl-net-r2*' -o -name 'r2_*' -o -name '*softfab*' | grep .
}

case $B in /*) ;; *) [ -d "$B" ] || exit 2 ;; esac
check "packages" sh packaging/rpm/build.sh "$B"
check "contents" contents
check "depends on libc alone" depends
check "provide themselves alone" provides
has rpmlint rpmlint && check "rpmlint" lint
if [ "$(id -u)" = 0 ]; then
    check "installed" installed
    check "as they were packed" whole
    check "documents" documents
    check "libraries beside them" loader
    works_alone
    check "removed" removed
else
    skipped=$((skipped + 15))
    echo "skipped: what is installed: not root"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
