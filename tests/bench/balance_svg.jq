# bench-balance.json to a picture: for each loss, what all operations reach of the ideal (a dot each), hot repair beside it
def x(v): 330 + ([v, 1.2] | min) * 500;
def dot(v; y; colour): "<circle cx=\"\(x(v))\" cy=\"\(y)\" r=\"4\" fill=\"\(colour)\" fill-opacity=\"0.7\"/>";
def text(px; py; anchor; t): "<text x=\"\(px)\" y=\"\(py)\" text-anchor=\"\(anchor)\">\(t)</text>";

(.lost | group_by([.nics, .lost, .hosts])) as $g | ($g | length * 26 + 90) as $h |
"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"\($h)\" font-family=\"sans-serif\" font-size=\"13\">",
"<rect width=\"960\" height=\"\($h)\" fill=\"white\"/>",
text(20; 24; "start"; "bandwidth after NICs were lost, of what the survivors can carry; a dot for each operation"),
"<circle cx=\"26\" cy=\"42\" r=\"4\" fill=\"#1f6fb2\"/>", text(36; 46; "start"; "weights"),
"<circle cx=\"126\" cy=\"42\" r=\"4\" fill=\"#d1651f\"/>", text(136; 46; "start"; "all on one backup (NCCL_R2_BALANCE=off)"),
(range(0; 7) | . / 5 | "<line x1=\"\(x(.))\" y1=\"58\" x2=\"\(x(.))\" y2=\"\($h - 26)\" stroke=\"#ddd\"/>", text(x(.); $h - 8; "middle"; "\(. * 100 | round) %")),
"<line x1=\"\(x(0.97))\" y1=\"58\" x2=\"\(x(0.97))\" y2=\"\($h - 26)\" stroke=\"#2a8a3a\" stroke-dasharray=\"4 3\"/>",
(range(0; $g | length) as $i | (74 + $i * 26) as $y | $g[$i] as $r |
    text(320; $y + 4; "end"; "\($r[0].lost) of \($r[0].nics) lost, \(if $r[0].hosts == 1 then "one host" else "both hosts" end)"),
    ($r[] | select(.hot_repair != null) | dot(.hot_repair; $y; "#d1651f")), ($r[] | dot(.of_ideal; $y; "#1f6fb2"))),
"</svg>"
