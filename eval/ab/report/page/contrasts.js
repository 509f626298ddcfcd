// The contrasts as tables: verdicts, pairs of hits, and equal bytes.
const isPaired = c => isGiven(c.both);

function verdictChip(c) {
  if (!c.n || c.verdict >= 5)
    return el("span", {class: "soft", text: c.label || verdicts[c.verdict]});
  const text = signs[c.verdict] + verdicts[c.verdict], margin = marginText(c);
  return el("span", {}, el("span", {class: "chip " + chips[c.verdict], text}),
    c.verdict === 2 ? el("small", {class: "soft", text: "could see " + detectable(c)}) : null,
    margin ? el("small", {class: "soft", text: margin}) : null);
}

// The 2 x 2 table of a contrast whose numbers are all 0 or 1.
function pairTable(c) {
  const cell = (n, className) => el("td", {class: className + " r",
    text: `${n} (${(100 * n / c.n).toFixed(0)}%)`});
  return el("table", {class: "pairs"},
    el("thead", {}, el("tr", {}, el("th"), el("th", {class: "r", text: "B right"}),
      el("th", {class: "r", text: "B wrong"}))),
    el("tbody", {},
      el("tr", {}, el("th", {text: "A right"}), cell(c.both, "tie"), cell(c.onlyA, "gain")),
      el("tr", {}, el("th", {text: "A wrong"}), cell(c.onlyB, "loss"), cell(c.neither, "tie"))));
}
const tiesText = c => `${c.identical} of ${c.n} pairs are ties: both arms have the same number.`;

function contrastDetails(c) {
  const held = c.kind === atEqualBytes ? [["bytes held by both", bytes(c.bytes)],
    ["peaks of A and B", bytes(c.peakA) + ", " + bytes(c.peakB)]] : [];
  const facts = [
    ["A", nameOfA(c)], ["B", nameOfB(c)], ["on", questionAt(c)],
    ["mean of A", num(c.meanA)],
    ["mean of B", num(c.meanB) + (c.implied ? " (by definition)" : "")],
    ["effect", effectText(c, c.effect) + " " + intervalOf(c)], ["method", c.method],
    ["p, adjusted", c.planned ? pText(c.pAdjusted) + ` (Holm over ${c.size})` : ""],
    ["could see", c.planned ? detectable(c) : ""], ["margin", marginText(c)],
    ["noise floor", c.noise > 0 ? num(c.noise) : ""], ["items / documents", itemsOf(c)],
    ["items of one arm alone", c.missing > 0 ? c.missing : ""], ...held,
  ].filter(fact => fact[1] !== "");
  return el("div", {class: "both"},
    el("div", {class: "facts"}, ...facts.map(([name, text]) =>
      el("div", {}, el("b", {text: name}), String(text)))),
    el("div", {}, isPaired(c) ? pairTable(c) : null, el("p", {class: "note", text: tiesText(c) +
      (isPaired(c) ? "" : " The numbers are not all 0 or 1, so there is no 2 x 2 table.")})));
}

// Without a planned contrast the table has no columns for p and verdict.
function contrastTable(host, list, limit) {
  const withBytes = list.some(c => c.kind === atEqualBytes);
  const isPlanned = list.some(c => c.planned || c.label);
  const onlyIf = (wanted, column) => wanted ? [column] : [];
  const pair = c => el("span", {}, nameOfA(c),
    el("small", {class: "soft", text: "against " + nameOfB(c)}));
  const effect = c => el("span", {class: "nowrap"}, effectText(c, c.effect),
    el("small", {class: "soft", text: intervalOf(c)}));
  dataTable(host, list, [
    {name: "arm", key: nameOfA, node: pair, wrap: true},
    ...onlyIf(isPlanned, {name: "verdict", key: c => c.verdict, node: verdictChip}),
    {name: "on", key: questionAt, wrap: true, wide: true},
    ...onlyIf(withBytes, {name: "both hold", key: c => c.bytes, text: c => bytes(c.bytes),
      right: true, title: "measured bytes of cache plus policy while items are scored"}),
    {name: "effect", key: c => c.effect, node: effect, title: `with its interval of ` +
      `${100 * statistics.confidence}%. A - B; A / B - 1 of speeds, bytes, kld and perplexities`},
    ...onlyIf(isPlanned, {name: "p", key: c => c.pAdjusted, text: c => pText(c.pAdjusted),
      right: true, wide: true, title: "adjusted by Holm's method over the planned contrasts"}),
    {name: "ties", key: c => c.identical, text: c => c.n ? `${c.identical} of ${c.n}` : "-",
      right: true, wide: true, title: "pairs in which both arms have the same number"},
    {name: "n", key: c => c.n, text: itemsOf, right: true, wide: true, title: "items / documents"},
  ], limit, contrastDetails);
}

function showContrasts() {
  if (contrasts.every(c => c.kind === atEqualBytes)) return;
  const made = section("Verdicts", "A against B, item by item. Planned contrasts have a verdict: " +
    "p is adjusted by Holm's method over all of them, their intervals hold together, and a " +
    "verdict agrees with its interval. All others are exploratory: an effect and an interval of " +
    "this contrast by itself, no verdict. The button + shows all numbers of a contrast.");
  const [bar, host] = controls(made), all = contrasts.filter(c => c.kind !== atEqualBytes);
  const filters = [
    {name: "contrasts", of: c => c.planned ? "planned" : "exploratory",
      value: all.some(c => c.planned) ? "planned" : ""},
    {name: "of", of: c => kinds[c.kind], value: ""},
    {name: "task", of: c => c.task, value: ""},
    {name: "metric", of: c => c.metric, value: ""},
    {name: "protocol", of: c => c.protocol, value: ""},
    {name: "verdict", of: c => verdicts[c.verdict], value: ""},
  ];
  let words = [];
  const text = c => [nameOfA(c), nameOfB(c), questionAt(c)].join(" ").toLowerCase();
  const fill = () => {
    host.replaceChildren();
    contrastTable(host, all.filter(c => words.every(word => text(c).includes(word)) &&
      filters.every(f => f.value === "" || f.of(c) === f.value)), 60);
  };
  const inOrder = all.slice().sort((a, b) => a.kind - b.kind);
  for (const filter of filters) {
    const options = unique(inOrder.map(filter.of)).filter(Boolean);
    if (options.length > 1) {
      choose(bar, filter.name, ["", ...options], filter.value, value => {
        filter.value = value;
        fill();
      });
    }
  }
  const find = el("input", {type: "search", placeholder: "words", oninput: () => {
    words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    fill();
  }});
  bar.append(el("label", {}, "find", find));
  fill();
}

function showPairs() {
  const all = contrasts.filter(c => c.n > 0 && isPaired(c) && c.kind !== rerun)
    .sort((a, b) => b.planned - a.planned || a.kind - b.kind);
  if (all.length === 0) return;
  const made = section("Pairs of hits", "For each contrast of hits: how many items both arms " +
    "got right, only A, only B, or neither. Planned contrasts come first. Ties tell nothing " +
    "about the difference.");
  const grid = el("div", {class: "cards"});
  made.append(grid);
  withMore(grid, all, 12, (host, list) => host.append(...list.map(c => el("figure", {},
    el("h4", {}, "A: " + nameOfA(c), el("small", {text: "B: " + nameOfB(c)}),
      el("small", {class: "soft", text: questionAt(c) + (c.planned ? "" : ", exploratory") +
        (c.kind === atEqualBytes ? ", at equal bytes" : "")})),
    pairTable(c), el("figcaption", {text: `${c.identical} of ${c.n} pairs are ties`})))));
}

// All arms by the bytes they hold: plain quantized caches stand between the arms that evict.
function showByBytes(made) {
  const usable = shownCells(), questions = primaryFirst(unique(usable.map(question)));
  if (questions.length === 0) return;
  const what = c => c.arm === header.reference ? "reference" : isPlain(c.arm) ? "evicts nothing" :
    "evicts";
  const [bar, host] = controls(made);
  const fill = value => {
    host.replaceChildren();
    const rows = usable.filter(c => question(c) === value).sort((a, b) => a.bytes - b.bytes);
    dataTable(host, rows, [
      {name: "arm", key: c => at(c.arm, c.budget), wrap: true},
      {name: "kind", key: what, wide: true},
      {name: rows[0].metric, key: c => c.mean, right: true, node: c => el("span", {class: "nowrap"},
        num(c.mean), el("small", {class: "soft", text: interval(c.low, c.high, num)}))},
      {name: "bytes held", key: c => c.bytes, text: c => bytes(c.bytes), right: true,
        title: "measured: cache and policy together, while items were scored"},
      {name: "of the policy", key: c => c.policyBytes, text: c => bytes(c.policyBytes), right: true,
        wide: true, title: "the part of these bytes that the core held for the policy"},
      {name: "of the reference", key: c => c.full > 0 ? c.bytes / c.full : null, right: true,
        wide: true, text: c => c.full > 0 ? share(c.bytes / c.full) : "-",
        title: "bytes held, as a share of what the reference's cache would hold"},
      {name: "peak", key: c => c.peak, text: c => bytes(c.peak), right: true, wide: true,
        title: "measured: the most of cache plus policy at any moment, prefill included"},
    ], 60);
  };
  choose(bar, "of", questions, questions[0], fill);
  fill(questions[0]);
}
function showEqualBytes() {
  const equal = contrasts.filter(c => c.kind === atEqualBytes);
  if (shownCells().length + equal.length + data.apart.length === 0) return;
  const made = section("At the same bytes", "All arms by the bytes that they were measured to " +
    "hold. Quantized caches that evict nothing are in the same list as arms that evict.");
  showByBytes(made);
  if (equal.length + data.apart.length === 0) return;
  made.append(el("h3", {text: "Contrasts at equal bytes (exploratory)"}));
  made.append(el("p", {class: "note", text: "These contrasts have no verdict, for two reasons. " +
    "First, the bytes that two arms share are known only after the run, so they could not be " +
    "planned. Second, no run held the bytes of an arm marked “interpolated”: each of its numbers " +
    "is between those of two budgets, linearly in bytes, so its spread was not measured."}));
  if (equal.length) contrastTable(made, equal, 25);
  if (data.apart.length === 0) return;
  const lines = data.apart.map(text => el("li", {text}));
  const title = `${lines.length} pairs are not compared: they never hold the same bytes`;
  made.append(el("details", {}, el("summary", {text: title}), el("ul", {}, ...lines)));
}
