//! What the macros write, and where their errors point.

use tokens::{Delimiter, TokenStream, TokenTree};

use crate::expand::{Kind, expand};

fn parse(source: &str) -> TokenStream {
    source.parse().expect("tokens")
}

/// Compares token by token: white space does not count.
#[track_caller]
fn assert_expands(kind: Kind, args: &str, item: &str, expected: &str) {
    let expanded = expand(kind, parse(args), parse(item));
    assert_eq!(expanded.to_string(), parse(expected).to_string());
}

/// The errors: message, and the source text of the first and of the last token that it underlines.
fn errors(kind: Kind, args: &str, item: &str) -> Vec<(String, String, String)> {
    let text = |token: &TokenTree| token.span().source_text().unwrap_or_default();
    let expanded: Vec<TokenTree> = expand(kind, parse(args), parse(item)).into_iter().collect();
    expanded
        .windows(8)
        .filter(|tokens| tokens[5].to_string() == "compile_error")
        .map(|tokens| {
            let TokenTree::Group(braces) = &tokens[7] else { panic!("no braces: {tokens:?}") };
            assert_eq!(braces.delimiter(), Delimiter::Brace);
            let message = braces.stream().to_string().trim_matches('"').to_owned();
            (message, text(&tokens[0]), text(&tokens[7]))
        })
        .collect()
}

/// Exactly one error, that has `message` in it and underlines `from` to `to`.
#[track_caller]
fn assert_error(kind: Kind, args: &str, item: &str, message: &str, from: &str, to: &str) {
    let errors = errors(kind, args, item);
    let [(found, start, end)] = errors.as_slice() else { panic!("one error expected: {errors:?}") };
    assert!(found.contains(message), "{found:?} has no {message:?}");
    assert_eq!((start.as_str(), end.as_str()), (from, to), "{found}");
}

/// What is left of the function beside the errors.
fn without_errors(kind: Kind, args: &str, item: &str) -> String {
    let expanded: Vec<TokenTree> = expand(kind, parse(args), parse(item)).into_iter().collect();
    let count = errors(kind, args, item).len();
    expanded.into_iter().skip(8 * count).collect::<TokenStream>().to_string()
}

#[test]
fn main_without_options_uses_the_default_runtime() {
    for args in ["", "crate = ::mungo"] {
        assert_expands(
            Kind::Main,
            args,
            "fn main() { work(); }",
            "fn main() { ::mungo::__private::run_main(move || -> () { work(); }) }",
        );
    }
}

#[test]
fn main_keeps_its_return_type() {
    assert_expands(
        Kind::Main,
        "",
        "fn main() -> Result<(), Box<dyn Error>> { let x = f()?; Ok(()) }",
        "fn main() -> Result<(), Box<dyn Error>> {
            ::mungo::__private::run_main(
                move || -> Result<(), Box<dyn Error>> { let x = f()?; Ok(()) }
            )
        }",
    );
    // Braces in the type are not the body.
    assert_expands(
        Kind::Main,
        "",
        "fn main() -> Code<{ 1 + 2 }> { Code }",
        "fn main() -> Code<{ 1 + 2 }> {
            ::mungo::__private::run_main(move || -> Code<{ 1 + 2 }> { Code })
        }",
    );
}

#[test]
fn each_option_is_one_builder_call() {
    assert_expands(
        Kind::Main,
        "procs = num_cpus() / 2, stack_size = 64 << 10, max_threads = 100,
         time_slice = Duration::from_millis(5), scheduler = Policy::<A, B>::new(),",
        "fn main() {}",
        r#"fn main() {
            ::mungo::__private::run_on(
                ::mungo::Runtime::builder()
                .procs(num_cpus() / 2)
                .stack_size(64 << 10)
                .max_threads(100)
                .time_slice(Duration::from_millis(5))
                .scheduler(Policy::<A, B>::new())
                .build(),
                move || -> () {}
            )
        }"#,
    );
}

#[test]
fn a_test_always_has_its_own_runtime() {
    assert_expands(
        Kind::Test,
        "",
        "#[should_panic] #[ignore] fn t() { boom() }",
        r#"#[::core::prelude::v1::test] #[should_panic] #[ignore] fn t() {
            ::mungo::__private::run_test(
                ::mungo::Runtime::builder()
                .build(),
                ::mungo::__private::TestOptions::new(),
                move || -> () { boom() }
            )
        }"#,
    );
}

#[test]
fn options_of_a_test_are_apart_from_the_runtimes() {
    assert_expands(
        Kind::Test,
        "timeout = SECOND * 5, procs = 1, detached_panics = \"ignore\", deadlock_warning = SECOND",
        "fn t() {}",
        r#"#[::core::prelude::v1::test] fn t() {
            ::mungo::__private::run_test(
                ::mungo::Runtime::builder()
                .procs(1)
                .deadlock_warning(SECOND)
                .build(),
                ::mungo::__private::TestOptions::new()
                .timeout(SECOND * 5)
                .detached_panics("ignore"),
                move || -> () {}
            )
        }"#,
    );
}

#[test]
fn wrong_options_of_a_test_are_rejected_where_they_stand() {
    for (args, message, from, to) in [
        ("timeot = FIVE", "unknown option `timeot`, did you mean `timeout`?", "timeot", "timeot"),
        (
            "timeout",
            "option `timeout` needs a value: `timeout = Duration::from_secs(60)`",
            "timeout",
            "timeout",
        ),
        ("timeout = A, timeout = B", "option `timeout` is given twice", "timeout", "timeout"),
        ("detached_panics = \"no\"", "option `detached_panics` takes", "\"no\"", "\"no\""),
        ("detached_panics = ignore", "option `detached_panics` takes", "ignore", "ignore"),
    ] {
        assert_error(Kind::Test, args, "fn t() {}", message, from, to);
    }
    for args in ["timeout = FIVE", "detached_panics = \"ignore\""] {
        let name = args.split(' ').next().unwrap();
        let message = format!("option `{name}` is for `#[mungo::test]`, not for `#[mungo::main]`");
        assert_error(Kind::Main, args, "fn main() {}", &message, name, name);
    }
}

#[test]
fn the_crate_can_have_another_name() {
    for path in ["renamed", "::renamed::inner", "crate", "crate::inner", "super::mungo"] {
        assert_expands(
            Kind::Main,
            &format!("crate = {path}"),
            "fn main() {}",
            &format!("fn main() {{ {path}::__private::run_main(move || -> () {{}}) }}"),
        );
    }
    assert_expands(
        Kind::Main,
        "procs = 1, crate = renamed",
        "fn main() {}",
        r#"fn main() {
            renamed::__private::run_on(
                renamed::Runtime::builder()
                .procs(1)
                .build(),
                move || -> () {}
            )
        }"#,
    );
}

#[test]
fn attributes_docs_and_visibility_stay() {
    assert_expands(
        Kind::Main,
        "",
        "/// Says hello.
         #[allow(unused)] #[cfg(unix)] pub(crate) fn main() { #![allow(dead_code)] hello() }",
        "#[doc = \" Says hello.\"] #[allow(unused)] #[cfg(unix)] pub(crate) fn main() {
            #![allow(dead_code)]
            ::mungo::__private::run_main(move || -> () { hello() })
        }",
    );
}

#[test]
fn the_body_keeps_its_spans() {
    let expanded = expand(Kind::Main, parse(""), parse("fn main() -> u8 {\n    nonsense\n}"));
    let mut places = Vec::new();
    visit(expanded, &mut |token| places.push((token.to_string(), token.span().start())));
    let place = |text: &str| places.iter().find(|(found, _)| found == text).expect(text).1;
    assert_eq!((place("nonsense").line, place("nonsense").column), (2, 4));
    assert!(places.iter().filter(|(text, at)| text == "u8" && at.column == 13).count() == 2);
}

fn visit(stream: TokenStream, see: &mut dyn FnMut(&TokenTree)) {
    for token in stream {
        see(&token);
        if let TokenTree::Group(group) = token {
            visit(group.stream(), see);
        }
    }
}

#[test]
fn async_is_rejected() {
    for kind in [Kind::Main, Kind::Test] {
        let item = "pub async fn main() { f().await }";
        assert_error(kind, "", item, "goroutines block, so drop `async`", "async", "async");
        assert_eq!(without_errors(kind, "", item), parse("#[allow(dead_code)] pub fn main() {}").to_string());
    }
}

#[test]
fn other_qualifiers_are_rejected() {
    for (item, word) in [
        ("const fn main() {}", "const"),
        ("unsafe fn main() {}", "unsafe"),
        ("extern \"C\" fn main() {}", "extern"),
    ] {
        let message = format!("cannot be on a function that is `{word}`");
        assert_error(Kind::Main, "", item, &message, word, word);
    }
}

#[test]
fn arguments_are_rejected() {
    assert_error(Kind::Main, "", "fn main(a: u8, b: &str) {}", "std::env::args()", "a", "str");
    assert_error(Kind::Test, "", "fn t(&self) {}", "takes no arguments", "&", "self");
}

#[test]
fn generics_are_rejected() {
    assert_error(Kind::Main, "", "fn main<T: A>() {}", "generic function", "<", ">");
    assert_error(Kind::Main, "", "fn main<F: Fn(u8) -> Vec<u8>>() -> u8 { 1 }", "generic function", "<", ">");
    assert_error(Kind::Test, "", "fn t<const N: u8>() -> u8 { N }", "generic function", "<", ">");
    assert_error(Kind::Main, "", "fn main() where u8: Copy {}", "`where` clause", "where", "Copy");
    assert_error(Kind::Main, "", "fn main() -> u8 where u8: Copy {}", "`where`", "where", "Copy");
}

#[test]
fn a_body_is_required() {
    for item in ["fn main();", "fn main() -> u8;"] {
        assert_error(Kind::Main, "", item, "needs a function with a body", "main", "main");
    }
}

#[test]
fn other_items_are_rejected_and_left_alone() {
    for item in ["struct S;", "pub type F = fn();", "impl S { fn main() {} }"] {
        let all: Vec<TokenTree> = parse(item).into_iter().collect();
        let text = |token: &TokenTree| token.span().source_text().expect("a span");
        let (first, last) = (text(&all[0]), text(&all[all.len() - 1]));
        assert_error(Kind::Main, "", item, "goes on a function", &first, &last);
        assert_eq!(without_errors(Kind::Main, "", item), parse(item).to_string());
    }
}

#[test]
fn a_second_test_attribute_is_rejected() {
    for attribute in ["[test]", "[tokio::test]", "[::core::prelude::v1::test]"] {
        let item = format!("#{attribute} fn t() {{}}");
        assert_error(Kind::Test, "", &item, "makes this a test already", "#", attribute);
    }
    assert!(errors(Kind::Test, "", "#[cfg(test)] #[test_case(1)] fn t() {}").is_empty());
    assert!(errors(Kind::Main, "", "#[test] fn t() {}").is_empty());
}

#[test]
fn wrong_options_are_rejected_where_they_stand() {
    for (args, message, from, to) in [
        ("proc = 4", "unknown option `proc`, did you mean `procs`?", "proc", "proc"),
        ("procs", "option `procs` needs a value: `procs = 4`", "procs", "procs"),
        ("procs =", "option `procs` needs a value", "procs", "="),
        ("procs(4)", "option `procs` needs a value", "procs", "(4)"),
        ("procs == 4", "option `procs` needs a value", "procs", "4"),
        ("procs = 4, stack_size", "option `stack_size` needs a value", "stack_size", "stack_size"),
        ("procs = 4, max_threads = 9, procs = 5", "option `procs` is given twice", "procs", "procs"),
        ("crate = a, crate = b", "option `crate` is given twice", "crate", "crate"),
        ("4", "expected an option, written as `name = value`", "4", "4"),
        ("procs = 4,, max_threads = 9", "expected an option", ",", ","),
        ("crate = \"mungo\"", "option `crate` takes a path", "\"mungo\"", "\"mungo\""),
        ("crate = a::", "option `crate` takes a path", "a", ":"),
        ("crate = a.b", "option `crate` takes a path", "a", "b"),
    ] {
        assert_error(Kind::Main, args, "fn main() {}", message, from, to);
    }
}

#[test]
fn a_wrong_option_does_not_hide_the_rest() {
    let args = "proc = 4, stack_size = 1, procs";
    let messages: Vec<String> =
        errors(Kind::Main, args, "async fn main(x: u8) {}").into_iter().map(|e| e.0).collect();
    let expected = ["unknown option", "needs a value", "drop `async`", "takes no arguments"];
    assert_eq!(messages.len(), expected.len(), "{messages:?}");
    for (message, part) in messages.iter().zip(expected) {
        assert!(message.contains(part), "{message:?} has no {part:?}");
    }
    assert!(without_errors(Kind::Main, args, "fn main() {}").contains("stack_size"));
}
