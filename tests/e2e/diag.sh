#!/bin/sh
# r2_diag on the statistics of four hosts of the software fabric, of which a link, or a NIC, is late: what it marks, from run directories while the job runs, from
# copies afterwards, from what r2_stat --json prints, and over ssh, of which there is a stand-in here.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
cd "$(dirname "$0")/../.." || exit 2
fab=diag$$
skipped=0
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE SLURM_JOB_ID SLURM_STEP_ID
command -v jq >/dev/null || {
    echo "jq is not installed"
    exit 77
}
# says NAME FILE PATTERN [COUNT]: so many lines of the file are like it; without a number at least one is
says() {
    n=$(grep -cE -e "$3" "$2")
    if [ "${4:-$n}" = "$n" ] && { [ "$n" -gt 0 ] || [ "${4:-}" = 0 ]; }; then ok "$1"; else bad "$1" "$n lines like '$3' in: $(cut -c1-300 "$2" | head -60)"; fi
}
# holds NAME FILE FILTER: jq says so of it
holds() {
    if jq -e "$3" "$2" >/dev/null 2>&1; then ok "$1"; else bad "$1" "not $3: $(head -c 3000 "$2")"; fi
}
# valid NAME FILE: by its schema
valid() {
    jq -rs --argjson open false --slurpfile schema share/schemas/r2.diag.json -f tests/fleet/schema.jq "$2" >"$log/said" 2>&1
    if [ ! -s "$log/said" ]; then ok "$1: valid"; else bad "$1: valid" "$(head -5 "$log/said")"; fi
}
status() {
    if [ "$2" = "$3" ]; then ok "$1: exit status $3"; else bad "$1" "exit status $2, not $3"; fi
}

# ssh to h0, h1, ...: what is run there runs as that host of the fabric. Others do not answer, refuse, or answer with something else.
mkdir "$log/bin"
cat >"$log/bin/ssh" <<END
#!/bin/sh
echo "\$*" >>"$log/ssh.calls"
while [ "\$1" != -- ]; do shift; done
host=\$2
shift 2
case \$host in
h[0-3]) exec env -u NCCL_R2_RUN_DIR PATH="$B:\$PATH" "$B/softfab" exec --name $fab --host \${host#h} -- "\$@" ;;
silent) exec sleep 600 ;;
garbage) echo 'Welcome to garbage'; exit 0 ;;
short) "$B/softfab" exec --name $fab --host 0 -- "$B/r2_stat" --json | head -c 2000 ;;
*) echo "root@\$host: Permission denied (publickey)." >&2; exit 255 ;;
esac
END
chmod +x "$log/bin/ssh"
# In the job, once all is known: what r2_diag says now, by each way, and copies of what it says it of.
cat >"$log/live" <<END
d=\$1
shift
"$B/r2_diag" "\$@" >"\$d/live.text"
echo \$? >"\$d/live.rc"
PATH="$log/bin:\$PATH" "$B/r2_diag" --ssh h0 h1 h2 h3 --json >"\$d/ssh.json" 2>"\$d/ssh.said"
echo \$? >"\$d/ssh.rc"
PATH="$log/bin:\$PATH" "$B/r2_diag" --ssh h0 silent h1 h2 h3 refuses garbage short --limit 5 --json >"\$d/ssh-some.json" 2>"\$d/ssh-some.said"
echo \$? >"\$d/ssh-some.rc"
n=0
for dir in "\$@"; do
    mkdir "\$d/h\$n"
    cp "\$dir"/*.stat "\$d/h\$n"
    env -u NCCL_R2_RUN_DIR "$B/softfab" exec --name $fab --host \$n -- "$B/r2_stat" --json >"\$d/h\$n.json"
    n=\$((n + 1))
done
END
# A latency beside which it matters little how long a loaded machine lets a process wait.
# job CASE FAULT...: all to all between four hosts, with these faults from the start; ends once r2_diag finds something and knows of all pairs
job() {
    d=$log/$1
    shift
    mkdir "$d"
    "$B/softfab" up --name $fab --hosts 4 --nics 1 --rate 20MB/s --latency 15ms >/dev/null || exit 1
    "$B/softfab" fault --name $fab "$@" >/dev/null || bad "$d" "no fault"
    dirs=
    for h in 0 1 2 3; do dirs="$dirs $("$B/softfab" exec --name $fab --host $h -- sh -c 'echo "$NCCL_R2_RUN_DIR"')"; done
    known="$B/r2_diag --json --size 16K $dirs 2>/dev/null | jq -e '.sizes[0].judged == 12 and .state == \"found\"' >/dev/null"
    SLURM_JOB_ID=81233 timeout -k 5 200 "$B/r2_perf" alltoall -b 256K -e 256K --p2p-chunk 2K --channels 4 --idle-sleep 200us --fabric $fab --hosts 4 --placement out -w 1 -T 60s --duration 2s \
        --fault-cmd "$(once 500ms "$known" "sh $log/live $d $dirs")" --fault-optional --after 100ms >"$log/out" 2>&1
    rc=$?
    "$B/softfab" down --name $fab >/dev/null
    was_right "$(basename "$d"): the job"
}

wanted link && job link 'h1:n0 delay 150ms' 'h1:n0 delay-to h3:n0' && {
    "$B/r2_diag" --json --svg "$d/link.svg" "$d"/h? >"$d/copy.json"
    status "link: copies" $? 1
    valid "link" "$d/copy.json"
    holds "link: it alone is found" "$d/copy.json" '[.findings[] | [.kind, ([.source, .destination] | sort | join("-")), .sizes[0]]] == [["link", "h1-h3", "16K"]]'
    holds "link: the acknowledgements of the other direction are late, too" "$d/copy.json" '.findings[0].both_ways'
    holds "link: its cells are marked, no other" "$d/copy.json" '.places as $p | [.sizes[] | select(.size == "16K") | .mark | to_entries[] | .key as $s | .value | to_entries[] |
        select(.value) | "\($p[$s])>\($p[.key]) \(.value)"] | sort == ["h1>h3 cell", "h3>h1 cell"]'
    holds "link: the figure is the delay" "$d/copy.json" '[.sizes[] | select(.size == "16K") | .p50_ns[1][3]] | .[0] >= 180e6 and .[0] < 600e6'
    holds "link: all hosts are there" "$d/copy.json" '.places == ["h0", "h1", "h2", "h3"] and .missing == [] and .not_read == [] and .processes == 4 and .job == "81233"'
    says "link: while it runs: what it is of" "$d/live.text" '^job 81233: 4 hosts of 4 processes, size 16K; usual: [0-9.]+ ms$' 1
    says "link: while it runs: the table" "$d/live.text" '^h1 .* \[[0-9.]+\]$' 1
    says "link: while it runs: the sentence" "$d/live.text" '^the link between h1 and h3 is slow in both directions, or late in one: ' 1
    says "link: while it runs: exit status" "$d/live.rc" '^1$'
    says "link: the picture: marks" "$d/link.svg" 'class="mark"' 2
    says "link: the picture: the sentence" "$d/link.svg" '>the link between h1 and h3 is slow' 1
    if ! command -v xmllint >/dev/null; then
        skipped=$((skipped + 1))
        echo "SKIP link: the picture is well-formed: xmllint is not here"
    elif xmllint --noout "$d/link.svg" 2>"$log/said"; then
        ok "link: the picture is well-formed"
    else
        bad "link: the picture is well-formed" "$(head -5 "$log/said")"
    fi
    # by NIC, from connections
    "$B/r2_diag" --nics --json "$d"/h? >"$d/nics.json"
    valid "link, NICs" "$d/nics.json"
    holds "link, NICs" "$d/nics.json" '[.findings[] | [.kind, ([.source, .destination] | sort | join("-"))]] == [["link", "h1/fab0-h3/fab0"]]'
    # what r2_stat has printed is the same
    "$B/r2_diag" --json "$d"/h?.json >"$d/printed.json"
    holds "link, r2_stat --json" "$d/printed.json" '[.findings[] | .kind + (.source + .destination)] | . == ["linkh1h3"] or . == ["linkh3h1"]'
    # ssh
    says "link, ssh: exit status" "$d/ssh.rc" '^1$'
    says "link, ssh: nothing to complain of" "$d/ssh.said" . 0
    holds "link, ssh" "$d/ssh.json" '(.findings | length) == 1 and .findings[0].kind == "link" and .processes == 4'
    says "link, ssh: no passwords" "$log/ssh.calls" '^-o BatchMode=yes -o ConnectTimeout=[0-9]+ -- h0 r2_stat --json$'
    says "link, ssh: hosts that do not answer: exit status" "$d/ssh-some.rc" '^1$'
    says "link, ssh: they are named" "$d/ssh-some.said" '^r2_diag: (silent: no answer within 5 s|refuses: root@refuses: Permission denied|garbage: what it answered is not|short: what it answered is not)' 4
    holds "link, ssh: and left out" "$d/ssh-some.json" '([.not_read[].source] | sort) == ["garbage", "refuses", "short", "silent"] and .processes == 4 and .findings[0].kind == "link"'
    # one host's statistics are missing
    "$B/r2_diag" --json "$d/h0" "$d/h1" "$d/h3" >"$d/missing.json"
    holds "link, without h2: it is named" "$d/missing.json" '.missing == ["h2"] and .processes == 3'
    holds "link, without h2: nothing else is blamed" "$d/missing.json" '[.findings[] | select(.kind != "link" or ([.source, .destination] | sort) != ["h1", "h3"])] == []'
    "$B/r2_diag" "$d/h0" "$d/h1" >"$d/two.text"
    status "link, of two hosts: too little" $? 2
    says "link, of two hosts: too little, said" "$d/two.text" '^too little is known to judge: [0-9]+ figures'
    "$B/r2_diag" --job 81233 "$d"/h? >/dev/null
    status "link: of its job" $? 1
    "$B/r2_diag" --job 5 "$d"/h? >/dev/null 2>"$log/said"
    status "link: of another job" $? 2
    says "link: of another job, said" "$log/said" '^r2_diag: there is no process of job 5 in what was read$' 1
}

wanted nic && job nic 'h2:n0 delay 150ms' && {
    "$B/r2_diag" --json "$d"/h? >"$d/copy.json"
    status "nic: copies" $? 1
    holds "nic: row and column are one finding" "$d/copy.json" '[.findings[] | [.kind, .source, .destination, .figures]] == [["place", "h2", "h2", 6]]'
    holds "nic: row and column are marked" "$d/copy.json" '[.sizes[] | select(.size == "16K") | .mark] == [[[null, null, "column", null], [null, null, "column", null], ["row", "row", null, "row"],
        [null, null, "column", null]]]'
    says "nic: the table" "$d/live.text" '^h2\* +\[[0-9.]+\] +\[[0-9.]+\] +- +\[[0-9.]+\]$' 1
    says "nic: the sentence" "$d/live.text" '^h2 is slow both ways: what it sends, and what is sent to it, takes ' 1
}

# refuses RC TEXT ARGUMENT...
refuses() {
    want=$1 text=$2
    shift 2
    PATH="$log/bin:$PATH" "$B/r2_diag" "$@" >"$log/said" 2>&1
    got=$?
    if [ $got = "$want" ] && grep -qF -e "r2_diag: $text" "$log/said"; then ok "refuses $*"; else bad "r2_diag $*" "exit $got: $(cat "$log/said")"; fi
}
wanted refuses && {
    mkdir "$log/nothing"
    echo '{"schema": "r2.event/1"}' >"$log/other.json"
    echo '{"schema": "r2.stat/1", "host": "x", "jobs": []}' >"$log/idle.json"
    for job in 1 2; do
        echo '{"schema": "r2.stat/1", "jobs": [{"id": "'$job'", "processes": [{"host": "a", "peers": [], "peers_not_listed": 0}]}]}' >"$log/job$job.json"
    done
    refuses 1 "$log/nothing: there are no statistics in it" "$log/nothing"
    refuses 1 "$log/none: No such file or directory" "$log/none"
    refuses 1 "$log/other.json: neither statistics of a process nor what r2_stat --json prints" "$log/other.json"
    refuses 1 "/dev/null: no regular file" /dev/null
    refuses 2 "there is no process in what was read" "$log/idle.json"
    refuses 2 "statistics of job '1' and of others; --job ID takes those of one" "$log/job1.json" "$log/job2.json"
    refuses 1 "/dev/full: No space left on device" --svg /dev/full "$log/job1.json"
    refuses 2 "which run directories, or files of statistics?"
    refuses 2 "--ssh: which hosts?" --ssh
    refuses 2 "'-oProxyCommand=x' cannot be the name of a host" --ssh -- -oProxyCommand=x
    refuses 2 "'h0;id' cannot be the name of a host" --ssh 'h0;id'
    refuses 2 "--run-dir: '\$(id)' has characters that a shell would read" --ssh --run-dir '$(id)' h0
    refuses 2 "--run-dir goes with --ssh" --run-dir /run "$log/idle.json"
    refuses 2 "--limit goes with --ssh" --limit 3 "$log/idle.json"
    refuses 2 "--limit: expected 1 to 3600 seconds, not '0'" --ssh --limit 0 h0
    refuses 2 "--size is 16K, 128K, 1M or more, not '2M'" --size 2M "$log/idle.json"
    refuses 2 "--size is small or large, of NICs, not '16K'" --nics --size 16K "$log/idle.json"
    refuses 2 "--json and --svg - want the same output" --json --svg - "$log/idle.json"
    refuses 2 "--svg needs a file, or - for the output" --svg= "$log/idle.json"
}
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
