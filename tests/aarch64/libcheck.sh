#!/bin/sh
# Check's library for aarch64, which unit tests link, out of Debian's packages into BUILD/root; nothing of this machine changes, its apt
# keeps to its own architecture.
#   libcheck.sh BUILD
set -eu
cd "$1"
[ ! -e root/usr/lib/aarch64-linux-gnu/libcheck.a ] || exit 0
mkdir -p apt/lists/partial apt/cache/archives/partial
# apt COMMAND...: with lists of its own
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root -o Dir::State::Lists="$PWD/lists" \
        -o Dir::Cache="$PWD/cache" "$@" 2>log || {
        echo "Check for arm64 could not be fetched: $(tail -1 log)" >&2
        return 1
    }
}
cd apt
apt update
apt download check libsubunit-dev
for p in ./*.deb; do dpkg-deb -x "$p" ../root; done
rm -f ../root/usr/lib/*/*.so* # what is linked needs no library beside it
cd ..
rm -rf apt
