"use strict";
// Texts come from objects that anybody may have named, so they are only ever set as text, never as markup.

const PERIOD = 2000;
const by = (id) => document.getElementById(id);
/// The previous overview, for rates.
let previous = null;
/// What is explained now: [resource, name, namespace], or null.
let explained = null;
/// The rows of the controllers, by name: they are changed in place, so that nothing moves under a cursor.
const rows = new Map();

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

function setText(target, text, className) {
  if (target.textContent !== String(text)) target.textContent = String(text);
  if (className !== undefined && target.className !== className) target.className = className;
}

function clock(time) { return time.toLocaleTimeString("en-GB"); }

async function get(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (!response.ok) {
    let message = response.status + " " + response.statusText;
    try { message = (await response.json()).message || message; } catch { /* not JSON */ }
    throw new Error(message);
  }
  return response.json();
}

/// A button that explains an object.
function link(text, resource, name, namespace, className) {
  const button = element("button", text, "link" + (className ? " " + className : ""));
  button.type = "button";
  button.addEventListener("click", () => open(resource, name, namespace));
  return button;
}

function objectName(resource, name, namespace) {
  return resource + "/" + name + (namespace ? " -n " + namespace : "");
}

// ---- The overview ----

const ROLES = {
  leader: ["good", ""],
  standby: ["warn", "ready to take over; shows what it would do"],
  shadow: ["warn", "writes nothing; compares what it would do with the leader"],
};

function role(overview) {
  const name = overview.shadow ? "shadow" : overview.leads ? "leader" : "standby";
  const [className, means] = ROLES[name];
  setText(by("role-name"), name, "badge " + className);
  const holder = overview.leader ? "Lease held by " + overview.leader : "";
  setText(by("role-detail"), [means, holder].filter(Boolean).join("; "));
  document.title = "kube-controller-manager (" + name + ")";
}

function sum(loops, field) { return loops.reduce((total, loop) => total + loop[field], 0); }

function rate(controller, now) {
  const before = previous && previous.reconciles.get(controller.name);
  if (before === null || before === undefined) return null;
  return (sum(controller.loops, "reconciles") - before) / ((now - previous.at) / 1000);
}

function tiles(overview, now) {
  const loops = overview.controllers.flatMap((controller) => controller.loops);
  const running = overview.controllers.filter((controller) => controller.state === "running").length;
  const rates = overview.controllers.map((controller) => rate(controller, now)).filter((one) => one !== null);
  setText(by("tile-controllers"), running + "/" + overview.controllers.length);
  setText(by("tile-rate"), rates.length ? rates.reduce((a, b) => a + b, 0).toFixed(1) : "–");
  setText(by("tile-queued"), sum(loops, "queued"));
  const failing = sum(loops, "failing");
  setText(by("tile-failing"), failing, failing ? "bad" : "");
  setText(by("tile-errors"), sum(loops, "failures"));
  setText(by("tile-journal"), overview.journalEntries);
  setText(by("journal"), "decisions in the journal, " + Math.round(overview.journalBytes / 1024) + " KiB");
}

const NUMBERS = ["Queued", "Running", "Later", "Failing", "Retries", "Per second", "Reconciles", "Errors"];

function newRow(name) {
  const made = element("tr");
  made.append(element("td", name, "name"), element("td", "", "state"));
  for (const label of NUMBERS) {
    const cell = element("td", "", "number");
    cell.dataset.label = label;
    made.append(cell);
  }
  made.append(element("td", "", "slowest"));
  rows.set(name, made);
  return made;
}

function showController(controller, now) {
  const row = rows.get(controller.name) || newRow(controller.name);
  const loops = controller.loops;
  const [, state, ...numbers] = row.cells;
  const slowest = numbers.pop();
  const isStuck = controller.unsynced.length > 0;
  setText(state, controller.state, isStuck ? "state bad" : "state");
  const perSecond = rate(controller, now);
  const [failing, errors, reconciles] = ["failing", "failures", "reconciles"].map((field) => sum(loops, field));
  const values = [sum(loops, "queued"), sum(loops, "processing"), sum(loops, "waiting"), failing, sum(loops, "retries"),
    perSecond === null ? "" : perSecond.toFixed(1), reconciles, errors];
  values.forEach((value, at) => {
    const isBad = (NUMBERS[at] === "Failing" || NUMBERS[at] === "Errors") && value > 0;
    setText(numbers[at], loops.length ? value : "", isBad ? "number bad" : "number");
  });
  row.classList.toggle("idle", reconciles === 0 && !isStuck);
  showSlowest(slowest, loops);
  return row;
}

function showSlowest(cell, loops) {
  const keys = loops.flatMap((loop) => loop.slowest.map(([item, took]) => ({ item, took, resource: loop.resource })));
  keys.sort((a, b) => b.took - a.took);
  // What takes less than a millisecond is not worth a look.
  const shown = keys.filter((key) => key.took > 0).slice(0, 3);
  const signature = JSON.stringify(shown);
  if (cell.dataset.shown === signature || cell.contains(document.activeElement)) return;
  cell.dataset.shown = signature;
  const parts = shown.map(({ item, took, resource }) => {
    const line = element("div");
    const [key] = item.split(" ");
    const slash = key.indexOf("/");
    const [namespace, name] = slash < 0 ? ["", key] : [key.slice(0, slash), key.slice(slash + 1)];
    line.append(resource && name ? link(key, resource, name, namespace) : element("span", item), " " + took + " ms");
    return line;
  });
  cell.replaceChildren(...parts);
}

function decisionText(entry) {
  const object = (entry.namespace ? entry.namespace + "/" : "") + entry.name;
  const decision = entry.decision;
  if (decision.type === "write") {
    const failed = decision.outcome === "failed";
    const outcome = { done: "", unneeded: ": not needed", notSent: ": not sent", failed: "; failed: " + decision.error };
    return [decision.verb + " " + entry.resource + " " + object, "because " + decision.because + outcome[decision.outcome], failed];
  }
  if (decision.type === "event") {
    return ["event " + decision.reason + " on " + object, decision.message, decision.warning];
  }
  const dropped = decision.dropped ? ", dropped: retry limit reached" : "";
  return ["attempt " + decision.attempt + " for " + entry.item + " failed" + dropped, decision.error, true];
}

/// One entry of a log: who and when; what, leading to the object; why.
function logItem(meta, title, why, bad, target) {
  const made = element("li");
  const first = element("div", undefined, "meta");
  first.append(...meta);
  const [resource, name, namespace] = target;
  const what = element("p");
  what.append(resource && name ? link(title, resource, name, namespace) : element("span", title));
  made.append(first, what, element("p", why, bad ? "bad" : ""));
  return made;
}

function decisionItem(entry) {
  const [title, why, bad] = decisionText(entry);
  const time = element("time", clock(new Date(entry.unixMilliseconds)));
  return logItem([time, element("span", entry.controller)], title, why, bad, [entry.resource, entry.name, entry.namespace]);
}

function waitingItem(entry) {
  const title = entry.item || "all items of the controller";
  const target = [entry.resource, entry.name, entry.namespace];
  return logItem([element("span", entry.controller)], title, entry.because, entry.failing, target);
}

/// Replaces a list if it has changed, but never while the keyboard is in it.
function replaceList(list, entries, make) {
  const signature = JSON.stringify(entries);
  if (list.dataset.shown === signature || list.contains(document.activeElement)) return;
  list.dataset.shown = signature;
  const top = list.scrollTop;
  list.replaceChildren(...entries.map(make));
  list.scrollTop = top;
}

function show(overview) {
  const now = performance.now();
  role(overview);
  tiles(overview, now);
  const shown = overview.controllers.map((controller) => showController(controller, now));
  const table = by("controllers");
  if (shown.length !== table.rows.length || shown.some((row, at) => table.rows[at] !== row)) table.replaceChildren(...shown);
  replaceList(by("waiting"), [...unsynced(overview), ...overview.waiting], waitingItem);
  setText(by("waiting-more"), waitingMore(overview));
  replaceList(by("decisions"), overview.decisions, decisionItem);
  showShadow(overview.shadow);
  const counted = overview.controllers.map((controller) => [controller.name, sum(controller.loops, "reconciles")]);
  previous = { at: now, reconciles: new Map(counted) };
  document.body.classList.remove("stale");
  setText(by("updated"), "updated " + clock(new Date()));
}

/// Controllers that have not started, because a kind that they read cannot be listed.
function unsynced(overview) {
  const stuck = overview.controllers.filter((controller) => controller.unsynced.length);
  const because = (controller) => "it has not started, and waits for the caches of " + controller.unsynced.join("; ");
  return stuck.map((controller) => ({ controller: controller.name, item: "", because: because(controller), failing: true }));
}

function waitingMore(overview) {
  if (overview.waitingNotShown) return "and " + overview.waitingNotShown + " more that wait for their time";
  if (overview.waiting.length || unsynced(overview).length) return "";
  return overview.leads || overview.shadow ? "Nothing waits." : "The leader knows what waits.";
}

// ---- The comparison of a shadow ----

const COUNTS = [["Decisions", "decisions"], ["Agreements", "agreements"], ["Withdrawn", "withdrawn"],
  ["Pending", "pending"], ["Differences", "differences"], ["Known", "knownDifferences"]];
const KINDS = { onlyOurs: "only ours", otherContent: "other content", onlyLeader: "only leader" };

function counted(count, one, many) { return count + " " + (count === 1 ? one : many); }

function duration(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? hours + " h " + minutes + " min" : minutes ? minutes + " min" : seconds + " s";
}

function showShadow(report) {
  by("shadow").hidden = !report;
  if (!report) return;
  const { differences, agreements, knownDifferences } = report.total;
  setText(by("shadow-result"), counted(differences, "difference", "differences"), "badge " + (differences ? "bad" : "good"));
  const missed = report.uncheckedChanges + report.notKept;
  setText(by("shadow-detail"), counted(agreements, "agreement", "agreements") + " in " + duration(report.runningSeconds) +
    "; the leader has " + report.windowSeconds + " s for each write" + (missed ? "; " + missed + " not compared" : ""));
  const foreign = report.foreignChanges.length + report.foreignChangesNotShown;
  setText(by("shadow-known-count"), knownDifferences);
  setText(by("shadow-foreign-count"), foreign);
  replaceList(by("shadow-differences"), report.differences, differenceItem);
  replaceList(by("shadow-known"), report.knownDifferences, differenceItem);
  replaceList(by("shadow-foreign"), report.foreignChanges, foreignItem);
  const more = (count) => count ? "and " + count + " more, which shadow-report prints" : "";
  setText(by("shadow-differences-more"), differences ? more(report.differencesNotShown) : "None so far.");
  setText(by("shadow-known-more"), more(report.knownDifferencesNotShown));
  setText(by("shadow-foreign-more"), more(report.foreignChangesNotShown));
  replaceList(by("shadow-controllers"), report.controllers, comparedRow);
}

/// A generated name has no object that could be explained.
function isWhole(name) { return name && !name.endsWith("*"); }

function place(entry) { return entry.resource + " " + (entry.namespace ? entry.namespace + "/" : "") + entry.name; }

function differenceItem(entry) {
  const times = entry.count > 1 ? [element("span", entry.count + " times")] : [];
  if (entry.resolved) times.push(element("span", "no longer wanted"));
  const kind = KINDS[entry.kind] || entry.kind;
  const time = element("time", clock(new Date(entry.lastUnixMilliseconds)));
  const expected = entry.kind === "onlyLeader" ? "the leader's " : "expected ";
  const target = isWhole(entry.name) ? [entry.resource, entry.name, entry.namespace] : ["", "", ""];
  const made = logItem([time, element("span", kind, entry.known ? "" : "bad"), element("span", entry.controller), ...times],
    expected + entry.verb + " " + place(entry), entry.reason, false, target);
  if (entry.known) made.append(element("p", "known: " + entry.known, "quiet"));
  return made;
}

function foreignItem(entry) {
  const by = entry.by ? [element("span", "by " + entry.by)] : [];
  const time = element("time", clock(new Date(entry.unixMilliseconds)));
  const target = [entry.resource, entry.name, entry.namespace];
  const expected = entry.expected.map((line) => "expected " + line).join("; ");
  return logItem([time, ...by], entry.verb + " " + place(entry), expected || "nothing was expected after it", false, target);
}

function comparedRow(controller) {
  const made = element("tr");
  made.append(element("td", controller.name, "name"));
  for (const [label, field] of COUNTS) {
    const isBad = field === "differences" && controller[field] > 0;
    const cell = element("td", controller[field], isBad ? "number bad" : "number");
    cell.dataset.label = label;
    made.append(cell);
  }
  return made;
}

async function refresh() {
  if (!document.hidden) {
    try {
      show(await get("overview"));
      if (explained) await explain(true);
    } catch (error) {
      setText(by("role-name"), "no answer", "badge bad");
      setText(by("role-detail"), error.message);
      document.body.classList.add("stale");
    }
  }
  setTimeout(refresh, PERIOD);
}

// ---- Explanations ----

/// kubectl's ways to name an object: "deploy/web -n shop", "deploy web", "pod/x --namespace=shop".
function parse(text) {
  const words = text.trim().split(/\s+/);
  let namespace = "default";
  const names = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at];
    if (word === "-n" || word === "--namespace") namespace = words[++at] || "";
    else if (word.startsWith("--namespace=")) namespace = word.slice("--namespace=".length);
    else if (word.startsWith("-n")) namespace = word.slice(2).replace(/^=/, "");
    else names.push(word);
  }
  if (names.length > 1) return [names[0], names.slice(1).join(" "), namespace];
  const slash = (names[0] || "").indexOf("/");
  return slash < 0 ? ["", names[0] || "", namespace] : [names[0].slice(0, slash), names[0].slice(slash + 1), namespace];
}

/// The address of an explanation, so that it can be bookmarked and the browser's Back works.
function address(resource, name, namespace) {
  return "#" + [resource, name, namespace].map(encodeURIComponent).join("/");
}

function open(resource, name, namespace) {
  const target = address(resource, name, namespace);
  if (location.hash === target) followAddress();
  else location.hash = target;
}

function followAddress() {
  const parts = location.hash.slice(1).split("/").map(decode);
  explained = parts.length === 3 && parts[0] ? parts : null;
  by("explanation").hidden = !explained;
  if (!explained) return;
  by("query").value = objectName(...explained);
  setText(by("explanation-name"), objectName(...explained));
  setText(by("explanation-state"), "…", "badge");
  by("explanation-body").replaceChildren();
  delete by("explanation-body").dataset.shown;
  explain(false);
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

async function explain(again) {
  const asked = explained;
  const [resource, name, namespace] = asked;
  const query = new URLSearchParams({ resource, name, namespace, output: "json" });
  let answer;
  try {
    answer = await get("explain?" + query);
  } catch (error) {
    answer = { error: error.message };
  }
  // Another object may have been chosen meanwhile.
  if (explained !== asked) return;
  showExplanation(answer);
  if (!again) {
    by("explanation").scrollIntoView({ block: "start" });
    by("explanation").focus({ preventScroll: true });
  }
}

const STATES = { "as wanted": "good", changing: "warn", waiting: "warn", blocked: "bad", "not found": "bad" };

function showExplanation(answer) {
  const body = by("explanation-body");
  const signature = JSON.stringify(answer);
  if (body.dataset.shown === signature || body.contains(document.activeElement)) return;
  body.dataset.shown = signature;
  if (answer.error) {
    setText(by("explanation-state"), "error", "badge bad");
    body.replaceChildren(element("p", answer.error, "bad"));
    return;
  }
  setText(by("explanation-name"), short(answer.object) + (answer.object.namespace ? " -n " + answer.object.namespace : ""));
  setText(by("explanation-state"), answer.state, "badge " + (STATES[answer.state] || ""));
  const parts = [...causes(answer), ...wants(answer)];
  if (answer.owners.length) parts.push(element("h3", "Owners"), tree(answer.owners));
  if (answer.dependents.length) parts.push(element("h3", "Dependents"), tree(answer.dependents));
  if (answer.dependentsNotShown) parts.push(element("p", "and " + answer.dependentsNotShown + " more", "quiet"));
  if (answer.decisions.length) {
    const list = element("ol", undefined, "log");
    list.append(...answer.decisions.map(decisionItem));
    parts.push(element("h3", "Decisions"), list);
  }
  body.replaceChildren(...parts);
}

function short(object) { return object.kind.toLowerCase() + "/" + object.name; }

/// The name by which an object is asked for: `replicaset.v1.apps`.
function kindOf(object) {
  const [first, second] = object.apiVersion.split("/");
  return object.kind.toLowerCase() + (second ? "." + second + "." + first : "");
}

function objectLink(object) { return link(short(object), kindOf(object), object.name, object.namespace); }

function causes(answer) {
  if (!answer.causes.length) return [];
  const list = element("dl");
  answer.causes.forEach((cause, at) => {
    const text = element("dd");
    const count = cause.count > 1 ? " (" + cause.count + " objects)" : "";
    text.append(objectLink(cause.object), ": ", element("span", cause.text + count, at === 0 ? "bad" : ""));
    list.append(element("dt", at === 0 ? "Cause" : "Also"), text);
  });
  const path = answer.causes[0].path;
  if (path.length > 1) list.append(element("dt", "Path"), element("dd", path.join(" → ")));
  return [list];
}

function wants(answer) {
  const satisfied = [];
  const parts = [];
  for (const controller of answer.controllers) {
    const lines = element("dl");
    const add = (label, text, className) => lines.append(element("dt", label), element("dd", text, className));
    for (const write of controller.writes) {
      const name = write.name || (write.verb === "deletecollection" ? "of the namespace" : "with a generated name");
      add("Wants", write.verb + " " + write.resource + " " + name + " because " + write.because);
    }
    if (controller.writesNotShown) add("Wants", controller.writesNotShown + " more writes");
    for (const event of controller.events) {
      add("Reports", (event.warning ? "Warning " : "Normal ") + event.reason + ": " + event.message, event.warning ? "bad" : "");
    }
    if (controller.error) add("Fails", controller.error, "bad");
    if (controller.notComputed) add("Unknown", controller.notComputed);
    for (const waiting of controller.waiting) add("Waits", waiting);
    if (lines.children.length) parts.push(element("h3", controller.controller + " (" + controller.item + ")"), lines);
    else if (!satisfied.includes(controller.controller)) satisfied.push(controller.controller);
  }
  if (satisfied.length) parts.push(element("p", "as wanted for " + satisfied.join(", "), "quiet"));
  if (!answer.controllers.length) parts.push(element("p", "None of this manager's controllers handles such objects.", "quiet"));
  return parts;
}

/// Lines with a depth, as a nested list.
function tree(lines) {
  const top = element("ul", undefined, "tree");
  const open = [top];
  for (const line of lines) {
    while (open.length > line.depth) open.pop();
    while (open.length < line.depth) {
      const nested = element("ul", undefined, "tree");
      const item = element("li");
      item.append(nested);
      open[open.length - 1].append(item);
      open.push(nested);
    }
    const item = element("li");
    const findings = line.findings.map((finding) => finding.text).join("; ");
    item.append(objectLink(line.object), " ", findings ? element("span", findings, "bad") : element("span", "ok", "quiet"));
    open[open.length - 1].append(item);
  }
  return top;
}

// ---- Searching ----

async function search(text) {
  const [resource, name, namespace] = parse(text);
  if (resource) return open(resource, name, namespace);
  if (!name) return undefined;
  let result;
  try {
    result = await get("search?" + new URLSearchParams({ text: name }));
  } catch (error) {
    result = { error: error.message };
  }
  if (result.found && result.found.length === 1) {
    const [only] = result.found;
    return open(only.resource, only.name, only.namespace);
  }
  return showFound(name, result);
}

function showFound(text, result) {
  explained = null;
  const body = by("explanation-body");
  delete body.dataset.shown;
  by("explanation").hidden = false;
  setText(by("explanation-name"), "Objects named like “" + text + "”");
  const count = result.found ? result.found.length + result.notShown : 0;
  setText(by("explanation-state"), result.error ? "error" : count + " found", count ? "badge" : "badge bad");
  const list = element("ul", undefined, "tree");
  for (const found of result.found || []) {
    const item = element("li");
    item.append(link(objectName(found.resource, found.name, found.namespace), found.resource, found.name, found.namespace));
    list.append(item);
  }
  const parts = [list];
  if (result.error) parts.push(element("p", result.error, "bad"));
  else if (!count) parts.push(element("p", "Nothing in the caches has such a name. Name other kinds as for kubectl: widget/" + text));
  if (result.notShown) parts.push(element("p", "and " + result.notShown + " more", "quiet"));
  body.replaceChildren(...parts);
  by("explanation").focus();
}

function close() {
  explained = null;
  by("explanation").hidden = true;
  // Without the fragment, and without a new entry in the history.
  history.replaceState(null, "", location.pathname + location.search);
  by("query").focus();
}

by("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search(by("query").value);
});
by("close").addEventListener("click", close);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== by("query")) {
    event.preventDefault();
    by("query").focus();
    by("query").select();
  } else if (event.key === "Escape" && !by("explanation").hidden) {
    close();
  }
});
addEventListener("hashchange", followAddress);
followAddress();
refresh();
