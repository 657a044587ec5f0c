//! Columns that line up.

/// Width that tables keep to where their contents allow.
const WIDTH: usize = 80;
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// What a table is shown on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct View {
    /// What is lost or down in red.
    pub(super) color: bool,
    /// Columns that there are: no line is longer.
    pub(super) columns: usize,
}

impl View {
    /// A file or a pipe: no colours, and lines of any length.
    pub(super) const PLAIN: View = View { color: false, columns: usize::MAX };
}

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
    view: View,
    /// Width up to which columns are set apart more where lines may have any length.
    width: usize,
    /// Columns to leave out where there is no room for all, the least important one first.
    spare: &'static [&'static str],
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
            view: View::PLAIN,
            width: WIDTH,
            spare: &[],
        }
    }

    /// The same shown there.
    pub(super) fn on(self, view: View) -> Self {
        Grid { view, ..self }
    }

    /// The same, in which these columns may be left out where there is no room for all, the first one first.
    pub(super) fn sparing(self, spare: &'static [&'static str]) -> Self {
        Grid { spare, ..self }
    }

    /// The same with another width up to which columns are set apart more where lines may have any length.
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

    /// Columns that there is room for, and what is between them: first they come closer to each other, then one is left out.
    fn fitted(&self, widths: &[usize; N]) -> (Vec<usize>, &'static str) {
        let mut shown: Vec<usize> = (0..N).filter(|i| !self.hidden[*i]).collect();
        let mut spare = self.spare.iter();
        let is_narrow = self.view.columns != usize::MAX;
        let wide = if is_narrow { self.view.columns } else { self.width };
        loop {
            let total = |gap: usize| shown.iter().map(|i| widths[*i] + gap).sum::<usize>() - gap;
            if total(2) <= wide {
                return (shown, "  ");
            }
            if total(1) <= self.view.columns {
                return (shown, " ");
            }
            let Some(next) = spare.next() else { return (shown, " ") };
            shown.retain(|i| self.rows[0][*i] != *next);
        }
    }

    /// The lines, with an end of line each; nothing at all without rows.
    pub(super) fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let widths: [usize; N] =
            std::array::from_fn(|i| self.rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0));
        let (shown, gap) = self.fitted(&widths);
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cell = |i: &usize| match self.sides[*i] {
                Side::Left => format!("{:<1$}", row[*i], widths[*i]),
                Side::Right => format!("{:>1$}", row[*i], widths[*i]),
            };
            let line = shown.iter().map(cell).collect::<Vec<_>>().join(gap);
            let line = clip(line.trim_end(), self.view.columns);
            if self.view.color && self.red.contains(&number) {
                out.push_str(&format!("{RED}{line}{PLAIN}\n"));
            } else {
                out.push_str(&format!("{line}\n"));
            }
        }
        out
    }
}

/// Lines that go on in the next one, set in, where they are longer than `columns`.
pub(super) fn fold(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut width = 0;
        for (i, word) in line.split(' ').enumerate() {
            let more = word.chars().count();
            if i > 0 && width + 1 + more > columns {
                out.push_str("\n  ");
                width = 2;
            } else if i > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += more;
        }
        out.push('\n');
    }
    out
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
        let red = View { color: true, ..View::PLAIN };
        assert_eq!(grid.on(red).text().matches(RED).count(), 1);
    }

    #[test]
    fn columns_can_be_left_out() {
        let mut grid =
            Grid::new([("a", Side::Left), ("b", Side::Right), ("c", Side::Right)]).without(|c| c == "b");
        grid.row(["1".into(), "2".into(), "3".into()]);
        assert_eq!(grid.text(), "a  c\n1  3\n");
    }

    #[test]
    fn what_has_no_room_is_set_closer_then_left_out_then_cut() {
        let text = |columns| {
            let mut grid = Grid::new([("name", Side::Left), ("b", Side::Right), ("c", Side::Right)])
                .on(View { color: false, columns })
                .sparing(&["c", "b"]);
            grid.row(["1".into(), "2".into(), "3".into()]);
            grid.text()
        };
        assert_eq!(text(10), "name  b  c\n1     2  3\n");
        assert_eq!(text(9), "name b c\n1    2 3\n");
        assert_eq!(text(7), "name  b\n1     2\n");
        assert_eq!(text(5), "name\n1\n");
        assert_eq!(text(3), "na~\n1\n");
    }

    #[test]
    fn long_lines_go_on_in_the_next_one() {
        assert_eq!(fold("a bc  def\ng\n", 80), "a bc  def\ng\n");
        assert_eq!(fold("pools: all 3 are full\nx\n", 12), "pools: all 3\n  are full\nx\n");
        assert_eq!(fold("much-too-long\n", 4), "much-too-long\n");
    }

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        assert_eq!(clip("a\x1b[2Jb", 10), "a?[2Jb");
        assert_eq!(clip("0123456789", 5), "0123~");
        assert_eq!(clip("01234", 5), "01234");
    }
}
