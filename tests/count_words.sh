#!/bin/sh
# Counts what is left of words that the field does not use, beside those that it does (docs/glossary.md): uses in plugin/ and
# topo/, in the documents, in tests and tools. For people; nothing depends on the numbers.
# Not all of it is dialect: the life of a communicator of NCCL (tests/nccl), the board that ranks of r2_perf and r2_soak share,
# heal as a fault of fabric and lab, a seed or a frame that is replayed, and what users read: "life N" and "news" of the log and
# of events, replayed_bytes, NCCL_R2_BOARD.
#   count_words.sh
cd "$(dirname "$0")/.." || exit 1
# count PATTERN PLACE...: whole words, also as a part of a name between underscores
count() {
    pattern=$1
    shift
    git ls-files -- "$@" ':!tests/fuzz/corpus' | grep -E '\.([ch]|def|sh|md|pml|1|7)$' | grep -v -e '^docs/glossary.md$' -e '^tests/count_words.sh$' |
        xargs grep -owihE "$pattern|[a-z0-9_]*_($pattern)(_[a-z0-9_]*)?|($pattern)_[a-z0-9_]*" | wc -l
}
row() { # WORD PATTERN FIELD PATTERN
    printf '%-22s %7d %7d %7d   %-22s %7d %7d %7d\n' "$1" "$(count "$2" plugin topo)" "$(count "$2" docs '*.md')" "$(count "$2" tests tools)" \
        "$3" "$(count "$4" plugin topo)" "$(count "$4" docs '*.md')" "$(count "$4" tests tools)"
}
printf '%-22s %7s %7s %7s   %-22s %7s %7s %7s\n' 'not the field'"'"'s' plugin docs tests "the field's" plugin docs tests
row 'life, lives' 'life|lives' incarnation 'incarnations?'
row 'say, said, tell, told' 'say|says|said|tell|tells|told' 'send, announce' 'send|sends|sent|announces?|announced'
row 'word, words' 'words?' 'report, field, text' 'reports?|fields?|text'
row news 'news' 'health report, gossip' 'health reports?|gossip'
row 'ask, question' 'asks?|asked|questions?' probe 'probes?|probed'
row 'heal, return' 'heal|heals|returns? of|come back' 'probation, reconnect' 'probation|reconnect'
row board 'boards?' 'host registry' 'host_registry|host registry'
row hold 'holds?|held' quarantine 'quarantine'
row 'cut, part' 'cut|cuts|parts?' 'stripe, fragment' 'stripes?|fragments?'
row staging 'staging' 'bounce buffer' 'bounce'
row look 'looks?|looked' 'poll, tick, read' 'polls?|polled|ticks?|reads?'
row replay 'replays?|replayed' retransmit 'retransmits?|retransmitted'
