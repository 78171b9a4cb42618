/* What a person says of an answer: right, wrong or odd, with a note. */

const REVIEWS = ["right", "wrong", "odd"];
const reviewed = new Map(); // by key: a review
const takenBack = new Map(); // by key: removed reviews, for stores that still have them

function marked(row) {
  const review = reviewed.get(keyText(row));
  return review ? h("span", { class: `review ${review.verdict || "note"}` }, ` · marked: ${review.verdict || "note"}`) : null;
}

async function readReviews(source) {
  for (const one of await source.reviews()) (saysSomething(one) ? reviewed : takenBack).set(keyText(one), one);
}

const saysSomething = (one) => Boolean(one.verdict || one.feedback);

/* skill-creator's format, with the trial's key added. */
function feedbackDocument(report) {
  return { run: report.run.id, skill: report.run.skill, reviews: [...reviewed.values(), ...takenBack.values()], status: "complete" };
}

function feedbackButton(report) {
  if (!report.source.canDownload) return null;
  const button = h("button", { type: "button", id: "download-feedback" });
  const name = () => {
    fill(button, reviewed.size ? `Download feedback (${reviewed.size})` : "Download feedback");
    button.disabled = !reviewed.size && !takenBack.size;
  };
  button.addEventListener("click", () => {
    const text = `${JSON.stringify(feedbackDocument(report), null, 2)}\n`;
    const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    h("a", { href: url, download: "feedback.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  });
  report.renameFeedback = name;
  name();
  return button;
}

/* The controls under one answer. */
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
      run_id: [report.run.id, trial.case, trial.model, trial.arm, trial.seed].join("/"),
      case: trial.case,
      model: trial.model,
      arm: trial.arm,
      seed: trial.seed,
      verdict: new FormData(form).get(name) ?? "",
      feedback: note.value.trim(),
      timestamp: new Date().toISOString(),
    };
    if (saysSomething(one)) {
      reviewed.set(key, one);
      takenBack.delete(key);
    } else if (reviewed.delete(key)) takenBack.set(key, one);
    report.renameFeedback?.();
    try {
      await report.source.review(one);
      fill(said, saysSomething(one) ? "Saved." : "Removed.");
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
