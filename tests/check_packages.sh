#!/bin/sh
# The Debian packages: what is in them, what lintian and systemd say, and that what they install works alone, in a folder that holds
# nothing else but the libraries it is linked with. Root, no network; what this machine cannot do is a skip.
#   check_packages.sh [BUILD]     closes with "N passed, N failed[, N skipped]"
set -u
cd "$(dirname "$0")/.." || exit 2
B=${1:-build}
command -v dh >/dev/null || {
    echo "debhelper is not here (sh tools/install-deps.sh deb)"
    exit 77
}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
root=$tmp/root
skipped=0
. tests/check_lib.sh
. tests/packages_lib.sh
deb() {
    echo "$B/deb/$1_$(cat VERSION)_$(dpkg --print-architecture).deb"
}
# What is in them, documents aside.
contents() {
    for p in nccl-net-r2 nccl-net-r2-softfab nccl-net-r2-tools; do
        dpkg-deb -c "$(deb $p)" | awk -v p=$p '$1 !~ /^d/ { sub(/^\./, "", $6); print p, $6 }' |
            sed 's,/usr/lib/[a-z0-9_]*-linux-gnu[^/]*/,/usr/lib/TRIPLET/,' | grep -v /usr/share/doc/ | sort
    done >"$tmp/have"
    sed '1,/^# CONTENTS$/d; s/^# //' "$0" >"$tmp/want"
    diff "$tmp/want" "$tmp/have"
}
lint() {
    lintian --fail-on error,warning --tag-display-limit 0 --allow-root "$B"/deb/*.deb
}
# No package needs another one to work.
depends() {
    for p in nccl-net-r2 nccl-net-r2-softfab nccl-net-r2-tools; do
        dpkg-deb -f "$(deb $p)" Depends | grep -q '^libc6 ([^,]*)$' || return 1
    done
    dpkg --no-act -i "$B"/deb/*.deb
}
unpack() {
    mkdir -p "$root" || return 1
    for p in nccl-net-r2 nccl-net-r2-softfab nccl-net-r2-tools; do
        dpkg-deb -x "$(deb $p)" "$root" || return 1
    done
    libraries "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)"
}
completion() {
    PATH=$PWD/$B:$PATH bash -c '
        . /usr/share/bash-completion/bash_completion && . "$1/usr/share/bash-completion/completions/r2_stat" || exit 1
        COMP_WORDS=(r2_stat --ass) COMP_CWORD=1 COMP_LINE="r2_stat --ass" COMP_POINT=13
        _longopt r2_stat --ass r2_stat
        echo "${COMPREPLY[*]}"' - "$root" | tee /dev/stderr | grep -q '^--assert-loaded'
}
units() {
    at=$root/lib/systemd/system/nccl-net-r2-prom
    sed "s,=/usr/bin/,=$root/usr/bin/," $at.service >"$tmp/nccl-net-r2-prom.service" && cp $at.timer "$tmp/nccl-net-r2-prom.timer" || return 1
    # of this machine's own units it may complain as well
    systemd-analyze verify --man=no "$tmp/nccl-net-r2-prom.timer" "$tmp/nccl-net-r2-prom.service" 2>&1 | tee "$tmp/verify"
    ! grep -q nccl-net-r2 "$tmp/verify"
}
run_dir() {
    systemd-tmpfiles --create --root="$root" "$root/usr/lib/tmpfiles.d/nccl-net-r2.conf" && [ "$(stat -c %a "$root/run/nccl-net-r2")" = 1777 ]
}

case $B in /*) ;; *) [ -d "$B" ] || exit 2 ;; esac
check "packages" sh packaging/deb/build.sh "$B"
check "contents" contents
check "depends on libc alone" depends
check "unpacked" unpack
check "documents" documents
has lintian lintian && check "lintian" lint
has systemd-analyze units && check "units" units
has systemd-tmpfiles "run directory" && check "run directory" run_dir
if [ -e /usr/share/bash-completion/bash_completion ]; then
    check "completion" completion
else
    skipped=$((skipped + 1))
    echo "skipped: completion: bash-completion is not here"
fi
works_alone
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
exit
# CONTENTS
# nccl-net-r2 /usr/lib/TRIPLET/libnccl-net-r2.so
# nccl-net-r2 /usr/lib/TRIPLET/nccl-net-r2/libnccl-net-r2-oob-mpi.so
# nccl-net-r2 /usr/lib/TRIPLET/nccl-net-r2/libnccl-net-r2-topo-hwloc.so
# nccl-net-r2 /usr/lib/tmpfiles.d/nccl-net-r2.conf
# nccl-net-r2 /usr/share/lintian/overrides/nccl-net-r2
# nccl-net-r2 /usr/share/man/man7/nccl-net-r2.7.gz
# nccl-net-r2-softfab /usr/bin/softfab
# nccl-net-r2-softfab /usr/lib/nccl-net-r2/softfab-lib/libibverbs.so.1
# nccl-net-r2-softfab /usr/share/man/man1/softfab.1.gz
# nccl-net-r2-tools /lib/systemd/system/nccl-net-r2-prom.service
# nccl-net-r2-tools /lib/systemd/system/nccl-net-r2-prom.timer
# nccl-net-r2-tools /usr/bin/r2_config
# nccl-net-r2-tools /usr/bin/r2_ctl
# nccl-net-r2-tools /usr/bin/r2_diag
# nccl-net-r2-tools /usr/bin/r2_perf
# nccl-net-r2-tools /usr/bin/r2_plan
# nccl-net-r2-tools /usr/bin/r2_report
# nccl-net-r2-tools /usr/bin/r2_stat
# nccl-net-r2-tools /usr/bin/r2_topo
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_config
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_ctl
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_diag
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_perf
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_plan
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_report
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_stat
# nccl-net-r2-tools /usr/share/bash-completion/completions/r2_topo
# nccl-net-r2-tools /usr/share/man/man1/r2_config.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_ctl.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_diag.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_perf.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_plan.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_report.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_stat.1.gz
# nccl-net-r2-tools /usr/share/man/man1/r2_topo.1.gz
# nccl-net-r2-tools /usr/share/nccl-net-r2/grafana/nccl-net-r2.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/kubernetes/daemonset.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/kubernetes/node-problem-detector.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/kubernetes/pod.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/modulefiles/nccl-net-r2
# nccl-net-r2-tools /usr/share/nccl-net-r2/prometheus/nccl-net-r2.rules.yml
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2.ctl.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2.diag.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2.event.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2.history.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2.nic-history.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2.stat.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2_config.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2_perf.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2_perf_trace.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2_plan.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2_simulate.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/r2_topo.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/schemas/softfab.json
# nccl-net-r2-tools /usr/share/nccl-net-r2/slurm/r2-epilog
# nccl-net-r2-tools /usr/share/nccl-net-r2/slurm/r2-health-check
# nccl-net-r2-tools /usr/share/nccl-net-r2/slurm/r2-lib.sh
# nccl-net-r2-tools /usr/share/nccl-net-r2/slurm/r2-prolog
# nccl-net-r2-tools /usr/share/nccl-net-r2/slurm/r2-task-prolog
# nccl-net-r2-tools /usr/share/nccl-net-r2/slurm/r2.nhc
