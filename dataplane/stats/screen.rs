//! A table that is drawn again in its place on a terminal, and the log lines that appear above it.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table that is on the screen now, above the cursor; empty if there is none.
static SHOWN: Mutex<String> = Mutex::new(String::new());

fn shown() -> MutexGuard<'static, String> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What draws `table` where `before` is. Lines longer than the screen are cut, for a wrapped one would count twice.
fn redrawn(before: &str, between: &str, table: &str) -> String {
    let lines = before.lines().count();
    let erase = if lines > 0 { format!("\r\x1b[{lines}A\x1b[J") } else { String::new() };
    format!("{erase}{between}\x1b[?7l{table}\x1b[?7h")
}

/// As much of a table as a screen of so many rows has room for above the cursor: what has scrolled away cannot be drawn again.
fn fitted(table: &str, rows: usize) -> String {
    let lines = table.lines().count();
    if lines < rows || rows < 3 {
        return table.to_owned();
    }
    let kept = rows - 2;
    let mut text: String = table.split_inclusive('\n').take(kept).collect();
    text.push_str(&format!("... {} more lines: make the window taller\n", lines - kept));
    text
}

/// Rows of the terminal; as many as one likes where nobody knows.
fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(usize::MAX)
}

/// Columns of the terminal; as many as one likes where nobody knows, or where it is too narrow for anything.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 20).unwrap_or(usize::MAX)
}

/// Draws a table, which ends in a new line, in place of the last one.
pub(super) fn draw(table: &str) -> io::Result<()> {
    let mut last = shown();
    let table = fitted(table, rows());
    let text = redrawn(&last, "", &table);
    *last = table;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// The last table stays where it is; what follows goes below.
pub(super) fn leave() {
    shown().clear();
}

/// Standard error for log lines: above the table where there is one, if both are on a terminal.
#[derive(Clone, Copy, Debug)]
pub struct LogWriter {
    is_terminal: bool,
}

impl LogWriter {
    /// A writer to standard error, which is a terminal or not.
    pub fn new(is_terminal: bool) -> Self {
        LogWriter { is_terminal }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let table = shown();
        let mut out = io::stderr().lock();
        if self.is_terminal && !table.is_empty() {
            let line = String::from_utf8_lossy(line);
            out.write_all(redrawn(&table, &line, &table).as_bytes())?;
        } else {
            out.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a terminal shows after these bytes: a small part of what a terminal does.
    fn screen(bytes: &str) -> Vec<String> {
        let (mut lines, mut row) = (vec![String::new()], 0);
        let mut rest = bytes;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\n' => {
                    row += 1;
                    lines.resize(lines.len().max(row + 1), String::new());
                }
                '\r' => assert!(lines[row].is_empty(), "the cursor is below the table"),
                '\x1b' => {
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    match (&rest[1..end], &rest[end..=end]) {
                        (up, "A") => row -= up.parse::<usize>().unwrap(),
                        ("", "J") => {
                            lines.truncate(row + 1);
                            lines[row].clear();
                        }
                        ("?7", "l" | "h") => {}
                        other => panic!("{other:?}"),
                    }
                    rest = &rest[end + 1..];
                }
                c => lines[row].push(c),
            }
        }
        lines
    }

    #[test]
    fn a_table_is_cut_to_the_window() {
        let table = "1\n2\n3\n4\n5\n";
        assert_eq!(fitted(table, 6), table);
        assert_eq!(fitted(table, 5), "1\n2\n3\n... 2 more lines: make the window taller\n");
        assert_eq!(fitted(table, 0), table, "no window");
        assert!((3..9).all(|rows| fitted(table, rows).lines().count() < rows.max(6)));
    }

    #[test]
    fn log_lines_stay_above_a_table_that_is_drawn_again() {
        let tables = ["a 1\nb 1\n", "a 2\nb 2\nc 2\n", "a 3\n"];
        let drawn = [
            "before\n".into(),
            redrawn("", "", tables[0]),
            redrawn(tables[0], "", tables[1]),
            redrawn(tables[1], "log 1\n", tables[1]),
            redrawn(tables[1], "log 2\nlog 3\n", tables[1]),
            redrawn(tables[1], "", tables[2]),
        ];
        assert_eq!(screen(&drawn.concat()), ["before", "log 1", "log 2", "log 3", "a 3", ""]);
        assert_eq!(screen(&drawn[..5].concat())[3..], ["log 3", "a 2", "b 2", "c 2", ""]);
    }
}
