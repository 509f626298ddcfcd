// The page of an experiment.
const header = data.header, statistics = header.statistics;
const cells = rowsOf(data.cells), contrasts = rowsOf(data.contrasts), speeds = rowsOf(data.speeds);

// In the order of AbVerdict and AbContrast::Kind.
const verdicts = ["better", "worse", "not distinguishable", "equal in every item",
  "no item in common", "exploratory", "too few documents", "size"];
const signs = ["▲ ", "▼ ", "○ ", "= ", "", "", "", ""];
const chips = ["better", "worse", "same", "same", "same", "same", "same", "same"];
const kinds = ["against the reference", "between arms", "at equal bytes",
  "reference against itself", "two experiments"];
const isQuality = kind => kind < 2;
// The second run of the reference, which measures noise.
const isAgain = arm => arm.endsWith("#again");

const arms = unique(header.arms.map(arm => arm[0]).concat(cells.map(c => c.arm)))
  .filter(arm => !isAgain(arm));
const looks = new Map();
for (const arm of arms) {
  const isReference = arm === header.reference;
  looks.set(arm, isReference ? {colour: "var(--ink)", dash: "7 4"} : style(looks.size));
}
const lookOf = arm => looks.get(arm) || {colour: "var(--soft)", dash: ""};

const at = (arm, budget) => budget === "" || budget === "full" ? arm : arm + " · " + budget;
const asked = c => c.task + (c.protocol ? " · " + c.protocol : "");
const question = c => c.task + " · " + c.metric + (c.protocol ? " · " + c.protocol : "");
const questionAt = c => question(c) + (c.length >= 0 ? " @ " + c.length : "");
const interval = (low, high, text) => isGiven(low) ? `[${text(low)}, ${text(high)}]` : "-";
// A size has no sign. top1 has one, because its effect is the difference from 1.
const effectText = (c, v) => c.verdict === 7 && !c.up ? num(v) : signed(v, c.ratio);
// The interval as text. A round bracket marks an open end, which is itself excluded.
const intervalOf = c => {
  if (!isGiven(c.low)) return "-";
  const text = v => effectText(c, v);
  return (c.lowOpen ? "(" : "[") + text(c.low) + ", " + text(c.high) + (c.highOpen ? ")" : "]");
};
const itemsOf = c => c.n + (c.docs !== c.n ? " / " + c.docs : "");
const percent = v => (v > 0 ? "+" : "") + (100 * v).toFixed(Math.abs(v) < 0.1 ? 2 : 1) + "%";
const pText = p => p === null ? "-" : p < 0.0001 ? "<0.0001" : p.toFixed(p < 0.01 ? 4 : 3);
function signed(v, isRatio) {
  if (v === null) return "-";
  return isRatio ? percent(v) : (v > 0 ? "+" : "") + num(v);
}
function detectable(c) {
  return c.seen === null ? "nothing" : c.ratio ? percent(c.seen).replace("+", "") : num(c.seen);
}

function heldText(c) {
  return bytes(c.bytes) + (c.policyBytes > 0 ? ` (${bytes(c.policyBytes)} of the policy)` : "");
}

function budgetKey(budget) {
  const colon = budget.indexOf(":");
  if (colon < 0) return [budget === "full" ? 0 : 9, 0];
  const kind = ["full", "tokens", "ratio", "mib"].indexOf(budget.slice(0, colon));
  return [kind, Number(budget.slice(colon + 1))];
}
function byBudget(a, b) {
  const x = budgetKey(a), y = budgetKey(b);
  return x[0] - y[0] || x[1] - y[1];
}
const byArm = (a, b) => arms.indexOf(a.arm) - arms.indexOf(b.arm) || byBudget(a.budget, b.budget);
// Sorts a list of questions: those of the primary metric come first.
function primaryFirst(list) {
  const primary = data.primary.replace("/", " · ");
  const rank = text => primary && text.startsWith(primary) ? 0 : 1;
  return list.slice().sort((a, b) => rank(a) - rank(b));
}
function placeOf([arm, budget, protocol, task, metric]) {
  const name = i => i === undefined ? "" : data.names[i];
  return {arm: name(arm), budget: name(budget), protocol: name(protocol), task: name(task),
    metric: name(metric)};
}
function controls(made, className) {
  const bar = el("div", {class: "controls"}), host = el("div", {class: className});
  made.append(bar, host);
  return [bar, host];
}

// The head of the page says where the numbers come from.
function showHeader() {
  heading(header.title || "keel ab", [`${arms.length} arms`, `${data.records} records`,
    header.reference && "reference: " + header.reference,
    header.shards > 1 && `shard ${header.shard} of ${header.shards}`].filter(Boolean).join(", "));
  const main = contrasts.filter(c => c.planned);
  if (main.length) {
    const counts = el("div", {class: "counts"},
      el("span", {class: "soft", text: `${main.length} planned contrasts:`}));
    verdicts.forEach((verdict, i) => {
      const n = main.filter(c => c.verdict === i).length;
      if (n || i < 3)
        counts.append(el("span", {class: "chip " + chips[i], text: `${signs[i]}${n} ${verdict}`}));
    });
    page.append(counts);
  }
  const box = section("What ran");
  const {confidence, resamples, seed} = statistics;
  const settings = [`${100 * confidence}% intervals`, `${resamples} resamples`, `seed ${seed}`,
    `margins: ${data.margins}`];
  if (data.primary) settings.push("primary: " + data.primary);
  const facts = [["model", header.model], ["machine", header.machine],
    ["keel", header.version + (header.commit ? ` (${header.commit})` : "")], ["date", header.date],
    ["config hash", header.config_hash], ["statistics", settings.join(", ")], ...header.facts];
  box.append(el("div", {class: "facts"}, ...facts.filter(fact => fact[1])
    .map(([name, text]) => el("div", {}, el("b", {text: name}), text))));
  const described = header.arms.filter(arm => arm[1]);
  if (described.length === 0) return;
  const rows = described.map(([name, text]) =>
    el("tr", {}, el("td", {text: name}), el("td", {class: "w", text})));
  box.append(el("details", {}, el("summary", {text: "the arms"}),
    el("div", {class: "scroll"}, el("table", {}, el("tbody", {}, ...rows)))));
}

function showWarnings() {
  const lines = data.warnings.map(warning => {
    const place = warning.slice(0, 4).filter(Boolean).join(", ");
    return el("li", {}, place ? el("b", {text: place + ": "}) : null, warning[4]);
  }).concat(data.notes.map(note => el("li", {class: "soft", text: note})));
  if (lines.length === 0) return;
  const made = section(data.warnings.length ? "Warnings" : "Notes"), first = 8;
  if (data.warnings.length) made.className = "warnings";
  made.append(el("ul", {}, ...lines.slice(0, first)));
  if (lines.length > first) {
    made.append(el("details", {}, el("summary", {text: `${lines.length - first} more`}),
      el("ul", {}, ...lines.slice(first))));
  }
}

// Draws the interval of a contrast on an axis from -reach to reach. The margin is shaded.
function forest(c, reach) {
  const w = 130, h = 16, middle = h / 2;
  const x = v => w / 2 + (w / 2 - 4) * Math.max(-1, Math.min(1, v / reach));
  const colour = ["var(--good)", "var(--bad)", "var(--flat)"][Math.min(2, c.verdict)];
  const fill = "fill:" + colour, from = x(c.marginLow), to = x(c.marginHigh);
  const svg = sv("svg", {width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "img",
    "aria-label": "interval"},
  sv("rect", {x: from, y: 0, width: Math.max(0, to - from), height: h,
    style: "fill:var(--grid)"}),
  sv("line", {x1: w / 2, x2: w / 2, y1: 0, y2: h, class: "axis", "stroke-dasharray": "2 2"}));
  if (c.low !== null) {
    svg.append(sv("line", {x1: x(c.low), x2: x(c.high), y1: middle, y2: middle,
      style: "stroke:" + colour, "stroke-width": 3}));
  }
  const beyond = reach * 1.001;
  if (Math.min(c.effect || 0, c.low || 0) < -beyond)
    svg.append(sv("path", {d: `M0 ${middle}l6 -5v10z`, style: fill}));
  if (Math.max(c.effect || 0, c.high || 0) > beyond)
    svg.append(sv("path", {d: `M${w} ${middle}l-6 -5v10z`, style: fill}));
  if (c.effect !== null) svg.append(sv("circle", {cx: x(c.effect), cy: middle, r: 4, style: fill}));
  return svg;
}
function verdictChip(c) {
  if (!c.n || c.verdict >= 5) return el("span", {class: "soft", text: verdicts[c.verdict]});
  const text = signs[c.verdict] + verdicts[c.verdict];
  const chip = el("span", {class: "chip " + chips[c.verdict], text});
  if (c.verdict !== 2) return chip;
  const small = el("small", {class: "narrow soft", text: "could see " + detectable(c)});
  return el("span", {}, chip, small);
}
// The reach of the axis for each metric: its largest interval end, or the 95th percentile of many.
function reachesOf(list) {
  const key = c => c.metric + c.ratio, all = new Map();
  for (const c of list) {
    if (!c.n) continue;
    if (!all.has(key(c))) all.set(key(c), []);
    all.get(key(c)).push(Math.max(Math.abs(c.effect), Math.abs(c.low || 0), Math.abs(c.high || 0)));
  }
  const reaches = new Map();
  for (const [name, values] of all) {
    values.sort((a, b) => a - b);
    const last = values.length - 1;
    reaches.set(name, values[last < 20 ? last : Math.floor(last * 0.95)]);
  }
  return c => reaches.get(key(c)) || 1;
}
function marginText(c) {
  if (c.within) return `within (p ${pText(c.pWithin)})`;
  if (c.nonInferior) return `non-inferior (p ${pText(c.pNonInferior)})`;
  return c.beyond ? "beyond" : "";
}
// Without a planned contrast the table has no columns for p and verdict.
function verdictTable(host, list, withBytes, limit) {
  const reach = reachesOf(list), level = 100 * statistics.confidence + "%";
  const isPlanned = list.some(c => c.planned);
  const onlyPlanned = columns => isPlanned ? columns : [];
  const columns = [
    {name: "arm", key: c => at(c.a, c.aBudget)},
    ...onlyPlanned([{name: "verdict", key: c => c.verdict, node: verdictChip}]),
    {name: "against", key: c => at(c.b, c.bBudget)},
    {name: "on", key: questionAt},
    {name: "effect", key: c => c.effect, text: c => effectText(c, c.effect), right: true,
      title: "A - B; A / B - 1 of speeds, bytes, kld and perplexities; of sizes A itself"},
    {name: level + " interval", text: c => intervalOf(c),
      title: "planned contrasts: all intervals hold together; exploratory ones: of this " +
        "contrast by itself. A round bracket: the end itself is excluded"},
    {name: "", node: c => forest(c, reach(c)), title: "the interval around 0; shaded: the margin"},
    ...onlyPlanned([
      {name: "p", key: c => c.pAdjusted, text: c => pText(c.pAdjusted), right: true,
        title: "adjusted by Holm's method over the planned contrasts"},
      {name: "could see", key: c => c.seen, text: c => c.planned ? detectable(c) : "-", right: true,
        title: "the least effect that this many items show in 80% of such experiments"},
      {name: "margin", key: c => 2 * c.within + c.nonInferior, text: marginText,
        title: "margins: " + data.margins + ". Within: no loss and no gain as large as the " +
          "margin. Non-inferior: no loss as large. Beyond: a larger loss"},
    ]),
    {name: "n", key: c => c.n, text: itemsOf, right: true, title: "items / documents"},
    {name: "A", key: c => c.meanA, text: c => num(c.meanA), right: true,
      title: "mean of the items that both have (geometric and trimmed for speeds)"},
    {name: "B", key: c => c.meanB, text: c => num(c.meanB) + (c.implied ? "*" : ""), right: true,
      title: "* by definition"},
    {name: "method", key: c => c.method,
      text: c => c.method + (c.size > 1 ? `, ${c.size} contrasts` : "")},
  ];
  const held = {name: "bytes held", key: c => c.bytes, text: c => bytes(c.bytes), right: true,
    title: "bytes of cache plus policy that both arms hold while items are scored"};
  const peaks = {name: "peaks", text: c => bytes(c.peakA) + ", " + bytes(c.peakB),
    title: "the peaks of A and B, cache plus policy"};
  if (withBytes) columns.splice(isPlanned ? 3 : 2, 0, held, peaks);
  dataTable(host, list, columns, limit);
}
function showVerdicts() {
  const made = section("Verdicts", "A against B, item by item. Planned contrasts have a verdict: " +
    "p is adjusted by Holm's method over all of them, their intervals hold together, and a " +
    "verdict agrees with its interval. All others are exploratory: an effect and an interval of " +
    "this contrast by itself, no verdict.");
  const [bar, host] = controls(made), all = contrasts.filter(c => c.kind !== 2);
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
  const text = c =>
    [at(c.a, c.aBudget), at(c.b, c.bBudget), questionAt(c)].join(" ").toLowerCase();
  const fill = () => {
    host.replaceChildren();
    verdictTable(host, all.filter(c => words.every(word => text(c).includes(word)) &&
      filters.every(f => f.value === "" || f.of(c) === f.value)), false, 60);
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

function showQuality() {
  const usable = cells.filter(c => isQuality(c.kind) && c.bytes > 0 && !isAgain(c.arm));
  const questions = primaryFirst(unique(usable.map(question)));
  if (questions.length === 0) return;
  const made = section("Quality against bytes held", "Mean over the items with its interval. " +
    "Bytes are those of cache plus policy. A ring marks the Pareto front: no other arm is as " +
    "good with fewer bytes.");
  const [bar, host] = controls(made, "plot"), hidden = new Set();
  const moments = ["while scored", "at the peak"];
  let chosen = questions[0], moment = moments[0];
  const point = c => {
    const range = c.low === null ? "" : " " + interval(c.low, c.high, num);
    const title = `${at(c.arm, c.budget)}: ${num(c.mean)}${range}, ${heldText(c)}, peak ` +
      `${bytes(c.peak)}, ${num(c.kept)} slots a head`;
    const isPeak = moment === moments[1];
    return {x: isPeak ? c.peak : c.bytes, y: c.mean, low: c.low, high: c.high,
      ring: isPeak ? c.peakFront : c.front, title};
  };
  const again = drawn(host, (host, width) => {
    const here = usable.filter(c => question(c) === chosen);
    const points = arm =>
      here.filter(c => c.arm === arm).map(point).sort((p, q) => p.x - q.x);
    const series = arms.map(arm => ({name: arm, ...lookOf(arm), points: points(arm)}))
      .filter(s => s.points.length > 0);
    lineChart(host, width, series,
      {hidden, xBytes: true, logX: true, xName: "bytes held " + moment, yName: here[0].metric});
    legend(host, series, hidden, again);
  });
  choose(bar, "of", questions, chosen, value => {
    chosen = value;
    again();
  });
  choose(bar, "bytes", moments, moment, value => {
    moment = value;
    again();
  });
  again();
}

function showEqualBytes() {
  const equal = contrasts.filter(c => c.kind === 2);
  if (equal.length + data.apart.length === 0) return;
  const made = section("At equal bytes", "Compares two arms that hold the same bytes (cache plus " +
    "policy) while items are scored. Between two budgets of an arm, its items are interpolated " +
    "linearly in bytes. These contrasts are exploratory.");
  if (equal.length) verdictTable(made, equal, true, 25);
  if (data.apart.length === 0) return;
  const lines = data.apart.map(text => el("li", {text}));
  const title = `${lines.length} pairs are not compared: they never hold the same bytes`;
  made.append(el("details", {}, el("summary", {text: title}), el("ul", {}, ...lines)));
}

function showHeat() {
  const all = data.heat.flatMap(heat => heat.cells.map(([place, values, items, up]) => (
    {...placeOf(place), values, items, up, lengths: heat.lengths, depths: heat.depths})))
    .filter(c => !isAgain(c.arm));
  const questions = primaryFirst(unique(all.map(question)));
  if (questions.length === 0) return;
  const made = section("Depth and length",
    "Rows: where in the prompt the asked-for text is. Columns: tokens of the prompt.");
  const [bar, host] = controls(made);
  let chosen = questions[0], a = "", b = "";
  const here = () => all.filter(c => question(c) === chosen);
  const nameOf = c => at(c.arm, c.budget);
  const again = drawn(host, (host, width) => {
    const first = here().find(c => nameOf(c) === a), second = here().find(c => nameOf(c) === b);
    const columns = width >= 960 ? 3 : width >= 640 ? 2 : 1, gap = 14;
    const room = (width - gap * (columns - 1)) / columns;
    const panels = el("div",
      {class: "panels", style: `grid-template-columns:repeat(${columns},minmax(0,1fr))`});
    host.append(panels);
    const {lengths, depths} = first, values = first.values.concat(second.values).filter(isGiven);
    const panel = (name, options) => {
      const box = el("div", {}, el("h3", {text: name}));
      panels.append(box);
      heatMap(box, room, {name, lengths, depths, ...options});
    };
    const low = Math.min(0, ...values), high = Math.max(first.up ? 1 : 0, ...values);
    panel("A: " + a, {values: first.values, items: first.items, low, high});
    panel("B: " + b, {values: second.values, items: second.items, low, high});
    const differences = first.values.map((v, i) =>
      v === null || second.values[i] === null ? null : v - second.values[i]);
    const reach = Math.max(1e-9, ...differences.filter(isGiven).map(Math.abs));
    panel("A − B", {values: differences, centred: true, reach});
  });
  const fill = () => {
    const names = here().map(nameOf), reference = names.find(name => name === header.reference);
    if (!names.includes(a)) a = names.find(name => name !== reference) || names[0];
    if (!names.includes(b)) b = reference || names[0];
    bar.replaceChildren();
    choose(bar, "of", questions, chosen, value => {
      chosen = value;
      fill();
    });
    choose(bar, "A", names, a, value => {
      a = value;
      again();
    });
    choose(bar, "B", names, b, value => {
      b = value;
      again();
    });
    again();
  };
  fill();
}

// Draws the lines of all arms at one budget, and of arms without a budget. A row is a place with
// points.
function showLines(title, note, rows, questionOf, options) {
  const all = rows.filter(row => !isAgain(row.arm));
  if (all.length === 0) return;
  const [bar, host] = controls(section(title, note), "plot"), hidden = new Set();
  const questions = primaryFirst(unique(all.map(questionOf)));
  let chosen = questions[0], budget = "";
  const again = drawn(host, (host, width) => {
    const here = all.filter(row => questionOf(row) === chosen &&
      (row.budget === budget || row.budget === "full")).sort(byArm);
    const series = here.map(row => (
      {name: at(row.arm, row.budget), ...lookOf(row.arm), dots: false, points: row.points}));
    lineChart(host, width, series, {hidden, tight: true, ...options(here[0])});
    legend(host, series, hidden, again);
  });
  const fill = () => {
    const found = unique(all.filter(row => questionOf(row) === chosen).map(row => row.budget));
    const budgets = found.length > 1 ? found.filter(name => name !== "full").sort(byBudget) : found;
    if (!budgets.includes(budget)) budget = budgets[0];
    bar.replaceChildren();
    choose(bar, "of", questions, chosen, value => {
      chosen = value;
      fill();
    });
    if (budgets.length > 1) {
      choose(bar, "budget", budgets, budget, value => {
        budget = value;
        again();
      });
    }
    again();
  };
  fill();
}
function showTimelines() {
  const rows = data.timelines.map(([key, , points]) => {
    const place = placeOf(key), name = at(place.arm, place.budget);
    return {...place, points: points.map(([tokens, held, evicted]) => ({x: tokens, y: held,
      mark: evicted > 0, title: `${name}: ${evicted} slots evicted at token ${tokens}`}))};
  });
  showLines("Bytes held over time", "Bytes of cache plus policy, for one item of each. A " +
    "triangle is an eviction.", rows, asked,
  () => ({xName: "tokens", yName: "bytes held", yBytes: true, zero: true}));
}
function showCurves() {
  const z = 1.96;
  const rows = data.curves.map(([key, , points]) => ({...placeOf(key),
    points: points.map(([x, y, error]) => ({x, y, low: y - z * error, high: y + z * error}))}));
  showLines("By tokens since the eviction", "Mean over the items, with ±1.96 standard errors.",
    rows, question, row => ({xName: "tokens since the eviction", yName: row.metric}));
}

function showKeepMaps() {
  const columns = 64; // AbKeepMap::bin_count
  const all = data.maps.map(([key, layers, heads, items, bins]) => (
    {...placeOf(key), layers, heads, items, bins})).filter(map => !isAgain(map.arm)).sort(byArm);
  if (all.length === 0) return;
  const nameOf = map => at(map.arm, map.budget) + " · " + asked(map);
  const [bar, host] = controls(section("What was kept", "Each row is a head of a layer, each " +
    "column a 64th of the prompt. The stronger the colour, the more of it was kept."));
  // At first the page shows a map in which something was evicted.
  let shown = all.find(map => Array.from(map.bins).some(c => c !== "_")) || all[0];
  const percentAt = x => (100 * x / columns).toFixed(0) + "%";
  const again = drawn(host, host => {
    const {layers, heads, items, bins} = shown, rows = layers * heads, left = 58;
    const tall = Math.max(3, Math.min(16, Math.floor(420 / rows)));
    const canvas = shadeMap(columns, rows, bins, tall * rows, "share of positions kept");
    const what = items === 1 ? "one item" : `mean of ${items} items`;
    const says = el("p", {class: "note", text: what + "; point at the map for numbers"});
    canvas.addEventListener("pointermove", event => {
      const box = canvas.getBoundingClientRect();
      const index = (offset, size, count) =>
        Math.max(0, Math.min(count - 1, Math.floor(offset / size * count)));
      const x = index(event.clientX - box.left, box.width, columns);
      const y = index(event.clientY - box.top, box.height, rows);
      const kept = (100 * shadeValues.get(bins[y * columns + x])).toFixed(0);
      says.textContent = `layer ${Math.floor(y / heads)}, head ${y % heads}, ${percentAt(x)} to ` +
        `${percentAt(x + 1)} of the prompt: ${kept}% kept`;
    });
    const labels = sv("svg", {width: left, height: tall * rows});
    for (let layer = 0; layer < layers; layer += Math.ceil(14 / (tall * heads))) {
      labels.append(sv("text", {x: left - 6, y: tall * heads * (layer + 0.5) + 4,
        "text-anchor": "end", text: "layer " + layer}));
    }
    host.append(el("div", {style: "display:flex"}, el("div", {style: "flex:none"}, labels),
      el("div", {style: "flex:1;min-width:0"}, canvas)),
    el("div", {class: "note ends", style: `margin-left:${left}px`},
      el("span", {text: "beginning"}), el("span", {text: "end of the prompt"})), says);
  });
  choose(bar, "of", primaryFirst(all.map(nameOf)), nameOf(shown), value => {
    shown = all.find(map => nameOf(map) === value);
    again();
  });
  again();
}

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
    {name: "arm", key: c => c.arm},
    {name: "budget", key: c => c.budget},
    {name: "of", key: question},
    {name: "mean", key: c => c.mean, text: c => num(c.mean), right: true},
    {name: "interval", text: c => interval(c.low, c.high, num)},
    {name: "n", key: c => c.n, text: itemsOf, right: true, title: "items / documents"},
    {name: "slots a head", key: c => c.kept, text: c => num(c.kept), right: true},
    {name: "of tokens", key: c => c.seen, text: c => num(c.seen), right: true},
    {name: "bytes held", key: c => c.bytes, text: c => bytes(c.bytes), right: true,
      title: "cache and policy together, while items were scored"},
    {name: "of the policy", key: c => c.policyBytes, text: c => bytes(c.policyBytes), right: true,
      title: "the part of these bytes that the core held for the policy, beside the cache"},
    {name: "saved", key: saved, right: true,
      text: c => isGiven(saved(c)) ? (100 * saved(c)).toFixed(1) + "%" : "-"},
    {name: "peak", key: c => c.peak, text: c => bytes(c.peak), right: true,
      title: "the peak of cache plus policy, prefill included"},
    {name: "evictions", key: c => c.evicts, text: c => num(c.evicts), right: true,
      title: "a mean over the items"},
    {name: "µs each", key: each, text: c => num(each(c)), right: true},
  ]);
}
function showSpeeds() {
  if (speeds.length === 0) return;
  const metrics = unique(speeds.map(s => s.metric));
  const first = metrics.find(metric => metric.includes("decode")) || metrics[0];
  chosenTable(section("Speed", "Medians over the repeats, which arms took in turns."), speeds,
    "metric", s => s.metric, first, [
      {name: "arm", key: s => at(s.arm, s.budget)},
      {name: "of", key: question},
      {name: "tokens before", key: s => s.length, right: true},
      {name: "median", key: s => s.median, text: s => num(s.median), right: true},
      {name: "middle half", text: s => num(s.p25) + " to " + num(s.p75)},
      {name: "99% quantile", key: s => s.p99, text: s => num(s.p99), right: true},
      {name: "n", key: s => s.n, right: true},
    ]);
}

function showHelp() {
  const made = section("How to read this");
  for (const text of [
    "Items are paired: both arms answered the same question of the same document. Items of one " +
    "document are not independent, so intervals and tests count documents.",
    "Interval and p come from one method. Hits (0 or 1), one item a document: the score test " +
    "of McNemar and Tango. Other shares: the same test, in steps of as much as documents differ. " +
    "Other numbers: Student's t joined with bootstrap-t over " +
    "documents; kld of two arms on logarithms, as the ratio of geometric means. kld and top1 " +
    "against the reference are sizes with an interval: they are never 0, so no test is made.",
    "“Not distinguishable” is not “equal”: “could see” is the least effect that so many items " +
    "would have shown in 80% of such experiments, with as many planned contrasts. “Equal in " +
    "every item” is a count; it proves no more than its interval does.",
    `Margins (${data.margins}): “within” needs two one-sided tests, that no loss and no gain is ` +
    "as large as the margin; “non-inferior” needs the test of the loss alone; “beyond” is a loss " +
    "that is larger, by the whole interval. Each has Holm's adjustment over the planned contrasts.",
    "Bytes held: the cache plus the memory that the core holds for the policy, while an item was " +
    "scored, as a mean over the items. Peak: the largest sum of both at any moment, with the " +
    "prompt before the eviction and a replay.",
  ]) made.append(el("p", {class: "note", text}));
}

showHeader();
showWarnings();
showVerdicts();
showQuality();
showEqualBytes();
showHeat();
showTimelines();
showCurves();
showKeepMaps();
showCells();
showSpeeds();
showHelp();
