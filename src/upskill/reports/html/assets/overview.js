/* The first screen: does it help, for which model, how sure, at what cost. Then the pictures. */

const MARKS = { helps: "✓", saves: "✓", hurts: "✗", "no effect": "–", undecided: "?" };
const KINDS = { helps: "good", saves: "good", hurts: "bad", "no effect": "even", undecided: "open" };
const CARDS = 6; // models that get a card each; more get a line each
const CARDS_ON_A_PHONE = 3;

function header(report) {
  const run = report.run;
  const agent = run.agent === "chat" ? "answers without tools" : `agent ${run.agent}`;
  const { cases: all, fresh } = report.document.suite;
  const cases = `${counted(all, "case")}, ${fresh} fresh`;
  // The live page of a run in progress has the count in the bar on top, which is newer.
  const state = !report.going && run.scored + run.missing < run.trials ? `${grouped(run.scored + run.missing)} of ${counted(run.trials, "trial")}` : counted(run.trials, "trial");
  return h(
    "header",
    { class: "top" },
    h("p", { class: "brand" }, h("strong", {}, "upskill"), " report"),
    h("div", { class: "tools" }, themeButton()),
    h("h1", { dir: "auto" }, report.headline),
    h("p", { class: "facts" }, [run.id, whenOf(run.created), cases, run.draws, state, agent].map((fact) => h("span", {}, fact))),
    report.authors ? h("p", { class: "facts" }, report.authors) : null,
  );
}

function themeButton() {
  const button = h("button", { type: "button", class: "quiet" });
  const dark = () => document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => fill(button, dark() ? "Light" : "Dark");
  const theme = remembered("upskill-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  // Paper is light, whatever was chosen for the screen.
  let chosen;
  window.addEventListener("beforeprint", () => {
    chosen = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
  });
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    remember("upskill-theme", document.documentElement.dataset.theme);
    name();
  });
  name();
  return button;
}

function verdicts(report) {
  if (report.trigger.length) {
    const list = report.trigger.map((metrics, place) => triggerCard(report, metrics, place));
    return h("section", { id: "verdicts", "aria-label": "How it triggers with each model", tabindex: "-1" }, h("ul", { class: "cards" }, list), problems(report));
  }
  const models = report.document.models;
  const cards = models.length <= (matchMedia("(max-width: 700px)").matches ? CARDS_ON_A_PHONE : CARDS);
  const list = models.map((verdict, place) => (cards ? card : line)(report, verdict, place));
  const all = h("ul", { class: cards ? "cards" : "lines" }, list);
  const costs = cards ? null : h("p", { class: "costs note" }, costOfAll(models));
  return h("section", { id: "verdicts", "aria-label": "Verdict for each model", tabindex: "-1" }, costs, all, problems(report));
}

/* What a task takes with the cheapest and the dearest of many models, where a small screen has no room for each. */
function costOfAll(models) {
  const range = (values, format) => [...new Set([Math.min(...values), Math.max(...values)].map(format))].join(" to ");
  const sides = (of, format) =>
    ["baseline", "skill"].map((arm) => models.map((verdict) => of(verdict, arm)).filter((value) => value !== null)).filter((values) => values.length).map((values) => range(values, format)).join(" → ");
  const tokens = (verdict, arm) => (scored(verdict[arm]) ? (verdict[arm].input_tokens + verdict[arm].output_tokens) / scored(verdict[arm]) : null);
  const found = sides(tokens, (value) => grouped(rounded(value)));
  if (!found) return models.every((verdict) => verdict.unfinished) ? null : "Nothing was graded.";
  const costs = models.flatMap((verdict) => [verdict.baseline, verdict.skill]).filter(scored).map((arm) => arm.cost_usd);
  const price = costs.includes(null) ? "some prices are unknown" : costs.every((cost) => cost === 0) ? "free" : `${sides((verdict, arm) => verdict.cost_per_pass[arm], dollars) || UNKNOWN} per pass`;
  return `A task takes ${found} tokens, ${price}.`;
}

function decisionOf(report, verdict) {
  if (report.run.invalid || verdict.reason === "isolation") return ["✗", "invalid", "bad"];
  if (verdict.reason === "unfinished") return ["…", verdict.reason, "open"];
  const isObstacle = verdict.reason && verdict.reason !== "not enough evidence";
  const about = verdict.decision === "undecided" || verdict.about === "tasks" ? "" : " on these cases";
  const rest = isObstacle ? ` (${verdict.reason})` : about;
  return [MARKS[verdict.decision], verdict.decision + rest, KINDS[verdict.decision]];
}

const aboutOf = (reading) => (reading.about === "tasks" ? "tasks like these" : "these cases");

function card(report, verdict, place) {
  const [mark, decision, kind] = decisionOf(report, verdict);
  const of = (...path) => ["models", place, ...path];
  const rates = ["baseline", "skill"].filter((arm) => scored(verdict[arm]));
  const top = [
    h("h2", { class: "model" }, nameOf(verdict.model, modelNames(report))),
    report.names[verdict.model] === verdict.model ? null : h("p", { class: "sure" }, report.names[verdict.model].split(" = ")[1]),
    h("p", { class: "decision" }, h("span", { class: "mark", "aria-hidden": "true" }, mark), ` ${decision}`),
  ];
  if (verdict.unfinished) return h("li", { class: `card ${kind}` }, top, h("p", { class: "lift" }, "no verdict yet"), report.going ? null : h("p", { class: "sure" }, `${grouped(verdict.unfinished.trials)} of ${counted(verdict.unfinished.of, "trial")} done`));
  return h(
    "li",
    { class: `card ${kind}`, title: report.conclusions[place] },
    top,
    h("p", { class: "lift" }, verdict.lift === null ? "no lift" : number(report, of("lift"), points)),
    h(
      "p",
      { class: "sure" },
      verdict.interval ? [`${aboutOf(verdict)}: `, number(report, of("interval"), interval), ` (${Number((100 * verdict.level).toFixed(1))}% interval)`] : "baseline" in report.arms ? "no interval" : "nothing to compare with",
      ` · ${counted(verdict.pairs, "pair")}`,
    ),
    verdict.interval ? intervalBar(verdict) : null,
    report.conclusions.length > 1 ? h("p", { class: "sure" }, report.conclusions[place]) : null, // else it is the heading
    h(
      "p",
      { class: "rates" },
      h("span", { class: "label" }, `passes, ${Object.values(report.arms).slice(0, 2).join(" → ")}: `),
      rates.map((arm, order) => [order ? " → " : "", number(report, of(arm, "pass_rate"), percent)]),
      rates.length ? "" : UNKNOWN,
    ),
    h("p", { class: "cost" }, costOf(report, verdict, of)),
    unanswered(report, verdict),
  );
}

/* That most answers of an arm could not pass, whatever they said. */
function unanswered(report, verdict) {
  const said = ["baseline", "skill"].flatMap((arm) =>
    ["refusal", "length", "repetition", "context", "empty"].filter((cause) => verdict[arm].causes[cause] * 2 > scored(verdict[arm])).map((cause) => `${report.arms[arm]}: ${grouped(verdict[arm].causes[cause])} of ${counted(scored(verdict[arm]), "answer")} ${CAUSES[cause]}`),
  );
  return said.length ? h("p", { class: "cost" }, h("b", {}, said.join("; "))) : null;
}

/* What a task takes: dollars for a pass where money is spent, and tokens. */
function costOf(report, verdict, of) {
  const tokens = beforeAfter(tokensPerTask(verdict.baseline), tokensPerTask(verdict.skill));
  const said = [h("span", { class: "label" }, "takes "), `${tokens} tokens per task`];
  const costs = [verdict.baseline, verdict.skill].filter(scored).map((arm) => arm.cost_usd);
  if (!costs.length) return [h("span", { class: "label" }, "nothing was graded")];
  if (costs.length && costs.every((cost) => cost === 0)) return [...said, ", free"];
  if (costs.some((cost) => cost === null)) return [...said, ", price unknown"];
  const paid = ["baseline", "skill"].filter((arm) => verdict.cost_per_pass[arm] !== null);
  if (!paid.length) return [...said, ", no task passed"];
  return [...said, ", ", paid.map((arm, order) => [order ? " → " : "", number(report, of("cost_per_pass", arm), dollars)]), " per pass"];
}

/* Where the interval lies between -100 and +100 points. */
function intervalBar(verdict) {
  const bar = h("div", { class: "bar", "aria-hidden": "true" }, h("i", { class: "zero" }));
  const place = (share) => `${50 + 50 * Math.max(-1, Math.min(1, share))}%`;
  const range = h("i", { class: "range" });
  const dot = h("i", { class: "dot" });
  range.style.setProperty("left", place(verdict.interval[0]));
  range.style.setProperty("right", `calc(100% - ${place(verdict.interval[1])})`);
  dot.style.setProperty("left", `clamp(4px, ${place(verdict.lift)}, calc(100% - 4px))`); // inside, also at +100
  const scale = h("div", { class: "scale", "aria-hidden": "true" }, ["-100", "0", "+100 points"].map((text) => h("span", {}, text)));
  return [add(bar, range, dot), scale];
}

function line(report, verdict, place) {
  const [mark, decision, kind] = decisionOf(report, verdict);
  const of = (...path) => ["models", place, ...path];
  return h(
    "li",
    { class: `line ${kind}`, title: report.conclusions[place] },
    h("span", { class: "decision" }, h("span", { class: "mark", "aria-hidden": "true" }, mark), ` ${decision}`),
    h("h2", { class: "model" }, nameOf(verdict.model, modelNames(report))),
    h("span", { class: "lift" }, verdict.unfinished ? "no verdict yet" : number(report, of("lift"), points), verdict.interval ? [" (", number(report, of("interval"), interval), ")"] : ""),
    h("span", { class: "cost" }, verdict.unfinished ? null : costOf(report, verdict, of)),
  );
}

function problems(report) {
  const said = [...report.caveats, ...report.problems];
  if (report.document.halted) said.unshift(`Stopped early: ${report.document.halted}.`);
  if (report.document.bugs.trials) said.unshift(`${counted(report.document.bugs.trials, "trial")} hit a bug in upskill, not in your skill or model.`);
  const required = report.document.requirements.filter((one) => !one.held).map((one) => `Required “${one.requirement}” for ${one.model}, but ${one.reason}.`);
  const all = [...required, ...said];
  return all.length ? h("ul", { class: "problems" }, all.map((line) => h("li", {}, prose(line)))) : null;
}

const PICTURES = [
  ["forest", "Lift for each model"],
  ["bars", "Pass rates"],
  ["pareto", "Cost against pass rate"],
];

/* Drawn by the same code as `upskill export --format svg`, once for wide and once for narrow screens. Every name in them is escaped. */
function pictures(report) {
  if (report.trigger.length) return null;
  const title = "Lift, pass rates and cost";
  if (report.document.models.every((verdict) => verdict.unfinished)) return section("pictures", title, h("p", {}, "Lift and pass rates are shown with the verdict."));
  const figures = PICTURES.map(([name, title]) => {
    const figure = h("figure", { id: `picture-${name}`, class: "picture", "aria-label": title });
    for (const screen of ["wide", "narrow"]) {
      const parsed = new DOMParser().parseFromString(report.pictures[screen][name], "image/svg+xml").documentElement;
      if (parsed.localName !== "svg") continue;
      parsed.classList.add(screen);
      figure.append(document.importNode(parsed, true));
    }
    return figure;
  });
  const said = report.choices.map((line) => h("p", {}, line));
  return section("pictures", title, h("div", { class: "pictures" }, figures, said.length ? h("div", {}, said) : null));
}
