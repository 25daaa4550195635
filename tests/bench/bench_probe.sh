#!/bin/sh
# make bench-probe: what localisation and gossip cost and how long they take. Writes BUILD/bench-probe.json and prints the table of
# tests/bench/README.md; with --write-doc puts it there.
#   bench_probe.sh BUILD [--write-doc] [--only gossip|hour|matrix [SEEDS]]   (--only prints that section's JSON)
set -eu
cd "$(dirname "$0")/../.."
B=build write= only= seeds=100 cases=60
while [ $# -gt 0 ]; do
    case $1 in
    --write-doc) write=1 ;;
    --only)
        only=${2:?--only needs the name of a section}
        seeds=${3:-$seeds} cases=${3:-$cases}
        break
        ;;
    -*)
        echo "bench_probe.sh: no such option: $1" >&2
        exit 2
        ;;
    *) B=$1 ;;
    esac
    shift
done
[ -e "$B/bench/bench_inproc" ] || {
    echo "bench_probe.sh: $B/bench/bench_inproc is not built" >&2
    exit 1
}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

# measured COMMAND...: runs it, and says so if it fails
measured() {
    timeout 600 "$@" 2>"$T/err" || {
        echo "bench_probe.sh: $* failed" >&2
        sed 's/^/    | /' "$T/err" >&2
        exit 1
    }
}
section() {
    case $1 in
    gossip) measured "$B/bench/bench_inproc" gossip "$seeds" ;;
    hour) measured "$B/bench/bench_inproc" hour ;;
    matrix)
        measured "$B/r2_matrix" --dir "$B/matrix-probe" --hosts 3 --nics 3 --seeds "$cases" --json "$T/matrix.json" >&2
        cat "$T/matrix.json"
        ;;
    *)
        echo "bench_probe.sh: no such section: $1" >&2
        exit 2
        ;;
    esac
}

if [ -n "$only" ]; then
    section "$only"
    exit
fi
section gossip >"$T/gossip.json"
section hour >"$T/hour.json"
section matrix >"$T/confusion.json"
jq -n --slurpfile gossip "$T/gossip.json" --slurpfile hour "$T/hour.json" --slurpfile matrix "$T/confusion.json" \
    --arg git "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" \
    '{schema: "r2_bench_probe/1", git: $git, matrix: $matrix[0], hour: $hour[0], gossip: $gossip[0]}' >"$T/bench-probe.json"
mv "$T/bench-probe.json" "$B/bench-probe.json"
jq -r -f tests/bench/probe_table.jq "$B/bench-probe.json" >"$T/table"
cat "$T/table"
echo "# all of it: $B/bench-probe.json"
[ -n "$write" ] || exit 0
{
    awk '/^<!-- probe -->$/ { exit } { print }' tests/bench/README.md
    cat <<'END'
<!-- probe -->
## Localisation and gossip

Written by `sh tests/bench/bench_probe.sh build --write-doc`; `make bench-probe` measures the same, prints the table and leaves all figures in
`build/bench-probe.json`.

END
    cat "$T/table"
    cat <<'END'

First table: from a fault to the first verdict, and until the last process knows, by a verdict of its own or by gossip; three processes on three hosts of the software fabric, real
time (`tests/matrix/README.md`). A silent fault is first suspected (`NCCL_R2_T_SUSPECT`), then asked about, then told from others; what an event says needs neither. Second table:
what all is well, and what one failure costs in probes for an hour, virtual time, both ends of one connection together; a NIC that is dead towards P processes costs P times as much. `bench_inproc hour` fails where NICs
that are well are asked anything or the transport counts a time-out or a receiver that is not ready. Third: how a word about a NIC goes through a job, in virtual time, the same in every run: the product's own tables (`probe_gossip`), one per process. A message takes 50 to 150 us
and 1 % are lost; what is not confirmed is said again after 5 ms, then with doubling up to 100 ms. What a process puts in the registry of its host the others there have
after 0.5 to 1.5 ms. In half of the seeds both ends of a connection find out at once, and the word of one of them wins at every process; "all know" is the first word about
the NIC, "last word" the one that stays. "Messages" are words and confirmations; "sent at once" is the most that one word costs a process when it takes it up; "heard
twice" are words that came to a process that had them, over the channel and the registry: none of them goes further.

A job is hosts in a ring, as NCCL builds them: each of eight channels enters a host at one process and leaves it at the one before; "of one channel": the word has to change
process on every host, through the registry. A tree is NCCL's double binary tree, a process per channel.

**The time is bounded** by the longest way through the job: hops x the longest latency (0.15 ms here), and the registry's time (1.5 ms) where a word has to change process.
Every seed is also run without loss, and fails if a process hears later than that. A ring is as long as half of its hosts: 0.1 ms per host of the half with eight
channels, 1.1 ms with one. A lost message costs T_repeat on the way it was on, which with more than one way through the job is seldom the shortest. So 4096 processes
know within tens of milliseconds in rings, and within a few where NCCL has built trees, too. No shortcut is built for gossip: the longest way that was looked at, a ring
of one channel over 512 hosts, takes less than half a second, and nothing waits for it.
<!-- end of probe -->
END
    awk 'on { print } /^<!-- end of probe -->$/ { on = 1 }' tests/bench/README.md
} >"$T/doc"
cat "$T/doc" >tests/bench/README.md
