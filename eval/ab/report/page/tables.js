// Tables of all results.
// A table of the rows that have the chosen value of `of`. The choice is above the table.
function chosenTable(made, rows, name, of, first, columns) {
  const [bar, host] = controls(made);
  const fill = value => {
    host.replaceChildren();
    dataTable(host, rows.filter(row => value === "" || of(row) === value), columns, 60);
  };
  choose(bar, name, ["", ...primaryFirst(unique(rows.map(of)))], first, fill);
  fill(first);
}
function showCells() {
  const rows = cells.filter(c => isQuality(c.kind));
  if (rows.length === 0) return;
  const saved = c => c.full > 0 ? 1 - c.bytes / c.full : null;
  const each = c => c.evicts > 0 ? c.us / c.evicts : null;
  chosenTable(section("All results"), rows, "of", question, primaryFirst(rows.map(question))[0], [
    {name: "arm", key: c => at(c.arm, c.budget), wrap: true},
    {name: "mean", key: c => c.mean, right: true, node: c => el("span", {class: "nowrap"},
      num(c.mean), el("small", {class: "soft", text: interval(c.low, c.high, num)}))},
    {name: "n", key: c => c.n, text: itemsOf, right: true, wide: true, title: "items / documents"},
    {name: "slots a head", key: c => c.kept, right: true, wide: true,
      text: c => `${num(c.kept)} of ${num(c.seen)}`, title: "of the tokens that were read"},
    {name: "bytes held", key: c => c.bytes, text: c => bytes(c.bytes), right: true,
      title: "cache and policy together, while items were scored"},
    {name: "policy's", key: c => c.policyBytes, text: c => bytes(c.policyBytes), right: true,
      wide: true,
      title: "the part of these bytes that the core held for the policy, beside the cache"},
    {name: "saved", key: saved, right: true, wide: true,
      text: c => isGiven(saved(c)) ? (100 * saved(c)).toFixed(1) + "%" : "-"},
    {name: "peak", key: c => c.peak, text: c => bytes(c.peak), right: true, wide: true,
      title: "the peak of cache plus policy, prefill included"},
    {name: "evictions", key: c => c.evicts, text: c => num(c.evicts), right: true, wide: true,
      title: "a mean over the items"},
    {name: "µs each", key: each, text: c => num(each(c)), right: true, wide: true},
  ]);
}
function showSpeeds() {
  if (speeds.length === 0) return;
  const metrics = unique(speeds.map(s => s.metric));
  const first = metrics.find(metric => metric.includes("decode")) || metrics[0];
  chosenTable(section("Speed", "Medians over the repeats, which arms took in turns."), speeds,
    "metric", s => s.metric, first, [
      {name: "arm", key: s => at(s.arm, s.budget), wrap: true},
      {name: "of", key: question, wrap: true, wide: true},
      {name: "tokens before", key: s => s.length, right: true},
      {name: "median", key: s => s.median, text: s => num(s.median), right: true},
      {name: "middle half", text: s => num(s.p25) + " to " + num(s.p75), wide: true},
      {name: "99% quantile", key: s => s.p99, text: s => num(s.p99), right: true},
      {name: "n", key: s => s.n, right: true},
    ]);
}
