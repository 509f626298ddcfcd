// Common code of all pages: elements, numbers as text, sections, and drawing again after a resize.
// Text of the data is set only with textContent or as an attribute. So the browser never interprets
// it as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
page.replaceChildren();

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
function el(tag, attributes = {}, ...children) {
  return put(document.createElement(tag), attributes, children);
}
function sv(tag, attributes = {}, ...children) {
  return put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function heading(title, note) {
  page.append(el("header", {}, el("h1", {text: title}), el("p", {class: "note", text: note})));
}
function section(title, note) {
  const made = el("section", {}, el("h2", {text: title}));
  if (note) made.append(el("p", {class: "note", text: note}));
  page.append(made);
  return made;
}
// Adds a select box with `options` to a bar of controls. Shows the option "" as "any".
function choose(bar, name, options, value, changed) {
  const select = el("select", {"aria-label": name, onchange: () => changed(select.value)});
  for (const option of options) select.append(el("option", {value: option, text: option || "any"}));
  select.value = value;
  bar.append(el("label", {}, name, select));
}

// Returns the rows of a table as objects. The first `texts` columns have indices into data.names.
function rowsOf(table) {
  const value = (cell, i) => i < (table.texts || 0) ? data.names[cell] : cell;
  return table.rows.map(row =>
    Object.fromEntries(table.columns.map((name, i) => [name, value(row[i], i)])));
}
const unique = list => Array.from(new Set(list));
const isGiven = value => value !== null && value !== undefined;

// Charts depend on the width of the page. They are drawn again when the width or the colours
// change. Paper is always light.
const darkColours = matchMedia("(prefers-color-scheme: dark)"), onPaper = matchMedia("print");
const isDark = () => darkColours.matches && !onPaper.matches;
const redraws = [];
function drawn(host, draw) {
  const again = () => {
    host.replaceChildren();
    draw(host, Math.max(280, Math.min(1140, host.clientWidth || 700)));
  };
  redraws.push(again);
  return again;
}
let pending = 0;
function redraw() {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(() => redraws.forEach(again => again()));
}
addEventListener("resize", redraw);
darkColours.addEventListener("change", redraw);
// On paper all parts are open, because a reader cannot open them.
let opened = [];
onPaper.addEventListener("change", () => {
  if (onPaper.matches) {
    opened = Array.from(page.querySelectorAll("details:not([open])"));
    for (const part of opened) part.open = true;
  } else {
    for (const part of opened) part.open = false;
  }
  redraws.forEach(again => again());
});

function num(v) {
  if (!isGiven(v)) return "-";
  const size = Math.abs(v);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 0.0001) return v.toExponential(size >= 1e6 ? 2 : 1);
  return v.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.01 ? 3 : 5);
}
// Returns tokens per second as text, with at least three digits.
function rate(v) {
  return isGiven(v) ? v.toFixed(v >= 1000 ? 0 : v >= 100 ? 1 : 2) : "-";
}
function bytes(v) {
  if (!isGiven(v)) return "-";
  if (v < 1024) return v.toFixed(0) + " B";
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let unit = -1;
  do {
    v /= 1024;
    ++unit;
  } while (v >= 1024 && unit < 3);
  return v.toFixed(v >= 100 ? 0 : v >= 10 ? 1 : 2) + " " + units[unit];
}
const share = v => isGiven(v) ? (100 * v).toFixed(0) + "%" : "-";
