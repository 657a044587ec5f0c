//! Columns that line up.

/// Width that tables keep to where their contents allow.
const WIDTH: usize = 80;
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Side of a column that lines up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a heading, each column as wide as its widest cell.
#[derive(Debug)]
pub(super) struct Grid<const N: usize> {
    sides: [Side; N],
    /// Columns that are left out.
    hidden: [bool; N],
    rows: Vec<[String; N]>,
    /// Rows that are red, by their number, if colours are wanted.
    red: Vec<usize>,
    color: bool,
    /// Columns of the terminal within which it is set apart more.
    width: usize,
}

impl<const N: usize> Grid<N> {
    /// A grid with a heading and no rows.
    pub(super) fn new(columns: [(&str, Side); N]) -> Self {
        let rows = vec![columns.map(|c| c.0.to_owned())];
        Grid {
            sides: columns.map(|c| c.1),
            hidden: [false; N],
            rows,
            red: Vec::new(),
            color: false,
            width: WIDTH,
        }
    }

    /// The same in colours or without.
    pub(super) fn color(self, color: bool) -> Self {
        Grid { color, ..self }
    }

    /// The same for a terminal of so many columns.
    pub(super) fn within(self, width: usize) -> Self {
        Grid { width, ..self }
    }

    /// The same without the columns that `hides` is true for, by their headings.
    pub(super) fn without(mut self, hides: impl Fn(&str) -> bool) -> Self {
        self.hidden = std::array::from_fn(|i| hides(&self.rows[0][i]));
        self
    }

    /// Adds a row that is red where there are colours.
    pub(super) fn red_row(&mut self, cells: [String; N]) {
        self.red.push(self.rows.len());
        self.row(cells);
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// True without rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The lines, with an end of line each; nothing at all without rows.
    pub(super) fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let widths: [usize; N] =
            std::array::from_fn(|i| self.rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0));
        let shown: Vec<usize> = (0..N).filter(|i| !self.hidden[*i]).collect();
        let wide = shown.iter().map(|i| widths[*i] + 2).sum::<usize>() <= self.width + 2;
        let gap = if wide { "  " } else { " " };
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cell = |i: &usize| match self.sides[*i] {
                Side::Left => format!("{:<1$}", row[*i], widths[*i]),
                Side::Right => format!("{:>1$}", row[*i], widths[*i]),
            };
            let line = shown.iter().map(cell).collect::<Vec<_>>().join(gap);
            let line = line.trim_end();
            if self.color && self.red.contains(&number) {
                out.push_str(&format!("{RED}{line}{PLAIN}\n"));
            } else {
                out.push_str(&format!("{line}\n"));
            }
        }
        out
    }
}

/// Text of others for a terminal: no control characters, and a `~` in the place of what goes beyond `max`.
pub(super) fn clip(text: &str, max: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    if text.chars().count() <= max {
        return clean.collect();
    }
    clean.take(max - 1).chain(['~']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut grid = Grid::new([("name", Side::Left), ("n", Side::Right)]);
        assert_eq!(grid.text(), "");
        grid.row(["a".into(), "10".into()]);
        grid.row(["longer".into(), "7".into()]);
        assert_eq!(grid.text(), "name     n\na       10\nlonger   7\n");
        grid.red_row(["red".into(), "1".into()]);
        assert_eq!(grid.text().matches(RED).count(), 0);
        assert_eq!(grid.color(true).text().matches(RED).count(), 1);
    }

    #[test]
    fn columns_can_be_left_out() {
        let mut grid =
            Grid::new([("a", Side::Left), ("b", Side::Right), ("c", Side::Right)]).without(|c| c == "b");
        grid.row(["1".into(), "2".into(), "3".into()]);
        assert_eq!(grid.text(), "a  c\n1  3\n");
    }

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        assert_eq!(clip("a\x1b[2Jb", 10), "a?[2Jb");
        assert_eq!(clip("0123456789", 5), "0123~");
        assert_eq!(clip("01234", 5), "01234");
    }
}
