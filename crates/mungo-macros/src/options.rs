//! The attribute's arguments: `name = expression`, separated by commas.

use tokens::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};

use crate::error::Error;
use crate::expand::Kind;

/// The option that names the path of the mungo crate.
const CRATE: &str = "crate";

/// The option whose value is one of [`ON_DETACHED_PANIC`].
const DETACHED_PANICS: &str = "detached_panics";
const ON_DETACHED_PANIC: [&str; 2] = ["\"fail\"", "\"ignore\""];

/// What an option becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// A call on the runtime's builder.
    Runtime,
    /// A call on the options of a test.
    Test,
    /// The path of everything else.
    Crate,
}

/// The options with which a test runs several times, or under a policy that is known by its name.
const SEEDED: [&str; 2] = ["policy", "seeds"];

/// Every option, with an example for the message that says how it is written.
const KNOWN: [(&str, For, &str); 11] = [
    ("procs", For::Runtime, "procs = 4"),
    ("stack_size", For::Runtime, "stack_size = 65536"),
    ("max_threads", For::Runtime, "max_threads = 100"),
    ("time_slice", For::Runtime, "time_slice = Duration::from_millis(10)"),
    ("scheduler", For::Runtime, "scheduler = MyPolicy::new()"),
    ("deadlock_warning", For::Runtime, "deadlock_warning = Duration::from_secs(10)"),
    ("timeout", For::Test, "timeout = Duration::from_secs(60)"),
    (DETACHED_PANICS, For::Test, "detached_panics = \"ignore\""),
    ("policy", For::Test, "policy = \"chaos\""),
    ("seeds", For::Test, "seeds = 100"),
    (CRATE, For::Crate, "crate = some::path"),
];

/// What the same thing is called elsewhere, where the spelling alone would lead to a wrong
/// suggestion.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("worker_threads", "procs"),
    ("gomaxprocs", "procs"),
    ("flavor", "scheduler"),
    ("time_limit", "timeout"),
    ("limit", "timeout"),
    ("panics", DETACHED_PANICS),
];

/// The options that were given, ready to be put into the expansion.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// `.name(value)` for each option, in the user's order. Empty: the default runtime will do.
    pub(crate) builder_calls: Vec<TokenTree>,
    /// The same for the options of a test.
    pub(crate) test_calls: Vec<TokenTree>,
    /// Whether one of [`SEEDED`] is among them: then the body may run several times.
    pub(crate) is_seeded: bool,
    /// The value of `crate = …`.
    pub(crate) crate_path: Option<Vec<TokenTree>>,
}

impl Options {
    /// Reads the arguments. An option that is wrong is left out and adds to `errors`; the others
    /// still count.
    pub(crate) fn parse(kind: Kind, args: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut options = Options::default();
        let mut seen = Vec::new();
        for argument in split_at_commas(args) {
            if let Err(error) = options.add(kind, &argument, &mut seen) {
                errors.push(error);
            }
        }
        options
    }

    fn add(&mut self, kind: Kind, argument: &[TokenTree], seen: &mut Vec<String>) -> Result<(), Error> {
        let [TokenTree::Ident(name), rest @ ..] = argument else {
            return Err(Error::over(argument, "expected an option, written as `name = value`"));
        };
        let text = name.to_string();
        let Some((_, goal, example)) = KNOWN.iter().find(|(known, ..)| *known == text) else {
            return Err(Error::at(name.span(), unknown(kind, &text)));
        };
        if !fits(kind, *goal) {
            let message = format!("option `{text}` is for `#[mungo::test]`, not for {kind}");
            return Err(Error::at(name.span(), message));
        }
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
        match goal {
            For::Runtime => self.builder_calls.extend(builder_call(name, value)),
            For::Test => {
                if text == DETACHED_PANICS {
                    check_word(&text, value, &ON_DETACHED_PANIC)?;
                }
                self.is_seeded |= SEEDED.contains(&text.as_str());
                self.test_calls.extend(builder_call(name, value));
            }
            For::Crate => {
                check_path(value)?;
                self.crate_path = Some(value.to_vec());
            }
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

/// One of these string literals.
fn check_word(name: &str, value: &[TokenTree], words: &[&str]) -> Result<(), Error> {
    let word: String = value.iter().map(ToString::to_string).collect();
    match words.contains(&word.as_str()) {
        true => Ok(()),
        false => Err(Error::over(value, format!("option `{name}` takes {}", words.join(" or ")))),
    }
}

/// Whether the attribute has options of this kind.
fn fits(kind: Kind, goal: For) -> bool {
    goal != For::Test || kind == Kind::Test
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
fn unknown(kind: Kind, name: &str) -> String {
    let known: Vec<&str> =
        KNOWN.iter().filter(|(_, goal, _)| fits(kind, *goal)).map(|(known, ..)| *known).collect();
    let by_other_name = OTHER_NAMES.iter().find(|(other, meant)| *other == name && known.contains(meant));
    let by_other_name = by_other_name.map(|(_, meant)| *meant);
    // A part of the right name (`stack`) is nearer than a stranger of the same length.
    let distance = |known: &str| (!known.contains(name), edit_distance(name, known));
    let by_spelling = || known.iter().copied().min_by_key(|known| distance(known));
    let meant = by_other_name.or_else(by_spelling).expect("there are options");
    let all = known.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
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
    use crate::expand::Kind;

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
            ("krate", "crate"),
            ("deadlock", "deadlock_warning"),
            ("deadline_warning", "deadlock_warning"),
        ] {
            for kind in [Kind::Main, Kind::Test] {
                let message = unknown(kind, written);
                assert!(message.contains(&format!("did you mean `{meant}`?")), "{written}: {message}");
            }
        }
        for (written, meant) in [
            ("timeot", "timeout"),
            ("time_out", "timeout"),
            ("time_limit", "timeout"),
            ("detached_panic", "detached_panics"),
            ("panics", "detached_panics"),
            ("seed", "seeds"),
            ("polcy", "policy"),
        ] {
            let message = unknown(Kind::Test, written);
            assert!(message.contains(&format!("did you mean `{meant}`?")), "{written}: {message}");
            let message = unknown(Kind::Main, written);
            assert!(!message.contains(meant), "not an option of main: {message}");
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
