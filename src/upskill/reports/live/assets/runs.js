/* The first page: what is running, skills with their latest decision, and all runs. */

async function runsPage(page) {
  document.title = "Runs · upskill";
  let rows = new Map(); // by id, the newest first
  let skills = [];
  let more = null;
  let location_ = "";
  const chosen = new Set();
  const going = h("section", { id: "going", "aria-labelledby": "going-title" });
  const skillBox = h("section", { id: "skills", "aria-labelledby": "skills-title" });
  const runBox = h("section", { id: "runs", "aria-labelledby": "runs-title" });
  const heading = h("h1", {});
  const facts = h("p", { class: "facts" });

  async function read(before = null) {
    const found = await askJson("overview", { before });
    if (before === null) rows = new Map([...found.runs.map((row) => [row.id, row]), ...[...rows].filter(([, row]) => found.more !== null && row.number < found.more)]);
    else for (const row of found.runs) rows.set(row.id, row);
    if (before !== null || more === null || rows.size === found.runs.length) more = found.more;
    skills = found.skills;
    location_ = found.location;
    draw();
  }

  function draw() {
    const all = [...rows.values()].sort((one, two) => two.number - one.number);
    const running = all.filter((row) => row.state === "running");
    fill(heading, running.length ? `${counted(running.length, "run")} in progress` : all.length ? "Runs" : "No runs yet");
    fill(facts, h("span", {}, location_ ?? ""), h("span", {}, counted(skills.length, "skill")));
    going.hidden = !running.length;
    fill(going, h("h2", { id: "going-title" }, "Running"), h("ul", { class: "cards" }, running.map(runCard)));
    skillBox.hidden = !skills.length;
    fill(skillBox, h("h2", { id: "skills-title" }, "Skills"), h("ul", { class: "rows" }, skills.map(skillLine)));
    const focused = document.activeElement?.id;
    fill(
      runBox,
      h("h2", { id: "runs-title" }, "All runs"),
      all.length ? chooser() : h("p", { class: "note" }, prose("`upskill eval SKILL` starts the first one. It appears here right away.")),
      h("ol", { class: "rows" }, all.map(runLine)),
      more === null ? null : h("p", {}, h("button", { type: "button", id: "older", on: { click: () => read(more) } }, "Show older runs")),
    );
    if (focused) document.getElementById(focused)?.focus();
  }

  function runCard(row) {
    return h(
      "li",
      { class: "card even going-card", "data-run": row.id },
      h("h3", { class: "model" }, h("a", { href: runPage(row.id) }, row.id)),
      stateMark(row),
      h("div", { class: "whole" }, progress(row)),
      h("p", { class: "what whole" }, `${row.models.join(", ")} · ${counted(row.cases, "case")}${row.agent === "chat" ? "" : ` · agent ${row.agent}`}`),
    );
  }

  function runLine(row) {
    const box = h("input", {
      type: "checkbox",
      id: `choose-${row.number}`,
      "aria-label": `Compare ${row.id}`,
      checked: chosen.has(row.id),
      on: {
        change: (event) => {
          if (event.target.checked) chosen.add(row.id);
          else chosen.delete(row.id);
          if (chosen.size > 2) chosen.delete(chosen.values().next().value);
          draw();
        },
      },
    });
    box.checked = chosen.has(row.id);
    const done = row.scored + row.missing;
    const verdicts = row.verdicts.map((verdict) => verdictLine(verdict));
    const facts = [
      whenOf(row.created),
      row.state === "running" || row.state === "interrupted" ? `${grouped(done)} of ${counted(row.trials, "trial")}` : counted(done, "trial"),
      row.missing ? `${grouped(row.missing)} missing` : "",
      `${counted(row.cases, "case")}${row.part ? " (part of the suite)" : ""}`,
      row.other_suite ? `on ${row.other_suite}` : "",
      row.against ? "against a reference skill" : "",
      spent(row),
    ].filter(Boolean);
    return h(
      "li",
      { "data-run": row.id, class: "row" },
      box,
      h("div", { class: "name" }, h("a", { href: runPage(row.id) }, row.id), row.state === "done" || row.state === "ended" ? null : stateMark(row)),
      h("div", { class: "verdicts" }, verdicts.length ? verdicts : undecided(row)),
      h("p", { class: "what" }, facts.join(" · "), row.verdicts.length && !row.verdicts_are_current ? " · decided before the latest trials" : ""),
    );
  }

  /* Of a run that nobody was told a verdict of: nothing of how its arms differ. */
  function undecided(row) {
    return h("span", { class: "note" }, [row.models.length > 1 ? "" : row.models[0], row.part_of || (row.state === "running" ? "no verdict yet" : "no verdict")].filter(Boolean).join(" · "));
  }

  function chooser() {
    const [one, two] = [...chosen].map((id) => rows.get(id)).sort((a, b) => a.number - b.number);
    if (two) return h("p", { class: "note" }, h("a", { class: "button", href: comparePage(one.id, two.id), id: "compare" }, `Compare ${one.id} with ${two.id}`));
    return h("p", { class: "note" }, "Select two runs to compare them.");
  }

  function skillLine(skill) {
    return h(
      "li",
      { class: "row plain", "data-skill": skill.name },
      h("div", { class: "name" }, h("a", { href: skillPage(skill.name) }, skill.name)),
      h("div", { class: "verdicts" }, skill.verdicts.length ? skill.verdicts.map((verdict) => verdictLine(verdict)) : h("span", { class: "note" }, "no verdict yet")),
      h("p", { class: "what" }, `${counted(skill.runs, "run")} · latest ${whenOf(skill.created)}`),
    );
  }

  const again = calmly(() => read());
  listeners.add((changed) => {
    if (changed === null || changed.some((row) => !rows.has(row.id) || rows.get(row.id).state !== row.state || row.verdicts.length !== rows.get(row.id).verdicts.length)) again();
    if (changed === null) return;
    for (const row of changed) if (rows.has(row.id)) rows.set(row.id, row);
    draw();
  });
  await read();
  fill(page, topBar(), h("header", { class: "top" }, heading, facts), h("main", { id: "content", tabindex: "-1" }, going, skillBox, runBox));
}
