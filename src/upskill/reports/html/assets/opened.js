/* A case, opened: what was asked, and the answers of all arms side by side. */

function caseDialog(report, source) {
  const dialog = h("dialog", { class: "opened", "aria-labelledby": "opened-title" });
  let drawn = 0;
  let shown = "";
  dialog.addEventListener("close", () => {
    // The browser returns to the followed link, unless the page was redrawn behind the dialog.
    if (document.activeElement === document.body || dialog.contains(document.activeElement)) document.querySelector(`#cases a[href="${CSS.escape(linkTo("case", shown))}"]`)?.focus();
    if (/^#(case|trial)=/.test(location.hash)) history.pushState(null, "", location.pathname + location.search);
    dialog.replaceChildren();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  /* Shows a case with the answers of one model and seed; `arm` is put first on a small screen. */
  async function open({ id, model, seed, arm }) {
    const mine = ++drawn;
    shown = id;
    const place = report.cases.findIndex((one) => one.id === id);
    const models = report.document.models.map((verdict) => verdict.model);
    const one = report.cases[place];
    const chosen = { case: id, model: models.includes(model) ? model : firstModel(report, place), seed: seed ?? report.run.seeds[0] };
    const body = h("div", { class: "answers" }, h("p", { role: "status" }, "Opening …"));
    const heading = h("h2", { id: "opened-title", tabindex: "-1" }, one ? one.id : `No case named ${id}`);
    const bar = h("div", { class: "bar-of-dialog" }, heading, one ? steps(place) : null, h("button", { type: "button", on: { click: () => dialog.close() } }, "Close"));
    const unknown = one ? unknownOf({ model, arm, seed }, chosen, models) : [];
    const told = unknown.length ? h("p", { class: "warning", role: "status" }, unknown.join(" ")) : null;
    fill(dialog, bar, one ? [told, about(one), choices(chosen, models), body] : null);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    heading.focus();
    if (!one) return;
    const begun = performance.now();
    const found = [];
    for (const name of Object.keys(report.arms)) found.push([name, await source.trial({ ...chosen, arm: name })]);
    if (mine !== drawn) return;
    fill(body, answers(report, found));
    const wanted = arm && body.querySelector(`[data-arm="${CSS.escape(arm)}"]`);
    if (wanted && arm !== Object.keys(report.arms)[0] && matchMedia("(max-width: 700px)").matches) wanted.scrollIntoView();
    measure("case", begun);
  }

  /* What a link asks for and the run does not have. */
  function unknownOf(asked, chosen, models) {
    const { seeds, rounds } = report.run;
    const said = [];
    if (asked.model && !models.includes(asked.model)) said.push(`No model named ${asked.model}; these are the answers from ${chosen.model}.`);
    if (asked.arm && !(asked.arm in report.arms)) said.push(`No arm named ${asked.arm}.`);
    if (asked.seed && seeds.length === rounds && !seeds.some((seed) => String(seed) === asked.seed)) said.push(`No trial has seed ${asked.seed}.`);
    return said;
  }

  function steps(place) {
    const link = (to, name) => (report.cases[to] ? h("a", { href: linkTo("case", report.cases[to].id), class: "button" }, name) : null);
    return h("span", { class: "steps" }, link(place - 1, "← Previous case"), link(place + 1, "Next case →"));
  }

  function choices(chosen, models) {
    const go = () => {
      location.hash = linkTo("trial", chosen.case, model.value, Object.keys(report.arms).at(0), seed.value);
    };
    const model = h("select", { on: { change: go } }, models.map((name) => h("option", { value: name, selected: name === chosen.model }, name)));
    const seeds = report.run.seeds;
    const seed = h("select", { on: { change: go } }, seeds.map((one) => h("option", { value: String(one), selected: String(one) === String(chosen.seed) }, String(one))));
    model.value = chosen.model;
    const several = [models.length > 1 ? h("label", {}, "Model ", model) : null, seeds.length > 1 ? h("label", {}, "Seed ", seed) : null].filter(Boolean);
    return several.length ? h("div", { class: "filters" }, several) : null;
  }

  return { open, close: () => dialog.open && dialog.close(), dialog };
}

/* The model whose arms differ most on a case. */
function firstModel(report, place) {
  const models = report.document.models.map((verdict) => verdict.model);
  const changes = models.map((_, model) => Math.abs(changeOf(report, [report.matrix[place]?.[model] ?? []].filter((cells) => cells.length))));
  return models[changes.indexOf(Math.max(...changes))] ?? models[0];
}

function about(one) {
  const tags = [one.seen ? "seen" : "fresh", ...one.tags, ...(one.author === "people" ? [] : [`written by ${one.author}`])]; // "people" is what nobody has recorded
  return h(
    "div",
    { class: "about" },
    h("p", { class: "tags" }, tags.join(" · ")),
    h("h3", {}, "Prompt"),
    longText(one.prompt),
    one.files.map(([name, said]) => h("details", {}, h("summary", {}, `File ${name}`), longText(said))),
    one.more_files ? h("p", { class: "note" }, `and ${counted(one.more_files, "more file")}`) : null,
    h("details", {}, h("summary", {}, `Checks (${one.checks.length})`), h("ul", { class: "checks" }, one.checks.map(([name, said]) => h("li", {}, h("b", {}, name), " ", h("code", { dir: "auto" }, said))))),
    one.reference.text ? h("details", {}, h("summary", {}, "Reference answer"), longText(one.reference)) : null,
    one.expected.text ? h("details", {}, h("summary", {}, "What a good answer looks like"), longText(one.expected)) : null,
  );
}

function answers(report, found) {
  const [before, after] = ["baseline", "skill"].map((arm) => found.find(([name, trial]) => name === arm && trial)?.[1]);
  const texts = [before?.answer?.text, after?.answer?.text];
  const marks = texts[0] && texts[1] ? differences(visible(texts[0]), visible(texts[1])) : null;
  const same = texts[0] !== undefined && texts[0] === texts[1];
  const said = same ? "Both answers are the same." : marks ? "Words in only one answer are marked." : texts[0] && texts[1] ? "The answers have too little in common to mark their differences." : "";
  const shown = found.filter(([name, trial]) => trial || name === "baseline" || name === "skill");
  return [
    said ? h("p", { class: "note" }, said) : null,
    h("div", { class: "columns" }, shown.map(([name, trial]) => answer(report, name, trial, same ? null : marks?.[name === "baseline" ? 0 : name === "skill" ? 1 : 2]))),
  ];
}

const ENDINGS = new Set(["end", "stop", "end_turn"]); // what providers call it when a model has said all it wanted

function answer(report, arm, trial, pieces) {
  const title = report.arms[arm] ?? arm;
  if (!trial) return h("article", { class: "answer", "data-arm": arm }, h("h3", {}, title), h("p", { class: "note" }, "This trial was not run."));
  const tag = arm === "baseline" ? "del" : "ins";
  const text = pieces ? h("pre", { class: "text", dir: "auto" }, pieces.map(([piece, differs]) => (differs ? h(tag, {}, piece) : piece))) : null;
  const cost = trial.cost_usd === null ? "price unknown" : dollars(trial.cost_usd);
  const facts = [
    `${grouped(trial.input_tokens)} + ${grouped(trial.output_tokens)} tokens`,
    cost,
    trial.seconds < 0.05 ? "" : `${decimal(trial.seconds)} s`, // a stored answer takes no time
    trial.activated === null ? "" : trial.activated ? "opened the skill" : "did not open the skill",
    trial.tool_calls ? `${counted(trial.turns, "turn")}, ${counted(trial.tool_calls, "tool call")}` : "",
    trial.judge_tokens ? `judge ${grouped(trial.judge_tokens)} tokens` : "",
    trial.stop && !ENDINGS.has(trial.stop) ? `ended with ${trial.stop}` : "",
  ].filter(Boolean);
  return h(
    "article",
    { class: `answer ${trial.outcome}`, "data-arm": arm },
    h("h3", {}, h("span", { class: `mark ${trial.outcome}`, "aria-hidden": "true" }, OUTCOME_MARKS[trial.outcome]), ` ${title}: ${trial.outcome}`, trial.cause ? ` (${CAUSES[trial.cause]})` : ""),
    h("p", { class: "what" }, facts.join(" · "), " ", h("a", { href: linkTo("trial", trial.case, trial.model, arm, trial.seed) }, "link to this trial")),
    trial.leak ? h("p", { class: "warning" }, `Not isolated: ${trial.leak}`) : null,
    trial.error ? h("pre", { class: "error", dir: "auto" }, trial.error) : null,
    trial.answer ? (pieces ? h("div", {}, text, trial.answer.length ? h("p", { class: "note" }, `Cut off: the whole text has ${counted(trial.answer.length, "character")}.`) : null) : longText(trial.answer)) : null,
    trial.findings.length ? h("ul", { class: "findings", "aria-label": "Findings" }, trial.findings.map(finding)) : null,
    trial.steps ? timeline(trial) : null,
    feedback(report, trial),
  );
}

function finding(one) {
  const kind = one.passed ? "passed" : one.decides ? "failed" : "noted";
  return h("li", { class: kind }, h("span", { class: `mark ${kind}`, "aria-hidden": "true" }, OUTCOME_MARKS[kind] ?? "·"), h("span", { class: "hidden" }, `${kind}: `), " ", h("b", {}, one.check), ` ${one.reason}`, one.decides ? "" : " (no part of the outcome)");
}

/* What an agent did, step by step; thoughts and what tools said are folded. */
function timeline(trial) {
  const marks = { ok: "✓", error: "✗", unknown: "·" };
  const items = trial.steps.map((step, place) => {
    const who = step.agent ? `${step.agent}: ` : "";
    if (step.kind === "thinking") return h("li", { class: "thinking" }, h("details", {}, h("summary", {}, `${who}thinking`), longText(step.text)));
    if (step.kind !== "tool") return h("li", { class: step.kind }, h("details", { open: step.kind === "assistant" && place < trial.steps.length - 1 }, h("summary", {}, who + step.kind), longText(step.text)));
    const took = step.seconds === undefined ? "" : ` ${decimal(step.seconds)} s`;
    return h(
      "li",
      { class: `tool ${step.status}` },
      h("p", {}, h("span", { class: "mark", "aria-hidden": "true" }, marks[step.status]), step.status === "error" ? h("span", { class: "hidden" }, "failed: ") : null, " ", h("b", {}, who + (step.tool || "(no tool)")), took),
      longText(step.arguments, "text call"),
      step.output ? h("details", {}, h("summary", {}, "output"), longText(step.output)) : null,
    );
  });
  return h("details", { open: true, class: "timeline" }, h("summary", {}, `What the agent did (${counted(trial.steps.length, "step")})`), h("ol", {}, items), trial.more_steps ? h("p", { class: "note" }, `and ${counted(trial.more_steps, "more step")}`) : null);
}
