{
  const { follows, revision, run = "", address } = document.documentElement.dataset;
  const { requestStart, responseEnd } = performance.getEntriesByType("navigation")[0];
  // Ten times as long as the server took for the page, so that it does little else than the run.
  const wait = Math.max(1000, 10 * (responseEnd - requestStart));
  const state = () => `state of ${location.pathname}`;
  const inputs = [...document.querySelectorAll("input, select")];
  const details = [...document.querySelectorAll("details")];
  const keyOf = (one) => JSON.stringify([one.name, { ...one.form?.dataset }]);
  // Marks and counts change while a run goes on.
  const wordsOf = (summary) => [...summary.childNodes].filter((one) => !one.className?.startsWith("marks")).map((one) => one.textContent).join("");
  const nameOf = (one) => one.id || `${one.closest(".case")?.querySelector("[id]").id} ${wordsOf(one.querySelector("summary"))}`;
  const opened = details.map((one) => one.open);

  const save = () => {
    const toggled = details.flatMap((one, number) => (one.open === opened[number] ? [] : [[nameOf(one), one.open]]));
    const values = inputs.map((one) => [keyOf(one), one.value]);
    sessionStorage.setItem(state(), JSON.stringify({ toggled, values, scroll: scrollY }));
  };

  const restore = () => {
    const { toggled, values, scroll } = JSON.parse(sessionStorage.getItem(state()) ?? "{}");
    sessionStorage.removeItem(state());
    if (!toggled) return;
    const isOpen = new Map(toggled);
    for (const one of details) one.open = isOpen.get(nameOf(one)) ?? one.open;
    const typed = new Map(values);
    for (const one of inputs) one.value = typed.get(keyOf(one)) ?? one.value;
    document.querySelector(".filters [name=order]")?.dispatchEvent(new Event("change"));
    scrollTo(0, scroll);
  };

  const say = (text) => {
    document.querySelector("nav, header").insertAdjacentHTML("beforebegin", '<p class="alarm" role="status"></p>');
    document.querySelector(".alarm[role]").textContent = text;
  };

  const follow = async () => {
    const isBusy = document.hidden || document.activeElement?.matches("input");
    try {
      const found = await (await fetch(`${address}revision?run=${encodeURIComponent(run)}`)).text();
      if (found === revision || isBusy) return setTimeout(follow, wait);
    } catch {
      return say("The server has ended. `upskill view` starts it again.");
    }
    save();
    location.reload();
  };

  const markOf = (form) => form.querySelector("[aria-pressed=true]")?.value ?? "";
  let sending = Promise.resolve();
  // One after the other, so that the last one is what is stored.
  const review = (form, verdict) => {
    for (const one of form.querySelectorAll("[aria-pressed]")) one.setAttribute("aria-pressed", one.value === verdict);
    const { case: id, model, arm, seeds } = form.dataset;
    const body = JSON.stringify({ case: id, model, arm, seeds: seeds.split(" "), verdict, note: form.elements.note.value });
    const headers = { "Content-Type": "application/json" };
    sending = sending.then(async () => {
      const sent = await fetch(`${address}run/${encodeURIComponent(run)}/review`, { method: "POST", headers, body });
      if (!sent.ok) return say(await sent.text());
      form.dataset.saved = verdict || "note";
    }).catch((error) => say(`Not stored: ${error}`));
  };

  addEventListener("click", ({ target }) => {
    const button = target.closest(".review [aria-pressed]");
    if (button) review(button.form, button.value === markOf(button.form) ? "" : button.value);
  });
  addEventListener("submit", (event) => {
    if (!event.target.matches(".review")) return;
    event.preventDefault();
    review(event.target, markOf(event.target));
  });
  restore();
  if (follows !== undefined) setTimeout(follow, wait);
}
