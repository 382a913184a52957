//! What is wrong with the user's code, and where.

use tokens::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// One message for the user, on its way to a `compile_error!`.
#[derive(Debug)]
pub(crate) struct Error {
    start: Span,
    end: Span,
    message: String,
}

impl Error {
    /// An error at one token.
    pub(crate) fn at(span: Span, message: impl Into<String>) -> Self {
        Error { start: span, end: span, message: message.into() }
    }

    /// An error that underlines all of `tokens`, or the macro's own call where there are none.
    pub(crate) fn over(tokens: &[TokenTree], message: impl Into<String>) -> Self {
        let span_of = |token: Option<&TokenTree>| token.map_or_else(Span::call_site, TokenTree::span);
        Error { start: span_of(tokens.first()), end: span_of(tokens.last()), message: message.into() }
    }

    /// `::core::compile_error! { "message" }`.
    ///
    /// The compiler underlines an invocation from its first token to its last, so these two carry
    /// the error's spans. (Joining two spans into one needs a nightly compiler.)
    pub(crate) fn to_tokens(&self) -> TokenStream {
        let punct = |c, spacing| with_span(Punct::new(c, spacing).into(), self.start);
        let word = |name| TokenTree::from(Ident::new(name, self.start));
        let message = with_span(Literal::string(&self.message).into(), self.end);
        let braces = Group::new(Delimiter::Brace, TokenStream::from(message));
        [
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            word("core"),
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            word("compile_error"),
            punct('!', Spacing::Alone),
            with_span(braces.into(), self.end),
        ]
        .into_iter()
        .collect()
    }
}

/// `token`, reported as standing at `span`.
pub(crate) fn with_span(mut token: TokenTree, span: Span) -> TokenTree {
    token.set_span(span);
    token
}
