#!/bin/sh
# make dist: the same bytes whoever calls it, all that is in git, and a tree that builds without git and knows its commit.
#   check_dist.sh [BUILD]     closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/.." || exit 2
root=$PWD
[ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$root" ] || {
    echo "this tree is no clone of git"
    exit 77
}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
version=$(git show HEAD:VERSION)
tree=nccl-net-r2-$version
. tests/check_lib.sh
dist() {
    make --no-print-directory -s -C "$root" B="$tmp/$1" dist
}
# Another clone, whose user has settings and a clock of his own.
dist_elsewhere() (
    git clone -q "$root" "$tmp/clone" && git -C "$tmp/clone" checkout -q --detach "$(git rev-parse HEAD)" || exit 1
    git -C "$tmp/clone" config tar.umask 0077
    git -C "$tmp/clone" config core.abbrev 20
    umask 077
    cd "$tmp/clone" && TZ=Asia/Tokyo LC_ALL=C GZIP= make --no-print-directory -s B="$tmp/b" dist
)
files_are_all() {
    git ls-tree -r --name-only HEAD | sort >"$tmp/want"
    (cd "$tmp/$tree" && find . ! -type d | sed 's,^\./,,' | sort) >"$tmp/have"
    diff "$tmp/want" "$tmp/have"
}
# In a repository of another project, and with a git that does nothing.
build_alone() {
    mkdir "$tmp/bin" && printf '#!/bin/sh\nexit 1\n' >"$tmp/bin/git" && chmod +x "$tmp/bin/git" || return 1
    (cd "$tmp/$tree" && PATH=$tmp/bin:$PATH make --no-print-directory -s -j2 OPT=-O0 build/r2_config)
}
version_is() {
    want="nccl-net-r2 $version $(git rev-parse HEAD | cut -c1-12)"
    "$tmp/$tree/build/r2_config" --version | tee /dev/stderr | grep -qF "$want"
}
check "make dist" dist a
check "make dist, elsewhere" dist_elsewhere
check "the same bytes" cmp "$tmp/a/$tree.tar.gz" "$tmp/b/$tree.tar.gz"
check "nothing beside it" test "$(ls "$tmp/a")" = "$tree.tar.gz"
check "unpacked" tar -C "$tmp" -xzf "$tmp/a/$tree.tar.gz"
check "all files" files_are_all
check "another project's git around it" git -C "$tmp" init -q .
check "builds without git" build_alone
check "says its version and commit" version_is

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
