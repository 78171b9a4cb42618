/* What else the numbers tell: groups of cases, what went wrong in each arm, what agents did, controls, notes. */

const CAUSES = {
  length: "cut off at the limit",
  repetition: "cut off: repeated itself",
  context: "too long for the model",
  refusal: "refused",
  empty: "empty",
  unreadable: "unreadable",
  disputed: "failed with files that may not be the student's to change",
  verbose: "right but verbose",
  judge: "not graded by the judge",
};
const OBSTACLES = Object.keys(CAUSES).filter((cause) => cause !== "verbose"); // which passes all the same

function lifts(part) {
  return part.lift === null ? UNKNOWN : `${points(part.lift)} (${counted(part.pairs, "pair")})`;
}

function liftCell(part) {
  if (!part || part.lift === null) return UNKNOWN;
  return [inPoints(part.lift), h("span", { class: "below" }, `${interval(part.interval)}, ${counted(part.pairs, "pair")}`)];
}

function groups(report) {
  if (report.trigger.length) return null;
  const models = report.document.models;
  const heads = (title) => [title, "Cases", ...models.map((verdict) => nameOf(verdict.model, modelNames(report)))];
  const tables = [];
  for (const [kind, title] of [["tag", "Tag"], ["author", "Written by"]]) {
    const several = report.document.groups[kind].filter((group) => group.cases > 1); // one case has no lift to speak of
    const rows = several.map((group) => [group.name, grouped(group.cases), ...models.map((verdict) => liftCell(group.models[verdict.model]))]);
    if (rows.length) tables.push(table(`Lift in points by case ${kind}`, heads(title), rows));
  }
  return tables.length ? section("groups", "Where it helps", tables) : null;
}

function failures(report) {
  const rows = [];
  const reasons = (found, causes) => {
    const others = OBSTACLES.reduce((left, cause) => left - (found.causes[cause] ?? 0), found.failed);
    const all = others > 0 ? [...causes, `${grouped(others)} failed a check`] : causes;
    return all.length ? all.map((reason, order) => [order ? ", " : "", reason]) : UNKNOWN;
  };
  for (const [place, verdict] of report.document.models.entries()) {
    for (const arm of ["baseline", "skill"]) {
      const found = verdict[arm];
      if (!scored(found) && !found.missing) continue;
      const path = (...rest) => ["models", place, arm, ...rest];
      const causes = OBSTACLES.filter((cause) => found.causes[cause]);
      rows.push([
        verdict.model,
        report.arms[arm] ?? arm,
        number(report, path("passed"), grouped),
        number(report, path("failed"), grouped),
        number(report, path("missing"), grouped),
        reasons(found, causes.map((cause) => [number(report, path("causes", cause), grouped), ` ${CAUSES[cause]}`])),
      ]);
    }
  }
  for (const found of report.control_arms) {
    const causes = OBSTACLES.filter((cause) => found.causes[cause]).map((cause) => `${grouped(found.causes[cause])} ${CAUSES[cause]}`);
    rows.push([found.model, report.arms[found.arm] ?? found.arm, grouped(found.passed), grouped(found.failed), grouped(found.missing), reasons(found, causes)]);
  }
  const errors = report.document.errors.map((one) => h("li", {}, `${one.model}: ${one.message} (${counted(one.trials, "trial")})`));
  return section(
    "failures",
    "Missing trials, refusals and cut-off answers",
    !rows.length ? h("p", {}, report.document.models.every((verdict) => verdict.unfinished) ? "The counts for each arm are shown with the verdict." : "Nothing was graded.") : table("How the trials in each arm ended", ["Model", "Arm", "Passed", "Failed", "Missing", "Why answers failed"], rows),
    errors.length ? h("ul", {}, errors) : null,
    report.document.invalid.length ? h("p", { class: "warning" }, `The arms were not isolated, so no number from this run is valid: ${counted(report.document.invalid.length, "trial")} saw or tried to open a skill that should have been hidden.`) : null,
  );
}

function activity(report) {
  const models = report.document.models;
  const acted = models.some((verdict) => verdict.activation || verdict.tool_calls.skill || verdict.tool_calls.baseline);
  if (!acted) return null;
  const both = (name, format) => (verdict) => beforeAfter(format(verdict[name].baseline), format(verdict[name].skill));
  const rows = models.map((verdict) => [verdict.model, both("turns", decimal)(verdict), both("tool_calls", decimal)(verdict), both("tool_errors", percent)(verdict)]);
  const offered = models.filter((verdict) => verdict.activation);
  const parts = offered.map((verdict) => {
    const place = models.indexOf(verdict);
    const path = (...rest) => ["models", place, "activation", ...rest];
    const found = report.activity[verdict.model];
    const { lift } = verdict.activation;
    return [
      h("h3", {}, verdict.model),
      h(
        "ol",
        { class: "funnel" },
        funnelStep("offered", found.offered, found.offered, number(report, path("trials"), grouped)),
        funnelStep("opened", found.opened, found.offered, [number(report, path("activated"), grouped), " (", number(report, path("rate"), percent), ")"]),
        funnelStep("opened and passed", found.opened_passed, found.offered, grouped(found.opened_passed)),
      ),
      h("p", {}, `Lift where the skill was offered: ${lifts({ lift: verdict.lift, pairs: verdict.pairs })}; opened: ${lifts(lift.activated)}; not opened: ${lifts(lift.not_activated)}.`),
    ];
  });
  return section(
    "activity",
    "What the agents did",
    parts,
    parts.length ? h("p", { class: "note" }, report.caveat) : null,
    table(`Turns and tool calls per task, ${report.arms.baseline} and ${report.arms.skill}`, ["Model", "Turns", "Tool calls", "Calls that failed"], rows),
  );
}

function funnelStep(name, count, all, said) {
  const step = h("li", {}, h("span", { class: "label" }, name), " ", h("b", {}, said), h("i", { "aria-hidden": "true" }));
  step.lastChild.style.setProperty("width", `${all ? (100 * count) / all : 0}%`);
  return step;
}

function controls(report) {
  const models = report.document.models.filter((verdict) => verdict.controls);
  if (!models.length) return null;
  const told = (found) => (found ? `${points(found.value)} (${interval(found.interval)})` : UNKNOWN);
  const rows = models.map((verdict) => [verdict.model, told(verdict.controls.content), told(verdict.controls.length), told(verdict.controls.noise)]);
  return section(
    "controls",
    "Controls",
    h("p", {}, "A placebo is as long as the skill but says nothing. Running the baseline twice shows how much chance alone changes."),
    table("What the lift is made of", ["Model", "Content (skill − placebo)", "Length (placebo − baseline)", "Noise (A/A control)"], rows),
  );
}

function notes(report) {
  const said = [...report.document.warnings, ...report.diagnosis, ...(report.going ? [] : report.findings)]; // which advise to continue
  return section(
    "notes",
    "Notes on the suite and the verdicts",
    said.length ? h("ul", {}, said.map((line) => h("li", {}, prose(line)))) : h("p", {}, "No notes."),
  );
}

/* How many answers people have marked. */
function people(report) {
  const found = report.document.feedback;
  if (!found) return null;
  const marks = Object.entries(found.marks).map(([name, count]) => `${grouped(count)} ${name}`);
  return section("people", "Feedback on the answers", h("p", {}, `Marked: ${marks.join(", ")}.`));
}

function spending(report) {
  const rows = Object.keys(report.document.spent).map((role) => [role, number(report, ["spent", role, "tokens"], grouped), number(report, ["spent", role, "cost_usd"], dollars)]);
  return rows.length ? section("spent", "What was spent", table("By role", ["Role", "Tokens", "Cost"], rows)) : null;
}

function skillText(report) {
  const { lines, evidence, recorded } = report.skill;
  const cited = (id) => (evidence[id] ? h("a", { href: `#evidence-${id}`, class: "cite" }, id) : h("span", { class: "cite" }, id));
  const body = lines.map(([text, ids, own]) =>
    h(
      "li",
      { class: own ? "own" : null },
      h("code", { dir: "auto" }, text || " "),
      ids.length || own ? h("span", { class: "cites" }, (ids.length ? ids : ["own"]).map((id) => [" ", cited(id)])) : null,
    ),
  );
  const rows = Object.entries(evidence).map(([id, row]) => [h("span", { id: `evidence-${id}` }, id), row.kind ?? "", row.from ?? "", row.text ?? ""]);
  return section(
    "skill",
    "The skill and its sources",
    report.run.description ? h("p", { dir: "auto" }, report.run.description) : null,
    recorded ? h("p", { class: "note" }, "Each line names the evidence behind it; “own” means that part of it is the teacher's own knowledge.") : h("p", { class: "note" }, "This skill does not record where its lines come from."),
    h("ol", { class: "skill" }, body),
    rows.length ? h("details", {}, h("summary", {}, `Evidence (${rows.length})`), table("Evidence", ["Id", "Kind", "From", "Text"], rows, "wrap")) : null,
  );
}
