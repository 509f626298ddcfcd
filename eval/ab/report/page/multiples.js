// Small multiples: one panel for each arm and question, quality over the budgets.
function multiplePanel(arm, here, budgets, range, reference, width) {
  const height = 92, left = 40, right = width - 8, top = 6, bottom = height - 18;
  const svg = sv("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${arm}: ` + here.map(c => `${c.budget} ${num(c.mean)}`).join(", ")});
  const step = (right - left) / Math.max(1, budgets.length);
  const x = budget => left + step * (budgets.indexOf(budget) + 0.5);
  const y = v => bottom - (bottom - top) * (v - range.low) / (range.high - range.low);
  for (const v of [range.low, range.high]) {
    svg.append(sv("line", {x1: left, x2: right, y1: y(v), y2: y(v), class: "grid"}),
      sv("text", {x: left - 4, y: y(v) + (v === range.low ? 0 : 8), "text-anchor": "end",
        class: "small", text: tick(Number(v.toPrecision(2)))}));
  }
  if (isGiven(reference)) {
    svg.append(sv("line", {x1: left, x2: right, y1: y(reference), y2: y(reference),
      class: "rule"}));
  }
  const {colour} = lookOf(arm);
  const points = here.slice().sort((a, b) => byBudget(a.budget, b.budget));
  let free = 0; // labels do not overlap
  for (const {budget} of points) {
    if (x(budget) < free) continue;
    free = x(budget) + 36;
    svg.append(sv("text", {x: Math.min(x(budget), width - 14), y: height - 4,
      "text-anchor": "middle", class: "small", text: shortBudget(budget)}));
  }
  if (points.length > 1) {
    svg.append(sv("path", {d: "M" + points.map(c => `${x(c.budget)} ${y(c.mean)}`).join("L"),
      fill: "none", style: "stroke:" + colour, "stroke-width": 1.5}));
  }
  for (const c of points) {
    if (isGiven(c.low)) {
      svg.append(sv("line", {x1: x(c.budget), x2: x(c.budget), y1: y(c.low), y2: y(c.high),
        style: "stroke:" + colour, "stroke-width": 1.5}));
    }
    svg.append(sv("circle", {cx: x(c.budget), cy: y(c.mean), r: 3, style: "fill:" + colour},
      sv("title", {text: cellTitle(c)})));
  }
  return el("figure", {}, el("h4", {text: arm, title: arm}), svg);
}

function multiplesOf(host, width, name) {
  const here = shownCells().filter(c => question(c) === name);
  const budgets = unique(here.map(c => c.budget)).sort(byBudget);
  const values = here.flatMap(c => [c.mean, c.low, c.high]).filter(isGiven);
  const range = {low: Math.min(...values), high: Math.max(...values)};
  if (here[0].up && range.low >= 0 && range.high <= 1) Object.assign(range, {low: 0, high: 1});
  if (range.low === range.high) {
    range.low -= 0.5;
    range.high += 0.5;
  }
  const reference = here.find(c => c.arm === header.reference && c.budget === "full");
  const columns = Math.max(1, Math.floor((width + 10) / 170));
  const room = Math.floor((width - 10 * (columns - 1)) / columns);
  const grid = el("div",
    {class: "multiples", style: `grid-template-columns:repeat(${columns},1fr)`});
  for (const arm of arms) {
    const own = here.filter(c => c.arm === arm);
    if (own.length)
      grid.append(multiplePanel(arm, own, budgets, range, reference && reference.mean, room));
  }
  host.append(el("h3", {text: name}), grid);
}

function showMultiples() {
  const questions = primaryFirst(unique(shownCells().map(question)));
  if (questions.length === 0 || arms.length < 2) return;
  const made = section("Arms, tasks and budgets", "A panel for each arm and task: the mean with " +
    "its interval at each budget. The dashed line is the reference. All panels of a task have " +
    "the same scale.");
  const first = 3, host = el("div");
  made.append(host);
  drawn(host, (host, width) => {
    for (const name of questions.slice(0, first)) multiplesOf(host, width, name);
  })();
  if (questions.length <= first) return;
  const rest = el("div"), again = drawn(rest, (host, width) => {
    for (const name of questions.slice(first)) multiplesOf(host, width, name);
  });
  made.append(el("details", {ontoggle: again},
    el("summary", {text: `${questions.length - first} more tasks and metrics`}), rest));
}
