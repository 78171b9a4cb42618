/* The page gets everything from a source of data. A report has its data in the file (`embeddedSource`); the
   live page has a source of its own with the same functions, each of which returns a promise:

   summary()             the run without its trials: what data.summary() of the Python side returns
   trials(filter, after) a page of the list: {rows, next, total, done}. `filter` has any of case, model, arm, outcome,
                         tag, text; empty ones do not count. `after` is null, or the `next` of the page before; `next`
                         is null on the last. `rows` are like data.trial_row(); `total` is how many match as far as is
                         known, and `done` says whether the page is complete: where it is not, the list asks again;
                         `atLeast` that there may be more than `total`.
   trial(key)            all that is shown of one trial, like data.trial_to_page(); null where it was not run.
                         `key` is {case, model, arm, seed}.
   reviews()             what was marked before: {case, model, arm, seed, verdict, feedback}
   review(one)           keeps a review; one without a verdict and a note takes it back. May reject: then it is told.
                         A report has no such function, and shows its reviews.
   watch(changed)        calls changed() whenever the summary is another; a report never does
*/
const PAGE = 50; // trials in one page of the list
const OPEN_BLOCKS = 12; // that are kept in memory
const BLOCKS_AT_A_TIME = 3; // that are searched before the page is drawn again

async function openBlock(name) {
  const text = document.getElementById(name).textContent;
  const bytes = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function embeddedSource() {
  let columns = {}; // by name: a value for each trial, or its place among `names`
  let count = 0;
  let cases = new Map();
  let firsts = []; // by block: the number of its first trial
  const blocks = new Map(); // those that are open, the one that was used last at the end
  const loaded = load();

  async function load() {
    const [summary, index] = await Promise.all([openBlock("summary"), openBlock("index")]);
    columns = index.columns;
    cases = new Map(summary.cases.map((one) => [one.id, one]));
    for (const size of index.blocks) {
      firsts.push(count);
      count += size;
    }
    return { ...summary, limit: index.limit, listed: count };
  }

  function row(place) {
    const found = {};
    for (const [name, { names, values }] of Object.entries(columns)) found[name] = names ? names[values[place]] : values[place];
    return found;
  }

  async function block(number) {
    const name = `trials-${number}`;
    const found = blocks.get(name) ?? openBlock(name);
    blocks.delete(name);
    blocks.set(name, found);
    if (blocks.size > OPEN_BLOCKS) blocks.delete(blocks.keys().next().value);
    return found;
  }

  /* Whether the trial at a place has what a filter asks for, the text aside. */
  function tester(filter) {
    const tests = [];
    for (const name of ["case", "model", "arm", "outcome"]) {
      if (!filter[name]) continue;
      const { names, values } = columns[name];
      const wanted = names.indexOf(filter[name]);
      tests.push((place) => values[place] === wanted);
    }
    if (filter.tag) {
      const { names, values } = columns.case;
      const tagged = names.map((id) => Boolean(cases.get(id)?.tags.includes(filter.tag)));
      tests.push((place) => tagged[values[place]]);
    }
    return (place) => tests.every((test) => test(place));
  }

  function saysIt(trial, place, wanted) {
    const { case: id, model } = row(place);
    const texts = [id, model, cases.get(id)?.prompt.text, trial.answer?.text, trial.error];
    for (const finding of trial.findings) texts.push(finding.check, finding.reason);
    for (const step of trial.steps ?? []) texts.push(step.text?.text, step.tool, step.arguments?.text, step.output?.text);
    return texts.some((text) => text && text.toLowerCase().includes(wanted));
  }

  // Matches so far: the next page of the same filter continues here.
  let search = { filter: "", matches: [], block: 0 };

  async function matches(filter) {
    const wanted = (filter.text ?? "").trim().toLowerCase();
    const fits = tester(filter);
    if (!wanted) {
      const found = [];
      for (let place = 0; place < count; place++) if (fits(place)) found.push(place);
      return { found, done: true };
    }
    const asked = JSON.stringify([filter, wanted]);
    if (search.filter !== asked) search = { filter: asked, matches: [], block: 0 };
    const mine = search;
    // A few blocks at a time: the page stays usable while it searches.
    const until = Math.min(mine.block + BLOCKS_AT_A_TIME, firsts.length);
    while (mine.block < until) {
      const number = mine.block;
      const places = [];
      for (let place = firsts[number]; place < (firsts[number + 1] ?? count); place++) if (fits(place)) places.push(place);
      const trials = places.length ? await block(number) : [];
      if (mine.block !== number) continue; // another call searched this block meanwhile
      for (const place of places) if (saysIt(trials[place - firsts[number]], place, wanted)) mine.matches.push(place);
      mine.block++;
    }
    return { found: mine.matches, done: mine.block >= firsts.length };
  }

  return {
    summary: () => loaded,
    async trials(filter, after) {
      await loaded;
      const { found, done } = await matches(filter);
      const start = after ?? 0;
      const next = start + PAGE < found.length ? start + PAGE : null;
      return { rows: found.slice(start, start + PAGE).map(row), next, total: found.length, done };
    },
    async trial(key) {
      await loaded;
      const fits = tester(key);
      const seed = String(key.seed);
      for (let place = 0; place < count; place++) {
        if (String(columns.seed.values[place]) !== seed || !fits(place)) continue;
        const number = firsts.findLastIndex((first) => first <= place);
        return { ...row(place), ...(await block(number))[place - firsts[number]] };
      }
      return null;
    },
    reviews: async () => (await loaded).reviews ?? [],
    watch() {},
  };
}
