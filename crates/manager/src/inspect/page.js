"use strict";
// All texts come from objects that anybody may have named, so they are only ever set as text.

const PERIOD = 2000;
const by = (id) => document.getElementById(id);
let previous = null;
let explained = null;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

async function get(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (!response.ok) {
    let message = response.status + " " + response.statusText;
    try { message = (await response.json()).message || message; } catch { /* not JSON */ }
    throw new Error(message);
  }
  return response.json();
}

function role(overview) {
  const role = by("role");
  role.className = overview.leads ? "leader" : "";
  role.textContent = overview.leads
    ? "leader"
    : "standby: it is ready to take over, and shows what it would do";
}

function sum(loops, field) { return loops.reduce((total, loop) => total + loop[field], 0); }

function rate(controller, now) {
  if (!previous) return "";
  const before = previous.reconciles.get(controller.name);
  if (before === undefined) return "";
  const seconds = (now - previous.at) / 1000;
  return ((sum(controller.loops, "reconciles") - before) / seconds).toFixed(1);
}

function row(controller, now) {
  const made = element("tr");
  const loops = controller.loops;
  const failing = sum(loops, "failing");
  const slowest = loops.flatMap((loop) => loop.slowest).sort((a, b) => b[1] - a[1])[0];
  made.append(element("td", controller.name));
  const state = element("td", controller.state, controller.state === "running" ? "" : "quiet");
  if (controller.unsynced.length) {
    state.className = "wide bad";
    state.textContent = controller.state + ": " + controller.unsynced.join("; ");
  }
  made.append(state);
  for (const field of ["queued", "processing", "waiting"]) {
    made.append(element("td", loops.length ? sum(loops, field) : "", "number"));
  }
  made.append(element("td", loops.length ? failing : "", failing ? "number bad" : "number"));
  made.append(element("td", rate(controller, now), "number"));
  made.append(element("td", loops.length ? sum(loops, "reconciles") : "", "number"));
  const errors = sum(loops, "failures");
  made.append(element("td", loops.length ? errors : "", errors ? "number bad" : "number"));
  made.append(element("td", slowest ? slowest[0] + " " + slowest[1] + " ms" : "", "quiet"));
  return made;
}

function summary(entry) {
  const object = (entry.namespace ? entry.namespace + "/" : "") + entry.name;
  const decision = entry.decision;
  if (decision.type === "write") {
    const outcome = decision.outcome === "failed" ? "failed: " + decision.error : decision.outcome;
    return [decision.verb + " " + entry.resource + " " + object + " because " + decision.because + ": " + outcome,
      decision.outcome === "failed"];
  }
  if (decision.type === "event") {
    return ["event " + decision.reason + " on " + object + ": " + decision.message, decision.warning];
  }
  return ["attempt " + decision.attempt + " for " + entry.item + " failed: " + decision.error, true];
}

function item(entry) {
  const made = element("li");
  made.append(element("time", new Date(entry.unixMilliseconds).toLocaleTimeString()));
  made.append(element("span", entry.controller, "controller"));
  const [text, bad] = summary(entry);
  const className = bad ? "bad" : "";
  if (entry.resource && entry.name) {
    const button = element("button", text, className);
    button.type = "button";
    button.addEventListener("click", () => explain(entry.resource, entry.name, entry.namespace));
    made.append(button);
  } else {
    made.append(element("span", text, className));
  }
  return made;
}

function show(overview) {
  const now = performance.now();
  role(overview);
  by("controllers").replaceChildren(...overview.controllers.map((controller) => row(controller, now)));
  // A list that the keyboard is in is not replaced under the user's hands.
  if (!by("decisions").contains(document.activeElement)) {
    by("decisions").replaceChildren(...overview.decisions.map(item));
  }
  by("journal").textContent = overview.journalEntries + " decisions in the journal, " +
    Math.round(overview.journalBytes / 1024) + " KiB";
  const counted = overview.controllers.map((controller) => [controller.name, sum(controller.loops, "reconciles")]);
  previous = { at: now, reconciles: new Map(counted) };
}

async function refresh() {
  try {
    show(await get("overview"));
    if (explained) await explain(...explained, true);
  } catch (error) {
    by("role").className = "lost";
    by("role").textContent = "no answer: " + error.message;
  }
  setTimeout(refresh, PERIOD);
}

/// kubectl's ways to name an object: "deploy/web -n shop", "deploy web", "pod/x --namespace=shop".
function parse(text) {
  const words = text.trim().split(/\s+/);
  let namespace = "default";
  const names = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at];
    if (word === "-n" || word === "--namespace") namespace = words[++at] || "";
    else if (word.startsWith("--namespace=")) namespace = word.slice("--namespace=".length);
    else if (word.startsWith("-n=")) namespace = word.slice(3);
    else names.push(word);
  }
  const [resource, ...rest] = names.length > 1 ? names : (names[0] || "").split("/");
  return [resource, rest.join("/"), namespace];
}

async function explain(resource, name, namespace, again) {
  const query = new URLSearchParams({ resource, name, namespace, output: "page" });
  let text;
  try {
    text = (await get("explain?" + query)).text;
  } catch (error) {
    text = "Error: " + error.message;
  }
  if (again && !explained) return;
  explained = [resource, name, namespace];
  if (by("explanation-text").textContent !== text) by("explanation-text").textContent = text;
  if (again) return;
  by("explanation").hidden = false;
  by("explanation").focus();
  by("query").value = resource + "/" + name + (namespace ? " -n " + namespace : "");
}

function close() {
  explained = null;
  by("explanation").hidden = true;
  by("query").focus();
}

by("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const [resource, name, namespace] = parse(by("query").value);
  if (resource) explain(resource, name, namespace);
});
by("close").addEventListener("click", close);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== by("query")) {
    event.preventDefault();
    by("query").focus();
  } else if (event.key === "Escape" && explained) {
    close();
  }
});
refresh();
