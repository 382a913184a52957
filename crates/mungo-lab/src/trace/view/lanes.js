// Processors: what each of them ran, and how many waited in its queue.
const TOP = 20;
const lane = facts.procs.length <= 16 ? { run: 22, queue: 18, gap: 8 } : facts.procs.length <= 64
  ? { run: 14, queue: 8, gap: 3 } : { run: 6, queue: 3, gap: 1 };
const order = facts.procs.map((_, i) => i)
  .sort((a, b) => facts.procs[a].runtime - facts.procs[b].runtime || facts.procs[a].p - facts.procs[b].p);
const laneHeight = lane.run + lane.queue + lane.gap;

function drawLanes() {
  const shared = T.queues[0].most > 0;
  const height = TOP + order.length * laneHeight + (shared ? lane.queue + lane.gap : 0) + 2;
  const { c, width, plot } = prepare($("lanes"), height);
  axis(c, width, plot, height);
  drawMark(c, plot, height);
  const most = Math.max(1, ...T.queues.map(q => q.most));
  order.forEach((p, row) => {
    const y = TOP + row * laneHeight;
    label(c, facts.procs[p].name, y, lane.run);
    runs(c, p, y, plot);
    queue(c, T.queues[p + 1], y + lane.run + 1, plot, most);
  });
  if (shared) {
    const y = TOP + order.length * laneHeight;
    label(c, "shared queue", y, lane.queue);
    queue(c, T.queues[0], y, plot, most);
  }
}

function label(c, text, y, height) {
  if (height < 9) return;
  c.fillStyle = ink.page;
  c.fillRect(0, y, LABEL - 4, height);
  c.fillStyle = ink.ink;
  c.textAlign = "left";
  c.fillText(text, 8, y + height / 2 + 1, LABEL - 14);
}

function runs(c, p, y, plot) {
  const list = T.ofProc[p], perPixel = (view.to - view.from) / plot;
  if (perPixel > 2 * bucketNs) return farRuns(c, p, y, plot, perPixel);
  const first = Math.max(0, before(list, view.from) - 1), last = before(list, view.to);
  // What is thinner than a pixel is added up until it is one.
  let column = -1, ns = 0, most = 0, colour = null;
  const flush = () => {
    if (column < 0 || ns <= 0) return;
    const high = Math.max(1, Math.min(1, ns / perPixel) * lane.run);
    c.fillStyle = colour;
    c.fillRect(LABEL + column, y + lane.run - high, 1, high);
  };
  for (let i = first; i < last; i++) {
    const s = list[i], ran = T.ran[s], x = xOf(T.start[s], plot), end = xOf(T.start[s] + ran, plot);
    if (end < LABEL) continue;
    if (end - x >= 1) {
      run(c, s, Math.max(LABEL, x), Math.min(LABEL + plot, end), y);
      continue;
    }
    const at = Math.floor(x) - LABEL;
    if (at !== column) { flush(); column = at; ns = 0; most = 0; }
    ns += ran;
    if (ran >= most) { most = ran; colour = placeColour(T.place[T.g[s]]); }
  }
  flush();
}

function run(c, s, x, end, y) {
  const g = T.g[s];
  const isDim = view.g !== NONE && view.g !== g;
  c.globalAlpha = isDim ? 0.45 : 1;
  c.fillStyle = placeColour(T.place[g]);
  c.fillRect(x, y, Math.max(1, end - x - (end - x > 3 ? 1 : 0)), lane.run);
  if (s === view.span) {
    c.strokeStyle = ink.ink;
    c.lineWidth = 2;
    c.strokeRect(x + 1, y + 1, Math.max(1, end - x - 3), lane.run - 2);
  }
  if (end - x > 28 && lane.run > 12) {
    c.save();
    c.beginPath();
    c.rect(x, y, end - x - 2, lane.run);
    c.clip();
    c.globalAlpha = 1;
    c.fillStyle = isDim ? ink.ink : ink.page;
    c.textAlign = "left";
    const name = T.names.get(g);
    const long = `${T.id[g]} ${name || placeName(T.place[g])}`;
    c.fillText(end - x > 90 ? long : String(T.id[g]), x + 4, y + lane.run / 2 + 1);
    c.restore();
  }
  c.globalAlpha = 1;
}

/// From afar: how busy the processor was, and with what most.
function farRuns(c, p, y, plot, perPixel) {
  const { sums, who } = T.busy[p];
  c.globalAlpha = view.g === NONE ? 1 : 0.5;
  for (let column = 0; column < plot; column++) {
    const t = view.from + column * perPixel;
    const b = Math.min(BUCKETS - 1, Math.floor(t / bucketNs));
    const end = Math.min(BUCKETS, Math.max(b + 1, Math.floor((t + perPixel) / bucketNs)));
    const share = (sums[end] - sums[b]) / ((end - b) * bucketNs);
    if (share <= 0) continue;
    let place = NONE;
    for (let i = b; i < end && place === NONE; i++) place = who[i];
    const high = Math.max(1, share * lane.run);
    c.fillStyle = placeColour(Math.max(0, place));
    c.fillRect(LABEL + column, y + lane.run - high, 1, high);
  }
  c.globalAlpha = 1;
}

/// How many waited: the longest that the queue was in each column, as bars that hang down.
function queue(c, q, y, plot, most) {
  if (!q.came.length) return;
  const perPixel = (view.to - view.from) / plot, high = lane.queue - 2;
  c.fillStyle = ink.runnable;
  for (let column = 0; column < plot; column++) {
    const t = view.from + column * perPixel;
    let length = 0;
    if (perPixel > bucketNs) {
      const end = Math.min(BUCKETS, Math.floor((t + perPixel) / bucketNs));
      for (let b = Math.floor(t / bucketNs); b < end; b++) length = Math.max(length, q.peak[b]);
    } else {
      length = Math.max(lengthAt(q, t), lengthAt(q, t + perPixel));
    }
    if (length > 0) c.fillRect(LABEL + column, y, 1, Math.max(1, Math.sqrt(length / most) * high));
  }
}

/// Which processor and which span lie under the pointer.
function laneAt(x, y) {
  const plot = $("lanes").clientWidth - LABEL, t = tOf(x, plot);
  const row = Math.floor((y - TOP) / laneHeight), p = order[row];
  if (p === undefined || x < LABEL || y < TOP) return { t, p: NONE, s: NONE };
  const list = T.ofProc[p], at = before(list, t), near = 2 * (view.to - view.from) / plot;
  for (const s of [at ? list[at - 1] : NONE, at < list.length ? list[at] : NONE]) {
    if (s !== NONE && T.start[s] - near <= t && t <= T.start[s] + T.ran[s] + near) return { t, p, s };
  }
  return { t, p, s: NONE };
}
