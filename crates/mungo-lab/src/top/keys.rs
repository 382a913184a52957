//! What the user of `mungo top` can do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::path::PathBuf;

/// The table in the lower half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Table {
    /// Goroutines by the place where they were spawned and what they do.
    #[default]
    Groups,
    /// Those that wait longest.
    Waiters,
    Threads,
}

/// The column that groups are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Count,
    Longest,
    State,
    Place,
}

/// What is shown, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) table: Table,
    pub(super) sort: Sort,
    /// Number of rows of the table that are scrolled away.
    pub(super) scrolled: usize,
    pub(super) is_paused: bool,
    /// Whether there is no user: one picture, without the line of keys.
    pub(super) is_once: bool,
    /// The last thing that happened.
    pub(super) note: String,
}

/// What a key asks for beyond another view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// Records, or writes what was recorded to this file.
    Snapshot(PathBuf),
}

/// The line that explains the keys.
pub(super) const HELP: &str =
    "q quit  space pause  tab table  sort c count l longest s state p place  r record";

impl View {
    pub(super) fn key(&mut self, key: KeyEvent, pid: u64) -> Action {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Action::Quit,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab => {
                self.scrolled = 0;
                self.table = match self.table {
                    Table::Groups => Table::Waiters,
                    Table::Waiters => Table::Threads,
                    Table::Threads => Table::Groups,
                };
            }
            KeyCode::Char('c') => self.sort = Sort::Count,
            KeyCode::Char('l') => self.sort = Sort::Longest,
            KeyCode::Char('s') => self.sort = Sort::State,
            KeyCode::Char('p') => self.sort = Sort::Place,
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(20),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(20),
            KeyCode::Char('r') => {
                let folder = std::env::current_dir().unwrap_or_else(|_| std::env::temp_dir());
                return Action::Snapshot(folder.join(format!("mungo-{pid}.trace")));
            }
            _ => {}
        }
        Action::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_the_view() {
        let mut view = View::default();
        let mut press = |code| view.key(KeyEvent::new(code, KeyModifiers::NONE), 7);
        assert_eq!(press(KeyCode::Char('q')), Action::Quit);
        assert!(matches!(press(KeyCode::Char('r')), Action::Snapshot(path) if path.ends_with("mungo-7.trace")));
        assert_eq!([' ', 'l'].map(|c| press(KeyCode::Char(c))), [Action::Nothing, Action::Nothing]);
        assert_eq!([KeyCode::Down, KeyCode::Down, KeyCode::Up].map(&mut press)[0], Action::Nothing);
        assert_eq!(
            (view.is_paused, view.sort, view.scrolled, view.table),
            (true, Sort::Longest, 1, Table::Groups)
        );
        view.key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE), 7);
        assert_eq!((view.table, view.scrolled), (Table::Waiters, 0));
    }
}
