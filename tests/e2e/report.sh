#!/bin/sh
# r2_report on what a job leaves behind: a NIC goes silent under a collective on the software fabric; the page of the run directories of its hosts, made while
# the job runs and from copies afterwards, says what broke, when, what it cost and what to do, and needs nothing else.
# Argument: build folder.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=report$$
skipped=0
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE SLURM_JOB_ID SLURM_STEP_ID
# says NAME FILE PATTERN [COUNT]: so many lines of the file are like it; without a number at least one is
says() {
    n=$(grep -cE -e "$3" "$2")
    if [ "${4:-$n}" = "$n" ] && { [ "$n" -gt 0 ] || [ "${4:-}" = 0 ]; }; then ok "$1"; else bad "$1" "$n lines like '$3' in: $(cut -c1-300 "$2" | head -60)"; fi
}
# alone NAME PAGE: one document, well-formed, without scripts, and no address in it but the name of SVG's elements
alone() {
    grep -oE '(https?:|<[a-z]+[^>]* (src|href)=|url\(|@import|<script|<link|<iframe)[^ >]*' "$2" | grep -vF 'http://www.w3.org/2000/svg' >"$log/said"
    if [ ! -s "$log/said" ]; then ok "$1: needs no network"; else bad "$1: needs no network" "$(cat "$log/said")"; fi
    if ! command -v xmllint >/dev/null; then
        skipped=$((skipped + 1))
        echo "SKIP $1: well-formed: xmllint is not here"
    elif xmllint --noout "$2" 2>"$log/said"; then
        ok "$1: well-formed"
    else
        bad "$1: well-formed" "$(head -5 "$log/said")"
    fi
}
# A browser, where there is one of Chromium's kin: a copy of the page measures itself, and prints what it found instead of itself. BROWSER=FILE: this one.
browser=$(for b in "${BROWSER:-}" chromium chromium-browser google-chrome headless_shell; do [ -z "$b" ] || command -v "$b"; done | head -1)
case $("${browser:-false}" --version 2>/dev/null) in *[Cc]hrom*) ;; *) browser= ;; esac
cat >"$log/measure" <<'END'
<script>
addEventListener("load", function () {
    var wide = [], flat = [], root = document.documentElement;
    document.querySelectorAll('details').forEach(function (d) { d.open = true; });
    document.querySelectorAll('body *').forEach(function (e) {
        if (!e.closest('svg') && e.getBoundingClientRect().right > root.clientWidth + 0.5) wide.push(e.tagName + ' ' + e.textContent.slice(0, 40));
    });
    document.querySelectorAll('svg, img').forEach(function (e) {
        var r = e.getBoundingClientRect();
        if (r.width < 400 || r.height < 60) flat.push([r.width, r.height]);
    });
    document.title = JSON.stringify({window: root.clientWidth, page: root.scrollWidth, wide: wide.slice(0, 5), flat: flat,
        pictures: document.querySelectorAll('svg, img').length, asked: performance.getEntriesByType('resource').map(function (r) { return r.name; })});
    document.body.innerHTML = '';
});
</script></body></html>
END
# rendered NAME PAGE PICTURES: it fits into windows of 1280 and of 800 pixels with all its details open, has so many pictures that are seen, asks nobody for
# anything, and the browser does not complain
rendered() {
    if [ -z "$browser" ]; then
        skipped=$((skipped + 2))
        echo "SKIP $1: in a browser: none of Chromium's kin is here (BROWSER=FILE)"
        return
    fi
    sed "s,</body></html>.*,," "$2" | cat - "$log/measure" >"$log/page.html"
    for width in 1280 800; do
        HOME=$log timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$log/browser" --enable-logging=stderr --window-size=$width,900 \
            --dump-dom "file://$log/page.html" 2>"$log/complaints" | sed -n 's,.*<title>\({.*}\)</title>.*,\1,p' | sed 's/&amp;/\&/g; s/&lt;/</g; s/&gt;/>/g' >"$log/said"
        grep CONSOLE "$log/complaints" >>"$log/said"
        if jq -e --argjson pictures "$3" --argjson width $width '.window > $width - 40 and .window <= $width and .page <= .window and .wide == [] and .flat == [] and
            .pictures == $pictures and .asked == []' "$log/said" >/dev/null 2>&1; then
            ok "$1: in a browser, $width pixels wide"
        else
            bad "$1: in a browser, $width pixels wide" "$(cat "$log/said"; [ -s "$log/said" ] || tail -3 "$log/complaints")"
        fi
    done
}
"$B/softfab" up --name $fab --hosts 3 --nics 3 --rate 20MB/s >/dev/null || exit 1
dirs=
for h in 0 1 2; do dirs="$dirs $("$B/softfab" exec --name $fab --host $h -- sh -c 'echo "$NCCL_R2_RUN_DIR"')"; done
cat >"$log/live" <<END
told='[.jobs[].processes[] | any(.nics[]; .moved > 0 and (.why | test("^R2-|port or cable")))] | any and all'
end=\$((\$(date +%s) + 30))
for h in 0 1 2; do
    until env -u NCCL_R2_RUN_DIR "$B/softfab" exec --name $fab --host \$h -- "$B/r2_stat" --json | jq -e "\$told" >/dev/null 2>&1 || [ "\$(date +%s)" -ge \$end ]; do sleep 0.1; done
done
"$B/r2_report" $dirs -o "$log/live.html" >"$log/live.said" 2>&1
echo \$? >"$log/live.rc"
mkdir "$log/copy"
for h in 0 1 2; do
    mkdir "$log/copy/h\$h"
    cp "\$(echo $dirs | cut -d ' ' -f \$((h + 1)))"/*.stat "$log/copy/h\$h"
done
END
command -v jq >/dev/null || {
    echo "jq is not installed"
    exit 77
}
SLURM_JOB_ID=81233 timeout -k 5 120 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 3 --placement out -w 1 -T 30s --duration 4s \
    --fault '2500ms:h1:n1 blackhole' --fault-cmd "2600ms:sh $log/live" --fault-optional --after 300ms >"$log/out" 2>&1
rc=$?
was_right "the job" || exit 1

page=$log/live.html
says "while it runs: exit status" "$log/live.rc" '^0$'
says "while it runs: nothing to complain of" "$log/live.said" . 0
alone "while it runs" "$page"
rendered "while it runs" "$page" 2
says "the job and its hosts" "$page" '<h1>Incident of job 81233</h1>' 1
says "three processes" "$page" 'UTC: 3 processes on 3 hosts, '
says "what broke" "$page" '<li>[0-9:.]+ <span class="critical"><strong>R2-L02</strong> h1:fab1'
says "the evidence" "$page" 'h1 fab1.*: no answer at \+[0-9.]+ ms'
says "the runbook's text, whole" "$page" '<strong>Do[.]</strong> Let the job end, drain the node, replace the cable'
says "the runbook's other sections are not there" "$page" 'RDMA device reported a fatal error' 0
says "the timeline: lost where it broke" "$page" 'class="t0"><title>lost from [0-9:.]+ to [0-9:.]+ \(it had not come back\), pid [0-9]+: fab1' 1
says "the timeline: the others" "$page" 'class="t1"><title>left for a fault of the other end'
says "the timeline and the rates: all NICs of all hosts" "$page" '<text x="24[.]0" y="[0-9.]+" class="n">fab[012]</text>' 18
says "the timeline: all NICs of all hosts" "$page" 'class="r"/>' 9
says "rates while it runs: all NICs of all hosts" "$page" '<title>fab[012]: at most [0-9.]+ [kM]B/s, at [0-9:]+</title>' 9
says "traffic: all NICs of all hosts" "$page" '^<tr><td>h[012]</td><td>fab[012]</td><td class="n">[0-9.]+ [kM]B</td>' 9
says "the cost" "$page" '^<tr><td>h1</td><td class="n">1</td><td class="n">[1-9][0-9]*</td><td class="n">[0-9.]+ ms</td>.*<td class="n">[0-9.]+ s, (0[.][1-9]|[1-9])[0-9.]* %</td><td class="n">[0-9.]+ [kM]?B</td><td class="n">0</td></tr>'
says "the cost: what was carried less" "$page" "^<p>Until what was lost was back, or the job had ended, its hosts sent and received [0-9.]+ [kM]?B less than at the rate before"

# afterwards: statistics have gone with their processes, copies of them and the files of traffic have not
# shellcheck disable=SC2086
"$B/r2_report" $dirs --output="$log/after.html" || bad "afterwards" "exit $?"
alone "afterwards" "$log/after.html"
says "afterwards: what broke" "$log/after.html" '<li>[0-9:.]+ <span class="critical"><strong>R2-L02</strong> h1:fab1'
says "afterwards: traffic" "$log/after.html" '^<tr><td>h[012]</td><td>fab[012]</td><td class="n">[0-9.]+ [kM]B</td>' 9
says "afterwards: rates" "$log/after.html" '<title>fab[012]: at most [0-9.]+ [kM]B/s, at [0-9:]+</title>' 9
says "afterwards: the NIC that was lost" "$log/after.html" 'class="t1" opacity="0.3"><title>left by all connections from [0-9:]+ to [0-9:]+</title>'
says "afterwards: the verdict in both pictures" "$log/after.html" 'class="v">R2-L02</text>' 2
if [ "$(find $dirs -name '*.stat' | wc -l)" = 0 ]; then ok "afterwards: no statistics are there"; else bad "afterwards" "statistics are there"; fi
says "afterwards: the processes' ends" "$log/after.html" '<td>stop</td>' 3
for h in 0 1 2; do cp "$(echo "$dirs" | awk -v n=$((h + 1)) '{ print $n }')"/*.ndjson "$log/copy/h$h"; done
"$B/r2_report" "$log"/copy/h? -o - >"$log/copy.html" || bad "from copies" "exit $?"
says "from copies of statistics: no rates" "$log/copy.html" 'class="n">fab[012]</text>' 9
says "from copies: traffic" "$log/copy.html" '^<tr><td>h[012]</td><td>fab[012]</td><td class="n">[0-9.]+ [kM]B</td>' 9
cat "$log"/copy/h?/*.ndjson >"$log/81233.n17.ndjson"
n=0
for f in $(find $dirs -name '*.traffic'); do
    n=$((n + 1))
    cp "$f" "$log/81233.n17.$n.traffic"
done
"$B/r2_report" "$log"/81233.n17.* -o "$log/kept.html" --job 81233 || bad "from what r2-epilog keeps" "exit $?"
says "from what r2-epilog keeps: traffic" "$log/kept.html" '<title>fab[012]: at most [0-9.]+ [kM]B/s' 9
cp "$log/81233.n17.1.traffic" "$log/other.traffic"
jq -nc '{schema: "r2.event/1", ts: "2026-11-27T00:00:00Z", host: "h1", job: {scheduler: "slurm", id: "7"}, pid: 1, kind: "start", text: "x"}' >"$log/other.ndjson"
"$B/r2_report" "$log/other.ndjson" "$log/other.traffic" -o "$log/other.html" --job 7 || bad "traffic of another job" "exit $?"
says "traffic of another job is left out" "$log/other.html" 'There was no file of traffic'
says "from what r2-epilog keeps" "$log/kept.html" 'UTC: 3 processes on 3 hosts, '
# what users may write into texts stays text
mkdir "$log/hostile"
jq -nc '{schema: "r2.event/1", ts: "2026-11-27T00:00:00Z", host: "<script>", job: {scheduler: "slurm", id: "\"><img src=x>"}, pid: 1, kind: "verdict", severity: "critical", code: "R2-L01",
    text: ("a&b <b>\u0001\u00e4</b> " + "x" * 200), evidence: ["</td></table><iframe>", "y" * 200]}, {schema: "r2.event/1", ts: "2026-11-27T00:00:01Z", host: "h1", job: {scheduler: "slurm", id: "7"}, pid: 2,
    kind: "verdict", severity: "<b>", code: "<script src=//x", text: "fab1"}' >"$log/hostile/x.ndjson"
echo 'no event' >>"$log/hostile/x.ndjson"
ln -s "$log/none" "$log/hostile/another.ndjson" # for root, too, a file that cannot be read
"$B/r2_report" "$log/hostile" -o "$log/hostile.html" 2>"$log/said" || bad "hostile texts" "exit $?"
says "a file of a run directory that cannot be read" "$log/said" "^r2_report: $log/hostile/another.ndjson: No such file" 1
says "a file of a run directory that cannot be read: the page" "$log/hostile.html" '1 files could not be read and are left out'
says "several jobs" "$log/hostile.html" '<h1>Incident</h1>' 1
says "several jobs: told of" "$log/hostile.html" 'events are of several jobs'
"$B/r2_report" "$log/hostile" -o - --job 7 >"$log/one.html" 2>/dev/null || bad "one of several jobs" "exit $?"
says "one of several jobs" "$log/one.html" '<h1>Incident of job 7</h1>' 1
says "one of several jobs: no word of others" "$log/one.html" 'several jobs' 0
alone "hostile texts" "$log/hostile.html"
rendered "hostile texts" "$log/hostile.html" 0
says "hostile texts: escaped" "$log/hostile.html" '&lt;script&gt;:a&amp;b &lt;b&gt;'
says "hostile texts: a code" "$log/hostile.html" '<strong>&lt;script src=//x</strong>'
says "hostile texts: a line that is no event is told of" "$log/hostile.html" '1 lines were no events'
# refuses RC TEXT ARGUMENT...
refuses() {
    want=$1 text=$2
    shift 2
    "$B/r2_report" "$@" >"$log/said" 2>&1
    got=$?
    if [ $got = "$want" ] && [ "$(wc -l <"$log/said")" = 1 ] && grep -qF -e "r2_report: $text" "$log/said"; then ok "refuses $*"; else bad "r2_report $*" "exit $got: $(cat "$log/said")"; fi
}
mkdir "$log/nothing"
refuses 1 "$log/nothing: there are no events in it" "$log/nothing" -o "$log/x.html"
refuses 1 "$log/none: No such file or directory" "$log/none" -o "$log/x.html"
refuses 1 "there is no event of job 5: nothing to report" "$log/copy/h0" --job 5 -o "$log/x.html"
refuses 1 "$log/none/x.html: No such file or directory" "$log/hostile/x.ndjson" -o "$log/none/x.html"
awk 'BEGIN { for (i = 0; i <= 200000; i++) print "{\"schema\":\"r2.event/1\",\"ts\":\"2026-11-27T00:00:00Z\",\"host\":\"h\"}" }' >"$log/many.ndjson"
refuses 1 "$log/many.ndjson: more events than the 200000 that fit; --job ID takes" "$log/many.ndjson" -o "$log/x.html"
echo no >"$log/no.traffic"
refuses 1 "$log/no.traffic is no file of traffic" "$log/hostile/x.ndjson" "$log/no.traffic" -o "$log/x.html"
refuses 1 "/dev/full: No space left on device" "$log/hostile/x.ndjson" -o /dev/full
if [ ! -e "$log/x.html" ]; then ok "no page where there is nothing to report"; else bad "no page" "there is one"; fi
refuses 2 "which run directories, or files of events?" -o "$log/x.html"
refuses 2 "-o FILE is needed" "$log/hostile"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
