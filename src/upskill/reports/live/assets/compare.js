/* Two runs, or two versions of a skill: which cases flipped, with both answers, and how the skills differ. */

async function comparisonPage(page) {
  document.title = "Compare · upskill";
  const asked = new URLSearchParams(location.search);
  const known = await askJson("overview");
  const result = h("div", { id: "result" });
  const names = known.runs.map((row) => row.id);
  const pair = await askJson("pair", { before: asked.get("before"), after: asked.get("after") });
  const [before, after] = [asked.get("before") ?? pair[0], asked.get("after") ?? pair[1]];
  const choose = (name, title, values, value) => {
    const all = values.includes(value) || !value ? values : [value, ...values];
    const select = h("select", { name }, all.map((each) => h("option", { value: each }, each)));
    if (value) select.value = value;
    return h("label", {}, `${title} `, select);
  };
  const form = h("form", { class: "filters", "aria-label": "What is compared" });
  const main = h("main", { id: "content", tabindex: "-1" }, form, result);
  fill(page, topBar(), h("header", { class: "top" }, h("h1", {}, "Compare two runs")), main);
  if (!names.length) {
    fill(result, h("p", { class: "note" }, "No runs to compare yet."));
    return;
  }
  fill(form, choose("before", "Before", names, before), choose("after", "After", names, after));

  async function read() {
    const given = Object.fromEntries(new FormData(form));
    history.replaceState(null, "", `?${new URLSearchParams(given)}`);
    fill(result, h("p", { role: "status", class: "note" }, "Comparing …"));
    try {
      show(await askJson("compare", given));
    } catch (error) {
      fill(result, h("p", { class: "warning", role: "alert" }, error.message));
    }
  }

  function show(found) {
    fill(
      form,
      choose("before", "Before", names, found.before.run),
      choose("after", "After", names, found.after.run),
      found.before.models.length > 1 ? choose("model", "Model before", found.before.models, found.before.model) : null,
      found.after.models.length > 1 ? choose("other", "Model after", found.after.models, found.after.model) : null,
      choose("arm", "Arm", found.after.arms, found.after.arm),
    );
    const worse = found.changed.filter((one) => one.change === "worse").length;
    const rate = (side) => {
      const counts = [...found.changed, ...found.same].map((one) => one[side]);
      const [passed, of] = [0, 1].map((at) => counts.reduce((sum, each) => sum + each[at], 0));
      return percent(of ? passed / of : null);
    };
    fill(
      result,
      h("ul", { class: "cards tiles" }, tile(beforeAfter(rate("before"), rate("after")), "passed, on cases in both runs", "even"), tile(`${found.changed.length - worse}`, "got better", "good"), tile(`${worse}`, "got worse", worse ? "bad" : "even"), tile(`${found.same.length}`, "unchanged", "even")),
      section("words", "What differs", found.words.map((line) => h("p", {}, prose(line)))),
      skillDiff(found),
      section("flipped", "Cases that flipped", found.changed.length ? found.changed.map((one) => flipped(found, one)) : h("p", { class: "note" }, "No case in both runs changed.")),
      found.same.length ? section("stayed", "Unchanged cases", table("How often each passed", ["Case", "Before", "After"], found.same.map((one) => [one.id, share(one.before), share(one.after)]))) : null,
    );
  }

  form.addEventListener("change", read);
  form.addEventListener("submit", (event) => event.preventDefault());
  await read();
}

const share = ([passed, of]) => (of === 1 ? (passed ? "passed" : "failed") : `${passed} of ${of} passed`);

function tile(number, words, kind) {
  return h("li", { class: `card ${kind}` }, h("p", { class: "lift" }, number), h("p", { class: "sure" }, words));
}

function skillDiff(found) {
  if (found.same_skill) return section("diff", "The skill", h("p", { class: "note" }, "Both runs used the same skill."));
  if (!found.diff.length) return section("diff", "The skill", h("p", { class: "note" }, "The description and the body are the same; another file in the skill differs."));
  const kinds = { "+": "ins", "-": "del", "=": "span", "…": "span" };
  const words = { "+": "added: ", "-": "removed: " };
  const lines = found.diff.map(([mark, text]) =>
    h("li", { class: mark === "…" ? "gap" : null }, h("span", { class: "sign", "aria-hidden": "true" }, mark === "=" ? " " : mark), words[mark] ? h("span", { class: "hidden" }, words[mark]) : null, h(kinds[mark], { class: "code" }, text || " ")),
  );
  const sides = `${found.before.skill} ${found.before.version} → ${found.after.skill} ${found.after.version}`;
  return section("diff", "How the skills differ", h("p", { class: "note" }, sides), h("ol", { class: "diff", tabindex: "0", "aria-label": "Lines that differ" }, lines));
}

function flipped(found, one) {
  const kind = one.change === "better" ? "good" : "bad";
  const [before, after] = one.answers;
  const marks = before && after && before.answer && after.answer ? differences(visible(before.answer.text), visible(after.answer.text)) : null;
  const side = (title, trial, pieces, tag, run) =>
    h(
      "article",
      { class: `answer ${trial.outcome}` },
      h("h4", {}, h("span", { class: `mark ${trial.outcome}`, "aria-hidden": "true" }, OUTCOME_MARKS[trial.outcome]), ` ${title}: ${trial.outcome} `, h("a", { href: runPage(run) + linkTo("trial", trial.case, trial.model, trial.arm, trial.seed) }, "open")),
      pieces ? h("pre", { class: "text", dir: "auto" }, pieces.map(([piece, differs]) => (differs ? h(tag, {}, piece) : piece))) : longText(trial.answer),
      trial.findings.length ? h("ul", { class: "findings" }, trial.findings.map(finding)) : null,
    );
  return h(
    "details",
    { class: `flip ${kind}`, "data-case": one.id },
    h("summary", {}, h("span", { class: "decision" }, one.change), " ", h("b", {}, one.id), h("span", { class: "what" }, ` ${share(one.before)} → ${share(one.after)}`)),
    h("pre", { class: "text", dir: "auto" }, one.prompt),
    before ? h("div", { class: "columns" }, side("before", before, marks?.[0], "del", found.before.run), side("after", after, marks?.[1], "ins", found.after.run)) : h("p", { class: "note" }, h("a", { href: runPage(found.after.run) + linkTo("case", one.id) }, "Open it in the run after")),
  );
}
