#!/bin/sh
# The Soft-RoCE lab: VMs of the Debian kernel with rdma_rxe, one switch process between them, faults from outside and inside.
set -u
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)

say() {
    echo "lab: $*" >&2
}
die() {
    say "$*"
    exit 1
}
skip() {
    say "skipped: $*"
    exit 77
}
# A word that the shell reads back as it was.
quote() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}
usage() {
    cat >&2 <<EOT
usage: lab.sh BUILD up [--hosts 2|3] [--accel tcg|kvm|auto]
       lab.sh BUILD down | status | reset
       lab.sh BUILD exec HOST [-t SECONDS] [-i] [-u] -- COMMAND...
       lab.sh BUILD fault FAULT...
       lab.sh BUILD counters HOST:NIC
       lab.sh BUILD wait-trigger HOST NAME [-t SECONDS]
       lab.sh BUILD on-trigger HOST NAME [-t SECONDS] FAULT...
EOT
    [ ! -x "$ctl" ] || "$ctl" / help 2>&1 | sed -n '/^faults/,$p' >&2
    exit 2
}

ctl=
[ $# -ge 2 ] || usage
mkdir -p "$1" 2>/dev/null || die "no folder $1"
build=$(cd "$1" && pwd)
verb=$2
shift 2
bin=$build/lab lab=$build/lab run=$build/lab/run
ctl=$bin/lab_ctl
. "$here/lab_image.sh"
. "$here/lab_vm.sh"

hosts() {
    cat "$run/hosts" 2>/dev/null
}
need_up() {
    [ -f "$run/up" ] || die "the lab is not up (lab.sh $build up)"
}
# One up, down or reset at a time. The lock is not handed to what is started.
lock() {
    mkdir -p "$lab"
    exec 9>"$lab/lock"
    flock -w 300 9 || die "another lab command has held $lab/lock for 300 s"
}

need_tools() {
    sh "$repo/tools/install-deps.sh" lab >&2 || skip "packages of the lab are missing and cannot be installed"
    qemu-system-x86_64 --version >/dev/null 2>&1 || skip "no qemu-system-x86_64"
    qemu-system-x86_64 -netdev help 2>&1 | grep -qx stream || skip "this QEMU has no -netdev stream (7.2 or later)"
    make -C "$repo" --no-print-directory -s B="$build" lab-bins >&2 || die "the lab's programs do not build"
}

all_down() {
    [ -d "$run" ] || return 0
    for h in h0 h1 h2 switch; do
        [ ! -f "$run/$h.pid" ] || "$ctl" "$run" kill $h || exit 1
    done
    rm -rf "$run"
}

lab_up() {
    want=2 accel=auto
    while [ $# -ge 2 ]; do
        case $1=$2 in
        --hosts=[23]) want=$2 ;;
        --accel=tcg | --accel=kvm | --accel=auto) accel=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    [ $# = 0 ] || usage
    need_tools
    lock
    all_down
    trap 'all_down; exit 1' INT TERM HUP
    mkdir -p "$run" "$lab/out"
    chmod 700 "$run"
    start=$(date +%s)
    kernel_get
    initrd_make
    accel_choose $accel
    tr -d '-' </proc/sys/kernel/random/uuid >"$run/secret"
    echo "r2lab-$(cut -c1-12 /proc/sys/kernel/random/uuid | tr -d '-')" >"$run/id"
    i=0 list=
    while [ $i -lt $want ]; do
        list="$list h$i"
        i=$((i + 1))
    done
    echo "${list# }" >"$run/hosts"
    echo "$accel" >"$run/accel"
    (
        switch_start $want
        for h in $list; do
            vm_start "$h"
        done
        # shellcheck disable=SC2086
        vm_await $list
    ) 9>&- || {
        all_down_keep
        exit 1
    }
    touch "$run/up"
    say "$want hosts up in $(($(date +%s) - start)) s ($accel, Linux $(cat "$lab/kernel/version"))"
}

# After a failed start: nothing runs on, but consoles and logs stay for reading.
all_down_keep() {
    rm -rf "$lab/failed"
    mkdir -p "$lab/failed"
    cp "$run"/*.console "$run"/*.log "$run"/*.err "$lab/failed/" 2>/dev/null
    all_down
    say "consoles and logs: $lab/failed"
}

lab_status() {
    need_up
    echo "accel $(cat "$run/accel"), Linux $(cat "$lab/kernel/version")"
    for h in $(hosts); do
        if "$ctl" "$run" alive "$h"; then
            echo "$h $("$ctl" "$run" qmp "$h" query-status | sed 's/.*"status":"\([a-z-]*\)".*/\1/')"
            "$ctl" "$run" exec "$h" -t 20 -u -- lab_nic state | sed 's/^/  /'
        else
            echo "$h ended"
        fi
    done
    "$ctl" "$run" switch show | sed '$d'
}

# Reboots what does not live or cannot be repaired.
lab_reboot() { # HOST...
    accel=$(cat "$run/accel")
    for h in "$@"; do
        say "$h: reboot"
        vm_kill "$h" || return 1
    done
    (
        for h in "$@"; do
            vm_start "$h"
        done
        vm_await "$@"
    ) 9>&- || die "$*: does not come up again"
}

# Repairs all VMs at once; prints those that need a reboot.
repair_all() {
    for h in $(hosts); do
        (
            "$ctl" "$run" alive "$h" && "$ctl" "$run" repair "$h" >"$run/$h.repair" 2>&1 || echo "$h" >"$run/$h.broken"
        ) &
    done
    wait
    for h in $(hosts); do
        [ ! -s "$run/$h.repair" ] || sed 's/^/lab: /' "$run/$h.repair" >&2
        [ ! -f "$run/$h.broken" ] || echo "$h"
        rm -f "$run/$h.repair" "$run/$h.broken"
    done
}

# Every pair of hosts, every rail, both ways. Prints "hA:nK to hB" for each that fails.
rails_check() {
    set -- $(hosts)
    n=$#
    for h in "$@"; do
        [ "$h" = "h$((n - 1))" ] || "$ctl" "$run" exec "$h" -t 30 -u -- lab_nic rails $n >"$run/$h.rails" 2>&1 &
    done
    wait
    cat "$run"/*.rails
    rm -f "$run"/*.rails
}

lab_reset() {
    need_up
    lock
    "$ctl" "$run" switch reset >/dev/null || exit 1
    for h in $(repair_all); do
        lab_reboot "$h"
    done
    dead=$(rails_check)
    if [ -n "$dead" ]; then
        # Which end is to blame cannot be seen from the echo alone: all that have a dead rail are booted again.
        say "dead rails: $(echo "$dead" | tr '\n' ';')"
        lab_reboot $(echo "$dead" | sed -n 's/^\(h[0-9]\):[^ ]* to \(h[0-9]\).*/\1 \2/p' | tr ' ' '\n' | sort -u)
        dead=$(rails_check)
        [ -z "$dead" ] || die "rails are dead after a reboot: $dead"
    fi
    say "healthy: $(hosts)"
}

lab_down() {
    [ -d "$run" ] || return 0
    if [ ! -x "$ctl" ]; then
        make -C "$repo" --no-print-directory -s B="$build" lab-bins >&2 || die "the lab's programs do not build"
    fi
    lock
    all_down
}

case $verb in
up) lab_up "$@" ;;
down) lab_down ;;
status) lab_status ;;
reset) lab_reset ;;
counters)
    need_up
    [ $# = 1 ] || usage
    "$ctl" "$run" switch show "$1" | sed '$d' | tr ' ' '\n' | sed -n '/=/p'
    ;;
exec | fault | wait-trigger | on-trigger)
    need_up
    exec "$ctl" "$run" "$verb" "$@"
    ;;
*) usage ;;
esac
