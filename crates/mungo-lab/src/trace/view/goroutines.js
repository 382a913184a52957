// Goroutines: what each of them did, and who woke whom.
const ROW = 22, MOST_ROWS = 24;
let rows = [];

/// Those of the path, or the selected one and those that it has to do with, or those that ran most.
function chooseRows() {
  if (view.path) return [...new Set(view.path.map(step => step.g))].slice(0, MOST_ROWS);
  if (view.g === NONE) return most();
  const near = new Map([[view.g, Infinity]]);
  const add = (g, weight) => near.set(g, (near.get(g) || 0) + weight);
  const list = spansOf(view.g), first = Math.max(0, before(list, view.from) - 1);
  for (let i = first; i < list.length && i < first + 2000; i++) {
    const s = list[i];
    if (T.start[s] - T.waited[s] > view.to) break;
    if (T.waker[s]) add(T.waker[s] - 1, 1);
  }
  eachWoken(view.g, s => add(T.g[s], 1));
  if (view.span !== NONE) chain(view.span).forEach((s, i) => add(T.g[s], 1000 - i));
  const all = [...near].sort((a, b) => b[1] - a[1]).map(([g]) => g);
  return all.slice(0, 12);
}

/// Spans in view that `g` woke.
function eachWoken(g, f) {
  const first = firstSpan(view.from), last = firstSpan(view.to);
  // A far view has too many; the selected one's neighbours show when one comes closer.
  for (let s = first; s < Math.min(last, first + 300000); s++) if (T.waker[s] === g + 1) f(s);
}
const firstSpan = t => count(T.start, t);

function most() {
  const first = Math.max(0, firstSpan(view.from) - 64), last = Math.min(firstSpan(view.to), first + 300000);
  const ran = new Map();
  for (let s = first; s < last; s++) {
    const ns = Math.min(view.to, T.start[s] + T.ran[s]) - Math.max(view.from, T.start[s]);
    if (ns > 0) ran.set(T.g[s], (ran.get(T.g[s]) || 0) + ns);
  }
  const all = [...ran].sort((a, b) => b[1] - a[1]).slice(0, 10).map(([g]) => g);
  return all.sort((a, b) => a - b);
}

function drawGoroutines() {
  rows = chooseRows();
  const height = TOP + Math.max(1, rows.length) * ROW + 4;
  const { c, width, plot } = prepare($("goroutines"), height);
  axis(c, width, plot, height);
  drawMark(c, plot, height);
  rows.forEach((g, row) => states(c, g, TOP + row * ROW, plot));
  const tooMany = arrows(c, plot);
  rows.forEach((g, row) => rowLabel(c, g, TOP + row * ROW));
  $("goroutines-hint").textContent = (tooMany ? "Zoom in to see who woke whom. " : "") + (view.path ? "The critical path: what was waited for, step by step."
    : view.g === NONE ? "Those that ran most in this stretch. Select one to see it with those that it woke or was woken by."
    : `${goroutineName(view.g)}, and those that woke it or that it woke in this stretch.`);
}

function rowLabel(c, g, y) {
  c.fillStyle = ink.page;
  c.fillRect(0, y, LABEL - 3, ROW);
  c.fillStyle = placeColour(T.place[g]);
  c.fillRect(4, y + 4, 4, ROW - 8);
  c.fillStyle = ink.ink;
  c.textAlign = "left";
  if (g === view.g) c.font = "700 " + FONT;
  c.fillText(T.names.get(g) || "g " + T.id[g], 14, y + ROW / 2 + 1, LABEL - 20);
  c.font = FONT;
}

function states(c, g, y, plot) {
  const list = spansOf(g), perPixel = (view.to - view.from) / plot;
  const bar = (from, to, colour, top, high) => {
    const x = Math.max(LABEL, xOf(from, plot)), end = Math.min(LABEL + plot, xOf(to, plot));
    if (end < x) return;
    c.fillStyle = colour;
    c.fillRect(x, y + top, Math.max(1, end - x), high);
  };
  // What is thinner than a pixel is added up until it is one, and drawn as high as its share of that.
  let column = -1, ran = 0, waited = 0;
  const flush = () => {
    const share = (ns, most) => Math.max(2, Math.min(1, ns / perPixel) * most);
    if (waited > 0) { const high = share(waited, ROW - 12); c.fillStyle = ink.runnable; c.fillRect(column, y + (ROW - high) / 2, 1, high); }
    if (ran > 0) { const high = share(ran, ROW - 6); c.fillStyle = placeColour(T.place[g]); c.fillRect(column, y + (ROW - high) / 2, 1, high); }
    ran = waited = 0;
  };
  let line = LABEL;
  for (let at = Math.max(0, before(list, view.from) - 1); at < list.length; at++) {
    const s = list[at], start = T.start[s], ready = start - T.waited[s], stop = start + T.ran[s];
    if (ready > view.to) break;
    const next = at + 1 < list.length ? T.start[list[at + 1]] - T.waited[list[at + 1]] : facts.end;
    // Lines below a pixel are drawn once.
    if (next > stop && xOf(next, plot) >= line) {
      if (why(s) === BLOCKED) bar(stop, next, ink.blocked, ROW / 2 - 2, 4);
      else if (why(s) === PARKED) {
        bar(stop, next, ink.parked, ROW / 2 - 1, 2);
        reason(c, s, stop, next, y, plot);
      }
      line = xOf(next, plot) + 0.5;
    }
    if (stop < view.from) continue;
    if (T.ran[s] + T.waited[s] >= perPixel) {
      flush();
      if (start > ready) bar(ready, start, ink.runnable, 6, ROW - 12);
      if (T.ran[s] > 0) bar(start, stop, placeColour(T.place[g]), 3, ROW - 6);
      continue;
    }
    const x = Math.floor(xOf(start, plot));
    if (x !== column) { flush(); column = x; }
    if (x < LABEL) continue;
    ran += T.ran[s];
    waited += T.waited[s];
  }
  flush();
  for (const step of (view.path || []).filter(step => step.g === g)) {
    const x = Math.max(LABEL, xOf(step.start, plot)), end = Math.min(LABEL + plot, xOf(step.end, plot));
    c.strokeStyle = ink.ink;
    c.lineWidth = 1.5;
    if (end > x) c.strokeRect(x, y + 2, Math.max(1, end - x), ROW - 4);
  }
}

function reason(c, s, from, to, y, plot) {
  const x = Math.max(LABEL, xOf(from, plot)) + 6, end = Math.min(LABEL + plot, xOf(to, plot));
  const text = facts.reasons[T.reason[s]];
  if (!text || end - x < c.measureText(text).width + 12) return;
  c.fillStyle = ink.page;
  c.fillRect(x - 3, y + 4, c.measureText(text).width + 6, ROW - 8);
  c.fillStyle = ink.faint;
  c.textAlign = "left";
  c.fillText(text, x, y + ROW / 2 + 1);
}

/// From the waker to the woken one, when that became runnable. Returns whether there are too many to draw.
function arrows(c, plot) {
  const rowOf = new Map(rows.map((g, row) => [g, row])), found = [];
  for (const [g, row] of rowOf) {
    const list = spansOf(g);
    for (let i = Math.max(0, before(list, view.from) - 1); i < list.length; i++) {
      const s = list[i], ready = T.start[s] - T.waited[s];
      if (ready > view.to) break;
      const from = T.waker[s] ? rowOf.get(T.waker[s] - 1) : undefined;
      if (from === undefined || from === row || ready < view.from) continue;
      if (found.push([s, from, row, ready]) > plot / 4) return true;
    }
  }
  for (const [s, from, row, ready] of found) arrow(c, s, xOf(ready, plot), from, row);
  return false;
}

function arrow(c, s, x, from, row) {
  const up = from > row;
  const y0 = TOP + from * ROW + (up ? 3 : ROW - 3), y1 = TOP + row * ROW + (up ? ROW - 5 : 5);
  c.strokeStyle = c.fillStyle = s === view.span ? ink.note : ink.faint;
  c.lineWidth = s === view.span ? 2 : 1;
  c.beginPath();
  c.moveTo(x, y0);
  c.lineTo(x, y1);
  c.stroke();
  c.beginPath();
  c.moveTo(x, y1);
  c.lineTo(x - 3, y1 + (up ? 5 : -5));
  c.lineTo(x + 3, y1 + (up ? 5 : -5));
  c.fill();
}

/// Which goroutine and which of its spans lie under the pointer.
function rowAt(x, y) {
  const plot = $("goroutines").clientWidth - LABEL, t = tOf(x, plot), g = rows[Math.floor((y - TOP) / ROW)];
  if (g === undefined || y < TOP) return { t, g: NONE, s: NONE };
  return { t, g, s: spanAt(g, t) };
}
