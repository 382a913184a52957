#![doc = include_str!("guide/index.md")]

macro_rules! chapters {
    ($($(#[$feature:meta])? $name:ident: $file:literal;)*) => {
        $(
            $(#[$feature])?
            #[doc = include_str!(concat!("guide/", $file))]
            pub mod $name {}
        )*
    };
}

chapters! {
    coming_from_go: "coming_from_go.md";
    coming_from_tokio: "coming_from_tokio.md";
    coming_from_threads: "coming_from_threads.md";
    cancellation: "cancellation.md";
    limits: "limits.md";
    panics: "panics.md";
    web_services: "web_services.md";
    testing: "testing.md";
    finding_faults: "finding_faults.md";
    policies: "policies.md";
    how_it_works: "how_it_works.md";
}
