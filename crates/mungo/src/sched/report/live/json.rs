//! JSON, written piece by piece.

use std::fmt::Write;

/// An object or a list that is being written.
pub(crate) struct Json {
    text: String,
}

/// Writes an object.
pub(crate) fn object(fill: impl FnOnce(&mut Json)) -> String {
    let mut json = Json { text: String::from("{") };
    fill(&mut json);
    json.text.push('}');
    json.text
}

impl Json {
    fn key(&mut self, key: &str) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
        if !key.is_empty() {
            _ = write!(self.text, "\"{key}\":");
        }
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, key: &str, n: u64) {
        self.key(key);
        _ = write!(self.text, "{n}");
    }

    /// Adds a number, or null.
    pub(crate) fn number_or_null(&mut self, key: &str, n: Option<u64>) {
        self.key(key);
        match n {
            Some(n) => _ = write!(self.text, "{n}"),
            None => self.text.push_str("null"),
        }
    }

    /// Adds a string.
    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                c if (c as u32) < 0x20 => _ = write!(self.text, "\\u{:04x}", c as u32),
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }

    /// Adds an object.
    pub(crate) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Json)) {
        self.key(key);
        self.text.push('{');
        fill(self);
        self.text.push('}');
    }

    /// Adds a list of objects.
    pub(crate) fn list<T>(&mut self, key: &str, of: impl IntoIterator<Item = T>, fill: impl Fn(&mut Json, T)) {
        self.key(key);
        self.text.push('[');
        for item in of {
            self.object("", |o| fill(o, item));
        }
        self.text.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_json() {
        let text = object(|o| {
            o.number("n", 1);
            o.number_or_null("none", None);
            o.text("t", "a\"b\\c\n\u{1}ü");
            o.object("o", |_| ());
            o.list("l", [1, 2], |o, n| o.number("i", n));
        });
        assert_eq!(text, r#"{"n":1,"none":null,"t":"a\"b\\c\n\u0001ü","o":{},"l":[{"i":1},{"i":2}]}"#);
    }
}
