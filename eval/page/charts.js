// The charts that all pages use. Line charts and heat maps are SVG, bar charts are HTML elements,
// and shade maps are a canvas.

const dashes = ["", "6 3", "2 3", "8 3 2 3"];
// Returns the style of series i. The first ten series differ in colour. Later series reuse the
// colours with dashed lines.
function style(i) {
  return {colour: "var(--c" + i % 10 + ")", dash: dashes[Math.floor(i / 10) % dashes.length]};
}

const tick = v => String(Number(v.toPrecision(4)));
const unitOf = v => Math.pow(1024, Math.max(0, Math.floor(Math.log2(Math.max(v, 1)) / 10)));
// Returns a number of bytes as text in the given unit. All ticks of an axis use one unit, so that
// they are easy to compare.
function byteTick(v, unit) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  return tick(v / unit) + " " + names[Math.round(Math.log2(unit) / 10)];
}
// Returns about `count` round numbers as ticks. Their distance is at least `least` units.
function roundTicks(low, high, count, unit = 1, least = 0) {
  if (!(high > low)) {
    const reach = Math.abs(low) || 1;
    low -= reach * 0.05;
    high += reach * 0.05;
  }
  const raw = (high - low) / unit / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const f = raw / power, digit = f < 1.5 ? 1 : f < 3 ? 2 : f < 7 ? 5 : 10;
  const step = Math.max(least, digit * power * unit), out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
    out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
// Returns powers of two as ticks. Removes every second tick until at most `room` ticks are left.
function powerTicks(low, high, room) {
  const out = [];
  let power = Math.pow(2, Math.ceil(Math.log2(low) - 1e-9));
  for (; power <= high * 1.0001; power *= 2) out.push(power);
  while (out.length > room)
    for (let i = out.length - (out.length % 2 ? 2 : 1); i >= 0; i -= 2) out.splice(i, 1);
  return out;
}

// Returns the ranges of a line chart's axes, with a margin around the points.
function lineRange(series, o) {
  let x0 = Infinity, x1 = -Infinity, y0 = o.zero ? 0 : Infinity, y1 = -Infinity;
  for (const {points} of series) {
    for (const p of points) {
      x0 = Math.min(x0, p.x);
      x1 = Math.max(x1, p.x);
      for (const v of [p.left, p.right]) {
        if (!isGiven(v)) continue;
        x0 = Math.min(x0, v);
        x1 = Math.max(x1, v);
      }
      for (const v of [p.y, p.low, p.high]) {
        if (!isGiven(v)) continue;
        y0 = Math.min(y0, v);
        y1 = Math.max(y1, v);
      }
    }
  }
  const log = o.logX && x0 > 0 && x1 / x0 > 4;
  if (log) {
    x0 /= 1.12;
    x1 *= 1.12;
  } else if (x0 === x1) {
    const air = Math.abs(x0) * 0.1 || 1;
    x0 -= air;
    x1 += air;
  } else if (!o.tight) {
    const air = (x1 - x0) * 0.03;
    x0 = Math.max(x0 >= 0 ? 0 : -Infinity, x0 - air);
    x1 += air;
  }
  if (y0 === y1) {
    const air = Math.abs(y0) * 0.1 || 0.5;
    if (!o.zero) y0 -= air;
    y1 += air;
  }
  const air = (y1 - y0) * 0.05;
  return {x0, x1, y0: o.zero ? y0 : y0 - air, y1: y1 + air, log};
}

// Draws a line chart.
// series: [{name, colour, dash, shape, points, line: false, dots: false}]; a shape is circle,
// square or diamond. A point: {x, y, low, high, left, right, title, ring, mark, dot: false};
// strokes go from low to high and from left to right. o: {xName, yName, xBytes, yBytes, logX, zero,
// tight, bars, rule, hidden}. `bars`: the intervals of a line's points are strokes. `rule`: {y,
// text} is a dashed line. The Set `hidden` has names of series.
function lineChart(host, width, series, o) {
  const height = Math.round(Math.max(240, Math.min(380, width * 0.5)));
  const left = o.yBytes ? 72 : 58, right = width - 14, top = 12, bottom = height - 44;
  const svg = sv("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": o.yName + " by " + o.xName});
  host.append(svg);
  const shown = series.filter(s => !o.hidden.has(s.name) && s.points.length > 0);
  if (shown.length === 0) {
    svg.append(sv("text", {x: left, y: 40, text: "nothing to show"}));
    return;
  }
  const {x0, x1, y0, y1, log} = lineRange(shown, o);
  const shareOf = v => log ? Math.log(v / x0) / Math.log(x1 / x0) : (v - x0) / (x1 - x0);
  const x = v => (left + (right - left) * shareOf(v)).toFixed(1);
  const y = v => (top + (bottom - top) * (1 - (v - y0) / (y1 - y0))).toFixed(1);
  for (const v of roundTicks(y0, y1, 5, o.yBytes ? unitOf(y1) : 1)) {
    svg.append(sv("line", {x1: left, x2: right, y1: y(v), y2: y(v), class: "grid"}),
      sv("text", {x: left - 7, y: Number(y(v)) + 4, "text-anchor": "end",
        text: o.yBytes ? byteTick(v, unitOf(y1)) : tick(v)}));
  }
  const room = Math.max(2, Math.floor((width - left) / (o.xBytes ? 95 : 70)));
  const ticks = log ? powerTicks(x0, x1, room) :
    roundTicks(x0, x1, room, o.xBytes ? unitOf(x1) : 1, o.xBytes ? 0 : 1);
  for (const v of ticks) {
    svg.append(sv("line", {x1: x(v), x2: x(v), y1: bottom, y2: bottom + 4, class: "axis"}),
      sv("text", {x: Math.min(x(v), width - 30), y: bottom + 17, "text-anchor": "middle",
        text: o.xBytes ? byteTick(v, unitOf(log ? v : x1)) : tick(v)}));
  }
  svg.append(sv("path", {d: `M${left} ${top}V${bottom}H${right}`, class: "axis", fill: "none"}),
    sv("text", {x: (left + right) / 2, y: height - 8, "text-anchor": "middle", text: o.xName}),
    sv("text", {x: -(top + bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle",
      text: o.yName}));
  if (o.rule) {
    svg.append(sv("line", {x1: left, x2: right, y1: y(o.rule.y), y2: y(o.rule.y), class: "rule"}),
      sv("text", {x: left + 5, y: Number(y(o.rule.y)) + (o.rule.y > (y0 + y1) / 2 ? 15 : -6),
        text: o.rule.text}));
  }
  // Strokes of different series stand beside each other, not over each other.
  const places = shown.map((_, i) => {
    const aside = o.bars ? 3 * (i - (shown.length - 1) / 2) * Math.min(1, 8 / shown.length) : 0;
    return v => (Number(x(v)) + aside).toFixed(1);
  });
  shown.forEach((s, i) => o.bars ? drawBars(svg, s, places[i], y) : drawBand(svg, s, x, y));
  shown.forEach((s, i) => drawLine(svg, s, places[i], y));
}

const drawBars = (svg, s, x, y) => {
  const stroke = d => svg.append(sv("path", {d, style: "stroke:" + s.colour, "stroke-width": 1.5}));
  for (const p of s.points) {
    if (hasRange(p)) stroke(`M${x(p.x)} ${y(p.low)}V${y(p.high)}`);
    if (isGiven(p.left)) stroke(`M${x(p.left)} ${y(p.y)}H${x(p.right)}`);
  }
};

const hasRange = point => isGiven(point.low);
// Draws the intervals of a line's points as one area. If there is only one point, draws its
// interval as a vertical line.
function drawBand(svg, s, x, y) {
  if (s.line === false || !s.points.every(hasRange)) return;
  if (s.points.length === 1) {
    const [p] = s.points;
    svg.append(sv("path", {d: `M${x(p.x)} ${y(p.low)}V${y(p.high)}`,
      style: "stroke:" + s.colour, "stroke-width": 1.5}));
    return;
  }
  const above = s.points.map(p => x(p.x) + " " + y(p.high));
  const below = s.points.map(p => x(p.x) + " " + y(p.low)).reverse();
  svg.append(sv("path", {d: "M" + above.concat(below).join("L") + "Z", "fill-opacity": 0.13,
    style: "fill:" + s.colour, stroke: "none"}));
}
function drawLine(svg, s, x, y) {
  if (s.points.length > 1 && s.line !== false) {
    const way = s.points.map(p => x(p.x) + " " + y(p.y)).join("L");
    svg.append(sv("path", {d: "M" + way, fill: "none", style: "stroke:" + s.colour,
      "stroke-width": 2, "stroke-dasharray": s.dash || null, "stroke-linejoin": "round"}));
  }
  for (const p of s.points) {
    const circle = attributes => sv("circle", {cx: x(p.x), cy: y(p.y), ...attributes});
    if (p.mark) {
      const triangle = `M${x(p.x)} ${Number(y(p.y)) - 4}l-4 -7h8z`;
      svg.append(sv("path", {d: triangle, style: "fill:" + s.colour},
        sv("title", {text: p.title})));
    }
    if (s.dots === false || p.dot === false) continue;
    if (p.ring) svg.append(circle({r: 7.5, fill: "none", style: "stroke:" + s.colour}));
    const look = {style: `fill:${s.colour};stroke:var(--card)`}, cx = x(p.x), cy = y(p.y);
    const outline = {square: "m-4.5 -4.5h9v9h-9z", diamond: "m0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z"};
    const dot = outline[s.shape] ? sv("path", {d: `M${cx} ${cy}${outline[s.shape]}`, ...look}) :
      circle({r: s.small ? 2.5 : 4, ...look});
    dot.append(sv("title", {text: p.title}));
    svg.append(dot);
  }
}

// Draws the names of the series. A click on a name hides or shows the series.
function legend(host, series, hidden, again) {
  const box = el("div", {class: "legend"});
  for (const s of series) {
    const toggle = () => {
      if (!hidden.delete(s.name)) hidden.add(s.name);
      again();
    };
    const sample = sv("svg", {width: 22, height: 10}, sv("line", {x1: 0, x2: 22, y1: 5, y2: 5,
      style: "stroke:" + s.colour, "stroke-width": 3, "stroke-dasharray": s.dash || null}));
    box.append(el("button", {type: "button", title: "show or hide", onclick: toggle,
      "aria-pressed": String(!hidden.has(s.name))}, sample, el("span", {text: s.name})));
  }
  host.append(box);
}

// Draws horizontal bars that begin at 0. bars: [{name, value, low, high, text, colour}].
// A thin line on each bar shows the range from `low` to `high`.
function barChart(host, bars) {
  const most = Math.max(0, ...bars.map(bar => bar.high));
  if (most <= 0) {
    host.append(el("p", {class: "note", text: "nothing measured"}));
    return;
  }
  const percent = v => (100 * v / most).toFixed(2) + "%";
  const box = el("div", {class: "bars"});
  for (const bar of bars) {
    const track = el("span", {class: "track", title: bar.text},
      el("span", {style: `width:${percent(bar.value)};background:${bar.colour}`}));
    if (bar.high > bar.low) {
      track.append(el("span", {class: "range",
        style: `left:${percent(bar.low)};width:${percent(bar.high - bar.low)}`}));
    }
    box.append(el("span", {class: "name", text: bar.name}), track, el("span", {text: bar.text}));
  }
  host.append(box);
}

const mix = (a, b, t) => [0, 1, 2].map(i => Math.round(a[i] + (b[i] - a[i]) * t));
const rgb = colour => "rgb(" + colour.join(",") + ")";
const inkOn = c => 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 140 ? "#14171a" : "#f4f6f8";
// Returns a colour for a value t from 0 to 1.
function sequential(t) {
  const stops = isDark() ? [[46, 53, 62], [30, 78, 128], [70, 150, 214], [198, 228, 250]] :
    [[232, 235, 239], [170, 205, 235], [62, 131, 192], [13, 58, 110]];
  const at = Math.max(0, Math.min(0.9999, t)) * 3, i = Math.floor(at);
  return mix(stops[i], stops[i + 1], at - i);
}
// Returns a colour for a value t from -1 to 1.
function diverging(t) {
  const middle = isDark() ? [38, 44, 52] : [247, 247, 247];
  const low = isDark() ? [230, 126, 60] : [190, 84, 16];
  const high = isDark() ? [92, 168, 240] : [24, 98, 172];
  return mix(middle, t < 0 ? low : high, Math.min(1, Math.abs(t)));
}

// Draws a heat map. Each row is a depth in the prompt, each column a length of the prompt.
// o: {name, lengths, depths, values, items, low, high}. `values` has the values row by row, and
// null for a cell without items. With `centred`, the colours are for values from -reach to reach.
function heatMap(host, width, o) {
  const columns = o.lengths.length, rows = o.depths.length, left = 52, top = 6, bottom = 58;
  const cw = Math.min(90, (width - left - 8) / columns);
  const ch = Math.max(14, Math.min(30, 300 / rows));
  const w = Math.max(left + cw * columns + 8, Math.min(width, 270)), h = top + ch * rows + bottom;
  const svg = sv("svg", {width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "img",
    "aria-label": o.name});
  const scaled = v => o.high > o.low ? (v - o.low) / (o.high - o.low) : 0.5;
  const colour = v => o.centred ? diverging(o.reach > 0 ? v / o.reach : 0) : sequential(scaled(v));
  const depth = y => (100 * o.depths[y]).toFixed(0) + "%";
  const label = (x, y, anchor, text) => sv("text", {x, y, "text-anchor": anchor, text});
  const cell = (x, y) => {
    const at = y * columns + x, v = o.values[at];
    const box = {x: left + cw * x, y: top + ch * y, width: cw - 1, height: ch - 1};
    if (v === null) return [sv("rect", {...box, fill: "none", class: "grid"})];
    const items = o.items ? ` (${o.items[at]} items)` : "";
    const title = `${o.lengths[x]} tokens, depth ${depth(y)}: ${num(v)}${items}`;
    const rect = sv("rect", {...box, fill: rgb(colour(v))}, sv("title", {text: title}));
    if (cw < 34) return [rect];
    const text = label(left + cw * (x + 0.5), top + ch * (y + 0.5) + 4, "middle",
      (o.centred && v > 0 ? "+" : "") + Number(v.toFixed(Math.abs(v) < 10 ? 2 : 0)));
    text.setAttribute("style", `fill:${inkOn(colour(v))};font-size:11px;pointer-events:none`);
    return [rect, text];
  };
  for (let y = 0; y < rows; ++y) {
    svg.append(label(left - 6, top + ch * (y + 0.5) + 4, "end", depth(y)));
    for (let x = 0; x < columns; ++x) svg.append(...cell(x, y));
  }
  for (let x = 0; x < columns; x += Math.ceil(40 / cw))
    svg.append(label(left + cw * (x + 0.5), top + ch * rows + 15, "middle", o.lengths[x]));
  const bar = Math.min(150, w - left - 110), barTop = top + ch * rows + 34, steps = 30;
  svg.append(label(left, barTop - 4, "start", "tokens →"));
  for (let i = 0; i < steps; ++i) {
    const t = i / (steps - 1);
    svg.append(sv("rect", {x: left + bar * i / steps + 50, y: barTop, width: bar / steps + 0.5,
      height: 9, fill: rgb(o.centred ? diverging(2 * t - 1) : sequential(t))}));
  }
  const lowest = tick(o.centred ? -o.reach : o.low);
  const highest = o.centred ? "+" + tick(o.reach) : tick(o.high);
  svg.append(label(left + 46, barTop + 9, "end", lowest),
    label(left + bar + 54, barTop + 9, "start", highest));
  host.append(svg);
}

// The characters that encode shares, from "0" (none) to "_" (all). A space means that there is no
// value.
const shades = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const shadeValues = new Map(Array.from(shades, (c, i) => [c, i / 63]));
function shadeMap(columns, rows, text, height, name) {
  const canvas = el("canvas", {width: columns, height: rows, style: `height:${height}px`,
    role: "img", "aria-label": name});
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0; i < text.length; ++i) {
    const value = shadeValues.get(text[i]);
    if (value !== undefined) image.data.set([...sequential(value), 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
