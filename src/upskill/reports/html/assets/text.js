/* Building blocks: elements, text that is safe to show, and numbers as the other reports write them. */

const UNKNOWN = "–";
const CONTROLS = new RegExp(
  `[${CONTROL_RANGES.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("")}]`,
  "gu",
);

/* What others wrote, without what would turn its direction or hide a part of it: shown as escapes instead. */
function visible(text) {
  return String(text)
    .replaceAll("\r\n", "\n")
    .replace(CONTROLS, (found) => `\\x${found.codePointAt(0).toString(16).padStart(2, "0")}`);
}

/* An element. Attributes are set one by one, children are elements or text: nothing is ever read as HTML. */
function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  return add(node, ...children);
}

function add(node, ...children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return node;
}

function fill(node, ...children) {
  node.replaceChildren();
  return add(node, ...children);
}

const modelNames = (report) => report.document.models.map((verdict) => verdict.model);

/* A name that fits a heading: a very long one is cut in the middle, and numbered if another of `names` would look the
   same. Its tooltip and screen readers have the full name. */
function nameOf(name, names) {
  const cut = (one) => {
    const letters = [...visible(one)];
    return letters.length <= 60 ? one : `${letters.slice(0, 36).join("")}…${letters.slice(-20).join("")}`;
  };
  const short = cut(name);
  if (short === name) return name;
  const alike = names.filter((one) => cut(one) === short).length > 1;
  return h("span", { title: name }, h("span", { "aria-hidden": "true" }, alike ? `${names.indexOf(name) + 1} ${short}` : short), h("span", { class: "hidden" }, name));
}

/* A link to a place on the page, with the names in it escaped. */
function linkTo(kind, ...names) {
  return `#${kind}=${names.map((name) => encodeURIComponent(wellFormed(String(name)))).join("/")}`;
}

/* encodeURIComponent refuses half of a surrogate pair. */
function wellFormed(text) {
  return text.replace(/[\ud800-\udfff]/gu, "\ufffd");
}

/* A time as it was stored, to the minute: 2026-11-16 07:50 UTC. */
function whenOf(time) {
  const zone = /(Z|\+00:00)$/.test(time) ? " UTC" : "";
  return time.slice(0, 16).replace("T", " ") + zone;
}

function keyText(key) {
  return JSON.stringify([key.case, key.model, key.arm, String(key.seed)]);
}

function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

/* Halves go to the even neighbour, as in the other reports. */
function rounded(number) {
  const floor = Math.floor(number);
  const rest = number - floor;
  if (rest === 0.5) return floor % 2 === 0 ? floor : floor + 1;
  return Math.round(number);
}

const grouped = (number) => number.toLocaleString("en-US");
const signed = (whole) => (whole > 0 ? `+${whole}` : whole < 0 ? `-${-whole}` : "0");
/* As `signed_points`. */
const inPoints = (share) => {
  const whole = rounded(100 * share);
  return whole || Math.abs(share) < 0.00005 ? signed(whole).replace("-", "−") : share > 0 ? "just above 0" : "just below 0";
};
const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

function percent(share) {
  return share === null || share === undefined ? UNKNOWN : `${rounded(100 * share)}%`;
}

function points(lift) {
  if (lift === null || lift === undefined) return UNKNOWN;
  return `${inPoints(lift)} point${Math.abs(rounded(100 * lift)) === 1 ? "" : "s"}`;
}

function interval(bounds) {
  return bounds ? `${inPoints(bounds[0])} to ${inPoints(bounds[1])}` : UNKNOWN;
}

function dollars(cost) {
  if (cost === null || cost === undefined) return UNKNOWN;
  if (cost === 0) return "free";
  if (cost < 0.000001) return "<$0.000001";
  const digits = cost >= 1 ? 2 : cost >= 0.001 ? 4 : 6;
  return `$${fixed(cost, digits)}`;
}

function fixed(number, digits) {
  const given = { minimumFractionDigits: digits, maximumFractionDigits: digits, roundingMode: "halfEven" };
  return number.toLocaleString("en-US", given);
}

const decimal = (number) => (number === null || number === undefined ? UNKNOWN : fixed(number, 1));
const scored = (arm) => arm.passed + arm.failed;
const tokensPerTask = (arm) =>
  scored(arm) ? grouped(rounded((arm.input_tokens + arm.output_tokens) / scored(arm))) : UNKNOWN;
const beforeAfter = (before, after) => (before === UNKNOWN ? after : `${before} → ${after}`);

/* A number with the place in the JSON document that it comes from. */
function number(report, path, format) {
  let value = report.document;
  for (const name of path) value = value?.[name];
  const raw = Array.isArray(value) ? JSON.stringify(value) : (value ?? "");
  return h("data", { value: raw, "data-path": JSON.stringify(path) }, format(value));
}

/* A text of which only the beginning and the end may be there. */
function longText(said, className = "text") {
  const node = h("pre", { class: className, dir: "auto" }, said?.text || "(empty)");
  if (!said?.length) return node;
  return h("div", {}, node, h("p", { class: "note" }, `Cut off: the whole text has ${counted(said.length, "character")}.`));
}

/* A sentence of ours: what stands between backticks is code. */
const prose = (text) => text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? h("code", {}, part) : part));

/* A table in a box that scrolls sideways where it is too wide. On a phone, rows of many cells have a line for each. */
function table(caption, heads, rows, className = null) {
  const head = h("tr", {}, heads.map((one) => h("th", { scope: "col" }, one)));
  const body = rows.map((row) => h("tr", {}, row.map((cell, place) => h(place ? "td" : "th", place ? { "data-head": heads[place].title || heads[place] } : { scope: "row" }, cell))));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: [className, heads.length > 3 ? "stacks" : null].filter(Boolean).join(" ") || null }, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)),
  );
}

function section(id, title, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), children);
}
