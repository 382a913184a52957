#![doc = include_str!("guide/index.md")]

macro_rules! chapters {
    ($($name:ident: $file:literal, $($alias:literal)*;)*) => {
        $(
            #[doc = include_str!(concat!("guide/", $file))]
            $(#[doc(alias = $alias)])*
            pub mod $name {}
        )*
    };
}

// After the file: words that lead to the chapter in a search.
chapters! {
    coming_from_go: "coming_from_go.md", "golang" "defer" "recover" "goexit";
    coming_from_tokio: "coming_from_tokio.md", "async" "await" "spawn_blocking" "LocalSet" "postgres" "pool";
    coming_from_threads: "coming_from_threads.md", "std" "thread pool";
    cancellation: "cancellation.md", "cancel" "shutdown" "graceful" "ctrl_c" "stop" "abort";
    limits: "limits.md", "timeout" "deadline" "limit" "concurrency" "back-pressure" "backpressure" "throttle";
    panics: "panics.md", "catch" "catch_unwind" "recover";
    existing_crates: "existing_crates.md", "interpose" "blocking" "openssl" "rustix" "r2d2" "deadpool";
    web_services: "web_services.md", "web server" "http" "server" "axum" "tls" "https" "docker" "kubernetes";
    testing: "testing.md", "test" "race" "chaos" "seed";
    finding_faults: "finding_faults.md", "debug" "hang" "deadlock" "leak" "slow" "gdb" "perf" "pprof" "metrics";
    policies: "policies.md", "priority" "scheduler";
    how_it_works: "how_it_works.md", "cost" "memory" "overhead" "stack";
}
