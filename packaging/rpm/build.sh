#!/bin/sh
# The RPM packages of what BUILD has, into BUILD/rpm. Which file is in which package, and what a package says of itself, stands in packaging/deb.
#   build.sh BUILD
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
out=$build/rpm
root=$out/root
parts=$out/parts
deb=$PWD/packaging/deb
libdir=$(rpm --eval '%_libdir')
rm -rf "$out"
mkdir -p "$parts"
sh packaging/stage.sh "$build" "$libdir" "$root"
sh packaging/pages.sh "$build" "$out/debian"

# have PATH...: what 'make install' put there, and folders that no other package has
have() {
    for path in "$@"; do
        case $(dirname "$path") in */nccl-net-r2) echo "%dir /$(dirname "$path")" ;; esac
    done
    find "$@" -type d -path '*/nccl-net-r2*' -printf '%%dir /%p\n' -o ! -type d -printf '/%p\n'
}
# put FROM FOLDER [NAME]: one file more
put() {
    mkdir -p "$root/$2"
    install -m 644 "$1" "$root/$2/${3:-$(basename "$1")}"
    echo "/$2/${3:-$(basename "$1")}"
}
# files PACKAGE: its files, by the lists of debhelper
files() {
    cd "$root"
    while read -r from to; do
        # shellcheck disable=SC2086
        case $from in
        debian/*) for f in "$out"/$from; do put "$f" "$to"; done ;;
        'usr/lib/*/'*) have "${libdir#/}/${from#usr/lib/\*/}" ;;
        *) have $from ;;
        esac
    done <"$deb/$1.install"
}
# more PACKAGE: what debhelper knows by the names of its files; made when all packages have taken theirs from what 'make install' put
more() {
    if [ -e "$deb/$1.manpages" ]; then
        while read -r page; do put "$out/$page" usr/share/man/man1; done <"$deb/$1.manpages"
    fi
    if [ -e "$deb/$1.tmpfiles" ]; then put "$deb/$1.tmpfiles" usr/lib/tmpfiles.d "$1.conf"; fi
    for unit in "$deb/$1".*.service "$deb/$1".*.timer; do
        if [ -e "$unit" ]; then put "$unit" usr/lib/systemd/system "${unit##*/"$1".}"; fi
    done
}
# about PACKAGE: its description in the control file, of which the first line is a summary
about() {
    awk -v p="$1" '
        /^[^ ]/ { on = 0 }
        $1 == "Package:" { mine = $2 == p }
        mine && sub(/^Description: /, "") { print; on = 1; next }
        on { sub(/^ /, ""); sub(/^\.$/, ""); print }' "$deb/control"
}
packages=$(sed -n 's/^Package: //p' "$deb/control")
for p in $packages; do
    about "$p" >"$parts/about"
    printf 'Summary: %s\n' "$(head -1 "$parts/about")" >"$parts/$p.summary"
    tail -n +2 "$parts/about" >"$parts/$p.description"
    (files "$p") >"$parts/$p.files"
done
for p in $packages; do (more "$p") >>"$parts/$p.files"; done
# the spec compresses pages
sed -i '/\/man\/man[0-9]\//s/$/.gz/' "$parts"/*.files
cat >"$parts/changelog" <<END
* $(LC_ALL=C date -u -r NEWS.md '+%a %b %d %Y') The nccl-net-r2 maintainers <maintainers@nccl-net-r2.invalid> - $(cat VERSION)-1
- What is new: /usr/share/doc/nccl-net-r2/NEWS.md of the package nccl-net-r2.
END
rpmbuild -bb --define "_topdir $out/top" --define "_rpmdir $out" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    --define "r2_source $PWD" --define "r2_root $root" --define "r2_parts $parts" --define "r2_version $(cat VERSION)" \
    packaging/rpm/nccl-net-r2.spec >"$out/log" 2>&1 || {
    tail -30 "$out/log" >&2
    exit 1
}
rm -rf "$out/top" "$root" "$out/debian" "$parts"
ls "$out"/*.rpm
