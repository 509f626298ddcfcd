// Names and numbers as text, for all parts of an experiment's page.
// A contrast may have a label: why it has no verdict although it was planned.
const header = data.header, statistics = header.statistics;
const cells = rowsOf(data.cells), contrasts = rowsOf(data.contrasts), speeds = rowsOf(data.speeds);

// In the order of Verdict and Contrast::Kind.
const verdicts = ["better", "worse", "not distinguishable", "equal in every item",
  "no item in common", "exploratory", "too few documents", "size"];
const signs = ["▲ ", "▼ ", "○ ", "= ", "", "", "", ""];
const chips = ["better", "worse", "same", "same", "same", "same", "same", "same"];
const kinds = ["against the reference", "between arms", "at equal bytes",
  "reference against itself", "two experiments"];
const atEqualBytes = 2, rerun = 3, isSize = c => c.verdict === 7;
const primaryTask = data.primary.split("/")[0];
const isQuality = kind => kind < 2;
// The second run of the reference, which measures noise.
const isAgain = arm => arm.endsWith("#again");

const arms = unique(header.arms.map(arm => arm[0]).concat(cells.map(c => c.arm)))
  .filter(arm => !isAgain(arm));
// An arm that evicts nothing: the reference, or a plain quantized cache.
const isPlain = arm => cells.every(c => c.arm !== arm || c.budget === "full");
const looks = new Map();
for (const arm of arms) {
  const isReference = arm === header.reference;
  const look = isReference ? {colour: "var(--ink)", dash: "7 4", shape: "diamond"} :
    {...style(looks.size), shape: isPlain(arm) ? "square" : "circle"};
  looks.set(arm, look);
}
const lookOf = arm => looks.get(arm) || {colour: "var(--soft)", dash: ""};

const at = (arm, budget) => budget === "" || budget === "full" ? arm : arm + " · " + budget;
const asked = c => c.task + (c.protocol ? " · " + c.protocol : "");
const question = c => c.task + " · " + c.metric + (c.protocol ? " · " + c.protocol : "");
const questionAt = c => question(c) + (c.length >= 0 ? " @ " + c.length : "");
const interval = (low, high, text) => isGiven(low) ? `[${text(low)}, ${text(high)}]` : "-";
const noInterval = "no interval";
const interpolated = " (interpolated)";
const nameOfA = c => at(c.a, c.aBudget) + (c.aInterpolated ? interpolated : "");
const nameOfB = c => at(c.b, c.bBudget) + (c.bInterpolated ? interpolated : "");
const percent = v => (v > 0 ? "+" : "") + (100 * v).toFixed(Math.abs(v) < 0.1 ? 2 : 1) + "%";
const pText = p => p === null ? "-" : p < 0.0001 ? "<0.0001" : p.toFixed(p < 0.01 ? 4 : 3);
function signed(v, isRatio) {
  if (v === null) return "-";
  return isRatio ? percent(v) : (v > 0 ? "+" : "") + num(v);
}
// A size has no sign. top1 has one, because its effect is the difference from 1.
const effectText = (c, v) => isSize(c) && !c.up ? num(v) : signed(v, c.ratio);
// The interval as text. A round bracket marks an open end, which is itself excluded.
const intervalOf = c => {
  if (!isGiven(c.low)) return noInterval;
  const text = v => effectText(c, v);
  return (c.lowOpen ? "(" : "[") + text(c.low) + ", " + text(c.high) + (c.highOpen ? ")" : "]");
};
const itemsOf = c => c.n + (c.docs !== c.n ? " / " + c.docs : "");
function detectable(c) {
  return c.seen === null ? "nothing" : c.ratio ? percent(c.seen).replace("+", "") : num(c.seen);
}
function marginText(c) {
  if (c.within) return `within the margin (p ${pText(c.pWithin)})`;
  if (c.nonInferior) return `non-inferior (p ${pText(c.pNonInferior)})`;
  return c.beyond ? "beyond the margin" : "";
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
// "128", "25%" or "8 MiB"; "full" without a budget.
function shortBudget(budget) {
  const [kind, size] = budgetKey(budget);
  return kind === 1 ? String(size) : kind === 2 ? share(size) : kind === 3 ? size + " MiB" : budget;
}
// Sorts a list of questions: questions of the primary metric come first.
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
// Draws `first` of the list. A button draws all.
function withMore(host, list, first, draw) {
  draw(host, list.slice(0, first));
  if (list.length <= first) return;
  const more = el("button", {type: "button", text: `show all ${list.length}`, onclick: () => {
    host.replaceChildren();
    draw(host, list);
  }});
  host.append(el("div", {class: "more"}, more));
}
