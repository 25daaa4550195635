#!/bin/sh
# The container image: built by its recipe on a base that is made here, what the manifests of share/kubernetes run in it, and r2_perf without any privilege.
# Root, and a mirror of the distribution's packages; what this machine cannot do is a skip.
#   check_container.sh [BUILD]     closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/.." || exit 2
B=${1:-build}
for c in buildah mmdebstrap jq dh; do
    command -v $c >/dev/null || {
        echo "$c is not here (sh tools/install-deps.sh container)"
        exit 77
    }
done
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
. tests/check_lib.sh
image=localhost/nccl-net-r2:$(cat VERSION)
bh() {
    buildah --root "$tmp/storage" --runroot "$tmp/runroot" --storage-driver vfs "$@"
}
# inside OPTIONS COMMAND...: in the container of the image
inside() {
    options=$1
    shift
    # shellcheck disable=SC2086
    bh run --isolation chroot $options "$container" -- "$@"
}
# A base of this machine's release, as its own sources of packages give it.
base() {
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
        [ ! -s $list ] || break
    done
    mmdebstrap --quiet --variant=apt "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$tmp/base.tar" - <"$list" &&
        container=$(bh from scratch) && bh add -q "$container" "$tmp/base.tar" / && inside "" true && bh commit -q "$container" localhost/base && bh rm "$container"
}
recipe() {
    bh bud --isolation chroot --pull-never --build-arg BASE=localhost/base -f packaging/container/Containerfile -t "$image" "$B/deb"
}
# What it needs while it is built is gone.
lean() {
    container=$(bh from --pull-never "$image") && inside "" sh -c '[ ! -e /packages ] && [ -z "$(ls /var/lib/apt/lists)" ]'
}
version() {
    inside "" r2_stat --version | tee /dev/stderr | grep -q "^r2_stat $(cat VERSION) "
}
# args WHICH: what that container of the DaemonSet runs
args() {
    jq -r ".spec.template.spec.$1[0].args[0]" share/kubernetes/daemonset.json
}
installs() {
    mkdir -p "$tmp/lib" "$tmp/run" "$tmp/textfile"
    inside "--user 0 --cap-drop all -v $tmp/lib:/host-lib -v $tmp/run:/run/nccl-net-r2" sh -c "$(args initContainers)" &&
        dpkg-deb --fsys-tarfile "$B"/deb/nccl-net-r2_*.deb | tar -xO --wildcards "*/libnccl-net-r2.so" | cmp - "$tmp/lib/libnccl-net-r2.so" && [ "$(stat -c %a "$tmp/run")" = 1777 ]
}
metrics() {
    # shellcheck disable=SC2016
    inside "--user 0 --cap-drop all --cap-add DAC_OVERRIDE -v $tmp/run:/run/nccl-net-r2:ro -v $tmp/textfile:/textfile" \
        timeout 60 sh -c 'sh -c "$1" & until [ -s /textfile/r2.prom ]; do sleep 0.1; done; kill $! && wait $!' - "$(args containers)" &&
        grep '^r2_collector_success 1$' "$tmp/textfile/r2.prom"
}
unprivileged() {
    inside "--user 65534:65534 --cap-drop all" sh -c '[ "$(id -u)" = 65534 ] && grep -q "^CapEff:.0*$" /proc/self/status &&
        r2_perf all_reduce --nics 4 --rate 20MB/s -b 1M -e 1M --duration 3s --fault "1s:h0:n1 down"' >"$tmp/perf" 2>&1
    rc=$?
    cat "$tmp/perf"
    [ $rc = 0 ] && grep -q ' 0 elements wrong' "$tmp/perf" && grep -Eq 'failovers seen: [1-9]' "$tmp/perf"
}

if ! base >"$tmp/said" 2>&1; then
    tail -n 5 "$tmp/said"
    echo "no base for an image can be made or run here: $(tail -n 1 "$tmp/said")"
    exit 77
fi
check "packages" sh packaging/deb/build.sh "$B"
check "recipe" recipe
check "lean" lean
check "tools" version
check "the DaemonSet's plugin" installs
check "the DaemonSet's metrics" metrics
check "a job without privileges" unprivileged
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
