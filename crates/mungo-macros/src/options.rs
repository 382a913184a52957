//! The attribute's arguments: `name = expression`, separated by commas.

use tokens::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};

use crate::error::Error;

/// The option that names the path of the mungo crate. All others are methods of the builder.
const CRATE: &str = "crate";

/// Every option, with an example for the message that says how it is written.
const KNOWN: [(&str, &str); 6] = [
    ("procs", "procs = 4"),
    ("stack_size", "stack_size = 65536"),
    ("max_threads", "max_threads = 100"),
    ("time_slice", "time_slice = Duration::from_millis(10)"),
    ("scheduler", "scheduler = MyPolicy::new()"),
    (CRATE, "crate = some::path"),
];

/// What the same thing is called elsewhere, where the spelling alone would lead to a wrong
/// suggestion.
const OTHER_NAMES: [(&str, &str); 4] =
    [("worker_threads", "procs"), ("gomaxprocs", "procs"), ("flavor", "scheduler"), ("policy", "scheduler")];

/// The options that were given, ready to be put into the expansion.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// `.name(value)` for each option, in the user's order. Empty: the default runtime will do.
    pub(crate) builder_calls: Vec<TokenTree>,
    /// The value of `crate = …`.
    pub(crate) crate_path: Option<Vec<TokenTree>>,
}

impl Options {
    /// Reads the arguments. An option that is wrong is left out and adds to `errors`; the others
    /// still count.
    pub(crate) fn parse(args: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut options = Options::default();
        let mut seen = Vec::new();
        for argument in split_at_commas(args) {
            if let Err(error) = options.add(&argument, &mut seen) {
                errors.push(error);
            }
        }
        options
    }

    fn add(&mut self, argument: &[TokenTree], seen: &mut Vec<String>) -> Result<(), Error> {
        let [TokenTree::Ident(name), rest @ ..] = argument else {
            return Err(Error::over(argument, "expected an option, written as `name = value`"));
        };
        let text = name.to_string();
        let Some((_, example)) = KNOWN.iter().find(|(known, _)| *known == text) else {
            return Err(Error::at(name.span(), unknown(&text)));
        };
        let value = match rest {
            [TokenTree::Punct(equals), value @ ..] if is_assignment(equals, value) => value,
            _ => &[],
        };
        if value.is_empty() {
            return Err(Error::over(argument, format!("option `{text}` needs a value: `{example}`")));
        }
        if seen.contains(&text) {
            return Err(Error::at(name.span(), format!("option `{text}` is given twice")));
        }
        seen.push(text.clone());
        if text == CRATE {
            check_path(value)?;
            self.crate_path = Some(value.to_vec());
        } else {
            self.builder_calls.extend(builder_call(name, value));
        }
        Ok(())
    }
}

/// `.name(value)`. Name and value keep the user's spans: a wrong type is reported at the value.
fn builder_call(name: &Ident, value: &[TokenTree]) -> [TokenTree; 3] {
    let mut dot = Punct::new('.', Spacing::Alone);
    dot.set_span(name.span());
    let mut parentheses = Group::new(Delimiter::Parenthesis, value.iter().cloned().collect());
    parentheses.set_span(value[0].span());
    [dot.into(), name.clone().into(), parentheses.into()]
}

/// `equals` is a `=` of its own and not the first half of `==` or `=>`.
fn is_assignment(equals: &Punct, next: &[TokenTree]) -> bool {
    let joined = equals.spacing() == Spacing::Joint;
    let longer = matches!(next.first(), Some(TokenTree::Punct(p)) if matches!(p.as_char(), '=' | '>'));
    equals.as_char() == '=' && !(joined && longer)
}

/// `a::b`, `::a::b`, `crate::a`.
fn check_path(value: &[TokenTree]) -> Result<(), Error> {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ':');
    let mut rest = value;
    if let [first, second, tail @ ..] = rest
        && is_colon(first)
        && is_colon(second)
    {
        rest = tail;
    }
    loop {
        rest = match rest {
            [TokenTree::Ident(_)] => return Ok(()),
            [TokenTree::Ident(_), first, second, tail @ ..] if is_colon(first) && is_colon(second) => tail,
            // A path that came through a macro's `$name:path` is wrapped in a group without
            // delimiters.
            [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => return Ok(()),
            _ => {
                return Err(Error::over(value, "option `crate` takes a path: `crate = some::path`"));
            }
        }
    }
}

/// Cuts at the commas that stand between arguments. One more comma after the last argument is fine.
///
/// Brackets of all kinds arrive as one token, except for `<…>`, whose commas belong to the
/// expression. In an expression a `<` opens a list of types where it follows `::`, or where no
/// operand stands before it; elsewhere it compares.
fn split_at_commas(args: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut arguments = Vec::new();
    let mut argument = Vec::new();
    let mut angles = 0;
    let mut previous = ' ';
    for token in args {
        let current = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match (previous, current) {
            (_, ',') if angles == 0 => {
                // With nothing before it the comma itself is what the error can point at.
                if argument.is_empty() {
                    argument.push(token);
                }
                arguments.push(std::mem::take(&mut argument));
                previous = ' ';
                continue;
            }
            (':' | '=', '<') => angles += 1,
            (_, '<') if angles > 0 => angles += 1,
            ('-' | '=', '>') => {}
            (_, '>') if angles > 0 => angles -= 1,
            _ => {}
        }
        previous = current;
        argument.push(token);
    }
    if !argument.is_empty() {
        arguments.push(argument);
    }
    arguments
}

/// The message for an option that does not exist. It names the one that was probably meant.
fn unknown(name: &str) -> String {
    let by_other_name = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, known)| *known);
    // A part of the right name (`stack`) is nearer than a stranger of the same length.
    let distance = |known: &str| (!known.contains(name), edit_distance(name, known));
    let by_spelling = || KNOWN.iter().map(|(known, _)| *known).min_by_key(|known| distance(known));
    let meant = by_other_name.or_else(by_spelling).expect("there are options");
    let all = KNOWN.map(|(known, _)| format!("`{known}`")).join(", ");
    format!("unknown option `{name}`, did you mean `{meant}`? The options are {all}")
}

/// How many letters must be added, dropped or changed to get from `a` to `b` (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    // `row[j]` is the distance between what has been read of `a` and the first `j` letters of `b`.
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.chars().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::{edit_distance, split_at_commas, unknown};

    #[test]
    fn distance_counts_edits() {
        assert_eq!(edit_distance("procs", "procs"), 0);
        assert_eq!(edit_distance("proc", "procs"), 1);
        assert_eq!(edit_distance("stacksize", "stack_size"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("abc", ""), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn unknown_options_name_the_closest() {
        for (written, meant) in [
            ("proc", "procs"),
            ("Procs", "procs"),
            ("stack", "stack_size"),
            ("stacksize", "stack_size"),
            ("maxthreads", "max_threads"),
            ("threads", "max_threads"),
            ("slice", "time_slice"),
            ("sched", "scheduler"),
            ("worker_threads", "procs"),
            ("policy", "scheduler"),
            ("krate", "crate"),
        ] {
            let message = unknown(written);
            assert!(message.contains(&format!("did you mean `{meant}`?")), "{written}: {message}");
        }
    }

    #[test]
    fn commas_within_brackets_do_not_separate() {
        for (args, expected) in [
            ("", 0),
            ("a = 1", 1),
            ("a = 1,", 1),
            ("a = 1, b = 2", 2),
            ("a = f(1, 2), b = [1, 2], c = { x::<A, B>(); 1 }", 3),
            ("a = make::<A, B>(), b = 2", 2),
            ("a = make::<Vec<A>, fn(A) -> B>(), b = 2", 2),
            ("a = <Map<A, B> as Make<C, D>>::new(), b = 2", 2),
            ("a = x < y, b = y > x", 2),
            ("a = 1 << 3, b = 8 >> 1", 2),
            ("a = 1,, b = 2", 3),
            (",", 1),
        ] {
            let split = split_at_commas(args.parse().unwrap());
            assert_eq!(split.len(), expected, "{args}: {split:?}");
        }
    }
}
