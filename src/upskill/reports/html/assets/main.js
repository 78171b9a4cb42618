/* Puts the page together, follows links to a case or a trial, and measures itself. */

const timings = { measures: [], longest: 0, longTasks: [] };
window.upskillTimings = timings;

function measure(name, begun) {
  const took = performance.now() - begun;
  timings.measures.push([name, took, begun]);
  timings.longest = Math.max(timings.longest, took);
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

/* Every stretch in which the page could not answer, as the browser itself sees it. */
function watchTasks() {
  if (!PerformanceObserver.supportedEntryTypes?.includes("longtask")) return;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) timings.longTasks.push(entry.duration);
  }).observe({ type: "longtask", buffered: true });
}

const SECTIONS = [queries, pictures, cases, groups, failures, activity, controls, people, notes, spending, skillText];

async function startReport(source, before = null) {
  watchTasks();
  const page = document.getElementById("page");
  try {
    const report = { ...(await source.summary()), source };
    await readReviews(source);
    await pause();
    await draw(page, report, source, before);
    source.watch(async () => {
      Object.assign(report, await source.summary());
      update(page, report);
    });
  } catch (error) {
    fill(page, h("p", { class: "warning" }, `This report cannot be shown: ${error.message}. Try a recent browser.`));
    throw error;
  }
  document.documentElement.dataset.ready = "true";
}

/* Draws anew what a changed summary changes; a part that somebody is using stays as it is until the next change. */
function update(page, report) {
  for (const make of [header, verdicts, ...SECTIONS.filter((each) => each !== cases)]) {
    const part = make(report);
    const before = part && page.querySelector(part.id ? `#${part.id}` : "header.top");
    if (before && !before.contains(document.activeElement)) before.replaceWith(part);
    else if (part && !before) page.querySelector("#trials")?.before(part);
  }
  report.redrawCases?.();
}

async function draw(page, report, source, before) {
  const main = h("main", {});
  const menu = h("nav", { class: "menu", "aria-label": "Parts of the report" });
  const opened = caseDialog(report, source);
  fill(page, before, header(report), add(main, verdicts(report)), opened.dialog);
  page.querySelector("header.top").after(menu);
  // One part at a time: what was drawn before is seen already.
  for (const make of [...SECTIONS, (given) => trials(given, source)]) {
    await pause();
    const begun = performance.now();
    const part = make(report);
    if (!part) continue;
    add(main, part);
    add(menu, h("a", { href: `#${part.id}` }, part.querySelector("h2").textContent.split(" and ")[0]));
    measure(part.id, begun);
  }
  add(main, h("footer", {}, `Made by upskill ${report.upskill} from run ${report.run.id}. ${report.live ? "" : "This file is self-contained."}`));
  const follow = () => {
    const link = readLink(location.hash, report);
    if (link) opened.open(link);
    else opened.close();
  };
  const part = /^#[a-z-]+$/.test(location.hash) && document.querySelector(location.hash);
  if (part) part.scrollIntoView(); // it was not there yet when the browser looked for it
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  follow();
}

/* `#case=ID` or `#trial=CASE/MODEL/ARM/SEED`, of which the last ones may be missing. */
function readLink(hash, report) {
  const found = /^#(?:case|trial)=(.+)$/.exec(hash);
  if (!found) return null;
  if (report.cases.some((one) => one.id === decoded(found[1]))) return { id: decoded(found[1]) }; // a typed link may have a bare slash
  const [id, model, arm, seed] = found[1].split("/").map(decoded);
  return { id, model, arm, seed };
}

/* A part of a link; one that nobody can decode stands for itself, and is told to be unknown. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
