//! The plot: latency over the share of requests that were faster, with as much room for every further nine.

use super::{Report, grouped};
use hdrhistogram::Histogram;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
/// The area of the curves.
const LEFT: f64 = 90.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = HEIGHT - 62.0;
/// Points of a curve.
const STEPS: u32 = 400;

/// Names and colours of the curves, also for those who do not tell red from green.
const CURVES: [(&str, &str); 2] = [("GET", "#0b63b0"), ("SET", "#c8501e")];

/// Ticks of the lower axis: a share, and its name.
const SHARES: [(f64, &str); 8] = [
    (0.0, "0 %"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (0.999999, "99.9999 %"),
];

/// Nines of a share: 0.9 has one.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// What lies where.
struct Axes {
    /// Nines at the right end.
    nines: f64,
    /// Logarithms (10) of the least and the longest latency in nanoseconds.
    low: f64,
    high: f64,
}

impl Axes {
    fn new(histograms: &[&Histogram<u64>]) -> Self {
        let filled = || histograms.iter().filter(|h| !h.is_empty());
        let most = filled().map(|h| h.len()).max().unwrap_or(1);
        let least = filled().map(|h| h.min()).min().unwrap_or(1000).max(1) as f64;
        let longest = filled().map(|h| h.max()).max().unwrap_or(1_000_000) as f64;
        // To the 1, 2 or 5 that comes next.
        let low = decade_steps(least.log10().floor()).rfind(|step| *step <= least.log10()).unwrap_or(0.0);
        let high =
            decade_steps(longest.log10().floor()).find(|step| *step >= longest.log10()).unwrap_or(12.0);
        let high = if high - low < 0.6 { low + 1.0 } else { high };
        Axes { nines: (most as f64).log10().clamp(2.0, 6.0), low, high }
    }

    fn x(&self, nines: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (nines / self.nines).min(1.0)
    }

    fn y(&self, ns: f64) -> f64 {
        let share = (ns.max(1.0).log10() - self.low) / (self.high - self.low);
        BOTTOM - (BOTTOM - TOP) * share.clamp(0.0, 1.0)
    }
}

/// Logarithms of 1, 2, 5 and 10 times 10^`decade`.
fn decade_steps(decade: f64) -> impl DoubleEndedIterator<Item = f64> {
    [1.0f64, 2.0, 5.0, 10.0].into_iter().map(move |factor| decade + factor.log10())
}

/// A time with its unit.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{ns:.0} ns"),
        ns if ns < 999_500.0 => format!("{} us", trimmed(ns / 1e3)),
        ns if ns < 999_500_000.0 => format!("{} ms", trimmed(ns / 1e6)),
        ns => format!("{} s", trimmed(ns / 1e9)),
    }
}

/// Three digits without zeros at the end.
fn trimmed(value: f64) -> String {
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A document in the making.
struct Drawing(String);

impl Drawing {
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, size: u32, color: &str, text: &str) {
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{color}\">{}</text>",
            escaped(text)
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\"/>"
        );
    }
}

const INK: &str = "#222222";
const FAINT: &str = "#666666";
const GRID: &str = "#dddddd";

impl Report {
    /// The latency distribution as an SVG document.
    pub fn svg(&self) -> String {
        let histograms = [&self.gets, &self.sets];
        let axes = Axes::new(&histograms);
        let mut drawing = Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
        ));
        self.title(&mut drawing);
        grid(&mut drawing, &axes);
        let mut legend = LEFT + 12.0;
        for (histogram, (name, color)) in histograms.into_iter().zip(CURVES) {
            if !histogram.is_empty() {
                curve(&mut drawing, &axes, histogram, color);
                legend = entry(&mut drawing, legend, name, color, histogram);
            }
        }
        drawing.0.push_str("</svg>\n");
        drawing.0
    }

    fn title(&self, drawing: &mut Drawing) {
        let rate = grouped(self.requests_per_s().round() as u64);
        drawing.text((LEFT, 26.0), "start", 17, INK, &format!("{}: {rate} requests/s", self.target));
        for (row, text) in self.load_line().lines().enumerate() {
            drawing.text((LEFT, 46.0 + 16.0 * row as f64), "start", 12, FAINT, text);
        }
    }
}

fn grid(drawing: &mut Drawing, axes: &Axes) {
    for decade in axes.low.floor() as i32..=axes.high.ceil() as i32 {
        for step in decade_steps(f64::from(decade)).take(3) {
            if step < axes.low - 1e-6 || step > axes.high + 1e-6 {
                continue;
            }
            let (ns, y) = (10f64.powf(step), axes.y(10f64.powf(step)));
            drawing.line((LEFT, y), (RIGHT, y), GRID);
            drawing.text((LEFT - 8.0, y + 4.5), "end", 13, INK, &time(ns));
        }
    }
    for (share, name) in SHARES {
        if nines(share) <= axes.nines + 1e-6 {
            let x = axes.x(nines(share));
            drawing.line((x, TOP), (x, BOTTOM), GRID);
            drawing.text((x, BOTTOM + 20.0), "middle", 13, INK, name);
        }
    }
    drawing.line((LEFT, TOP), (LEFT, BOTTOM), INK);
    drawing.line((LEFT, BOTTOM), (RIGHT, BOTTOM), INK);
    let middle = f64::midpoint(LEFT, RIGHT);
    drawing.text((middle, HEIGHT - 14.0), "middle", 13, INK, "share of requests that took no longer");
}

fn curve(drawing: &mut Drawing, axes: &Axes, histogram: &Histogram<u64>, color: &str) {
    let end = (histogram.len() as f64).log10().clamp(0.1, axes.nines);
    let mut points = String::new();
    for step in 0..=STEPS {
        let nines = end * f64::from(step) / f64::from(STEPS);
        let ns = histogram.value_at_quantile(1.0 - 10f64.powf(-nines));
        let _ = write!(points, "{:.1},{:.1} ", axes.x(nines), axes.y(ns as f64));
    }
    let _ = writeln!(
        drawing.0,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.2\" stroke-linejoin=\"round\"/>",
        points.trim_end()
    );
}

/// A line of the legend; where the next one begins.
fn entry(drawing: &mut Drawing, x: f64, name: &str, color: &str, histogram: &Histogram<u64>) -> f64 {
    let y = TOP + 18.0;
    let at = |quantile| time(histogram.value_at_quantile(quantile) as f64);
    let text = format!("{name}  p50 {}, p99 {}, max {}", at(0.5), at(0.99), time(histogram.max() as f64));
    let _ = writeln!(
        drawing.0,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"20\" fill=\"#ffffff\" fill-opacity=\"0.85\"/>",
        x - 4.0,
        y - 14.0,
        34.0 + 7.4 * text.len() as f64
    );
    let _ = writeln!(
        drawing.0,
        "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\" stroke-width=\"3\"/>",
        y - 4.0,
        x + 22.0,
        y - 4.0
    );
    drawing.text((x + 28.0, y), "start", 13, INK, &text);
    x + 50.0 + 7.4 * text.len() as f64
}
