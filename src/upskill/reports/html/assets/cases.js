/* The matrix of cases, models and arms: how often each passed, and a way into every case. */

const CELLS = 420; // shown at a time: whole rows, ten to fifty
const CHANGES = { better: "▲", worse: "▼", same: "·" };

function share([passed, failed]) {
  return passed + failed ? passed / (passed + failed) : null;
}

/* Whether a case passes more or less often with the skill, over all models. */
function changeOf(report, row) {
  const arms = Object.keys(report.arms);
  const [before, after] = [arms.indexOf("baseline"), arms.indexOf("skill")];
  let change = 0;
  for (const cells of row) {
    const [one, two] = [before < 0 ? null : share(cells[before]), share(cells[after])];
    if (one !== null && two !== null) change += two - one;
  }
  return change;
}

function cases(report) {
  const models = report.document.models.map((verdict) => verdict.model);
  const arms = Object.entries(report.arms);
  const read = () => report.cases.map((one, place) => ({ one, cells: report.matrix[place], change: changeOf(report, report.matrix[place]) }));
  let rows = read();
  report.redrawCases = () => {
    rows = read();
    if (!box.contains(document.activeElement)) draw();
  };
  const box = h("div", {});
  const shown = h("select", { id: "cases-shown" }, [["all", "all"], ["better", "better with the skill"], ["worse", "worse with the skill"], ["same", "no change"], ["missing", "with missing trials"], ["fresh", "fresh"]].map(([value, name]) => h("option", { value }, name)));
  const order = h("select", { id: "cases-order" }, [["suite", "suite order"], ["change", "most changed first"], ["id", "by name"]].map(([value, name]) => h("option", { value }, name)));
  const most = Math.max(10, Math.min(50, Math.floor(CELLS / (models.length * arms.length))));
  let start = 0;

  function chosen() {
    const tests = {
      all: () => true,
      better: (row) => row.change > 0,
      worse: (row) => row.change < 0,
      same: (row) => row.change === 0,
      missing: (row) => row.cells.some((cells) => cells.some((cell) => cell[2])),
      fresh: (row) => !row.one.seen,
    };
    const found = rows.filter(tests[shown.value]);
    if (order.value === "change") found.sort((one, two) => Math.abs(two.change) - Math.abs(one.change));
    if (order.value === "id") found.sort((one, two) => (one.one.id < two.one.id ? -1 : 1));
    return found;
  }

  function draw() {
    const found = chosen();
    const heads = [
      h("tr", {}, h("th", { scope: "col", rowspan: "2" }, "Case"), models.map((model) => h("th", { scope: "colgroup", colspan: String(arms.length) }, nameOf(model, models))), h("th", { scope: "col", rowspan: "2" }, "Change")),
      h("tr", {}, models.map(() => arms.map(([, name]) => h("th", { scope: "col", class: "arm" }, name)))),
    ];
    const body = found.slice(start, start + most).map((row) => {
      const kind = row.change > 0 ? "better" : row.change < 0 ? "worse" : "same";
      const cells = row.cells.map((of, model) => of.map((cell, arm) => h("td", { class: "heat" }, heat(row.one.id, models[model], arms[arm], cell))));
      const tags = [...(row.one.seen ? ["seen"] : []), ...row.one.tags];
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, h("a", { href: linkTo("case", row.one.id), title: row.one.id }, row.one.id), tags.length ? h("span", { class: "tags" }, tags.join(", ")) : null),
        cells,
        h("td", { class: `change ${kind}` }, h("span", { "aria-hidden": "true" }, CHANGES[kind]), h("span", { class: "hidden" }, kind)),
      );
    });
    const caption = `Passed trials by case, model and arm: ${found.length ? `${start + 1} to ${Math.min(start + most, found.length)} of ${counted(found.length, "case")}` : "no case"}`;
    const waits = report.document.models.every((verdict) => verdict.unfinished);
    fill(
      box,
      waits ? h("p", { class: "note" }, "Results for each case are shown with the verdict. The trials that have run are listed below.") : null,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Passed trials by case, model and arm" }, h("table", { class: "matrix" }, h("caption", {}, caption), h("thead", {}, heads), h("tbody", {}, body))),
      pager(start > 0, start + most < found.length, (forward) => {
        start += forward ? most : -most;
        draw();
        box.querySelector(".scroll").focus();
      }, "cases"),
    );
  }

  for (const control of [shown, order]) {
    control.addEventListener("change", () => {
      start = 0;
      draw();
    });
  }
  draw();
  return section("cases", "Cases", h("div", { class: "filters" }, h("label", {}, "Show ", shown), h("label", {}, "Order ", order)), box);
}

function heat(id, model, [arm, name], [passed, failed, missing]) {
  const all = passed + failed;
  const level = all ? Math.round((4 * passed) / all) : "none";
  const said = all ? (all === 1 ? (passed ? "✓" : "✗") : `${passed}/${all}`) : missing ? "!" : UNKNOWN;
  const errors = missing ? `, ${missing} missing` : "";
  const label = `${id}, ${model}, ${name}: ${all ? `${passed} of ${all} passed` : "not graded"}${errors}`;
  return h("a", { href: linkTo("trial", id, model, arm), class: `cell rate-${level}${missing ? " missing" : ""}`, "aria-label": label, title: label }, missing && all ? `${said}!` : said);
}

/* Buttons to the page before and the one after; nothing where there is only one. */
function pager(before, after, turn, what) {
  if (!before && !after) return null;
  const button = (name, enabled, forward) => h("button", { type: "button", disabled: !enabled, on: { click: () => turn(forward) } }, name);
  return h("nav", { class: "pager", "aria-label": `Pages of ${what}` }, button("← Previous", before, false), button("Next →", after, true));
}
