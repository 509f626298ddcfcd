// The methods paragraph to copy, and the downloads.
function copyText(node, says) {
  const done = ok => {
    says.textContent = ok ? "copied" : "not copied: the text is selected, copy it by hand";
  };
  const bySelection = () => {
    const range = document.createRange(), selection = getSelection();
    range.selectNodeContents(node);
    selection.removeAllRanges();
    selection.addRange(range);
    done(document.execCommand("copy"));
  };
  if (!navigator.clipboard) {
    bySelection();
    return;
  }
  const text = Array.from(node.children, child => child.textContent).join("\n\n");
  navigator.clipboard.writeText(text).then(() => done(true), bySelection);
}
function showMethods() {
  const made = section("Methods", "How the experiment was made, for a paper.");
  const text = el("div", {class: "methods", id: "methods"});
  for (const paragraph of data.methods) text.append(el("p", {text: paragraph}));
  if (data.references.length)
    text.append(el("p", {text: "References: " + data.references.join(" ")}));
  const says = el("span", {class: "note", role: "status"});
  made.append(el("div", {class: "controls"}, el("button", {type: "button", id: "copy-methods",
    text: "copy the text", onclick: () => copyText(text, says)}), says), text);
}

// The tables as objects with the names of summary.json.
const longNames = {up: "higher_is_better", n: "items", docs: "documents", bytes: "kv_bytes",
  full: "full_kv_bytes", peak: "peak_kv_bytes", kept: "kept_slots", evicts: "evictions",
  us: "eviction_us", front: "on_front", peakFront: "on_peak_front", size: "family_size",
  peakA: "a_peak_bytes", peakB: "b_peak_bytes"};
const longName = name => longNames[name] || name.replace(/[A-Z]/g, c => "_" + c.toLowerCase());
const cellNames = Object.assign({}, longNames, {seen: "tokens"});
function cellRow(c) {
  const {kind, ...rest} = c;
  return Object.fromEntries(Object.entries(rest).map(([name, value]) =>
    [cellNames[name] || longName(name), value]));
}
function contrastRow(c) {
  const {kind, verdict, sort, seen, family, implied, ...rest} = c;
  return {kind: kinds[kind], verdict: verdicts[verdict], could_see: seen, ...Object.fromEntries(
    Object.entries(rest).map(([name, value]) => [longName(name), value]))};
}
function itemRows() {
  return data.items.flatMap(([place, set, values]) => values.map((value, i) => {
    const [item, document, length, depth] = data.itemSets[set][i];
    return {...placeOf(place), item, document, length, depth, value};
  }));
}
function csv(rows) {
  if (rows.length === 0) return "";
  const names = Object.keys(rows[0]);
  const field = value => {
    if (!isGiven(value)) return "";
    const text = String(value);
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  return [names, ...rows.map(row => names.map(name => row[name]))]
    .map(row => row.map(field).join(",") + "\r\n").join("");
}
function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  const link = el("a", {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
function showDownloads() {
  const made = section("Downloads", "All numbers of this page, with six digits. They are made in " +
    "the browser and need no network. results.jsonl and summary.json have all digits.");
  const bar = el("div", {class: "controls"});
  const tables = {cells: () => cells.map(cellRow), contrasts: () => contrasts.map(contrastRow),
    items: itemRows};
  for (const [name, rows] of Object.entries(tables)) {
    bar.append(el("button", {type: "button", id: `save-${name}`, text: name + ".csv",
      onclick: () => save(name + ".csv", "text/csv", csv(rows()))}));
  }
  bar.append(el("button", {type: "button", id: "save-json", text: "report.json", onclick: () => {
    const all = Object.fromEntries(Object.entries(tables).map(([name, rows]) => [name, rows()]));
    const {answer, warnings, notes} = data;
    save("report.json", "application/json",
      JSON.stringify({header, answer, warnings, notes, ...all}));
  }}));
  made.append(bar);
}
