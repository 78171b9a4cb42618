/* Which page this is, by its address. */

async function startRun(page, run) {
  const state = h("div", { class: "going" });
  const bar = topBar(null, false);
  const before = h("div", { class: "live-top" }, bar, state);
  document.title = `${run} · upskill`;
  const show = (row) => {
    fill(state, row.state === "done" || row.state === "ended" ? null : [stateMark(row), progress(row)]);
    state.dataset.state = row.state;
    state.dataset.done = String(row.scored + row.missing);
  };
  let heard = false; // newer than the row we ask for
  listeners.add((rows) => {
    const mine = rows?.find((each) => each.id === run);
    heard ||= Boolean(mine);
    if (mine) show(mine);
    else if (rows === null) askJson("run", { run }).then(show, () => null);
  });
  const row = await askJson("run", { run });
  bar.querySelector("a[href$='compare']").after(h("a", { href: skillPage(row.skill) }, row.skill));
  if (!heard) show(row);
  // Show what is known before everything is computed.
  fill(page, before, h("header", { class: "top" }, h("h1", { dir: "auto" }, row.id)), h("main", { id: "content" }, row.verdicts.map((verdict) => h("p", {}, verdictLine(verdict))), h("p", { class: "waiting", role: "status" }, `Computing results of ${counted(row.scored + row.missing, "trial")} …`)));
  await startReport(liveSource(run, () => state.dataset.state === "running"), before);
}

async function start() {
  const page = document.getElementById("page");
  const parts = location.pathname.slice(BASE.length).split("/").map(decodeURIComponent);
  const theme = remembered("upskill-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  startEvents();
  try {
    if (parts[0] === "run") await startRun(page, parts[1]);
    else if (parts[0] === "skill") await skillVersionsPage(page, parts[1]);
    else if (parts[0] === "compare") await comparisonPage(page);
    else await runsPage(page);
  } catch (error) {
    document.title = "Nothing to show · upskill";
    const back = h("p", {}, h("a", { href: BASE }, "All runs"));
    fill(page, topBar(), h("header", { class: "top" }, h("h1", {}, "Nothing to show")), h("main", { id: "content" }, h("p", { class: "warning", role: "alert" }, error.message), back));
  }
  document.documentElement.dataset.ready = "true";
}

start();
