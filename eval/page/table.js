// Adds a table. A click on a heading sorts the rows by this column.
// columns: [{name, title, key(row), text(row) or node(row), right, wrap, wide}]. A column without
// `key` cannot be sorted. `wrap`: long texts get several lines. `wide`: left out on narrow screens.
// At first `limit` rows are shown; a button shows the others. With `details` each row has a button
// that shows what details(row) returns.
function dataTable(host, rows, columns, limit, details) {
  let shown = limit;
  const sorted = rows.slice();
  const body = el("tbody");
  const more = el("button", {type: "button", onclick: () => {
    shown = Infinity;
    fill();
  }});
  const classOf = column => [column.right && "r", column.wrap && "w", column.wide && "wide"]
    .filter(Boolean).join(" ") || null;
  function content(column, row) {
    if (column.node) return column.node(row);
    if (column.text) return column.text(row);
    return isGiven(column.key(row)) ? String(column.key(row)) : "-";
  }
  // The row with the details is made when it is opened.
  function opener(row) {
    let open = null;
    const toggle = el("button", {type: "button", class: "opener", "aria-expanded": "false",
      "aria-label": "details", title: "details", text: "+", onclick: () => {
        if (open) {
          open.remove();
          open = null;
        } else {
          open = el("tr", {class: "details"},
            el("td", {colspan: columns.length + 1}, details(row)));
          toggle.closest("tr").after(open);
        }
        toggle.setAttribute("aria-expanded", String(open !== null));
        toggle.textContent = open ? "\u2212" : "+";
      }});
    return el("td", {class: "o"}, toggle);
  }
  function fill() {
    const cell = (column, row) => el("td", {class: classOf(column)}, content(column, row));
    body.replaceChildren(...sorted.slice(0, shown).map(row => el("tr", {},
      details ? opener(row) : null, ...columns.map(column => cell(column, row)))));
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
    const head = el("th", {class: classOf(column), title: column.title});
    if (!column.key) {
      head.textContent = column.name;
      return head;
    }
    const sort = () => {
      const down = head.dataset.down !== "1";
      for (const other of heads) {
        delete other.dataset.down;
        other.removeAttribute("aria-sort");
      }
      head.dataset.down = down ? "1" : "0";
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortBy(column, down);
      fill();
    };
    head.append(el("button", {type: "button", class: "sort", text: column.name, onclick: sort}));
    return head;
  });
  fill();
  const first = details ? el("th", {class: "o"}) : null;
  const table = el("table", {}, el("thead", {}, el("tr", {}, first, ...heads)), body);
  host.append(el("div", {class: "scroll tall"}, table), more);
}
