// Quality against bytes, and against speed.
const moments = ["while scored", "at the peak"];
const shownCells = () => cells.filter(c => isQuality(c.kind) && c.bytes > 0 && !isAgain(c.arm));

function cellTitle(c) {
  const range = c.low === null ? "" : " " + interval(c.low, c.high, num);
  return `${at(c.arm, c.budget)}: ${num(c.mean)}${range}, ${heldText(c)}, peak ` +
    `${bytes(c.peak)}, ${num(c.kept)} slots a head`;
}
// A line for each arm, and a dashed one at the reference's quality. point(cell): null if the cell
// has no place on the x axis.
function qualityChart(host, width, here, hidden, again, point, options) {
  const pointsOf = arm => here.filter(c => c.arm === arm)
    .map(c => {
      const made = point(c);
      return made && {y: c.mean, low: c.low, high: c.high, title: cellTitle(c), ...made};
    }).filter(Boolean).sort((p, q) => p.x - q.x);
  const series = arms.map(arm => ({name: arm, ...lookOf(arm), points: pointsOf(arm)}))
    .filter(s => s.points.length > 0);
  const reference = here.find(c => c.arm === header.reference && c.budget === "full");
  lineChart(host, width, series, {hidden, yName: here[0].metric, bars: true,
    rule: reference && {y: reference.mean, text: header.reference + ", the reference"},
    ...options});
  legend(host, series, hidden, again);
}

function showQuality() {
  const usable = shownCells();
  const questions = primaryFirst(unique(usable.map(question)));
  if (questions.length === 0) return;
  const made = section("Quality against bytes held", "Mean over the items with its interval. " +
    "Bytes are measured: cache plus policy. Diamond: the reference. Square: an arm that evicts " +
    "nothing, such as a quantized cache. Ring: the Pareto front, no other arm is as good with " +
    "fewer bytes.");
  const [bar, host] = controls(made, "plot"), hidden = new Set();
  let chosen = questions[0], moment = moments[0];
  const again = drawn(host, (host, width) => {
    const isPeak = moment === moments[1];
    qualityChart(host, width, usable.filter(c => question(c) === chosen), hidden, again,
      c => ({x: isPeak ? c.peak : c.bytes, ring: isPeak ? c.peakFront : c.front}),
      {xBytes: true, logX: true, xName: "bytes held " + moment});
  });
  choose(bar, "of", questions, chosen, value => {
    chosen = value;
    again();
  });
  choose(bar, "bytes", moments, moment, value => {
    moment = value;
    again();
  });
  again();
  if (speeds.length === 0) {
    made.append(el("p", {class: "note", text: "There is no plot of quality against speed, " +
      "because this experiment has no task of the kind “speed”."}));
  }
}

function showQualityBySpeed() {
  if (speeds.length === 0) return;
  const usable = shownCells(), questions = primaryFirst(unique(usable.map(question)));
  if (questions.length === 0) return;
  const speedOf = s => `${s.metric} after ${s.length} tokens`;
  const names = unique(speeds.map(speedOf));
  const made = section("Quality against speed", "Quality as above. The speed is the median over " +
    "the repeats of a speed task, with the middle half of them as a horizontal stroke.");
  const [bar, host] = controls(made, "plot"), hidden = new Set();
  let chosen = questions[0];
  let speed = names.find(name => name.startsWith("decode_tokens")) || names[0];
  const again = drawn(host, (host, width) => {
    const here = speeds.filter(s => speedOf(s) === speed);
    qualityChart(host, width, usable.filter(c => question(c) === chosen), hidden, again, c => {
      const s = here.find(s => s.arm === c.arm && s.budget === c.budget);
      return s ? {x: s.median, left: s.p25, right: s.p75,
        title: `${cellTitle(c)}; ${num(s.median)} ${s.metric}`} : null;
    }, {xName: speed});
  });
  choose(bar, "of", questions, chosen, value => {
    chosen = value;
    again();
  });
  choose(bar, "speed", names, speed, value => {
    speed = value;
    again();
  });
  again();
}
