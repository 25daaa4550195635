# Documents beside a JSON schema, of as much of draft 2020-12 as share/schemas uses; any other keyword is an error, so that none is passed over.
#   jq -rs --argjson open BOOLEAN --slurpfile schema FILE -f schema.jq DOCUMENT...     a line per fault; nothing: all of them are valid
# Published schemas let keys be added. Here a key that a schema does not know is a fault, unless $open.
def known:
  ["$schema", "$id", "title", "description", "type", "enum", "const", "pattern", "minimum", "maximum", "minItems", "maxItems", "required", "properties",
   "additionalProperties", "items"];
def kind: if type == "number" and floor == . then "integer" else type end;
def faults($s; $at):
  . as $v
  | (($s | keys) - known | select(. != []) | "\($at): the schema has unknown keywords: \(join(", "))"),
    (select($s | has("type")) | [$s.type] | flatten
     | select(index($v | kind) == null and (index("number") != null and ($v | type) == "number" | not))
     | "\($at) is \($v | type), not \(join(" or "))"),
    (select(($s | has("enum")) and ($s.enum | index([$v])) == null) | "\($at) is \($v), none of \($s.enum)"),
    (select(($s | has("const")) and $s.const != $v) | "\($at) is \($v), not \($s.const)"),
    (select(type == "string" and ($s | has("pattern"))) | select(test($s.pattern) | not) | "\($at) is \(.), not like \($s.pattern)"),
    (select(type == "number" and ($s | has("minimum"))) | select(. < $s.minimum) | "\($at) is \(.), less than \($s.minimum)"),
    (select(type == "number" and ($s | has("maximum"))) | select(. > $s.maximum) | "\($at) is \(.), more than \($s.maximum)"),
    (select(type == "array")
     | (select(length < ($s.minItems // 0) or length > ($s.maxItems // length)) | "\($at) has \(length) items"),
       (select($s | has("items")) | range(length) as $i | .[$i] | faults($s.items; "\($at)[\($i)]"))),
    (select(type == "object")
     | (($s.required // [])[] as $k | select(has($k) | not) | "\($at).\($k) is missing"),
       (keys_unsorted[] as $k
        | .[$k]
        | if $s.properties // {} | has($k) then faults($s.properties[$k]; "\($at).\($k)")
          elif $s.additionalProperties | type == "object" then faults($s.additionalProperties; "\($at).\($k)")
          elif $open or ($s.properties | not) then empty
          else "\($at).\($k) is not in the schema" end));
to_entries[] | .key as $n | .value | faults($schema[0]; "\($n)")
