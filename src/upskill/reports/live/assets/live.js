/* What all live pages share: asking the server, hearing what has changed, and the bar on top. */

const BASE = document.querySelector('meta[name="upskill-base"]').content; // with the token
const refreshPause = 1500; // ms between two refreshes of a page

async function ask(path, query = {}, options = {}) {
  const url = new URL(`${BASE}api/${path}`, location.href);
  for (const [name, value] of Object.entries(query)) if (value !== null && value !== undefined) url.searchParams.set(name, wellFormed(String(value)));
  let response;
  try {
    response = await fetch(url, options);
  } catch {
    throw new Error("The server does not answer: upskill view has stopped. Start it again and open its new address.");
  }
  if (!response.ok && response.status !== 304) throw new Error((await response.text()).trim() || response.statusText);
  return response;
}

const askJson = async (path, query) => (await ask(path, query)).json();

/* Addresses of pages. */
const pageOf = (...parts) => BASE + parts.map((part) => encodeURIComponent(wellFormed(String(part)))).join("/");
const runPage = (run) => pageOf("run", run);
const skillPage = (skill) => pageOf("skill", skill);
const comparePage = (before, after) => `${BASE}compare?${new URLSearchParams({ before: wellFormed(before), after: wellFormed(after) })}`;

/* Calls heard(rows) with the runs that have changed, as the list of runs has them; null: anything may have.

   A browser opens six connections to one server and no more, so that all its pages share one: the page that has the
   lock listens, and passes on what it hears. When it is closed, the next one gets the lock. */
const listeners = new Set();
const connections = new Set(); // elements that show it
let connected = null;

function startEvents() {
  const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(`upskill${BASE}`);
  const hear = ({ state, rows }) => {
    connected = state;
    for (const node of connections) showConnection(node, state);
    if (rows !== undefined) for (const heard of [...listeners]) heard(rows);
  };
  const pass = (said) => {
    hear(said);
    channel?.postMessage(said);
  };
  channel?.addEventListener("message", (event) => (event.data === "who?" ? connected !== null && leads && channel.postMessage({ state: connected }) : hear(event.data)));
  let leads = false;
  const follow = () =>
    new Promise(() => {
      leads = true;
      const events = new EventSource(`${BASE}events`);
      events.addEventListener("message", (event) => {
        const rows = JSON.parse(event.data);
        pass({ state: "live", rows: rows.length ? rows : null });
      });
      events.addEventListener("error", () => pass({ state: "lost" }));
    });
  if (channel && navigator.locks) {
    navigator.locks.request(`upskill${BASE}`, follow);
    channel.postMessage("who?");
  } else follow();
}

function showConnection(node, state) {
  node.dataset.connection = state;
  fill(node, state === "live" ? "live" : state === "lost" ? "not connected" : "connecting");
}

/* Resolves as soon as somebody can see the page. */
async function seen() {
  while (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

/* Calls a function now and then: at once, and once more at the end where it was wanted again meanwhile. A page that
   nobody sees asks for nothing until somebody does. */
function calmly(act) {
  let busy = false;
  let wanted = false;
  return async function again() {
    if (busy) {
      wanted = true;
      return;
    }
    busy = true;
    await seen();
    wanted = false;
    const begun = performance.now();
    try {
      await act();
    } catch (error) {
      console.info(error.message); // the next change asks again
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, refreshPause - (performance.now() - begun))));
    busy = false;
    if (wanted) {
      wanted = false;
      again();
    }
  };
}

/* The bar on top of every live page. */
function topBar(links = null, theme = true) {
  const state = h("span", { class: "connection", role: "status", "data-connection": "" });
  connections.add(state);
  showConnection(state, connected ?? "connecting");
  return h(
    "nav",
    { class: "topbar", "aria-label": "upskill" },
    h("a", { href: BASE, class: "home" }, h("strong", {}, "upskill")),
    h("a", { href: BASE }, "Runs"),
    h("a", { href: pageOf("compare") }, "Compare"),
    links,
    h("span", { class: "grow" }),
    state,
    theme ? themeButton() : null,
  );
}

/* How far a run is, and what it has cost. */
const STATES = { running: "running", done: "done", ended: "done", interrupted: "interrupted" };

function duration(seconds) {
  if (seconds < 100) return `${Math.ceil(seconds)} s`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function spent(row) {
  const price = row.cost_usd === null ? "price unknown" : dollars(row.cost_usd);
  return row.tokens ? `${grouped(row.tokens)} tokens, ${price}` : "nothing spent";
}

function progress(row) {
  const done = row.scored + row.missing;
  const left = row.state !== "running" ? "" : row.seconds_left === null || row.seconds_left === undefined ? "" : `about ${duration(row.seconds_left)} left`;
  const facts = [
    `${grouped(done)} of ${counted(row.trials, "trial")}`,
    left,
    row.missing ? `${grouped(row.missing)} missing` : "",
    spent(row),
  ].filter(Boolean);
  const meter = h("progress", { max: String(row.trials || 1), value: String(done), "aria-label": `Progress of ${row.id}` });
  return h("div", { class: "progress" }, meter, h("p", { class: "what" }, facts.join(" · ")));
}

const stateMark = (row) => h("span", { class: `state ${row.state}` }, STATES[row.state]);

/* A verdict in a line: the decision, the lift, and both pass rates. */
function verdictLine(verdict, name = verdict.model) {
  const [mark, decision, kind] = decisionOf({ run: {} }, { ...verdict, reason: verdict.reason ?? "" });
  const invalid = decision === "invalid";
  const limits = [verdict.other_suite ? `on ${verdict.other_suite}` : "", verdict.of].filter(Boolean);
  const lift = verdict.lift === null || invalid ? "" : `${points(verdict.lift)}${verdict.interval ? ` (${interval(verdict.interval)})` : ""}`;
  return h(
    "span",
    { class: `verdict ${kind ?? "open"}` },
    h("span", { class: "decision" }, h("span", { "aria-hidden": "true" }, `${mark ?? "?"} `), decision),
    name ? h("span", { class: "model" }, name) : null,
    h("span", { class: "lift" }, lift),
    verdict.skill === null ? null : h("span", { class: "what" }, beforeAfter(percent(verdict.baseline), percent(verdict.skill))),
    limits.length ? h("span", { class: "what" }, `(${limits.join(", ")})`) : null,
  );
}

/* The data source of a run's page; source.js describes each function. */
function liveSource(run, isGoing) {
  let tag = "";
  let known = null;
  // Missing trials of a run in progress are not a problem.
  const shown = () => ({ ...known, going: isGoing(), problems: known.problems.filter((line) => !isGoing() || line !== known.not_run) });
  let search = null;
  const changes = new Set();
  let missed = false; // a change while the page was still being drawn
  const changed = calmly(async () => {
    if (search && search.rows.length <= 2 * PAGE) search = null; // do not disturb a reader further down
    for (const act of changes) await act();
  });
  listeners.add((rows) => {
    if (rows !== null && !rows.some((row) => row.id === run)) return;
    if (changes.size) changed();
    else missed = true;
  });

  async function more(mine, filter) {
    const found = await askJson("trials", { ...filter, run, after: mine.next });
    mine.rows.push(...found.rows);
    mine.next = found.next;
    mine.total = found.total;
    mine.done = found.next === null;
  }

  return {
    async summary() {
      for (;;) {
        const response = await ask("summary", { run }, tag ? { headers: { "If-None-Match": tag } } : {});
        if (response.headers.get("X-Stale")) setTimeout(changed, refreshPause); // it will be computed by then
        if (response.status === 304) return shown();
        if (response.status === 200) {
          tag = response.headers.get("ETag") ?? "";
          known = { ...(await response.json()), limit: 20000, live: true };
          return shown();
        }
        if (known) return shown();
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    },
    async trials(filter, after) {
      const asked = JSON.stringify(filter);
      if (search?.asked !== asked) search = { asked, rows: [], next: null, total: null, done: false, busy: Promise.resolve() };
      const mine = search;
      const start = after ?? 0;
      const enough = () => mine.done || mine.rows.length > start + PAGE;
      mine.busy = mine.busy.catch(() => null).then(() => (enough() ? null : more(mine, filter)));
      await mine.busy;
      return {
        rows: mine.rows.slice(start, start + PAGE),
        next: mine.rows.length > start + PAGE ? start + PAGE : null,
        total: mine.total ?? mine.rows.length,
        atLeast: mine.total === null && !mine.done,
        done: enough(),
      };
    },
    trial: ({ case: id, model, arm, seed }) => askJson("trial", { run, key: JSON.stringify([id, model, arm, Number(seed)]) }),
    reviews: async () => (await askJson("feedback.json", { run })).reviews,
    async review(one) {
      await ask("feedback", { run }, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(one) });
    },
    watch(act) {
      changes.add(act);
      if (missed) changed();
    },
  };
}
