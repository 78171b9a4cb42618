{
  const { follows } = document.documentElement.dataset;
  const { requestStart, responseEnd } = performance.getEntriesByType("navigation")[0];
  // Ten times as long as the server took for the page, so that it does little else than the run.
  const wait = Math.max(1000, 10 * (responseEnd - requestStart));
  const stored = `state of ${location.pathname}`;
  const details = [...document.querySelectorAll("details")];
  const inputs = [...document.querySelectorAll("input, select")];
  const opened = details.map((one) => one.open);
  const nameOf = (one) => one.id || `${one.closest(".case")?.dataset.number} ${one.querySelector("summary").firstChild.textContent}`;
  const keyOf = (one) => `${one.name} ${one.form.dataset.draw}`;

  const save = () => {
    const toggled = details.filter((one, number) => one.open !== opened[number]).map((one) => [nameOf(one), one.open]);
    const values = inputs.map((one) => [keyOf(one), one.value]);
    sessionStorage.setItem(stored, JSON.stringify([toggled, values, scrollY]));
  };

  const restore = () => {
    const [toggled, values, scroll] = JSON.parse(sessionStorage.getItem(stored)).map((one) => (one.length ? Object.fromEntries(one) : one));
    sessionStorage.removeItem(stored);
    for (const one of details) one.open = toggled[nameOf(one)] ?? one.open;
    for (const one of inputs) one.value = values[keyOf(one)] ?? one.value;
    document.querySelector("[name=order]")?.dispatchEvent(new Event("change"));
    scrollTo(0, scroll);
  };

  const say = (text) => {
    document.querySelector("header").insertAdjacentHTML("beforebegin", '<p class="alarm" role="status"></p>');
    document.querySelector(".alarm").textContent = text;
  };

  const follow = async () => {
    const isBusy = document.hidden || document.activeElement.matches("input");
    try {
      const { headers } = await fetch(location, { method: "HEAD" });
      if (headers.get("ETag") === follows || isBusy) return setTimeout(follow, wait);
    } catch {
      return say("The server has ended. `upskill view` starts it again.");
    }
    save();
    location.reload();
  };

  let sending = Promise.resolve();
  // One after the other, so that the last one is what is stored.
  const review = (form) => {
    const verdict = form.querySelector("[aria-pressed=true]")?.value ?? "";
    const body = JSON.stringify({ ...JSON.parse(form.dataset.draw), verdict, note: form.elements.note.value });
    const headers = { "Content-Type": "application/json" };
    sending = sending.then(async () => {
      const sent = await fetch(form.action, { method: "POST", headers, body });
      if (!sent.ok) return say(await sent.text());
      form.dataset.saved = verdict;
    }).catch((error) => say(`Not stored: ${error}`));
  };

  addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (!form.matches(".review")) return;
    event.preventDefault();
    for (const one of form.querySelectorAll("[aria-pressed]")) {
      const isOn = one.ariaPressed === "true";
      one.ariaPressed = submitter.value ? one === submitter && !isOn : isOn;
    }
    review(form);
  });
  if (sessionStorage.getItem(stored)) restore();
  if (follows) setTimeout(follow, wait);
}
