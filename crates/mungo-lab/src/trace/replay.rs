//! `mungo trace replay`: a picture in the terminal, processors as rows, goroutines as letters.

use super::analysis::time;
use super::model::{Model, NONE};
use crate::error::{Error, Result};
use crate::out::{Ink, Out};
use crate::tour::{grouped, letter};
use std::time::Duration;

/// Goroutines that have a letter each; all others share one sign.
const LETTERS: usize = 52;

/// Columns of a picture where there is no terminal to ask.
const WIDTH: usize = 72;

/// Rows that fit a screen; the other processors are counted.
const ROWS: usize = 32;

/// `mungo trace replay`.
pub(super) fn run(model: &Model, from: Duration, length: Option<Duration>, out: &Out) -> Result<()> {
    let from = from.as_nanos() as u64;
    if from >= model.end {
        return Err(Error::Usage(format!("the trace ends at {}", time(model.end))));
    }
    let to = length.map_or(model.end, |l| model.end.min(from.saturating_add(l.as_nanos() as u64)));
    let width = out.columns().map_or(WIDTH, |columns| columns.saturating_sub(12).clamp(20, 160));
    let picture = Picture::new(model, from, to, width);
    out.line(
        out.paint(Ink::Heading, format!("{} to {} of {}", time(from), time(to), super::stats::summary(model))),
    )?;
    for row in picture.rows.iter().take(ROWS) {
        out.line(format!("{:<10} {}", row.label, paint(&row.cells, out)))?;
    }
    if picture.rows.len() > ROWS {
        out.line(format!("and {} more processors", picture.rows.len() - ROWS))?;
    }
    let levels = out.sparkline(&picture.waiting, picture.waiting.iter().copied().max().unwrap_or(0));
    let most = picture.waiting.iter().copied().max().unwrap_or(0);
    out.line(format!("{:<10} {levels} up to {}", "waiting", grouped(most)))?;
    out.line(out.paint(
        Ink::Faint,
        format!(
            "{} a column; the goroutine that ran most of it; blank: none ran, {}: one without a letter",
            time((to - from) / width as u64),
            Cell::Other.sign()
        ),
    ))?;
    for (number, &(g, ran)) in picture.letters.iter().enumerate().take(12) {
        let sign = out.paint(Ink::Number(number), letter(number).to_string());
        out.line(format!("  {sign} {} from {}, ran {}", model.name(g), model.place(g), time(ran)))?;
    }
    if picture.letters.len() > 12 {
        out.line(out.paint(Ink::Faint, format!("  and {} more", picture.letters.len() - 12)))?;
    }
    Ok(())
}

/// A row's cells, in colours.
pub(crate) fn paint(cells: &[Cell], out: &Out) -> String {
    let cell = |cell: &Cell| match cell {
        Cell::Goroutine(number) => out.paint(Ink::Number(*number), cell.sign().to_string()),
        other => other.sign().to_string(),
    };
    cells.iter().map(cell).collect()
}

/// What a processor did in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Idle,
    /// The one with this letter.
    Goroutine(usize),
    /// One that has no letter.
    Other,
}

impl Cell {
    fn sign(self) -> char {
        match self {
            Cell::Idle => ' ',
            Cell::Goroutine(number) => letter(number),
            Cell::Other => '*',
        }
    }
}

/// A processor.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) cells: Vec<Cell>,
}

/// A stretch of a trace, as text.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) rows: Vec<Row>,
    /// Which goroutine has which letter, and how long it ran in that stretch, in ns.
    pub(crate) letters: Vec<(u32, u64)>,
    /// Goroutines that could run and did not, at each column's end.
    pub(crate) waiting: Vec<u64>,
}

impl Picture {
    /// Those that ran most have letters, in the order of their numbers.
    pub(crate) fn new(model: &Model, from: u64, to: u64, columns: usize) -> Picture {
        let mut ran = vec![0u64; model.goroutines.len()];
        for span in &model.spans {
            let ran = &mut ran[span.g as usize];
            *ran = ran.saturating_add(span.end.min(to).saturating_sub(span.start.max(from)));
        }
        let mut most: Vec<u32> = (0..ran.len() as u32).filter(|&g| ran[g as usize] > 0).collect();
        most.sort_by_key(|&g| std::cmp::Reverse(ran[g as usize]));
        most.truncate(LETTERS);
        most.sort_by_key(|&g| (model.goroutines[g as usize].runtime, model.goroutines[g as usize].id));
        Picture::with_letters(model, from, to, columns, &most)
    }

    /// `most` have letters, in that order.
    pub(crate) fn with_letters(model: &Model, from: u64, to: u64, columns: usize, most: &[u32]) -> Picture {
        let mut number = vec![NONE; model.goroutines.len()];
        most.iter().enumerate().for_each(|(i, &g)| number[g as usize] = i as u32);
        let scale = Scale { from, to, columns };
        let mut order: Vec<usize> = (0..model.procs.len()).collect();
        order.sort_by_key(|&p| (model.procs[p].runtime, model.procs[p].p));
        let row = |p: usize| {
            let spans = model.procs[p].spans.iter().map(|&s| &model.spans[s as usize]);
            let mut ran = vec![(0, Cell::Idle); columns];
            for span in spans.filter(|s| s.end > from && s.start < to) {
                let cell = match number[span.g as usize] {
                    NONE => Cell::Other,
                    number => Cell::Goroutine(number as usize),
                };
                scale
                    .each(span.start, span.end, |column, ns| ran[column] = ran[column].max_by_time((ns, cell)));
            }
            Row { label: model.proc_name(p as u32), cells: ran.into_iter().map(|(_, cell)| cell).collect() }
        };
        let sum = |g: u32| {
            let spans = model.spans_of(g).iter().map(|&s| &model.spans[s as usize]);
            spans.map(|s| s.end.min(to).saturating_sub(s.start.max(from))).sum()
        };
        Picture {
            rows: order.into_iter().map(row).collect(),
            letters: most.iter().map(|&g| (g, sum(g))).collect(),
            waiting: waiting(model, &scale),
        }
    }
}

trait ByTime {
    fn max_by_time(self, other: Self) -> Self;
}

impl ByTime for (u64, Cell) {
    fn max_by_time(self, other: Self) -> Self {
        if other.0 > self.0 { other } else { self }
    }
}

fn waiting(model: &Model, scale: &Scale) -> Vec<u64> {
    let mut change = vec![0i64; scale.columns + 1];
    for span in model.spans.iter().filter(|s| s.ready < scale.to && s.start > scale.from) {
        change[scale.column(span.ready)] += 1;
        change[scale.column(span.start)] -= 1;
    }
    let mut now = 0;
    change
        .iter()
        .take(scale.columns)
        .map(|change| {
            now += change;
            now.max(0) as u64
        })
        .collect()
}

/// Times to columns.
struct Scale {
    from: u64,
    to: u64,
    columns: usize,
}

impl Scale {
    fn column(&self, at: u64) -> usize {
        let length = (self.to - self.from).max(1);
        let at = at.clamp(self.from, self.to) - self.from;
        (u128::from(at) * self.columns as u128 / u128::from(length)) as usize
    }

    fn begin(&self, column: usize) -> u64 {
        self.from + (u128::from(self.to - self.from) * column as u128 / self.columns as u128) as u64
    }

    /// The columns of a stretch, and how many ns of it lie in each.
    fn each(&self, start: u64, end: u64, mut f: impl FnMut(usize, u64)) {
        for column in self.column(start)..=self.column(end).min(self.columns - 1) {
            let ns = end.min(self.begin(column + 1)).saturating_sub(start.max(self.begin(column)));
            if ns > 0 {
                f(column, ns);
            }
        }
    }
}
