// The script of the page that shows an eviction log.
heading("Evictions of " + data.file, data.summary);
if (data.cutOff)
  section("Cut off",
    "The last line of the log is incomplete and was ignored, because the run was killed.");

// Draws the length of the longest head of a layer. Each eviction reduces this length from `held` to
// `kept`.
if (data.slots) {
  const points = [], short = [];
  for (const [tokens, held, kept, why, pressure] of data.slots.evictions) {
    const cause = pressure ? "; " + pressure : "";
    const title = `${why} at ${tokens} tokens: ${held} to ${kept}${cause}`;
    points.push({x: tokens, y: held, dot: false}, {x: tokens, y: kept, title});
    if (why === "pressure") short.push({x: tokens, y: kept, title});
  }
  const series = [{name: "slots", ...style(0), small: true, points}];
  if (short.length)
    series.push({name: "memory was short", colour: "var(--bad)", line: false, points: short});
  const host = el("div", {class: "plot"}), hidden = new Set();
  section(`Slots of the longest head of layer ${data.slots.layer} before and after each eviction`)
    .append(host);
  const again = drawn(host, (host, width) => {
    lineChart(host, width, series, {hidden, xName: "tokens seen", yName: "slots", zero: true});
    if (series.length > 1) legend(host, series, hidden, again);
  });
  again();
}

{
  const name = `Kept tokens over time, sequence ${data.sequence}`;
  if (data.panels.length) {
    const made = section(name, "Evictions from left to right, tokens of the text from the bottom " +
      "(its beginning) to the top. The more of a stretch is left, the stronger its colour; grey: " +
      "nothing is left; no colour: not there yet.");
    const count = data.panels.length;
    const [width, height] = count <= 4 ? [480, 260] : count <= 16 ? [260, 150] : [140, 90];
    const host = el("div");
    made.append(host);
    const draw = panel => el("figure", {},
      shadeMap(panel.columns, panel.bins, panel.shares, height, panel.title),
      el("figcaption", {text: panel.title}));
    const again = drawn(host, host => {
      // Each layer gets a row of its own if the panels of one layer fill a row.
      const perLayer = data.panels.filter(panel => panel.layer === data.panels[0].layer).length;
      const key = panel => perLayer * width > 600 ? panel.layer : 0;
      for (const layer of unique(data.panels.map(key))) {
        host.append(el("div", {class: "panels",
          style: `grid-template-columns:repeat(auto-fill,minmax(min(100%,${width}px),1fr))`},
        ...data.panels.filter(panel => key(panel) === layer).map(draw)));
      }
    });
    again();
  } else {
    section(name,
      "The log does not say which tokens were kept; policy.log_positions: true makes it.");
  }
}

dataTable(section("Layers"), rowsOf(data.layers), [
  {name: "layer", key: l => l.layer, right: true},
  {name: "heads", key: l => l.heads, right: true},
  {name: "evictions", key: l => l.evictions, right: true},
  {name: "kept min", key: l => l.min, right: true},
  {name: "kept mean", key: l => l.mean, text: l => l.mean.toFixed(1), right: true},
  {name: "kept max", key: l => l.max, right: true},
  {name: "given back", key: l => l.freed, text: l => bytes(l.freed), right: true,
    title: "bytes of freed blocks, summed; a block that was used and freed again counts again"},
], 1000);
