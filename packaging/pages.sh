#!/bin/sh
# What packages have that 'make install' has not: manual pages of the commands whose --help is all there is, and completions.
#   pages.sh BUILD FOLDER      FOLDER/r2_perf.1, FOLDER/softfab.1, FOLDER/completions/COMMAND
set -eu
cd "$(dirname "$0")/.."
build=$1
to=$2
version=$(cat VERSION)
mkdir -p "$to/completions"

# page COMMAND SENTENCE: a manual page whose text is what --help prints.
page() {
    printf '.TH %s 1 "" "nccl\\-net\\-r2 %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' "$1" "$version" "$1" "$2"
    "$build/$1" --help | sed "s/\\\\/\\\\e/g; s/-/\\\\-/g; s/^[.']/\\\\\\&&/"
    echo .fi
} >"$to/$1.1"
page r2_perf "nccl\\-tests for a net plugin, without a GPU"
page softfab "RDMA networks of hosts and NICs in software, with faults"
# The options of a tool are those of its --help: _longopt of bash-completion reads it.
for t in r2_config r2_ctl r2_diag r2_perf r2_plan r2_report r2_stat r2_topo; do
    echo "complete -F _longopt $t" >"$to/completions/$t"
done
