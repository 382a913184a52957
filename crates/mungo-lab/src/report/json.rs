//! JSON: everything that was measured, and what follows from it.

use crate::compare::{Comparison, Contender, Repeat, Row};
use serde_json::{Map, Value, json};

pub(super) fn render(c: &Comparison) -> String {
    let rows = c.rows();
    let contender = |(who, contender): (usize, &Contender)| {
        json!({
            "policy": contender.name,
            "summary": rows.iter().map(|row| (row.key.clone(), summary(row, who))).collect::<Map<_, _>>(),
            "repeats": contender.repeats.iter().map(repeat).collect::<Vec<_>>(),
        })
    };
    let value = json!({
        "mungo": env!("CARGO_PKG_VERSION"),
        "command": c.command,
        "machine": c.machine,
        "disturbance": c.disturbance,
        "workload": c.workload,
        "procs": c.procs,
        "duration_s": c.duration.as_secs_f64(),
        "seed": c.seed,
        "rounds": c.rounds,
        "interrupted": c.interrupted,
        "confidence": 0.95,
        "policies": c.contenders.iter().enumerate().map(contender).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&value).expect("a value without maps of odd keys") + "\n"
}

fn summary(row: &Row, who: usize) -> Value {
    row.summaries[who].as_ref().map_or(Value::Null, |s| {
        json!({
            "unit": row.unit,
            "n": s.n,
            "mean": s.mean,
            "margin": s.margin,
            "min": s.min,
            "median": s.median,
            "max": s.max,
            "best": row.best == Some(who),
        })
    })
}

fn repeat(r: &Repeat) -> Value {
    let o = &r.outcome;
    let classes = o.classes.iter().map(|class| {
        json!({
            "name": class.name,
            "waits": class.wait.as_ref().map(|t| t.len()),
            "latencies": class.latency.as_ref().map(|t| t.len()),
            "deadlines": class.deadlines.map(|(count, _)| count),
            "missed": class.deadlines.map(|(_, missed)| missed),
        })
    });
    json!({
        "round": r.round,
        "seed": r.seed,
        // A string: JSON's numbers end at 2^53 in many a reader.
        "load_fingerprint": format!("{:016x}", o.fingerprint),
        "generated": o.generated,
        "completed": o.completed,
        "cut_off": o.cut_off,
        "elapsed_s": o.elapsed.as_secs_f64(),
        "classes": classes.collect::<Vec<_>>(),
        "figures": r.figures.iter().map(|f| (f.key.clone(), json!(f.value))).collect::<Map<_, _>>(),
    })
}
