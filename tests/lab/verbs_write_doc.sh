#!/bin/sh
# verbs_write_doc.sh TABLE DOC VERSIONS: puts the table of verbs_compare.sh between the markers of DOC.
set -eu
table=$1 doc=$2 versions=$3
grep -q '^<!-- observations -->$' "$doc" && grep -q '^<!-- end of observations -->$' "$doc" || {
    echo "verbs_write_doc.sh: $doc lacks the markers 'observations' and 'end of observations'" >&2
    exit 1
}
awk -v file="$table" -v about="$(date -u +%Y-%m-%d); $versions" '
    /^<!-- observations -->$/ {
        print; print about "."; print ""
        while ((getline line < file) > 0) print line
        skip = 1; next
    }
    /^<!-- end of observations -->$/ { skip = 0 }
    !skip { print }' "$doc" >"$table.doc"
cat "$table.doc" >"$doc"
