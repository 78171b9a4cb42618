"use strict";
{
  const form = document.querySelector(".filters");
  const cases = [...document.querySelectorAll(".case")];
  const homes = new Map(cases.map((one) => [one, one.parentElement]));
  const valuesOf = (one, name) => one.dataset[name].split("\n");
  const matches = (one, { text, outcome, model, tag }) => {
    const models = valuesOf(one, "model");
    const states = valuesOf(one, "outcome").filter((_, number) => ["", models[number]].includes(model));
    const hasState = outcome ? states.includes(outcome) : states.length;
    const hasTag = !tag || valuesOf(one, "tag").includes(tag);
    const hasText = !text || one.textContent.toLowerCase().includes(text.toLowerCase());
    return hasState && hasTag && hasText;
  };

  const filter = () => {
    const wanted = Object.fromEntries(new FormData(form));
    for (const one of cases) one.hidden = !matches(one, wanted);
    for (const group of document.querySelectorAll(".group")) {
      const shown = cases.filter((one) => homes.get(one) === group && !one.hidden).length;
      group.hidden = !shown || wanted.order;
      group.querySelector(".count").textContent = shown;
    }
    const found = cases.filter((one) => !one.hidden).length;
    form.querySelector("output").textContent = found === cases.length ? "" : `${found} of ${cases.length} cases`;
  };

  const order = () => {
    const suite = document.getElementById("suite");
    const inSuite = [...cases].sort((one, other) => one.dataset.number - other.dataset.number);
    if (form.elements.order.value) suite.append(...inSuite);
    else for (const one of cases) homes.get(one).append(one);
    filter();
  };

  if (form) {
    form.hidden = false;
    for (const name of ["outcome", "model", "tag"]) {
      const select = form.elements[name];
      const values = new Set(cases.flatMap((one) => valuesOf(one, name)).filter(Boolean));
      for (const value of values) select.add(new Option(value));
      select.parentElement.hidden = values.size < 2;
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
    form.addEventListener("reset", () => setTimeout(order));
    form.elements.order.addEventListener("change", order);
  }
  document.documentElement.dataset.ready = "";
}
