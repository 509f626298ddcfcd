// Which tokens of one item's prompt two arms kept, with the text.
const keptShare = (kept, i) => kept === null ? 1 : shadeValues.get(kept[i]) ?? 0;

// The arms of an item with the characters of what they kept; null: all, since nothing was evicted.
function keptArms(item) {
  const found = item.kept.map(([arm, budget, kept]) => (
    {arm: data.names[arm], budget: data.names[budget], kept}));
  for (const c of cells) {
    if (c.task !== item.task || c.protocol !== item.protocol || c.evicts > 0 || isAgain(c.arm) ||
        !isQuality(c.kind) || found.some(f => f.arm === c.arm && f.budget === c.budget)) continue;
    found.push({arm: c.arm, budget: c.budget, kept: null});
  }
  return found.sort(byArm);
}

// Tokens that follow each other and were kept alike form one element.
function keptText(tokens, a, b) {
  const box = el("div",
    {class: "tokens", tabindex: "0", role: "group", "aria-label": "the prompt"});
  const sums = {a: 0, b: 0, both: 0};
  let span = null, last = "";
  tokens.forEach((token, i) => {
    const x = keptShare(a.kept, i), y = keptShare(b.kept, i), key = x + " " + y;
    sums.a += x;
    sums.b += y;
    sums.both += Math.min(x, y);
    if (!span || key !== last) {
      const is = (x < 0.5 && y < 0.5) ? "gone" : x - y >= 0.5 ? "only-a" : y - x >= 0.5 ? "only-b" :
        "kept";
      const colour = Math.abs(x - y) < 0.02 ? null : diverging((x - y) * 0.75);
      span = el("span", {class: is, title: `A: ${share(x)}, B: ${share(y)} of the heads`,
        style: colour ? `background:${rgb(colour)};color:${inkOn(colour)}` : null});
      last = key;
      box.append(span);
    }
    span.append(token);
  });
  return [box, sums];
}

function showTokens() {
  const items = data.tokens.map(([[protocol, task, item], tokens, kept]) => (
    {protocol: data.names[protocol], task: data.names[task], item, tokens, kept}));
  const hasMaps = data.maps.length > 0;
  if (items.length === 0 && !hasMaps && shownCells().every(c => c.evicts === 0)) return;
  const made = section("Kept tokens of two arms", "The prompt of one item up to the eviction. " +
    "Blue, underlined: kept by A and not by B. Orange, dashed: kept by B and not by A. Pale: " +
    "kept by neither. A token counts by the share of all heads of all layers that kept it.");
  if (items.length === 0) {
    made.append(el("p", {text: hasMaps ?
      "The text of the prompts is not in these results: they are of an older program, or the " +
      "page left it out. The keep maps below need no text." :
      "There is nothing to show: no arm has keep maps. Either output.maps is 0, the arms rotate " +
      "keys again, or the page left the maps out."}));
    return;
  }
  const [bar, host] = controls(made);
  const nameOf = item => `${asked(item)} · item ${item.item}`;
  const nameOfArm = one => at(one.arm, one.budget);
  let item = items.find(one => one.task === primaryTask) || items[0], a = "", b = "";
  const fill = () => {
    const found = keptArms(item), names = found.map(nameOfArm);
    // Before the user makes a choice, the page shows two arms that evict at the same budget.
    const evicting = found.filter(f => f.kept !== null);
    if (!names.includes(a)) a = nameOfArm(evicting[0] || found[0]);
    const {budget} = found.find(f => nameOfArm(f) === a);
    const others = evicting.filter(f => nameOfArm(f) !== a);
    if (!names.includes(b))
      b = nameOfArm(others.findLast(f => f.budget === budget) || others[0] || found[0]);
    bar.replaceChildren();
    choose(bar, "item", items.map(nameOf), nameOf(item), value => {
      item = items.find(one => nameOf(one) === value);
      fill();
    });
    choose(bar, "A", names, a, value => {
      a = value;
      draw();
    });
    choose(bar, "B", names, b, value => {
      b = value;
      draw();
    });
    draw();
  };
  const draw = drawn(host, host => {
    const found = keptArms(item), of = name => found.find(f => nameOfArm(f) === name) || found[0];
    const [box, sums] = keptText(item.tokens, of(a), of(b)), n = item.tokens.length;
    const part = v => `${Math.round(v)} (${share(v / n)})`;
    host.append(el("p", {text: `Of ${n} tokens, A keeps ${part(sums.a)}, ` +
      `B keeps ${part(sums.b)}, and ${part(sums.both)} are kept by both, as means over heads.`}),
    box);
  });
  fill();
}
