/* What a person says of an answer: right, wrong or odd, with a note. The live page stores it; a report only shows it. */

const REVIEWS = ["right", "wrong", "odd"];
const reviewed = new Map(); // by key: a review

function marked(row) {
  const review = reviewed.get(keyText(row));
  return review ? h("span", { class: `review ${review.verdict || "note"}` }, ` · marked: ${review.verdict || "note"}`) : null;
}

async function readReviews(source) {
  for (const one of await source.reviews()) reviewed.set(keyText(one), one);
}

/* Under one answer. */
function feedback(report, trial) {
  return report.source.review ? feedbackForm(report, trial) : feedbackText(trial);
}

function feedbackText(trial) {
  const review = reviewed.get(keyText(trial));
  if (!review) return null;
  const verdict = review.verdict ? h("b", {}, `Marked: ${review.verdict}. `) : null;
  return h("div", { class: "feedback" }, h("p", {}, verdict, visible(review.feedback)));
}

function feedbackForm(report, trial) {
  const key = keyText(trial);
  const before = reviewed.get(key);
  const name = `verdict-${trial.arm}`;
  const said = h("p", { role: "status", class: "note" });
  const note = h("textarea", { rows: "2", placeholder: "Why? (a note for improving the skill)", "aria-label": `Note on this answer, ${report.arms[trial.arm] ?? trial.arm}` });
  note.value = visible(before?.feedback ?? "");
  const buttons = REVIEWS.map((verdict) =>
    h("label", { class: `choice ${verdict}` }, h("input", { type: "radio", name, value: verdict, checked: before?.verdict === verdict }), h("span", {}, verdict)),
  );
  const clear = h("button", { type: "reset", class: "quiet" }, "Clear");
  const form = h("form", { class: "feedback" }, h("fieldset", {}, h("legend", {}, "Is this answer right?"), buttons, clear), note, said);

  async function keep() {
    const one = {
      case: trial.case,
      model: trial.model,
      arm: trial.arm,
      seed: trial.seed,
      verdict: new FormData(form).get(name) ?? "",
      feedback: note.value.trim(),
    };
    const saysSomething = Boolean(one.verdict || one.feedback);
    if (saysSomething) reviewed.set(key, one);
    else reviewed.delete(key);
    try {
      await report.source.review(one);
      fill(said, saysSomething ? "Saved." : "Removed.");
    } catch (error) {
      fill(said, error.message);
    }
  }

  form.addEventListener("change", keep);
  form.addEventListener("reset", () => setTimeout(() => {
    note.value = "";
    for (const input of form.querySelectorAll("input")) input.checked = false;
    keep();
  }));
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}
