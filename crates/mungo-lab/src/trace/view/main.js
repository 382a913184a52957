// What the mouse, the keys, links and the search do.
const WIDEST = facts.end || 1, NARROWEST = 200;

function show(from, to) {
  const length = Math.min(WIDEST, Math.max(NARROWEST, to - from));
  const middle = (from + to) / 2;
  view.from = Math.max(0, Math.min(WIDEST - length, middle - length / 2));
  view.to = view.from + length;
  redraw();
}
function zoom(factor, at = (view.from + view.to) / 2) {
  const length = Math.min(WIDEST, Math.max(NARROWEST, (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  show(at - share * length, at - share * length + length);
}
function move(share) {
  const by = (view.to - view.from) * share;
  show(view.from + by, view.to + by);
}
/// Moves so that `t` is in view.
function reveal(start, end) {
  const length = view.to - view.from;
  if (start >= view.from && end <= view.to) return redraw();
  show(start - length / 2, start + length / 2);
}

function select(g, s) {
  view.g = g;
  view.span = s;
  view.path = null;
  details();
  redraw();
}
function selectSpan(s) {
  select(T.g[s], s);
  reveal(T.start[s] - T.waited[s], T.start[s] + T.ran[s]);
}

function element(tag, text, inside = []) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  made.append(...inside);
  return made;
}
function button(text, action) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}
const link = s => button(`${goroutineName(T.g[s])} at ${moment(T.start[s])}`, () => selectSpan(s));

/// What is known of what is selected.
function details() {
  const box = $("details");
  box.hidden = view.g === NONE;
  if (view.g === NONE) return;
  const g = view.g, s = view.span, list = element("dl");
  const add = (name, ...what) => list.append(element("dt", name), element("dd", "", what));
  add("goroutine", `${T.id[g]}${T.names.get(g) ? ` (${T.names.get(g)})` : ""}, made at ${placeName(T.place[g])}` +
    (T.created[g] ? ` at ${moment(T.created[g] - 1)}` : "") + (T.ended[g] ? `, ended at ${moment(T.ended[g] - 1)}` : ""));
  const spans = spansOf(g);
  let ran = 0, waited = 0;
  for (const span of spans) { ran += T.ran[span]; waited += T.waited[span]; }
  add("in all", `${spans.length} runs, ${time(ran)} running, ${time(waited)} waiting for a processor`);
  const stackLines = stack => facts.stacks[stack].split("\n").flatMap((line, i) => i ? [element("br"), line] : [line]);
  if (T.madeIn[g]) add("made in", ...stackLines(T.madeIn[g]));
  if (s !== NONE) {
    const start = T.start[s], reason = facts.reasons[T.reason[s]];
    add("this run", `${time(T.ran[s])} on ${facts.procs[T.p[s]].name} from ${moment(start)} on, then ` +
      facts.whys[why(s)] + (reason ? ` (${reason})` : ""));
    if (T.stack[s]) add("it stopped in", ...stackLines(T.stack[s]));
    add("before", `runnable for ${time(T.waited[s])}: ${facts.causes[cause(s)]}, in the queue of ` +
      (T.home[s] ? facts.procs[T.home[s] - 1].name : "all processors"));
    add("meanwhile", ...meanwhile(s));
    const led = chain(s).slice(1);
    if (led.length) add("woken by", ...led.flatMap((span, i) => i ? [" ← ", link(span)] : [link(span)]));
  }
  box.replaceChildren(list);
}

/// Who ran on that processor while it waited.
function meanwhile(s) {
  if (!(T.waited[s] > 0)) return ["no goroutine was before it"];
  const list = T.ofProc[T.p[s]], ready = T.start[s] - T.waited[s], found = [];
  let at = before(list, T.start[s]) - 1, rest = 0;
  for (; at >= 0; at--) {
    const other = list[at];
    if (other === s) continue;
    if (T.start[other] + T.ran[other] <= ready) break;
    if (found.length < 4) found.push(other); else rest++;
    if (rest > 10000) break;
  }
  if (!found.length) return ["no other goroutine ran there: its thread was asleep, or busy with the scheduler"];
  const parts = found.flatMap(other => [link(other), ` ran ${time(T.ran[other])} `]);
  return rest ? [...parts, `and ${rest > 10000 ? "more than 10000" : rest} others`] : parts;
}

/// Regions: the slowest ones, each with its critical path.
function listRegions() {
  const all = Array.from(T.regionStart.keys());
  if (!all.length) return;
  all.sort((a, b) => T.regionLength[b] - T.regionLength[a]);
  const body = element("tbody");
  for (const r of all.slice(0, 12)) {
    const g = T.regionG[r] - 1;
    const head = element("th", "", [button(regionName(r), () => showRegion(r))]);
    head.scope = "row";
    const cells = [time(T.regionLength[r]), moment(T.regionStart[r]), g >= 0 ? goroutineName(g) : "no goroutine"];
    body.append(element("tr", "", [head, ...cells.map(text => element("td", text))]));
  }
  const heads = ["region or task", "took", "at", "of"].map(text => element("th", text));
  const table = element("table", "", [element("thead", "", [element("tr", "", heads)]), body]);
  const wide = element("div", "", [table]);
  wide.className = "wide";
  wide.tabIndex = 0;
  $("regions").append(element("h3", "Slowest regions and tasks"), wide);
}
const regionName = r => facts.regionNames[T.regionName[r] >>> 1] + (T.regionName[r] & 1 ? " (task)" : "");

function showRegion(r) {
  const g = T.regionG[r] - 1, from = T.regionStart[r], to = from + T.regionLength[r];
  if (g < 0) { view.mark = [from, to]; return show(from - (to - from) / 4, to + (to - from) / 4); }
  select(g, spanAt(g, to));
  view.path = critical(g, from, to);
  view.mark = [from, to];
  show(from - (to - from) / 8, to + (to - from) / 8);
  pathDetails(regionName(r));
  $("goroutines").scrollIntoView({ block: "center" });
}

/// The steps of the path as a table.
function pathDetails(name) {
  const sums = {};
  for (const step of view.path) sums[step.did] = (sums[step.did] || 0) + step.end - step.start;
  const parts = Object.entries(sums).sort((a, b) => b[1] - a[1]).map(([did, ns]) => `${did} ${time(ns)}`);
  const body = element("tbody");
  for (const step of view.path.slice(0, 40)) {
    const who = button(goroutineName(step.g), () => {
      const s = spanAt(step.g, step.end);
      if (s !== NONE) selectSpan(s);
    });
    const head = element("th", "", [`${"· ".repeat(step.depth)}`, who]);
    head.scope = "row";
    const cells = [step.did, time(step.end - step.start), moment(step.start), placeName(T.place[step.g])];
    body.append(element("tr", "", [head, ...cells.map(text => element("td", text))]));
  }
  const heads = ["goroutine", "did", "for", "at", "made at"].map(text => element("th", text));
  const title = element("p", `Critical path of ${name}: ${parts.join(", ")}`);
  const table = element("table", "", [element("thead", "", [element("tr", "", heads)]), body]);
  const wide = element("div", "", [table]);
  wide.className = "wide";
  const more = view.path.length > 40 ? [element("p", `and ${view.path.length - 40} more steps`)] : [];
  $("details").replaceChildren(title, wide, ...more);
}

/// Goroutines by number or name, places, regions.
function find(text) {
  const found = [], wanted = text.trim().toLowerCase();
  const add = (label, action) => found.length < 50 && found.push([label, action]);
  if (!wanted) return found;
  const id = Number(wanted.replace(/^(goroutine|g)\s*/, ""));
  for (let g = 0; g < T.goroutines && found.length < 50; g++) {
    const name = T.names.get(g);
    if (T.id[g] === id || name && name.toLowerCase().includes(wanted)) {
      add(`${goroutineName(g)}, made at ${placeName(T.place[g])}`, () => goTo(g));
    }
  }
  facts.places.forEach((place, i) => {
    if (!place.toLowerCase().includes(wanted)) return;
    const longest = longestOf(i);
    if (longest !== NONE) add(`the longest run of a goroutine made at ${place}`, () => zoomTo(longest));
  });
  facts.regionNames.forEach((name, i) => {
    if (!name.toLowerCase().includes(wanted)) return;
    let slowest = NONE;
    T.regionName.forEach((n, r) => {
      if (n >>> 1 === i && (slowest === NONE || T.regionLength[r] > T.regionLength[slowest])) slowest = r;
    });
    if (slowest !== NONE) add(`the slowest region ${name}: ${time(T.regionLength[slowest])}`, () => showRegion(slowest));
  });
  for (const [at, g, line] of facts.logs) {
    if (line.toLowerCase().includes(wanted)) add(`${moment(at)}: ${line}`, () => {
      view.mark = [at, at];
      if (g >= 0) select(g, spanAt(g, at));
      reveal(at, at);
    });
  }
  return found;
}
function longestOf(place) {
  let longest = NONE;
  for (let s = 0; s < T.spans; s++) {
    if (T.place[T.g[s]] === place && (longest === NONE || T.ran[s] > T.ran[longest])) longest = s;
  }
  return longest;
}
function goTo(g) {
  const spans = spansOf(g), at = before(spans, view.from);
  const s = spans[Math.min(at, spans.length - 1)];
  if (s === undefined) select(g, NONE); else selectSpan(s);
}
function zoomTo(s) {
  select(T.g[s], s);
  const start = T.start[s] - T.waited[s], end = T.start[s] + T.ran[s], around = Math.max(NARROWEST, (end - start) / 2);
  show(start - around, end + around);
}

function search() {
  const box = $("found"), text = $("search").value, found = find(text);
  box.hidden = !text.trim();
  const items = found.map(([label, action]) => button(label, () => { box.hidden = true; action(); $("lanes").focus(); }));
  box.replaceChildren(...(items.length ? items : [element("p", "nothing of that name or number")]));
}

/// Moments of verdicts are links: #t=from,to&mark=from,to&g=index.
function follow() {
  const parts = new URLSearchParams(location.hash.slice(1)), pair = name => (parts.get(name) || "").split(",").map(Number);
  const [from, to] = pair("t"), mark = pair("mark");
  if (!(to > from)) return;
  view.mark = mark.length === 2 && mark[1] >= mark[0] ? mark : null;
  const g = parts.has("g") ? Number(parts.get("g")) : NONE;
  if (g >= 0 && g < T.goroutines) select(g, spanAt(g, (view.mark || [from, to])[1])); else select(NONE, NONE);
  show(from, to);
  for (const a of document.querySelectorAll("a.moment")) {
    if (a.hash === location.hash) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current");
  }
  $("time").scrollIntoView();
}
function nextMoment(step) {
  const all = [...document.querySelectorAll("a.moment")];
  if (!all.length) return;
  const at = all.findIndex(a => a.hasAttribute("aria-current"));
  location.hash = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length].hash;
}
function neighbour(step) {
  if (view.g === NONE) return;
  const spans = spansOf(view.g), at = spans.indexOf(view.span);
  const s = spans[Math.max(0, Math.min(spans.length - 1, at + step))];
  if (s !== undefined) selectSpan(s);
}
function back() {
  const led = view.span === NONE ? [] : chain(view.span, 2);
  if (led.length > 1) selectSpan(led[1]);
}

const actions = {
  in: () => zoom(1 / 1.6), out: () => zoom(1.6), left: () => move(-0.25), right: () => move(0.25),
  fit: () => show(0, facts.end), next: () => nextMoment(1), previous: () => nextMoment(-1), help: () => $("help").showModal(),
};
const keys = {
  w: actions.in, "+": actions.in, "=": actions.in, s: actions.out, "-": actions.out, a: actions.left, d: actions.right,
  ArrowLeft: actions.left, ArrowRight: actions.right, 0: actions.fit, Home: () => show(0, view.to - view.from),
  End: () => show(facts.end - (view.to - view.from), facts.end), j: actions.next, k: actions.previous,
  n: () => neighbour(1), p: () => neighbour(-1), b: back, "?": actions.help, "/": () => $("search").focus(),
  Enter: () => view.span !== NONE && zoomTo(view.span),
  Escape: () => { view.mark = null; select(NONE, NONE); },
};
addEventListener("keydown", event => {
  const typing = event.target.matches("input, button, a, summary, dialog, dialog *");
  if (event.target.id === "search" && event.key === "Escape") { event.target.blur(); $("found").hidden = true; return; }
  if (event.ctrlKey || event.metaKey || event.altKey || !T.queues || !keys[event.key]) return;
  if (typing && (event.target.matches("input, dialog, dialog *") || event.key === "Enter")) return;
  event.preventDefault();
  keys[event.key]();
});

/// Mouse and touch, alike for both canvases.
function listen(canvas, at) {
  let drag = null;
  const tip = $("tip");
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, from: view.from, to: view.to, moved: false, stretch: event.shiftKey };
  });
  canvas.addEventListener("pointermove", event => {
    const plot = canvas.clientWidth - LABEL;
    if (!drag) return hover(event, at(event.offsetX, event.offsetY));
    if (Math.abs(event.offsetX - drag.x) > 3) drag.moved = true;
    if (!drag.moved) return;
    tip.hidden = true;
    if (drag.stretch) {
      view.mark = [tOf(drag.x, plot), tOf(event.offsetX, plot)].sort((a, b) => a - b);
      return redraw();
    }
    const by = (drag.x - event.offsetX) / plot * (drag.to - drag.from);
    show(drag.from + by, drag.to + by);
  });
  canvas.addEventListener("pointerup", event => {
    const was = drag;
    drag = null;
    if (was?.moved && was.stretch) { const [from, to] = view.mark; view.mark = null; return show(from, to); }
    if (was?.moved) return;
    canvas.focus();
    const { g, s } = at(event.offsetX, event.offsetY);
    select(s !== NONE ? T.g[s] : g ?? NONE, s);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", event => {
    const { s } = at(event.offsetX, event.offsetY);
    if (s !== NONE) zoomTo(s);
  });
  canvas.addEventListener("wheel", event => {
    const isZoom = event.ctrlKey || event.metaKey || document.activeElement === canvas;
    const across = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
    if (Math.abs(across) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      return move(across / 800);
    }
    if (!isZoom) return;
    event.preventDefault();
    const plot = canvas.clientWidth - LABEL;
    zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 250), tOf(Math.max(LABEL, event.offsetX), plot));
  }, { passive: false });
}
function hover(event, { t, p, g, s }) {
  const tip = $("tip");
  const lines = [];
  if (s !== NONE) {
    const start = T.start[s], inside = t >= start - T.waited[s] && t <= start + T.ran[s];
    lines.push(goroutineName(T.g[s]), `made at ${placeName(T.place[T.g[s]])}`);
    if (inside || p !== undefined) lines.push(`ran ${time(T.ran[s])} on ${facts.procs[T.p[s]].name}, then ${facts.whys[why(s)]}`,
      `waited ${time(T.waited[s])} before: ${facts.causes[cause(s)]}`);
    else lines.push(`${facts.whys[why(s)]}${T.reason[s] ? `: ${facts.reasons[T.reason[s]]}` : ""}, since ${time(t - start - T.ran[s])}`);
    if (T.stack[s]) lines.push(...facts.stacks[T.stack[s]].split("\n").slice(0, 6));
  } else if (p !== undefined && p !== NONE) {
    lines.push(`${facts.procs[p].name}: nothing runs`);
  } else if (g !== undefined && g !== NONE) lines.push(goroutineName(g));
  if (p !== undefined && p !== NONE) lines.push(`queue: ${lengthAt(T.queues[p + 1], t)}`);
  tip.hidden = !lines.length;
  tip.textContent = [`at ${moment(t)}`, ...lines].join("\n");
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 10}px`;
}

async function main() {
  readColours();
  await readTrace();
  listen($("lanes"), laneAt);
  listen($("goroutines"), rowAt);
  $("tools").addEventListener("submit", event => event.preventDefault());
  $("tools").addEventListener("click", event => actions[event.target.dataset?.do]?.());
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", event => {
    if (event.key === "Enter") { search(); $("found").querySelector("button")?.click(); }
  });
  addEventListener("hashchange", follow);
  new ResizeObserver(redraw).observe($("lanes"));
  dark.addEventListener("change", () => { readColours(); redraw(); });
  listRegions();
  redraw();
  if (location.hash.startsWith("#t=")) follow();
  document.documentElement.dataset.ready = "yes";
}
main();
