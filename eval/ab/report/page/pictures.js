// Heat maps, lines over tokens, and keep maps.
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
  // Before the user makes a choice, the page shows a map in which something was evicted.
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
