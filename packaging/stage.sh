#!/bin/sh
# What packages install, into ROOT: what 'make install' installs, and the documents, which refer to each other.
#   stage.sh BUILD LIBDIR ROOT     LIBDIR: as in /usr/lib64; the others absolute, too
set -eu
cd "$(dirname "$0")/.."
doc=$3/usr/share/doc/nccl-net-r2
env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -s B="$1" install PREFIX=/usr LIBDIR="$2" DESTDIR="$3"
mkdir -p "$doc/docs"
cp NEWS.md SECURITY.md "$doc"
cp docs/*.md docs/*.svg "$doc/docs"
