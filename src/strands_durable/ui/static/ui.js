// Keeps pages up to date without losing focus, scroll position or typed text. Everything works without it, by loading pages again.
"use strict";

(() => {
  const LIVE = 2000;
  const news = document.getElementById("news");
  let timer = 0;
  let events = null;
  let loading = false;
  let wanted = false;
  let quietUntil = 0;
  let shown = location.pathname + location.search;

  // Make `old` equal to `fresh`, in place: what is the same is not touched.
  function patch(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.dataset.keep && old.dataset.keep === fresh.dataset.keep) return;
    if (old.id === "live") return;
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    children(old, fresh);
  }

  function children(old, fresh) {
    const byId = new Map();
    for (const each of old.children) if (each.id) byId.set(each.id, each);
    let at = old.firstChild;
    for (const each of [...fresh.childNodes]) {
      const known = each.id ? byId.get(each.id) : null;
      if (known) {
        if (known !== at) old.insertBefore(known, at);
        else at = at.nextSibling;
        patch(known, each);
      } else if (at && !each.id && !at.id && at.nodeName === each.nodeName) {
        const next = at.nextSibling;
        patch(at, each);
        at = next;
      } else {
        old.insertBefore(each, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function states() {
    const found = new Map();
    for (const each of document.querySelectorAll("tr[data-status]")) found.set(each.id.slice(2), each.dataset.status);
    const run = document.querySelector("[data-live=run]");
    if (run) found.set("The execution", run.dataset.state);
    for (const each of document.querySelectorAll(".card[data-status]")) found.set(each.id, "asks");
    return found;
  }

  function announce(before, after) {
    const changed = [...after].filter(([name, state]) => before.get(name) !== state && state !== "asks");
    const asked = [...after].filter(([name, state]) => state === "asks" && !before.has(name)).length;
    const said = changed.slice(0, 3).map(([name, state]) => `${name} is ${state}`);
    if (asked) said.push(`${asked} new question${asked === 1 ? "" : "s"}`);
    if (said.length) news.textContent = said.join(", ");
  }

  // Say that the page is not up to date any more, and why; nothing to say: it is.
  function stale(why) {
    let note = document.getElementById("stale");
    if (!why || note) {
      if (!why) note?.remove();
      return;
    }
    note = document.createElement("p");
    note.id = "stale";
    note.className = "note bad";
    note.setAttribute("role", "alert");
    note.textContent = `This page is not up to date. ${why}`;
    document.getElementById("main").prepend(note);
  }

  async function load(url, { push = false } = {}) {
    const began = performance.now();
    const place = location.href;
    const response = await fetch(url, { headers: { "x-refresh": "1" }, redirect: "follow" });
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!push && location.href !== place) return 0; // a step was opened meanwhile
    if (!response.ok || !fresh.querySelector("[data-live]")) {
      if (push) throw new Error("the whole page says why");
      stale(fresh.querySelector("main .said")?.textContent ?? "Sign in again.");
      return 30000;
    }
    stale("");
    const before = states();
    const focused = document.activeElement;
    for (const region of document.querySelectorAll("[data-live]")) {
      const other = fresh.querySelector(`[data-live="${region.dataset.live}"]`);
      if (other) patch(region, other);
    }
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true }); // it was moved
    if (push) history.pushState(null, "", url);
    shown = location.pathname + location.search;
    announce(before, states());
    follow();
    return 10 * (performance.now() - began);
  }

  async function refresh() {
    if (loading) {
      wanted = true;
      return;
    }
    loading = true;
    let pause = 5000;
    try {
      if (!document.hidden) pause = await load(location.href);
    } catch {
      pause = 5000; // the server is gone for a while
      stale("The server does not answer.");
    }
    loading = false;
    schedule(wanted ? 0 : pause);
    wanted = false;
  }

  function schedule(pause = 0) {
    clearTimeout(timer);
    const every = Math.max(0, ...[...document.querySelectorAll("[data-every]")].map((each) => Number(each.dataset.every)));
    if (every) timer = setTimeout(refresh, wanted ? 150 : Math.max(every, pause));
  }

  // The text that a model is writing, where the engine delivers it.
  function follow() {
    const url = document.querySelector("[data-events]")?.dataset.events;
    if (!url || document.hidden) { // a browser has six connections to a server, for all of its tabs
      events?.close();
      events = null;
      return;
    }
    if ((events && events.readyState !== EventSource.CLOSED) || performance.now() < quietUntil) return;
    events = new EventSource(url);
    let writing = "";
    events.addEventListener("text", (event) => {
      const box = document.getElementById("live");
      if (!box) return;
      const { step, attempt, text } = JSON.parse(event.data);
      const text_box = box.querySelector(".live-text");
      if (writing !== `${step} ${attempt}`) {
        writing = `${step} ${attempt}`;
        text_box.textContent = "";
        box.querySelector(".live-step").textContent = "The model is answering";
      }
      text_box.append(text);
      if (text_box.textContent.length > 2 * LIVE) text_box.textContent = text_box.textContent.slice(-LIVE); // a browser lays all of it out again each time
      box.hidden = false;
      box.scrollTop = box.scrollHeight;
    });
    events.addEventListener("step", () => {
      const box = document.getElementById("live");
      if (box) box.hidden = true;
      writing = "";
      refresh();
    });
    events.addEventListener("end", () => {
      events.close();
      quietUntil = performance.now() + 3000;
      refresh();
    });
  }

  // A step opens beside the timeline, without loading the page again.
  document.addEventListener("click", async (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = event.target.closest(".steps a, .panel .close") ?? event.target.closest(".steps tr")?.querySelector("a");
    if (!link || getSelection().toString()) return;
    event.preventDefault();
    const row = document.querySelector(".steps .chosen")?.id;
    try {
      await load(link.href.replace(/#.*/, ""), { push: true });
      const panel = document.getElementById("step");
      if (panel.getBoundingClientRect().top > innerHeight * 0.8) panel.scrollIntoView({ block: "start" });
      panel.scrollTop = 0;
      if (!panel.hasAttribute("data-empty")) panel.focus({ preventScroll: true });
      else if (row) document.getElementById(row)?.querySelector("a")?.focus();
    } catch {
      location.href = link.href;
    }
  });
  addEventListener("popstate", () => {
    if (shown !== location.pathname + location.search) load(location.href).catch(() => location.reload()); // else an anchor
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelector(".panel .close")?.click();
  });
  document.getElementById("status")?.addEventListener("change", (event) => event.target.form.requestSubmit());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) follow();
    else refresh();
  });
  addEventListener("pagehide", () => events?.close());

  follow();
  schedule();
})();
