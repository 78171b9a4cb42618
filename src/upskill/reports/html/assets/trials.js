/* The list of trials with its filters. */

const OUTCOME_MARKS = { passed: "✓", failed: "✗", missing: "!" };

function trials(report, source) {
  const tags = [...new Set(report.cases.flatMap((one) => one.tags))].sort();
  const choice = (name, title, values, least = 2) =>
    values.length >= least
      ? h("label", {}, `${title} `, h("select", { name }, h("option", { value: "" }, "any"), values.map(([value, said]) => h("option", { value }, said))))
      : null;
  const plain = (values) => values.map((value) => [value, value]);
  const text = h("input", { type: "search", name: "text", autocomplete: "off", spellcheck: "false" });
  const form = h(
    "form",
    { class: "filters", role: "search", "aria-label": "Filter the trials" },
    choice("model", "Model", plain(report.document.models.map((verdict) => verdict.model))),
    choice("arm", "Arm", Object.entries(report.arms)),
    choice("outcome", "Outcome", plain(["passed", "failed", "missing"])),
    choice("tag", "Tag", plain(tags), 1),
    h("label", { class: "grow" }, "Text ", text),
    h("button", { type: "reset", class: "quiet" }, "Clear"),
  );
  const status = h("p", { role: "status", class: "note", id: "trials-status" });
  const printed = h("p", { class: "note printed" });
  const list = h("ol", { class: "trials", "aria-label": "Trials", tabindex: "-1" });
  const pages = h("div", {});
  let asked = 0; // the latest question: answers to earlier ones are dropped
  let starts = [null]; // where the pages up to this one start

  function filterOf() {
    return Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
  }

  async function draw() {
    const mine = ++asked;
    const filter = filterOf();
    for (;;) {
      const begun = performance.now();
      const found = await source.trials(filter, starts.at(-1));
      if (mine !== asked) return;
      const first = (starts.length - 1) * PAGE;
      fill(status, found.total ? `${found.done && !found.atLeast ? "" : "At least "}${counted(found.total, "trial")}${found.done ? "" : ", still searching …"}` : found.done ? "No trial matches." : "Searching …");
      fill(printed, found.total > found.rows.length ? `Trials ${grouped(first + 1)} to ${grouped(first + found.rows.length)} of ${grouped(found.total)} are printed here; the page has them all.` : "");
      fill(list, found.rows.map((row) => trialLine(report, row)));
      list.setAttribute("start", String(first + 1));
      fill(pages, pager(starts.length > 1, found.next !== null, (forward) => {
        starts = forward ? [...starts, found.next] : starts.slice(0, -1);
        draw();
        list.focus(); // at its top, where reading continues
      }, "trials"));
      measure("trials", begun);
      if (found.done) return;
      await pause();
    }
  }

  const again = () => {
    starts = [null];
    draw();
  };
  form.addEventListener("input", again);
  form.addEventListener("reset", () => setTimeout(again));
  form.addEventListener("submit", (event) => event.preventDefault());
  draw();
  source.watch(draw);
  const without = report.listed === 0 && report.run.scored ? h("p", { class: "note" }, "This report was written without its trials.") : null;
  const cut = report.limit < 20000 ? h("p", { class: "note" }, `To keep the file small, texts longer than ${counted(report.limit, "character")} are cut; upskill show ${report.run.id} has them in full.`) : null;
  const stored = report.run.scored + report.run.missing;
  const few = report.listed && report.listed < stored ? h("p", { class: "note" }, `To keep the file small, it has ${grouped(report.listed)} of ${counted(stored, "trial")}: the first seeds of each case. Every number above covers all of them; upskill show ${report.run.id} has the others.`) : null;
  return section("trials", "Trials", form, status, without, few, cut, printed, list, pages);
}

function trialLine(report, row) {
  const facts = [
    report.arms[row.arm] ?? row.arm,
    row.model,
    report.run.seeds.length > 1 ? `seed ${row.seed}` : "",
    `${grouped(row.input_tokens + row.output_tokens)} tokens`,
    row.cause ? CAUSES[row.cause] : "",
  ].filter(Boolean);
  return h(
    "li",
    { class: row.outcome },
    h("a", { href: linkTo("trial", row.case, row.model, row.arm, row.seed) }, h("span", { class: "mark", "aria-hidden": "true" }, OUTCOME_MARKS[row.outcome]), h("span", { class: "hidden" }, `${row.outcome}: `), h("b", {}, row.case)),
    h("span", { class: "what" }, facts.join(" · "), marked(row)),
  );
}
