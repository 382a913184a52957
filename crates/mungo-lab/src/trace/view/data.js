// The trace: columns of numbers, and what is looked up in them. Times are ns since the trace began.
const facts = JSON.parse(document.getElementById("facts").textContent);
const NONE = -1;
const pause = () => new Promise(resolve => setTimeout(resolve));

/// The bytes of a column; its text is given back to the browser.
function bytesOf(name) {
  const element = document.getElementById("column-" + name);
  const text = element.textContent;
  element.remove();
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/// `count` numbers; `sum`: they are differences.
function column(name, count, Type, sum = false) {
  const bytes = bytesOf(name);
  const numbers = new Type(count);
  let at = 0, last = 0;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++], n = byte & 127, scale = 128;
    while (byte > 127) {
      byte = bytes[at++];
      n += (byte & 127) * scale;
      scale *= 128;
    }
    if (sum) n = last += n;
    numbers[i] = n;
  }
  return numbers;
}

const T = { end: facts.end, spans: facts.spans, goroutines: facts.goroutines, procs: facts.procs };
T.names = new Map(facts.names);

/// Reads everything, with pauses so that the page stays alive.
async function readTrace() {
  const n = facts.spans, m = facts.goroutines, r = facts.regions;
  const steps = [
    () => { T.start = column("start", n, Float64Array, true); },
    () => { T.ran = column("ran", n, Float64Array); },
    () => { T.waited = column("waited", n, Float64Array); },
    () => { T.g = column("g", n, Uint32Array); },
    () => { T.p = column("p", n, Uint16Array); },
    () => { T.home = column("home", n, Uint16Array); },
    () => { T.waker = column("waker", n, Uint32Array); },
    () => { T.tag = bytesOf("tag"); },
    () => { T.reason = column("reason", n, Uint16Array); },
    () => { T.stack = column("stack", n, Uint32Array); T.madeIn = column("made-in", m, Uint32Array); },
    () => { T.id = column("id", m, Float64Array); T.runtime = column("runtime", m, Uint32Array); },
    () => { T.place = column("place", m, Uint32Array); T.parent = column("parent", m, Uint32Array); },
    () => { T.created = column("created", m, Float64Array); T.ended = column("ended", m, Float64Array); },
    () => {
      T.regionName = column("region-name", r, Uint32Array);
      T.regionG = column("region-g", r, Uint32Array);
      T.regionStart = column("region-start", r, Float64Array);
      T.regionLength = column("region-length", r, Float64Array);
    },
    () => { T.ofProc = groups(T.p, facts.procs.length); },
    () => { T.ofGoroutine = groups(T.g, m); },
    () => { T.busy = T.ofProc.map(busyOf); },
    () => { T.queues = queues(); },
  ];
  for (const [i, step] of steps.entries()) {
    step();
    say(`reading the trace: ${Math.round(100 * (i + 1) / steps.length)} %`);
    await pause();
  }
}

/// Which spans are whose: for each of `count` keys the indices of its spans, in the order of their start.
function groups(keys, count) {
  const first = new Uint32Array(count + 1);
  for (let i = 0; i < keys.length; i++) first[keys[i] + 1]++;
  for (let i = 0; i < count; i++) first[i + 1] += first[i];
  const next = first.slice(), all = new Uint32Array(keys.length);
  for (let i = 0; i < keys.length; i++) all[next[keys[i]]++] = i;
  const list = i => all.subarray(first[i], first[i + 1]);
  return count <= 4096 ? Array.from({ length: count }, (_, i) => list(i)) : { at: list };
}
const spansOf = g => T.ofGoroutine.at(g);

/// How many of the spans in `list` began at `t` or before.
function before(list, t) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (T.start[list[middle]] <= t) low = middle + 1; else high = middle;
  }
  return low;
}
/// The span of a goroutine at `t`, or the last one before.
function spanAt(g, t) {
  const list = spansOf(g), at = before(list, t);
  return at ? list[at - 1] : NONE;
}
/// How many of the sorted `times` are `t` or less.
function count(times, t) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle + 1; else high = middle;
  }
  return low;
}

const BUCKETS = 1 << 16;
const bucketNs = Math.max(1, facts.end / BUCKETS);

/// For a processor: time that it ran before each bucket, and who ran most in it. What a far view is drawn from.
function busyOf(list) {
  const sums = new Float64Array(BUCKETS + 1), most = new Float64Array(BUCKETS), who = new Int32Array(BUCKETS).fill(NONE);
  for (const s of list) {
    const start = T.start[s], end = start + T.ran[s];
    const last = Math.min(BUCKETS - 1, Math.floor(end / bucketNs));
    for (let b = Math.min(BUCKETS - 1, Math.floor(start / bucketNs)); b <= last; b++) {
      const ns = Math.min(end, (b + 1) * bucketNs) - Math.max(start, b * bucketNs);
      sums[b + 1] += ns;
      if (ns > most[b]) { most[b] = ns; who[b] = T.place[T.g[s]]; }
    }
  }
  for (let b = 0; b < BUCKETS; b++) sums[b + 1] += sums[b];
  return { sums, who };
}

/// Queues: number 0 is the one that all share, p + 1 that of processor p. When something came, when it left, and the
/// longest that the queue was in each bucket.
function queues() {
  const many = facts.procs.length + 1, sizes = new Uint32Array(many);
  for (let s = 0; s < facts.spans; s++) if (T.waited[s] > 0) sizes[T.home[s]]++;
  const all = Array.from(sizes, size => ({ came: new Float64Array(size), left: new Float64Array(size), peak: null, most: 0 }));
  const next = new Uint32Array(many);
  for (let s = 0; s < facts.spans; s++) {
    if (!(T.waited[s] > 0)) continue;
    const q = T.home[s], at = next[q]++;
    all[q].came[at] = T.start[s] - T.waited[s];
    all[q].left[at] = T.start[s];
  }
  for (const queue of all) {
    queue.came.sort();
    queue.peak = new Uint32Array(BUCKETS);
    let in_ = 0, out = 0;
    const { came, left, peak } = queue;
    while (in_ < came.length) {
      if (came[in_] < left[out]) {
        const b = Math.min(BUCKETS - 1, Math.floor(came[in_] / bucketNs));
        in_++;
        peak[b] = Math.max(peak[b], in_ - out);
        queue.most = Math.max(queue.most, in_ - out);
      } else out++;
    }
    // A bucket in which nothing came is as long as it was.
    for (let b = 0; b < BUCKETS; b++) {
      if (peak[b] === 0) peak[b] = lengthAt(queue, b * bucketNs);
    }
  }
  return all;
}
const lengthAt = (queue, t) => count(queue.came, t) - count(queue.left, t);

const why = s => T.tag[s] & 15;
const cause = s => T.tag[s] >> 4;
const PARKED = facts.whys.indexOf("parked"), BLOCKED = facts.whys.indexOf("blocked its thread");
const placeName = place => facts.places[place];
const goroutineName = g => {
  const name = T.names.get(g);
  return "goroutine " + T.id[g] + (name ? ` (${name})` : "");
};

/// A time in the unit that suits it.
function time(ns) {
  const size = Math.abs(ns);
  const [scale, unit] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : size >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const value = ns / scale;
  return `${+value.toFixed(value >= 100 || unit === "ns" ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
}
/// A moment: as exact as one would look for it.
const moment = ns => ns >= 1e9 ? `${(ns / 1e9).toFixed(4)} s` : time(ns);
