// The head of the page: the answer in plain words. The head ends with a description of the run.
function showAnswer() {
  heading(header.title || "keel ab", [`${arms.length} arms`, `${data.records} records`,
    header.model, header.reference && "reference: " + header.reference,
    header.shards > 1 && `shard ${header.shard} of ${header.shards}`].filter(Boolean).join(", "));
  const made = section("Answer");
  made.classList.add("answer");
  const labels = unique(contrasts.map(c => c.label)).filter(Boolean);
  if (labels.length)
    made.append(el("p", {class: "label", text: `No verdict: ${labels.join("; ")}.`}));
  for (const text of data.answer) made.append(el("p", {text}));
  const planned = contrasts.filter(c => c.planned);
  if (planned.length) {
    const counts = el("div", {class: "counts"},
      el("span", {class: "soft", text: `${planned.length} planned contrasts:`}));
    verdicts.forEach((verdict, i) => {
      const n = planned.filter(c => c.verdict === i).length;
      if (n || i < 3)
        counts.append(el("span", {class: "chip " + chips[i], text: `${signs[i]}${n} ${verdict}`}));
    });
    made.append(counts);
  }
  if (data.warnings.length) {
    made.append(el("p", {}, el("a", {href: "#warnings",
      text: data.warnings.length === 1 ? "1 warning" : data.warnings.length + " warnings"})));
  }
}

function showWarnings() {
  const lines = data.warnings.map(warning => {
    const place = warning.slice(0, 4).filter(Boolean).join(", ");
    return el("li", {}, place ? el("b", {text: place + ": "}) : null, warning[4]);
  }).concat(data.notes.map(note => el("li", {class: "soft", text: note})));
  if (lines.length === 0) return;
  const made = section(data.warnings.length ? "Warnings" : "Notes"), first = 8;
  made.id = "warnings";
  if (data.warnings.length) made.className = "warnings";
  made.append(el("ul", {}, ...lines.slice(0, first)));
  if (lines.length > first) {
    made.append(el("details", {}, el("summary", {text: `${lines.length - first} more`}),
      el("ul", {}, ...lines.slice(first))));
  }
}

function showRun() {
  const box = section("What ran");
  const {confidence, resamples, seed} = statistics;
  const settings = [`${100 * confidence}% intervals`, `${resamples} resamples`, `seed ${seed}`,
    `margins: ${data.margins}`];
  if (data.primary) settings.push("primary: " + data.primary);
  const facts = [["plan", data.plan], ["model", header.model], ["machine", header.machine],
    ["keel", header.version + (header.commit ? ` (${header.commit})` : "")], ["date", header.date],
    ["config hash", header.config_hash], ["statistics", settings.join(", ")], ...header.facts];
  box.append(el("div", {class: "facts"}, ...facts.filter(fact => fact[1])
    .map(([name, text]) => el("div", {}, el("b", {text: name}), text))));
  const described = header.arms.filter(arm => arm[1]);
  if (described.length === 0) return;
  const rows = described.map(([name, text]) =>
    el("tr", {}, el("td", {class: "w", text: name}), el("td", {class: "w", text})));
  box.append(el("details", {}, el("summary", {text: "the arms"}),
    el("div", {class: "scroll"}, el("table", {}, el("tbody", {}, ...rows)))));
}

function showHelp() {
  const made = section("How to read this");
  for (const text of [
    "Items are paired: both arms answered the same question of the same document. Items of one " +
    "document are not independent, so intervals and tests count documents.",
    "Only planned contrasts have a verdict. All others are exploratory: each interval is of this " +
    "contrast by itself, so with many of them some intervals miss the truth.",
    "“Not distinguishable” is not “equal”: “could see” is the least effect that this number " +
    "of items would have shown in 80% of such experiments, with as many planned contrasts. " +
    "“Equal in every item” is a count; it proves no more than its interval does.",
    `Margins (${data.margins}): “within” needs two one-sided tests, that no loss and no gain is ` +
    "as large as the margin; “non-inferior” needs the test of the loss alone; “beyond” is a loss " +
    "that is larger, by the whole interval. Each has Holm's adjustment over the planned contrasts.",
    "kld and top1 against the reference are sizes with an interval: they are never 0 for an arm " +
    "that changes something, so no test is made.",
    "Bytes held: the cache plus the memory that the core holds for the policy, measured while an " +
    "item was scored, as a mean over the items. Peak: the largest sum of both at any moment, " +
    "with the prompt before the eviction and a replay.",
  ]) made.append(el("p", {class: "note", text}));
}
