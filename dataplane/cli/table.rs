//! Columns of text.

use crate::stats::grouped_by;

/// Rows under a heading; columns are as wide as their longest cell.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns whose cells are numbers and stand on the right.
    right: &'static [usize],
}

impl Table {
    /// A table with these column names; the columns `right` are right-aligned.
    pub(super) fn new(names: &[&str], right: &'static [usize]) -> Self {
        Self { rows: vec![names.iter().map(|name| (*name).to_owned()).collect()], right }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table, each line indented by two spaces; nothing when it has no rows.
    pub(super) fn text(&self) -> String {
        if self.rows.len() < 2 {
            return String::new();
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line.push_str("  ");
                if self.right.contains(&column) {
                    line.push_str(&format!("{cell:>width$}"));
                } else {
                    line.push_str(&format!("{cell:<width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number with its thousands apart: `65 536`.
pub(super) fn grouped(number: impl Into<u64>) -> String {
    grouped_by(' ', number.into())
}

/// A number and what it counts: `1 frame`, `65 536 frames`.
pub(super) fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "count"], &[1]);
        table.row(["a".to_owned(), grouped(65_536u32)]);
        table.row(["longer".to_owned(), grouped(7u32)]);
        assert_eq!(table.text(), "  name     count\n  a       65 536\n  longer       7\n");
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(0u32), "0");
        assert_eq!(grouped(999u32), "999");
        assert_eq!(grouped(1_234_567u32), "1 234 567");
        assert_eq!(
            (counted(1u32, "frame"), counted(1000u32, "frame")),
            ("1 frame".into(), "1 000 frames".into())
        );
    }
}
