/* A skill over its versions and models. */

async function skillVersionsPage(page, name) {
  document.title = `${name} · upskill`;
  const heading = h("h1", { dir: "auto" }, name);
  const facts = h("p", { class: "facts" });
  const main = h("main", { id: "content", tabindex: "-1" });

  async function read() {
    const skill = await askJson("skill", { skill: name, width: page.clientWidth - 66 });
    const versions = skill.versions;
    fill(facts, [counted(versions.length, "version"), skill.runs > skill.shown ? `the latest ${grouped(skill.shown)} of ${counted(skill.runs, "run")}` : counted(skill.runs, "run"), skill.searches ? `${counted(skill.searches, "version")} tried in searches` : ""].filter(Boolean).map((fact) => h("span", {}, fact)));
    fill(main, picture(skill), list(versions), between(versions));
  }

  function picture(skill) {
    if (!skill.picture) return h("section", { id: "lift" }, h("p", { class: "note" }, "No verdict on this skill yet."));
    const parsed = new DOMParser().parseFromString(skill.picture, "image/svg+xml").documentElement;
    const figure = h("figure", { class: "picture scroll", tabindex: "0", role: "group", "aria-label": "Lift of each version and model" });
    if (parsed.localName === "svg") figure.append(document.importNode(parsed, true));
    return section("lift", "Lift over versions and models", figure, h("p", { class: "note" }, "Versions may have run on different cases. Each lift is against the baseline of its own run. Compare two versions to see the cases they share."));
  }

  function list(versions) {
    const lines = versions.map((version) =>
      h(
        "li",
        { class: "row plain" },
        h("div", { class: "name" }, h("a", { href: runPage(version.latest) }, version.name), h("span", { class: "what" }, ` ${version.hash}`)),
        h("div", { class: "verdicts" }, Object.values(version.verdicts).length ? Object.values(version.verdicts).map((verdict) => verdictLine(verdict)) : h("span", { class: "note" }, "no decision")),
        h("p", { class: "what" }, [whenOf(version.created), counted(version.runs, "run"), version.tokens ? `${grouped(version.tokens)} tokens` : ""].filter(Boolean).join(" · ")),
      ),
    );
    return section("versions", "Versions, latest first", h("ol", { class: "rows", reversed: true }, lines.reverse()));
  }

  function between(versions) {
    if (versions.length < 2) return null;
    const choose = (title, at) => {
      const select = h("select", {}, versions.map((version) => h("option", { value: version.hash }, `${version.name} (${version.hash})`)));
      select.selectedIndex = at;
      return [h("label", {}, `${title} `, select), select];
    };
    const [before, first] = choose("Before", versions.length - 2);
    const [after, second] = choose("After", versions.length - 1);
    const button = h("button", { type: "submit" }, "Compare");
    const form = h("form", { class: "filters" }, before, after, button);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      location.href = comparePage(...(await askJson("pair", { skill: name, before: first.value, after: second.value })));
    });
    return section("between", "Compare two versions", form);
  }

  const again = calmly(read);
  listeners.add((rows) => (rows === null || rows.some((row) => row.skill === name)) && again());
  await read();
  fill(page, topBar(), h("header", { class: "top" }, heading, facts), main);
}
