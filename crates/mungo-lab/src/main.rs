//! The `mungo` command. Without arguments it shows goroutines at work, in a few seconds.

mod tour;

use std::process::ExitCode;

const USAGE: &str =
    "usage: mungo [tour]\n\n  tour    what the runtime does, shown and measured (the default)\n";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["tour"] => tour::run(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("mungo: '{}' is not a command\n\n{USAGE}", args.join(" "));
            ExitCode::from(2)
        }
    }
}
