//! SVG plots that are readable on a white and on a dark page.

use std::fmt::Write as _;

/// A bar: our value relative to the original's.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) ratio: f64,
    pub(super) value: String,
}

/// A line through points.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

const INK: &str = "#24507a";
const OTHER_INK: &str = "#c77b30";
const GREY: &str = "#888888";
const WIDTH: f64 = 960.0;
/// The x positions of ratio 0 and ratio 1.
const LEFT: f64 = 440.0;
const ONE: f64 = 700.0;
const ROW: f64 = 22.0;

/// Bars of ratios, with a mark at ratio 1.
pub(super) fn bars(title: &str, all: &[Bar]) -> String {
    let height = 60.0 + ROW * all.len() as f64 + 20.0;
    let mut svg = open(height, title);
    for (at, bar) in all.iter().enumerate() {
        let y = 50.0 + ROW * at as f64;
        let length = ((ONE - LEFT) * bar.ratio).clamp(1.0, 1.4 * (ONE - LEFT));
        let ink = if bar.ratio <= 1.0 { INK } else { OTHER_INK };
        let (name, base) = (escape(&bar.name), y + 14.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{name}</text>\n\
             <rect x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\" fill=\"{ink}\"/>\n\
             <text x=\"{:.1}\" y=\"{base}\" fill=\"{GREY}\">{:.2} ({})</text>",
            LEFT - 8.0,
            y + 3.0,
            ROW - 7.0,
            LEFT + length + 6.0,
            bar.ratio,
            escape(&bar.value),
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{ONE}\" y1=\"44\" x2=\"{ONE}\" y2=\"{}\" stroke=\"{GREY}\" stroke-dasharray=\"4 3\"/>",
        height - 14.0
    );
    svg + "</svg>\n"
}

/// Lines over one axis; both axes start at zero.
pub(super) fn lines(title: &str, axis: &str, all: &[Line]) -> String {
    const HEIGHT: f64 = 420.0;
    let points = || all.iter().flat_map(|line| &line.points);
    let maximum = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (max_x, max_y) = (maximum(|point| point.0), maximum(|point| point.1));
    let position = |(x, y): (f64, f64)| (80.0 + 760.0 * x / max_x, 370.0 - 310.0 * y / max_y);
    let mut svg = open(HEIGHT, title);
    for part in 0..=4 {
        let part = f64::from(part) / 4.0;
        let ((x, _), (_, y)) = (position((max_x * part, 0.0)), position((0.0, max_y * part)));
        let _ = writeln!(
            svg,
            "<line x1=\"80\" y1=\"{y:.1}\" x2=\"840\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"72\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{GREY}\">{}</text>\n\
             <text x=\"{x:.1}\" y=\"390\" text-anchor=\"middle\" fill=\"{GREY}\">{:.0}</text>",
            y + 4.0,
            round(max_y * part),
            max_x * part,
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"840\" y=\"410\" text-anchor=\"end\" fill=\"{GREY}\">{}</text>",
        escape(axis)
    );
    for (line, ink) in all.iter().zip([INK, OTHER_INK]) {
        let positions: Vec<_> = line.points.iter().map(|point| position(*point)).collect();
        let path: Vec<_> = positions.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in &positions {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{ink}\"/>");
        }
        if let Some((x, y)) = positions.last() {
            let name = escape(&line.name);
            let _ =
                writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{ink}\">{name}</text>", x + 8.0, y + 4.0);
        }
    }
    svg + "</svg>\n"
}

/// Two decimals are enough for a scale.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"17\">{}</text>\n",
        escape(title)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
