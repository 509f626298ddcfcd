// The forest plot of all contrasts: planned contrasts first, each metric with its own axis.

// The ends of the axis: 0, the effects, the intervals, and margins that are not far outside. Of
// many contrasts, the outer twentieth may be outside.
function forestRange(list) {
  const ends = list.map(c => [Math.min(c.effect, c.low ?? 0), Math.max(c.effect, c.high ?? 0)]);
  const outer = values => {
    values.sort((a, b) => a - b);
    return values[values.length <= 20 ? values.length - 1 : Math.floor(values.length * 0.95)];
  };
  let low = Math.max(0, outer(ends.map(end => -end[0])));
  let high = Math.max(0, outer(ends.map(end => end[1])));
  const reach = Math.max(low, high);
  for (const c of list) {
    if (-c.marginLow < 2 * reach) low = Math.max(low, -c.marginLow);
    if (c.marginHigh < 2 * reach) high = Math.max(high, c.marginHigh);
  }
  const air = 0.06 * (low + high || 1), isRatio = list[0].ratio;
  const lowest = -low - (low > 0 ? air : air / 2);
  return {low: isRatio ? Math.max(lowest, -(1 + low) / 2 - 0.01) : lowest,
    high: high + (high > 0 ? air : air / 2)};
}
// If a ratio goes beyond +100%, the axis is logarithmic: twice is as far as half.
const isLogAxis = (range, isRatio) => isRatio && range.high > 1;
function forestScale(range, width, isRatio) {
  const side = 9, warp = isLogAxis(range, isRatio) ? v => Math.log1p(Math.max(v, -0.999)) : v => v;
  const low = warp(range.low), high = warp(range.high);
  return v => side + (width - 2 * side) * Math.max(0, Math.min(1, (warp(v) - low) / (high - low)));
}
function forestTicks(range, isRatio, room) {
  if (!isLogAxis(range, isRatio)) return roundTicks(range.low, range.high, room);
  const low = Math.log2(1 + Math.max(range.low, -0.999)), high = Math.log2(1 + range.high);
  const step = Math.max(1, Math.ceil((high - low) / room)), out = [];
  for (let i = Math.ceil(low / step); i * step <= high; ++i) out.push(Math.pow(2, i * step) - 1);
  return out;
}

function forestRow(c, range, width) {
  const h = 22, middle = h / 2, x = forestScale(range, width, c.ratio);
  const colour = ["var(--good)", "var(--bad)", "var(--flat)"][Math.min(2, c.verdict)];
  const stroke = "stroke:" + colour, fill = "fill:" + colour;
  const svg = sv("svg", {width, height: h, viewBox: `0 0 ${width} ${h}`, role: "img",
    "aria-label": `${nameOfA(c)} against ${nameOfB(c)}: ` +
      `${effectText(c, c.effect)} ${intervalOf(c)}`});
  if (c.marginLow < 0 || c.marginHigh > 0) {
    const from = x(c.marginLow), to = x(c.marginHigh);
    svg.append(sv("rect",
      {x: from, y: 0, width: Math.max(1, to - from), height: h, class: "band"}));
    for (const end of [from, to])
      svg.append(sv("line", {x1: end, x2: end, y1: 0, y2: h, class: "margin"}));
  }
  svg.append(sv("line", {x1: x(0), x2: x(0), y1: 0, y2: h, class: "axis"}));
  if (isGiven(c.low)) {
    const isBetween = c.aInterpolated || c.bInterpolated;
    const from = x(c.low), to = x(c.high);
    svg.append(sv("line", {x1: from, x2: to, y1: middle, y2: middle, style: stroke,
      "stroke-width": 2.5, "stroke-dasharray": isBetween ? "4 3" : null}));
    // An end that is outside the axis is a full arrow. An open end is a hollow arrow.
    const end = (place, isOut, isOpen, way) => {
      if (isOut || isOpen) {
        svg.append(sv("path", {d: `M${place + 6 * way} ${middle}l${-7 * way} -5v10z`,
          style: isOut ? fill : stroke + ";fill:var(--card)", "stroke-width": 1.5}));
      } else {
        svg.append(sv("line", {x1: place, x2: place, y1: middle - 4, y2: middle + 4, style: stroke,
          "stroke-width": 1.5}));
      }
    };
    end(from, c.low < range.low, c.lowOpen, -1);
    end(to, c.high > range.high, c.highOpen, 1);
  }
  svg.append(sv("circle", {cx: x(c.effect), cy: middle, r: 4.5, "stroke-width": 2,
    style: c.planned ? fill : stroke + ";fill:var(--card)"}));
  return svg;
}
function forestAxis(range, width, isRatio) {
  const x = forestScale(range, width, isRatio);
  const svg = sv("svg", {width, height: 20, viewBox: `0 0 ${width} 20`, "aria-hidden": "true"},
    sv("line", {x1: x(range.low), x2: x(range.high), y1: 1, y2: 1, class: "axis"}));
  for (const v of forestTicks(range, isRatio, Math.max(2, Math.floor(width / 75)))) {
    svg.append(sv("line", {x1: x(v), x2: x(v), y1: 1, y2: 5, class: "axis"}),
      sv("text", {x: Math.max(14, Math.min(width - 14, x(v))), y: 17, "text-anchor": "middle",
        class: "small", text: isRatio ? tick(100 * v) + "%" : tick(v)}));
  }
  return svg;
}

const forestGroup = c => (c.planned ? "Planned" : isSize(c) ? "Sizes: distance from the reference" :
  "Exploratory, " + kinds[c.kind]) + ": " + c.metric;
function forestMeaning(c) {
  if (isSize(c)) return c.up ? "difference from 1" : "the arm's own value";
  return (c.ratio ? "A / B - 1" : "A - B") + (c.up ? ", right is better" : ", left is better");
}
function forestGroups(host, width, list, limit) {
  const groups = new Map();
  for (const c of list) {
    const key = forestGroup(c) + c.ratio;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(c);
  }
  const narrow = width < 640, room = narrow ? width - 4 : Math.floor(width * 0.42);
  let left = limit;
  for (const group of groups.values()) {
    if (left <= 0) break;
    const shown = group.slice(0, left), range = forestRange(group);
    left -= shown.length;
    host.append(el("h3", {text: forestGroup(group[0])},
      el("span", {class: "soft", text: " (" + forestMeaning(group[0]) + ")"})));
    const box = el("div", {class: narrow ? "forest narrow-forest" : "forest"});
    for (const c of shown) {
      const isOwn = isSize(c) && c.b === header.reference;
      box.append(el("div", {class: "who"}, el("b", {text: nameOfA(c)}),
        isOwn ? null : el("span", {class: "soft", text: " against " + nameOfB(c)}),
        el("small", {class: "soft", text: asked(c) + (c.length >= 0 ? " @ " + c.length : "") +
          (c.kind === atEqualBytes ? ", both hold " + bytes(c.bytes) : "")})),
      forestRow(c, range, room),
      el("div", {class: "what"}, effectText(c, c.effect), el("small", {class: "soft",
        text: intervalOf(c)})));
    }
    box.append(el("div", {class: "who"}), forestAxis(range, room, group[0].ratio),
      el("div", {class: "what"}));
    host.append(box);
  }
}

function showForest() {
  const order = c => c.planned ? -1 : isSize(c) ? 0 : 1 + c.kind;
  const all = contrasts.filter(c => c.n > 0 && isGiven(c.effect) && c.kind !== rerun)
    .sort((a, b) => order(a) - order(b));
  if (all.length === 0) return;
  const made = section("All contrasts", "A dot is the effect, the line its interval. Full dot: " +
    "planned; hollow dot: exploratory, without a verdict. Shaded, between dashed lines: the " +
    "margin. A hollow arrow is an open end, which is itself excluded. A full arrow is an end " +
    "outside the axis. Dashed line: an arm is interpolated between two budgets.");
  const [bar, host] = controls(made, "plot");
  const groupOf = c => c.planned ? "planned" : isSize(c) ? "sizes" : kinds[c.kind];
  let chosen = "", limit = 40;
  const again = drawn(host, (host, width) => {
    const list = all.filter(c => chosen === "" || groupOf(c) === chosen);
    forestGroups(host, width, list, limit);
    if (list.length > limit) {
      host.append(el("button", {type: "button", text: `show all ${list.length} contrasts`,
        onclick: () => {
          limit = Infinity;
          again();
        }}));
    }
  });
  const options = unique(all.map(groupOf));
  if (options.length > 1) {
    choose(bar, "contrasts", ["", ...options], chosen, value => {
      chosen = value;
      again();
    });
  }
  again();
}
