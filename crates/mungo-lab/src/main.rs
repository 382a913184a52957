//! The `mungo` command. Without arguments it shows goroutines at work, in less than a minute.

fn main() -> std::process::ExitCode {
    mungo_lab::main()
}
