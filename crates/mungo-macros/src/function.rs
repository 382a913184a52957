//! The annotated function, taken apart as far as the expansion needs it.

use tokens::{Delimiter, Group, Ident, TokenStream, TokenTree};

use crate::error::Error;
use crate::expand::Kind;

/// A function that can be expanded: a name, no arguments, perhaps a return type, a body.
///
/// Printed one after the other, `attributes`, `visibility`, `signature` and `body` are what the
/// user wrote, but for the `inner_attributes`, which are taken out of the body.
#[derive(Debug)]
pub(crate) struct Function {
    /// `#[…]`, doc comments among them.
    pub(crate) attributes: Vec<TokenTree>,
    /// `pub`, `pub(crate)`, or nothing.
    pub(crate) visibility: Vec<TokenTree>,
    /// From `fn` up to the body.
    pub(crate) signature: Vec<TokenTree>,
    /// The type behind `->`, or nothing.
    pub(crate) output: Vec<TokenTree>,
    /// `#![…]` at the start of the body: they are the function's, and a closure may have none.
    pub(crate) inner_attributes: Vec<TokenTree>,
    /// `{ … }`.
    pub(crate) body: Group,
}

/// Why there is no [`Function`].
#[derive(Debug)]
pub(crate) enum Rejected {
    /// The item is something else, say a `struct`.
    NotAFunction(Error),
    /// A function that cannot be a goroutine's body as it stands.
    Unfit {
        errors: Vec<Error>,
        /// What it takes to write an empty function of that name, so that the missing function is
        /// no second error.
        visibility: Vec<TokenTree>,
        name: Ident,
    },
}

impl Function {
    /// Takes `item` apart. The compiler has parsed it already: what looks like a function is one.
    pub(crate) fn parse(kind: Kind, item: TokenStream) -> Result<Self, Rejected> {
        let tokens: Vec<TokenTree> = item.into_iter().collect();
        let (attributes, rest) = split_attributes(&tokens);
        let (visibility, rest) = split_visibility(rest);
        let mut errors = Vec::new();
        if kind == Kind::Test {
            check_only_test(attributes, &mut errors);
        }

        let keyword = rest.iter().position(|token| is_word(token, "fn"));
        let Some((qualifiers, [keyword, TokenTree::Ident(name), rest @ ..])) =
            keyword.map(|at| rest.split_at(at))
        else {
            let message = format!("{kind} goes on a function");
            return Err(Rejected::NotAFunction(Error::over(&tokens, message)));
        };
        check_qualifiers(kind, qualifiers, &mut errors);

        let (generics, rest) = split_generics(rest);
        if !generics.is_empty() {
            let message = format!("{kind} cannot be on a generic function");
            errors.push(Error::over(generics, message));
        }
        let (arguments, rest) = rest.split_at(rest.len().min(1));
        check_arguments(kind, arguments, &mut errors);

        let (output, body) = match rest {
            [output @ .., last] if let Some(body) = as_body(last) => (output, Some(body)),
            [output @ .., _semicolon] => (output, None),
            [] => (rest, None),
        };
        if let Some(at) = output.iter().position(|token| is_word(token, "where")) {
            let message = format!("{kind} cannot be on a function with a `where` clause");
            errors.push(Error::over(&output[at..], message));
        }
        let Some(body) = body else {
            let message = format!("{kind} needs a function with a body");
            errors.push(Error::at(name.span(), message));
            return Err(unfit(errors, visibility, name));
        };
        if !errors.is_empty() {
            return Err(unfit(errors, visibility, name));
        }

        let signature = [keyword.clone(), name.clone().into()].into_iter();
        let (inner_attributes, body) = split_inner_attributes(&body);
        Ok(Function {
            attributes: attributes.to_vec(),
            visibility: visibility.to_vec(),
            signature: signature.chain(arguments.iter().cloned()).chain(output.iter().cloned()).collect(),
            // Without its arrow, which is two tokens.
            output: output.iter().skip(2).cloned().collect(),
            inner_attributes,
            body,
        })
    }
}

fn unfit(errors: Vec<Error>, visibility: &[TokenTree], name: &Ident) -> Rejected {
    Rejected::Unfit { errors, visibility: visibility.to_vec(), name: name.clone() }
}

fn check_qualifiers(kind: Kind, qualifiers: &[TokenTree], errors: &mut Vec<Error>) {
    for qualifier in qualifiers {
        // The ABI's string is no word, but its `extern` is, and one error for the two will do.
        let TokenTree::Ident(word) = qualifier else {
            continue;
        };
        let message = match word.to_string().as_str() {
            "async" => format!(
                "{kind} cannot be on an `async fn`: goroutines block, so drop `async` and call \
                 blocking functions instead of awaiting futures"
            ),
            other => format!("{kind} cannot be on a function that is `{other}`"),
        };
        errors.push(Error::at(word.span(), message));
    }
}

fn check_arguments(kind: Kind, arguments: &[TokenTree], errors: &mut Vec<Error>) {
    let [TokenTree::Group(parentheses)] = arguments else {
        return;
    };
    let inside: Vec<TokenTree> = parentheses.stream().into_iter().collect();
    if inside.is_empty() {
        return;
    }
    let way_out = match kind {
        Kind::Main => ": read the command line with `std::env::args()`",
        Kind::Test => "",
    };
    let message = format!("a {kind} function takes no arguments{way_out}");
    errors.push(Error::over(&inside, message));
}

/// A `#[test]` that is already there would register the function twice.
fn check_only_test(attributes: &[TokenTree], errors: &mut Vec<Error>) {
    for attribute in attributes.chunks(2) {
        let [_hash, TokenTree::Group(brackets)] = attribute else {
            continue;
        };
        let path: Vec<TokenTree> = brackets.stream().into_iter().collect();
        let plain = path.iter().all(|token| matches!(token, TokenTree::Ident(_) | TokenTree::Punct(_)));
        if plain && path.last().is_some_and(|token| is_word(token, "test")) {
            let test = Kind::Test;
            let message = format!("{test} makes this a test already: drop the other attribute");
            errors.push(Error::over(attribute, message));
        }
    }
}

/// The `#[…]` in front.
fn split_attributes(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
    let mut end = 0;
    while let [hash, brackets, ..] = &tokens[end..]
        && is_punct(hash, '#')
        && is_group(brackets, Delimiter::Bracket)
    {
        end += 2;
    }
    tokens.split_at(end)
}

/// `pub`, `pub(…)`, or the group without delimiters that a macro's `$vis` becomes.
fn split_visibility(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
    let length = match tokens {
        [word, restriction, ..] if is_word(word, "pub") && is_group(restriction, Delimiter::Parenthesis) => 2,
        [word, ..] if is_word(word, "pub") => 1,
        [group, ..] if is_group(group, Delimiter::None) => 1,
        _ => 0,
    };
    tokens.split_at(length)
}

/// `<…>` behind the function's name. The `>` of an arrow in a bound closes nothing.
fn split_generics(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
    let mut depth = 0;
    let mut after_dash = false;
    for (at, token) in tokens.iter().enumerate() {
        if is_punct(token, '<') {
            depth += 1;
        } else if is_punct(token, '>') && !after_dash {
            depth -= 1;
        }
        if depth == 0 {
            let length = if at == 0 { 0 } else { at + 1 };
            return tokens.split_at(length);
        }
        after_dash = is_punct(token, '-');
    }
    tokens.split_at(tokens.len())
}

/// The `#![…]` at the start of `body`, and the body without them.
fn split_inner_attributes(body: &Group) -> (Vec<TokenTree>, Group) {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let mut end = 0;
    while let [hash, bang, brackets, ..] = &tokens[end..]
        && is_punct(hash, '#')
        && is_punct(bang, '!')
        && is_group(brackets, Delimiter::Bracket)
    {
        end += 3;
    }
    let mut rest = Group::new(Delimiter::Brace, tokens[end..].iter().cloned().collect());
    rest.set_span(body.span());
    (tokens[..end].to_vec(), rest)
}

/// The braces, which are wrapped in a group without delimiters where a macro's `$body:block` put
/// them there.
fn as_body(token: &TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else {
        return None;
    };
    match group.delimiter() {
        Delimiter::Brace => Some(group.clone()),
        Delimiter::None => {
            let mut inside = group.stream().into_iter();
            let only = inside.next().filter(|_| inside.next().is_none())?;
            as_body(&only)
        }
        _ => None,
    }
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    let TokenTree::Ident(ident) = token else {
        return false;
    };
    let text = ident.to_string();
    text == word
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}
