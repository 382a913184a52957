//! Standard output: with colours and pictures where they can be shown, plain where not.

use std::env;
use std::io::{self, IsTerminal, Write};

/// What a piece of text is, rather than what it looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ink {
    Heading,
    Faint,
    Good,
    /// A goroutine or a processor, by its number.
    Number(usize),
}

/// How to write to standard output.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    color: bool,
    unicode: bool,
    /// Of the terminal; elsewhere lines are as long as they are.
    columns: Option<usize>,
}

impl Out {
    /// Colours on a terminal, unless `--no-color`, NO_COLOR (see no-color.org) or a dumb terminal says no. Block
    /// characters unless the locale says that they cannot be shown.
    pub(crate) fn new(no_color: bool) -> Out {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| match env::var(name) {
            Ok(value) if !value.is_empty() => Some(value.to_lowercase()),
            _ => None,
        });
        let ascii = locale.is_some_and(|name| !name.contains("utf-8") && !name.contains("utf8"));
        Out {
            color: !no_color && !set("NO_COLOR") && !dumb && io::stdout().is_terminal(),
            unicode: !ascii,
            columns: terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into()),
        }
    }

    /// As on a terminal that can do everything.
    #[cfg(test)]
    pub(crate) fn colourful() -> Out {
        Out { color: true, unicode: true, columns: None }
    }

    /// # Errors
    /// If standard output does not take it: a full disk, a reader that went away.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let text = text.as_ref();
        match self.unicode {
            true => stdout.write_all(text.as_bytes())?,
            // Numbers and their units come from std and from tables, too.
            false => stdout.write_all(text.replace('µ', "u").replace('±', "+-").as_bytes())?,
        }
        stdout.write_all(b"\n")?;
        stdout.flush()
    }

    pub(crate) fn paint(&self, ink: Ink, text: impl AsRef<str>) -> String {
        const WHEEL: [&str; 6] = ["36", "33", "35", "32", "34", "31"];
        let code = match ink {
            Ink::Heading => "1",
            Ink::Faint => "2",
            Ink::Good => "1;32",
            Ink::Number(n) => WHEEL[n % WHEEL.len()],
        };
        match self.color {
            true => format!("\x1b[{code}m{}\x1b[0m", text.as_ref()),
            false => text.as_ref().to_owned(),
        }
    }

    /// How wide a table may be.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Breaks a text between words where the terminal ends; all of its lines start with `indent`.
    pub(crate) fn fold(&self, indent: &str, text: &str) -> String {
        let (mut folded, mut column) = (indent.to_owned(), indent.len());
        for word in text.split_inclusive(' ') {
            let width = word.trim_end().chars().count();
            if column > indent.len() && self.columns.is_some_and(|columns| column + width > columns) {
                folded.truncate(folded.trim_end().len());
                folded = folded + "\n" + indent;
                column = indent.len();
            }
            folded += word;
            column += word.chars().count();
        }
        folded
    }

    /// `plain` where block characters cannot be shown.
    pub(crate) fn glyph<'a>(&self, block: &'a str, plain: &'a str) -> &'a str {
        if self.unicode { block } else { plain }
    }

    /// `value` of `most` as a bar of up to `width` characters.
    pub(crate) fn bar(&self, value: f64, most: f64, width: usize) -> String {
        let filled = (value / most.max(f64::MIN_POSITIVE) * width as f64).round() as usize;
        let filled = filled.clamp(usize::from(value > 0.0), width);
        format!("{}{}", self.glyph("█", "#").repeat(filled), " ".repeat(width - filled))
    }

    /// One character a value, as high as the value is.
    pub(crate) fn sparkline(&self, values: &[u64], most: u64) -> String {
        let levels: Vec<char> = self.glyph(" ▁▂▃▄▅▆▇█", " .:-=+*%#").chars().collect();
        let top = levels.len() - 1;
        let level = |v: u64| match v {
            0 => 0,
            v => (v as usize * top).div_ceil(most.max(1) as usize).clamp(1, top),
        };
        values.iter().map(|&v| levels[level(v)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_folded_on_terminals() {
        let out = Out { columns: Some(10), ..Out::colourful() };
        assert_eq!(out.fold("  ", "to be or not to be"), "  to be or\n  not to\n  be");
        assert_eq!(out.fold("", "incomprehensibilities of it"), "incomprehensibilities\nof it");
        assert_eq!(Out::colourful().fold("  ", "to be or not"), "  to be or not");
    }

    #[test]
    fn pictures() {
        let out = Out { color: false, unicode: false, columns: Some(10) };
        assert_eq!(out.bar(5.0, 10.0, 4), "##  ");
        assert_eq!(out.bar(0.001, 10.0, 4), "#   ", "something is not nothing");
        assert_eq!(out.bar(0.0, 0.0, 4), "    ");
        assert_eq!(out.sparkline(&[0, 1, 50, 100], 100), " .=#");
        assert_eq!(out.paint(Ink::Good, "x"), "x");
        assert_eq!(Out::colourful().paint(Ink::Good, "x"), "\x1b[1;32mx\x1b[0m");
    }
}
