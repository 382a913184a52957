// The micro-benchmarks in Node, on promises of one thread: bench CASE prints one number, or "n/a: why".
'use strict';
const fs = require('fs');

const now = () => Number(process.hrtime.bigint());
const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1]) * 1024;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// The same pseudo-random stream as in all contestants.
function mix(i) {
  const m = (x) => BigInt.asUintN(64, x);
  let z = m((BigInt(i) + 1n) * 0x9e3779b97f4a7c15n);
  z = m((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = m((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}

async function spawn(n) {
  const start = now();
  for (let i = 0; i < n / 1000; i++) {
    await Promise.all(Array.from({ length: 1000 }, async () => {}));
  }
  return (now() - start) / n;
}

async function yields(tasks, n) {
  const start = now();
  const one = async () => { for (let i = 0; i < n / tasks; i++) await null; };
  await Promise.all(Array.from({ length: tasks }, one));
  return (now() - start) / n;
}

async function timers(n, longest) {
  const naps = Array.from({ length: n }, (_, i) => Number(mix(i) % BigInt(longest * 1000)) / 1000);
  const start = now();
  await Promise.all(naps.map(sleep));
  return (now() - start) / 1e6 - longest;
}

async function parked(n) {
  const before = rss();
  let open;
  const gate = new Promise((resolve) => { open = resolve; });
  const tasks = Array.from({ length: n }, async () => { await gate; });
  await sleep(200);
  const used = rss() - before;
  open();
  await Promise.all(tasks);
  return used / n;
}

const cases = {
  spawn: () => spawn(200000),
  yield: () => yields(8, 1000000),
  timers: () => timers(100000, 200),
  memory: () => parked(100000),
};
const run = cases[process.argv[2]];
if (run) run().then((figure) => console.log(figure));
else console.log('n/a: promises of one thread have no such thing');
