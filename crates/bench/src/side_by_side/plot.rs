//! SVG plots that are readable on a white and on a dark page.

use std::fmt::Write as _;

/// A bar: our value relative to the original's.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) ratio: f64,
    pub(super) value: String,
}

/// A line through points.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const INK: &str = "#24507a";
const OTHER_INK: &str = "#c77b30";
const GREY: &str = "#888888";
const FAINT: &str = "#555555";
const WIDTH: f64 = 960.0;
/// The x positions of ratio 0 and ratio 1.
const LEFT: f64 = 440.0;
const ONE: f64 = 700.0;
const ROW: f64 = 22.0;
/// A line through more points has no dots.
const DOTS_MAX: usize = 40;

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
            // Right of the mark, so that no dashes run through the numbers.
            ONE.max(LEFT + length) + 10.0,
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

/// Lines over one axis; both axes start at zero and end at a round number.
pub(crate) fn lines(title: &str, axis: &str, all: &[Line]) -> String {
    const HEIGHT: f64 = 420.0;
    let points = || all.iter().flat_map(|line| &line.points);
    let maximum = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (ticks_x, ticks_y) = (Ticks::up_to(maximum(|point| point.0)), Ticks::up_to(maximum(|point| point.1)));
    let position = |(x, y): (f64, f64)| (80.0 + 760.0 * x / ticks_x.end(), 370.0 - 310.0 * y / ticks_y.end());
    let mut svg = open(HEIGHT, title);
    for value in ticks_y.values() {
        let (_, y) = position((0.0, value));
        let _ = writeln!(
            svg,
            "<line x1=\"80\" y1=\"{y:.1}\" x2=\"840\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"72\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{GREY}\">{}</text>",
            y + 4.0,
            ticks_y.label(value),
        );
    }
    for value in ticks_x.values() {
        let (x, _) = position((value, 0.0));
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"390\" text-anchor=\"middle\" fill=\"{GREY}\">{}</text>",
            ticks_x.label(value),
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"840\" y=\"410\" text-anchor=\"end\" fill=\"{GREY}\">{}</text>",
        escape(axis)
    );
    for (line, ink) in all.iter().zip([INK, OTHER_INK, GREY]) {
        let positions: Vec<_> = line.points.iter().map(|point| position(*point)).collect();
        let path: Vec<_> = positions.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in positions.iter().filter(|_| positions.len() <= DOTS_MAX) {
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

/// Two bars: what both managers need for the same.
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) ours: (f64, String),
    pub(super) original: (f64, String),
}

/// Pairs of bars, each pair on its own scale: the longer bar has the whole width.
pub(super) fn pairs(title: &str, note: &str, all: &[Pair]) -> String {
    const PAIR: f64 = 54.0;
    const START: f64 = 330.0;
    const LONGEST: f64 = 480.0;
    const TOP: f64 = 84.0;
    let mut svg = open(TOP + PAIR * all.len() as f64 + 8.0, title);
    let _ = writeln!(svg, "<text x=\"16\" y=\"50\" fill=\"{FAINT}\">{}</text>", escape(note));
    let legend = [(INK, START, "Keleustes"), (OTHER_INK, START + 110.0, "kube-controller-manager (Go)")];
    for (ink, x, name) in legend {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"61\" width=\"11\" height=\"11\" fill=\"{ink}\"/>\n\
             <text x=\"{}\" y=\"71\">{name}</text>",
            x + 17.0
        );
    }
    for (at, pair) in all.iter().enumerate() {
        let y = TOP + PAIR * at as f64;
        let longest = pair.ours.0.max(pair.original.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"15\">{}</text>",
            START - 14.0,
            y + 26.0,
            escape(&pair.name)
        );
        for (ink, top, (value, shown)) in [(INK, y + 3.0, &pair.ours), (OTHER_INK, y + 22.0, &pair.original)]
        {
            let length = (LONGEST * value / longest).max(2.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{START}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"16\" fill=\"{ink}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                START + length + 8.0,
                top + 13.0,
                escape(shown)
            );
        }
    }
    svg + "</svg>\n"
}

/// The marks of an axis: multiples of 1, 2 or 5 times a power of ten.
struct Ticks {
    step: f64,
    steps: u32,
}

impl Ticks {
    /// Three to six marks up to the first one that is not below the maximum.
    fn up_to(maximum: f64) -> Self {
        let power = 10_f64.powf((maximum / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| step * 5.0 >= maximum * 0.999_999).unwrap_or(power * 10.0);
        Self { step, steps: (maximum / step - 1e-6).ceil().max(1.0) as u32 }
    }

    fn end(&self) -> f64 {
        self.step * f64::from(self.steps)
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        (0..=self.steps).map(|at| f64::from(at) * self.step)
    }

    /// A value with as many decimals as the step has, and commas between thousands.
    fn label(&self, value: f64) -> String {
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        let text = format!("{value:.decimals$}");
        let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
        let mut grouped = String::new();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped + rest
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(maximum: f64) -> Vec<String> {
        let ticks = Ticks::up_to(maximum);
        ticks.values().map(|value| ticks.label(value)).collect()
    }

    #[test]
    fn ticks_are_round_numbers_and_reach_the_maximum() {
        assert_eq!(labels(485.25), ["0", "100", "200", "300", "400", "500"]);
        assert_eq!(labels(10_000.0), ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]);
        assert_eq!(labels(0.85), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(2.24), ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        assert_eq!(labels(0.3), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(labels(25_000.0).last().map(String::as_str), Some("25,000"));
    }

    #[test]
    fn longer_bar_of_a_pair_has_the_whole_width() {
        let pair =
            Pair { name: "a".to_owned(), ours: (1.0, "1 s".to_owned()), original: (4.0, "4 s".to_owned()) };
        let svg = pairs("title", "note", &[pair]);
        assert!(svg.contains("width=\"120.0\"") && svg.contains("width=\"480.0\""), "{svg}");
    }
}
