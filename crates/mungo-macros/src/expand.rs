//! Puts the new function together.

use std::fmt;

use tokens::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::error::{Error, with_span};
use crate::function::{Function, Rejected};
use crate::options::Options;

/// The body of a `main` that has no wishes.
const ON_DEFAULT_RUNTIME: &str = "$mungo::__private::run_main(move || -> $output $body)";

/// The body of a `main` with options.
const ON_OWN_RUNTIME: &str = r#"
    $mungo::__private::run_on(
        $mungo::Runtime::builder()
            $options
            .build(),
        move || -> $output $body
    )
"#;

/// The body of a test.
const AS_TEST: &str = r#"
    $mungo::__private::run_test(
        $mungo::Runtime::builder()
            $options
            .build(),
        $mungo::__private::TestOptions::new()
            $test_options,
        move || -> $output $body
    )
"#;

/// The body of a test that runs under a policy by its name, or with several seeds.
const AS_SEEDED_TEST: &str = r#"
    $mungo::__private::run_seeds(
        || $mungo::Runtime::builder()
            $options,
        $mungo::__private::TestOptions::new()
            $test_options,
        || -> $output $body
    )
"#;

/// Which attribute it is. Displays as the user wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Test,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Main => "`#[mungo::main]`",
            Kind::Test => "`#[mungo::test]`",
        })
    }
}

/// The whole macro: `args` are what stands in the attribute's parentheses, `item` is what the
/// attribute stands on.
///
/// On an error the function is still there, so that the user reads about one mistake once: with
/// wrong options it is expanded without them, with a wrong signature it is empty.
pub(crate) fn expand(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Vec::new();
    let options = Options::parse(kind, args, &mut errors);
    let expanded = match Function::parse(kind, item.clone()) {
        Ok(function) => assemble(kind, &options, function),
        Err(Rejected::NotAFunction(error)) => {
            errors.push(error);
            item
        }
        Err(Rejected::Unfit { errors: more, visibility, name }) => {
            errors.extend(more);
            empty_function(visibility, name)
        }
    };
    errors.iter().map(Error::to_tokens).chain([expanded]).collect()
}

/// The function as the user wrote it, but for its body.
fn assemble(kind: Kind, options: &Options, function: Function) -> TokenStream {
    let generated = Span::mixed_site();
    let fill_in = |template, holes: &[Hole<'_>]| fill_in(parse_template(template), holes, generated);

    let default_path: Vec<TokenTree> = fill_in("::mungo", &[]).into_iter().collect();
    let path = options.crate_path.as_deref().unwrap_or(&default_path);
    let unit: Vec<TokenTree> = fill_in("()", &[]).into_iter().collect();
    let output = Some(&function.output).filter(|output| !output.is_empty());
    let template = match kind {
        Kind::Main if options.builder_calls.is_empty() => ON_DEFAULT_RUNTIME,
        Kind::Main => ON_OWN_RUNTIME,
        Kind::Test if options.is_seeded => AS_SEEDED_TEST,
        Kind::Test => AS_TEST,
    };
    let statement = fill_in(
        template,
        &[
            ("mungo", path),
            ("options", &options.builder_calls),
            ("test_options", &options.test_calls),
            ("output", output.unwrap_or(&unit)),
            ("body", &[function.body.clone().into()]),
        ],
    );

    let test_attribute = match kind {
        Kind::Main => TokenStream::new(),
        Kind::Test => fill_in("#[::core::prelude::v1::test]", &[]),
    };
    let inside = function.inner_attributes.into_iter().chain(statement).collect();
    let braces = Group::new(Delimiter::Brace, inside);
    let body = with_span(braces.into(), generated.located_at(function.body.span()));
    test_attribute
        .into_iter()
        .chain(function.attributes)
        .chain(function.visibility)
        .chain(function.signature)
        .chain([body])
        .collect()
}

/// Stands in for a function that was rejected.
fn empty_function(visibility: Vec<TokenTree>, name: Ident) -> TokenStream {
    fill_in(
        parse_template("#[allow(dead_code)] $visibility fn $name() {}"),
        &[("visibility", &visibility), ("name", &[name.into()])],
        Span::mixed_site(),
    )
}

/// A name after `$` in a template, and what to put there.
type Hole<'a> = (&'a str, &'a [TokenTree]);

fn parse_template(template: &str) -> TokenStream {
    template.parse().expect("the templates are Rust tokens")
}

/// The template with its holes filled. Its own tokens get the span `generated`, those in the holes
/// keep theirs.
fn fill_in(template: TokenStream, holes: &[Hole<'_>], generated: Span) -> TokenStream {
    let mut filled = Vec::new();
    let mut template = template.into_iter();
    while let Some(token) = template.next() {
        match token {
            TokenTree::Punct(dollar) if dollar.as_char() == '$' => {
                let name = template.next().expect("a name follows each $").to_string();
                let (_, tokens) =
                    holes.iter().find(|(hole, _)| *hole == name).expect("each hole has a filling");
                filled.extend_from_slice(tokens);
            }
            TokenTree::Group(group) => {
                let inside = fill_in(group.stream(), holes, generated);
                filled.push(with_span(Group::new(group.delimiter(), inside).into(), generated));
            }
            other => filled.push(with_span(other, generated)),
        }
    }
    filled.into_iter().collect()
}
