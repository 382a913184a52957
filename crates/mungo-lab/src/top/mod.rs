//! `mungo top`: what a running program's scheduler does, in the terminal. `source.rs` asks the program, `sample.rs` has
//! its answers and the rates between two of them, `screen.rs` draws, `keys.rs` is what the user can do.

mod keys;
mod sample;
mod screen;
mod source;

use crate::error::{Error, Result};
use crate::names;
use crate::out::Out;
use clap::Args;
use keys::View;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event};
use sample::Sample;
use source::Source;
use std::time::{Duration, Instant};

/// `mungo top`.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// A process with MUNGO_DEBUG=listen, the path of its socket, or HOST:PORT where mungo::debug::http is served
    target: String,
    /// Time between two looks, as in 500ms, 2s
    #[arg(long, short, default_value = "1s", value_parser = names::duration)]
    interval: Duration,
    /// Print one picture, and end
    #[arg(long)]
    once: bool,
    /// With --once: as JSON, with the rates between two looks
    #[arg(long, requires = "once")]
    json: bool,
}

/// Shows the program until the user or the program ends it.
pub(crate) fn run(top: &Top, out: &Out) -> Result<()> {
    let mut source = Source::open(&top.target)?;
    let first = Sample::parse(&source.sched()?)?;
    if !top.once {
        let watched = watch(&mut source, first, top.interval);
        source.forget();
        return watched;
    }
    std::thread::sleep(top.interval);
    let mut sample = Sample::parse(&source.sched()?)?;
    sample.rates_since(&first);
    if top.json {
        return Ok(out.line(sample.to_json())?);
    }
    for line in picture(&sample, out.columns().unwrap_or(100))? {
        out.line(line)?;
    }
    Ok(())
}

/// Draws one picture without a terminal.
fn picture(sample: &Sample, columns: usize) -> Result<Vec<String>> {
    let view = View { is_once: true, ..View::default() };
    drawn(sample, &view, (columns.clamp(40, 400) as u16, 50))
}

/// Draws a view without a terminal; `size` is in columns and lines. Returns the lines, without blanks at the end.
fn drawn(sample: &Sample, view: &View, size: (u16, u16)) -> Result<Vec<String>> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).map_err(of_terminal)?;
    terminal.draw(|frame| screen::draw(frame, sample, view)).map_err(of_terminal)?;
    let buffer = terminal.backend().buffer();
    let row = |y| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let mut lines: Vec<String> = (0..size.1).map(row).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(lines)
}

fn of_terminal(e: impl std::fmt::Display) -> Error {
    Error::Failed(format!("cannot use the terminal: {e}"))
}

/// The terminal, which is as it was before when this is dropped.
struct Screen(ratatui::DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Draws pictures until `q`. Returns an error if the program ended.
fn watch(source: &mut Source, first: Sample, interval: Duration) -> Result<()> {
    let mut screen = Screen(ratatui::try_init().map_err(of_terminal)?);
    let mut sample = first;
    let mut view = View::default();
    let mut ended = None;
    let mut next = Instant::now() + interval.min(Duration::from_millis(200)); // rates need a second look
    loop {
        screen.0.draw(|frame| screen::draw(frame, &sample, &view)).map_err(of_terminal)?;
        if event::poll(next.saturating_duration_since(Instant::now()).min(interval)).map_err(of_terminal)?
            && let Event::Key(key) = event::read().map_err(of_terminal)?
            && key.is_press()
        {
            match view.key(key, sample.pid()) {
                keys::Action::Quit => break,
                keys::Action::Snapshot(path) => view.note = source.snapshot(&path),
                keys::Action::Nothing => {}
            }
        }
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + interval;
        if view.is_paused || ended.is_some() {
            continue;
        }
        match source.sched().and_then(|line| Sample::parse(&line)) {
            Ok(mut news) => {
                news.rates_since(&sample);
                sample = news;
            }
            Err(e) => {
                view.note = format!("{e}; q quits");
                ended = Some(e);
            }
        }
    }
    drop(screen);
    ended.map_or(Ok(()), Err)
}
