/* A run of queries: how readily each model opens the skill where it is needed, and where it is not. */

const QUANTITIES = { recall: "recall", false_triggers: "false triggers", precision: "precision", accuracy: "accuracy" };

function estimate(found) {
  return found ? `${percent(found.value)} (${found.interval.map(percent).join(" to ")})` : UNKNOWN;
}

function triggerCard(report, metrics, place) {
  return h(
    "li",
    { class: "card even", title: report.conclusions[place] },
    h("h2", { class: "model" }, nameOf(metrics.model)),
    h("p", { class: "decision" }, `right on ${metrics.right} of ${metrics.queries.length} queries`),
    h("p", { class: "lift" }, metrics.recall ? `${percent(metrics.recall.value)} recall` : "no recall"),
    h("p", { class: "sure" }, "95% intervals in brackets"),
    Object.entries(QUANTITIES).map(([name, title]) => h("p", { class: "rates" }, h("span", { class: "label" }, `${title} `), estimate(metrics[name]))),
    metrics.errored ? h("p", { class: "cost" }, `${counted(metrics.errored, "run")} missing`) : null,
  );
}

function queries(report) {
  if (!report.trigger.length) return null;
  const tables = report.trigger.map((metrics) => {
    const rows = metrics.queries.map((one, number) => [
      h("a", { href: linkTo("case", report.cases[number].id), dir: "auto" }, one.query),
      one.should_trigger ? "yes" : "no",
      `${one.triggered} of ${one.runs}`,
      `${percent(one.rate)} (${one.interval.map(percent).join(" to ")})`,
      one.right === null ? "no run" : one.right ? "yes" : "no",
    ]);
    return table(report.trigger.length > 1 ? `Queries to ${metrics.model}` : "Queries", ["Query", "Should trigger", "Activated", "Rate", "Right"], rows, "wrap");
  });
  return section("queries", "Queries", tables);
}
