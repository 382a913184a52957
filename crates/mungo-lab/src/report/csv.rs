//! CSV: one line a figure of a repeat, so that any program can group as it likes.

use crate::compare::Comparison;

/// A field, quoted if it must be (RFC 4180).
fn field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

pub(super) fn render(c: &Comparison) -> String {
    let mut lines = vec!["workload,policy,procs,round,seed,metric,unit,value".to_owned()];
    for contender in &c.contenders {
        for repeat in &contender.repeats {
            let start = [c.workload, &contender.name].map(field).join(",");
            let start = format!("{start},{},{},{}", c.procs, repeat.round, repeat.seed);
            let o = &repeat.outcome;
            for (name, count) in
                [("generated", o.generated), ("completed", o.completed), ("cut_off", o.cut_off)]
            {
                lines.push(format!("{start},count.{name},,{count}"));
            }
            for figure in &repeat.figures {
                lines.push(format!("{start},{},{},{}", field(&figure.key), field(figure.unit), figure.value));
            }
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_are_quoted() {
        assert_eq!(super::field("plain"), "plain");
        assert_eq!(super::field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
