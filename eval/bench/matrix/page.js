// The script of the page with benchmark results.
const lines = rowsOf(data);
heading(data.title, `${lines.length} lines. Bars and points are medians; strokes go from the ` +
  "slowest to the fastest repeat. Shares are of limits that were measured in between. A click on " +
  "a heading sorts.");

// Each configuration gets a colour, in the order of the first lines of the configurations.
const looks = new Map(unique(lines.map(l => l.name)).map((name, i) => [name, style(i)]));
const decodeName = l => l.sequences === 1 ? l.name : `${l.name} / ${l.sequences} at once`;
const range = (low, high) => isGiven(low) && low !== high ? rate(low) + ".." + rate(high) : "-";

function number(name, key, text, title) {
  return {name, key, text: text && (l => text(key(l))), right: true, title};
}
dataTable(section("Runs"), lines, [
  {name: "model", key: l => l.model},
  {name: "weights", key: l => l.weights},
  {name: "backend", key: l => l.backend},
  {name: "KV", key: l => l.kv},
  {name: "policy", key: l => l.policy},
  {name: "sync", key: l => l.sync},
  number("prompt", l => l.prompt),
  number("prefill tokens/s", l => l.prefill, rate),
  {name: "range", text: l => range(l.prefillLow, l.prefillHigh)},
  number("of peak", l => l.prefillShare, share),
  number("depth", l => l.depth),
  number("at once", l => isGiven(l.decode) ? l.sequences : null),
  number("decode tokens/s", l => l.decode, rate),
  {name: "range", text: l => range(l.decodeLow, l.decodeHigh)},
  number("of read", l => l.decodeShare, share),
  number("held", l => l.heldBytes, bytes, "by cache and policy together when decoding ended"),
  number("most held", l => l.heldPeak, bytes, "by cache and policy together, from the prompt on"),
  number("memory", l => l.peakBytes, bytes),
  number("load s", l => l.loadSeconds, v => isGiven(v) ? v.toFixed(2) : "-"),
  number("read GB/s", l => l.readBandwidth, v => isGiven(v) ? (v / 1e9).toFixed(1) : "-"),
  {name: "machine", key: l => l.machine},
  {name: "version", key: l => l.version},
  {name: "commit", key: l => l.commit},
  {name: "date", key: l => l.date},
  {name: "file", key: l => l.file},
], 200);

// Shows the first 60 bars; a button shows all bars.
function barSection(title, bars) {
  const made = section(title), host = el("div"), first = 60;
  made.append(host);
  barChart(host, bars.slice(0, first));
  if (bars.length <= first) return;
  const more = el("button", {type: "button", text: `show all ${bars.length}`, onclick: () => {
    host.replaceChildren();
    more.remove();
    barChart(host, bars);
  }});
  made.append(more);
}

const measured = lines.filter(l => isGiven(l.decode) && isGiven(l.depth));
barSection("Decoding, tokens/s", measured.map(l => ({name: `${decodeName(l)} at ${l.depth}`,
  value: l.decode, low: l.decodeLow, high: l.decodeHigh, text: rate(l.decode),
  colour: looks.get(l.name).colour})));

// Draws a line for each configuration that was measured at two or more depths.
{
  const point = l => ({x: l.depth, y: l.decode,
    title: `${decodeName(l)} at ${l.depth}: ${rate(l.decode)}`});
  const series = unique(measured.map(decodeName)).map(name => {
    const here = measured.filter(l => decodeName(l) === name);
    return {name, ...looks.get(here[0].name), points: here.map(point).sort((p, q) => p.x - q.x)};
  }).filter(s => s.points.length > 1);
  if (series.length) {
    const host = el("div", {class: "plot"}), hidden = new Set();
    section("Decoding over the depth").append(host);
    const again = drawn(host, (host, width) => {
      lineChart(host, width, series,
        {hidden, xName: "tokens in the cache", yName: "tokens/s", zero: true});
      legend(host, series, hidden, again);
    });
    again();
  }
}

const read = lines.filter(l => isGiven(l.prefill) && isGiven(l.prompt));
barSection("Prefill, tokens/s", read.map(l => ({name: `${l.name}, ${l.prompt} tokens`,
  value: l.prefill, low: l.prefillLow, high: l.prefillHigh, text: rate(l.prefill),
  colour: looks.get(l.name).colour})));

// Each file has the results of one process, and a process has one peak. So only the first line of
// each file is used.
const files = new Map();
for (const l of lines) if (isGiven(l.peakBytes) && !files.has(l.file)) files.set(l.file, l);
barSection("Memory at most", Array.from(files.values(), l => ({
  name: isGiven(l.depth) ? `${l.name} at ${l.depth}` : l.name, value: l.peakBytes, low: l.peakBytes,
  high: l.peakBytes, text: bytes(l.peakBytes), colour: looks.get(l.name).colour})));
