// Colours, canvases, the time axis.
const $ = id => document.getElementById(id);
function say(text) { $("status").textContent = text; }

const dark = matchMedia("(prefers-color-scheme: dark)");
const PALETTES = {
  light: ["#2a78d6", "#13806d", "#8a4fbe", "#4e7d1e", "#c23a6b", "#a8790b", "#1b7f9c", "#5b6470", "#b0562c", "#6a5acd"],
  dark: ["#6aa9f4", "#4cc2ab", "#bf8fe8", "#93c45e", "#ee7fa5", "#dcb04a", "#58bfdd", "#a7b0bc", "#ef9a6c", "#a99bf5"],
};
let palette, ink;
function readColours() {
  palette = dark.matches ? PALETTES.dark : PALETTES.light;
  // `light-dark()` is resolved where it is used, so a probe uses it.
  const probe = document.body.appendChild(document.createElement("i"));
  const colour = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  ink = Object.fromEntries(["page", "ink", "faint", "grid", "card", "runnable", "parked", "blocked", "note"].map(n => [n, colour(n)]));
  probe.remove();
}
const placeColour = place => palette[place % palette.length];
const LABEL = 84;
const FONT = "12px system-ui, sans-serif";

/// The stretch that is shown, and what is selected in it.
const view = { from: 0, to: facts.end, g: NONE, span: NONE, mark: null, path: null };

/// A canvas that fits its place and the screen's resolution.
function prepare(canvas, height) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.fillStyle = ink.page;
  c.fillRect(0, 0, width, height);
  c.font = FONT;
  c.textBaseline = "middle";
  return { c, width, plot: width - LABEL };
}

const xOf = (t, plot) => LABEL + (t - view.from) / (view.to - view.from) * plot;
const tOf = (x, plot) => view.from + (x - LABEL) / plot * (view.to - view.from);

/// The time axis with its grid lines.
function axis(c, width, plot, height) {
  const length = view.to - view.from, wanted = length / Math.max(2, plot / 110);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map(k => k * power).find(s => s >= wanted);
  c.textAlign = "left";
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = Math.round(xOf(t, plot)) + 0.5;
    c.fillStyle = ink.grid;
    c.fillRect(x - 0.5, 0, 1, height);
    const label = tick(t, step);
    if (x + c.measureText(label).width + 6 > width) break;
    c.fillStyle = ink.faint;
    c.fillText(label, x + 4, 9);
  }
}
/// With as many digits as tell one line from the next.
function tick(t, step) {
  const [scale, unit] = facts.end >= 1e9 ? [1e9, "s"] : facts.end >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / scale) - 1e-9)));
  return `${(t / scale).toFixed(digits)} ${unit}`;
}

/// What a verdict is about.
function drawMark(c, plot, height) {
  if (!view.mark) return;
  const x = Math.max(LABEL, xOf(view.mark[0], plot)), end = Math.min(LABEL + plot, xOf(view.mark[1], plot));
  if (end < LABEL || x > LABEL + plot) return;
  c.globalAlpha = 0.12;
  c.fillStyle = ink.blocked;
  c.fillRect(x, 0, Math.max(2, end - x), height);
  c.globalAlpha = 1;
}

let asked = false;
/// Draws before the next frame, once.
function redraw() {
  if (asked || !T.queues) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawLanes();
    drawGoroutines();
    const length = view.to - view.from;
    const shown = `${tick(view.from, length / 100)} to ${tick(view.to, length / 100)}: ${time(length)} of ${time(facts.end)}`;
    say(view.g === NONE ? shown : `${shown}; selected: ${goroutineName(view.g)}`);
  });
}
