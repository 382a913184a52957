//! Names the conditions that the sources ask for again and again:
//!
//! * `mungo_native`: Linux on x86-64 or aarch64, for which there are an own switch of stacks, frames of signals that
//!   are understood, and unwinding of stacks;
//! * `mungo_own_tls`: besides, a dynamic glibc, and a processor that is not emulated by Miri: a goroutine has
//!   thread-locals of its own;
//! * `mungo_stacks`: Linux on x86-64 with the feature `backtrace`, where a trace can have stacks.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(mungo_native, mungo_own_tls, mungo_stacks)");
    let target = |name: &str| var(format!("CARGO_CFG_{name}")).unwrap_or_default();
    let native = target("TARGET_OS") == "linux" && ["x86_64", "aarch64"].contains(&&*target("TARGET_ARCH"));
    let is_static = target("TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    let is_emulated = var("CARGO_CFG_MIRI").is_ok();
    if native {
        println!("cargo::rustc-cfg=mungo_native");
    }
    if native && target("TARGET_ARCH") == "x86_64" && var("CARGO_FEATURE_BACKTRACE").is_ok() && !is_emulated {
        println!("cargo::rustc-cfg=mungo_stacks");
    }
    if native && target("TARGET_ENV") == "gnu" && !is_static && !is_emulated {
        println!("cargo::rustc-cfg=mungo_own_tls");
    }
}
