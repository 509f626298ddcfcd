// Adds a table. A click on a heading sorts the rows by this column.
// columns: [{name, title, key(row), text(row) or node(row), right}]. Columns without `key` cannot
// be sorted. The first `limit` rows are shown; a button shows the others.
function dataTable(host, rows, columns, limit) {
  let shown = limit;
  const sorted = rows.slice();
  const body = el("tbody");
  const more = el("button", {type: "button", onclick: () => {
    shown = Infinity;
    fill();
  }});
  function content(column, row) {
    if (column.node) return column.node(row);
    if (column.text) return column.text(row);
    return isGiven(column.key(row)) ? String(column.key(row)) : "-";
  }
  function fill() {
    const cell = (column, row) =>
      el("td", {class: column.right ? "r" : null}, content(column, row));
    body.replaceChildren(...sorted.slice(0, shown).map(row =>
      el("tr", {}, ...columns.map(column => cell(column, row)))));
    more.style.display = sorted.length > shown ? "" : "none";
    more.textContent = "show all " + sorted.length + " rows";
  }
  function sortBy(column, down) {
    const value = row => isGiven(column.key(row)) ? column.key(row) : -Infinity;
    sorted.sort((p, q) => {
      const a = value(p), b = value(q);
      const both = typeof a === "number" && typeof b === "number";
      const order = both ? (a === b ? 0 : a - b) : String(a).localeCompare(String(b));
      return down ? -order : order;
    });
  }
  const heads = columns.map(column => {
    const head = el("th", {class: column.right ? "r" : null, "data-sort": column.key ? "1" : null,
      title: column.title, text: column.name});
    if (column.key) head.addEventListener("click", () => {
      const down = head.dataset.down !== "1";
      heads.forEach(other => delete other.dataset.down);
      head.dataset.down = down ? "1" : "0";
      sortBy(column, down);
      fill();
    });
    return head;
  });
  fill();
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body);
  host.append(el("div", {class: "scroll tall"}, table), more);
}
