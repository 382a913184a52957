// The critical path of a region: wake-ups, followed backward.

/// The spans that led to span `s`, each woken by the next.
function chain(s, most = 12) {
  const spans = [s];
  while (spans.length < most) {
    const last = spans[spans.length - 1];
    if (!T.waker[last]) break;
    const from = spanAt(T.waker[last] - 1, T.start[last] - T.waited[last]);
    if (from === NONE || spans.includes(from)) break;
    spans.push(from);
  }
  return spans;
}

/// What goroutine `g` did from `from` to `to`, in the order of time; while it is parked, what the one did that woke it,
/// no further back than to the moment at which it parked. As in `analysis/path.rs`.
function critical(g, from, to) {
  const steps = [];
  walk(g, from, to, 0, steps);
  return steps.reverse();
}

function walk(g, from, to, depth, steps) {
  const list = spansOf(g);
  const push = (did, start, end) => {
    start = Math.max(start, from);
    if (start < end) steps.push({ g, did, start, end, depth });
  };
  let end = to;
  for (let i = before(list, to) - 1 + (before(list, to) < list.length ? 1 : 0); i >= 0; i--) {
    const s = list[i], start = T.start[s], ready = start - T.waited[s], stop = start + T.ran[s];
    if (ready >= to) continue;
    if (end <= from || steps.length >= 10000) return;
    if (stop < end) {
      push(why(s) === BLOCKED ? "blocked" : "parked", stop, end);
      end = stop;
    }
    push("ran", start, end);
    end = Math.min(end, start);
    push("could run", ready, end);
    end = Math.min(end, ready);
    if (end <= from) return;
    const waker = T.waker[s] - 1;
    if (waker >= 0 && waker !== g && depth < 50) {
      const parked = i > 0 ? Math.max(from, T.start[list[i - 1]] + T.ran[list[i - 1]]) : from;
      walk(waker, parked, end, depth + 1, steps);
      end = Math.min(end, parked);
    }
  }
  if (depth === 0) push("parked", from, end);
}
