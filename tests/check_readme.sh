#!/bin/sh
# docs/options.md has the table that r2_config --markdown prints; README has at most 150 lines; what documents link to is there, and what the commands of
# docs/expectations.md name.
#   check_readme.sh BUILD            closes with "N passed, N failed"
#   check_readme.sh BUILD --write    puts the table into docs/options.md
cd "$(dirname "$0")/.." || exit 2
B=$1 page=docs/options.md
table=$(mktemp) want=$(mktemp)
trap 'rm -f "$table" "$want"' EXIT
"$B/r2_config" --markdown >"$table" || exit 1
awk -v t="$table" '
    /<!-- options -->/ { print; while ((getline line < t) > 0) print line; skip = 1; next }
    /<!-- end of options -->/ { skip = 0 }
    !skip { print }' $page >"$want"
if [ "${2:-}" = --write ]; then
    cat "$want" >$page
    exit 0
fi
passed=0 failed=0
ok() { # ok STATUS TEXT
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $2"
    fi
}
grep -q '<!-- options -->' $page
ok $? "$page has no table of options"
diff -u $page "$want"
ok $? "$page is not up to date: run make readme"
[ "$(wc -l <README.md)" -le 150 ]
ok $? "README.md has $(wc -l <README.md) lines, more than 150"
# Who writes a table finds it by its marks, each a line of its own.
for doc in README.md docs/*.md docs/*/*.md tests/*/README.md tools/*/README.md; do
    [ -e "$doc" ] || continue
    ! grep -qE '(.<!-- |<!-- .* -->.)' "$doc"
    ok $? "$doc has a mark that is not a line of its own"
done
# Links, relative to the document, and files named as docs/NAME or tests/NAME, relative to the root.
for doc in README.md CONTRIBUTING.md NEWS.md SECURITY.md docs/*.md docs/*/*.md tests/README.md tests/*/README.md tools/*/README.md; do
    [ -e "$doc" ] || continue
    for to in $(grep -o '](\([^)#]*\)' "$doc" | sed 's/^](//'); do
        case $to in *:*) continue ;; esac
        [ -e "$(dirname "$doc")/$to" ]
        ok $? "$doc links to $to, which is not there"
    done
    for to in $(grep -o '`\(docs\|tests\|plugin\|tools\)/[a-zA-Z0-9_./-]*`' "$doc" | tr -d '`'); do
        [ -e "$to" ]
        ok $? "$doc names $to, which is not there"
    done
done
# The map of the sources: the files that it names are there, by their folder where it says one; what happens when a port goes
# down is at most eight steps, each of which names a file.
map=docs/architecture.md
for to in $(grep -o '`[a-z0-9_/]*\.[ch]`' $map | tr -d '`' | sort -u); do
    git ls-files plugin topo | grep -q "\(^\|/\)$to$"
    ok $? "$map names $to, which is not there"
done
steps=$(sed -n '/^## A port that goes down/,/^The same between/p' $map | awk '/^[0-9]+\. /{n++} n && /`[a-z0-9_\/]*\.[ch]`/{f[n] = 1} END {for (i = 1; i <= n; i++) if (!f[i]) bad = 1; print n + 0, bad + 0}')
case $steps in [1-8]" 0") ok 0 ;; *) ok 1 "$map: steps of a port that goes down, and whether one names no file: $steps" ;; esac
# What users expect: 37 rows, each with a state and one command, whose scripts, targets, programs and their options are there. An argument behind the build
# folder is a part of the script.
expect=docs/expectations.md
awk -F ' \\| ' '/^<!-- expectations/ { on = 1 } /^<!-- end of/ { on = 0 } on && /^\| [0-9]/ { gsub(/\\\|/, "|"); print }' $expect >"$table"
[ "$(awk '{ n += $2 == NR } END { print n + 0, NR }' "$table")" = "37 37" ]
ok $? "$expect has the rows 1 to 37, in order"
there() { # there WORDS OF A COMMAND: else a line for each that is not
    what= script=
    for word in "$@"; do
        case $word in
        *=* | "'"* | *"'") ;;
        '|' | sh) what='' ;;
        make) what=make ;;
        build) [ "$script" ] || echo "$word, which is no script's" ;;
        build/tests/unit/*) [ "$(find tests/unit -name "${word##*/}.c")" ] || echo "$word" ;;
        build/*)
            # shellcheck disable=SC2016
            grep -qF '$(B)/'"${word#build/}" Makefile || echo "$word"
            what=$B/${word#build/}
            ;;
        tests/* | docs/*)
            [ -e "$word" ] || echo "$word"
            script=$word
            ;;
        --[a-z]*) [ ! -x "$what" ] || [ -d "$what" ] || [ "${what##*.}" = so ] || "$what" -h | grep -qE -e "(^|[ ,[])${word%%=*}([^a-z-]|$)" || echo "$what's $word" ;;
        *)
            if [ "$what" = make ]; then
                grep -q "^$word:" Makefile || echo "make's $word"
            elif [ "$script" ] && [ "$script" != tests/run.sh ]; then
                grep -qsw -e "$word" "$script" || echo "$script's $word"
            fi
            ;;
        esac
    done
}
set -f
while IFS= read -r row; do
    n=$(echo "$row" | sed 's/^| \([0-9]*\) .*/\1/')
    echo "$row" | grep -qE '^\| [0-9]+ \| [^|]+ \| (yes|in part|no) \| `[^`]+` \| '
    ok $? "$expect, row $n: a state, and one command"
    # shellcheck disable=SC2046
    none=$(there $(echo "$row" | sed 's/^[^`]*`\([^`]*\)`.*/\1/'))
    [ -z "$none" ]
    ok $? "$expect, row $n names what is not there: $none"
done <"$table"
set +f
echo "$passed passed, $failed failed"
[ $failed = 0 ]
