//! Statistics as people and programs read them: a table or JSON lines every interval, and a report at the end.

use super::final_report::final_report;
use super::grid::View;
use super::json;
use super::sample::Sample;
use super::screen;
use super::table::table;
use crate::config::StatsFormat;
use crate::load::Report as Measurement;
use crate::plan::Plan;
use rdma_engine::types::Time;
use std::io::{IsTerminal, Write as _};

/// How samples are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// A line of JSON each.
    Json,
    /// Tables, one after the other.
    Blocks,
    /// A table that is drawn again in its place.
    Screen {
        /// Drops in red.
        color: bool,
    },
}

impl Style {
    fn of(format: StatsFormat, is_terminal: bool, no_color: bool) -> Self {
        match (format, is_terminal) {
            (StatsFormat::Json, _) | (StatsFormat::Auto, false) => Style::Json,
            (StatsFormat::Table, false) => Style::Blocks,
            (_, true) => Style::Screen { color: !no_color },
        }
    }

    /// What it is shown on, where a terminal has so many columns.
    fn view(self, columns: usize) -> View {
        match self {
            Style::Screen { color } => View { color, columns },
            Style::Json | Style::Blocks => View::PLAIN,
        }
    }
}

/// Shows samples at an interval.
#[derive(Debug)]
pub struct Reporter {
    interval_ns: Option<u64>,
    style: Style,
    due: Time,
    before: Sample,
}

impl Reporter {
    /// A reporter as the plan wants it. Drops are red on a terminal unless the environment has `NO_COLOR`.
    pub fn new(plan: &Plan) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let style = Style::of(plan.stats.format, std::io::stdout().is_terminal(), no_color);
        let interval_ns = plan.stats.interval_s.map(|s| u64::from(s) * 1_000_000_000);
        Reporter { interval_ns, style, due: Time(0), before: Sample::default() }
    }

    /// True when the next report is due.
    pub fn is_due(&mut self, now: Time) -> bool {
        let Some(interval) = self.interval_ns else { return false };
        let due = now >= self.due;
        if due {
            self.due = now.after_ns(interval);
        }
        due
    }

    /// Shows a sample, with rates since the last one.
    pub fn show(&mut self, sample: &Sample) {
        let text = shown(self.style, sample, &self.before, screen::columns());
        match self.style {
            // A reader that has gone away is no reason to stop.
            Style::Screen { .. } => drop(screen::draw(&text)),
            _ => print(&text),
        }
        self.before = sample.clone();
    }

    /// Shows what a load measured.
    pub fn show_load(&mut self, load: &Measurement) {
        print(&measured(self.style, load));
    }

    /// Shows the totals at the end, and what could not be taken down. The pools of the sample are looked at again for
    /// this, after everything else is gone.
    ///
    /// # Errors
    /// The report could not be written; a reader that has gone away is none.
    pub fn conclude(&mut self, sample: &Sample, unclean: &[String]) -> std::io::Result<()> {
        screen::leave();
        match write(&concluded(self.style, sample, unclean, screen::columns())) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }
}

/// What a load measured, as it is shown below the totals.
fn measured(style: Style, load: &Measurement) -> String {
    match style {
        Style::Json => format!("{}\n", serde_json::json!({ "load": load.json() })),
        Style::Blocks | Style::Screen { .. } => format!("\n{}", load.table()),
    }
}

fn shown(style: Style, sample: &Sample, before: &Sample, columns: usize) -> String {
    let view = style.view(columns);
    match style {
        Style::Json => format!("{}\n", json::line(sample, before)),
        Style::Blocks => format!("{}\n", table(sample, before, view)),
        Style::Screen { .. } => table(sample, before, view),
    }
}

fn concluded(style: Style, sample: &Sample, unclean: &[String], columns: usize) -> String {
    let view = style.view(columns);
    match style {
        Style::Json => format!("{}\n", json::final_line(sample, unclean)),
        Style::Blocks => final_report(sample, unclean, view),
        // Below the last table, which stays.
        Style::Screen { .. } => format!("\n{}", final_report(sample, unclean, view)),
    }
}

/// A reader that has gone away is no reason to stop.
fn print(text: &str) {
    let _ = write(text);
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

#[cfg(test)]
mod tests;
