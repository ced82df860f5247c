//! What growth comes to: lines through the sizes that were measured, and where they lead.

use std::fmt::Write as _;

use super::growth::{PREFIX, size_of};
use super::plot::Line;
use super::report::{Figure, Measure, ORIGINAL, OURS};

/// What grows, and how far beyond anything that fits on one machine.
const AXES: [(&str, f64); 3] = [("pods", 150_000.0), ("nodes", 5_000.0), ("objects", 500_000.0)];

const MEASURES: [Measure; 5] =
    [Measure::Resident, Measure::Peak, Measure::ManagerCpu, Measure::FirstWrite, Measure::FirstPod];

/// A straight line through points, as near to them as can be.
struct Fit {
    at_nothing: f64,
    each: f64,
    /// What one more costs between the two largest sizes, as a part of what it cost between the two
    /// smallest: about one if the cost is linear, more if it is worse.
    bend: f64,
}

/// The figures of one manager along one axis.
pub(super) fn line(figures: &[Figure], axis: &str, whose: &str, measure: Measure) -> Line {
    let load = format!("{PREFIX}{axis}");
    let meant = figures
        .iter()
        .filter(|figure| figure.load == load && figure.whose == whose && figure.measure == measure);
    let points = meant.filter_map(|figure| Some((size_of(&figure.phase)?, figure.value / measure.unit())));
    Line { name: whose.to_owned(), points: points.collect() }
}

/// Every plot that can be drawn: its file, its title, its axis and its lines.
pub(super) fn plots(figures: &[Figure]) -> Vec<(String, String, &'static str, [Line; 2])> {
    let mut plots = Vec::new();
    for (axis, _) in AXES {
        for measure in MEASURES {
            let both = [OURS, ORIGINAL].map(|whose| line(figures, axis, whose, measure));
            if both.iter().any(|line| !line.points.is_empty()) {
                let file = format!("{PREFIX}{axis}-{}.svg", measure.short());
                plots.push((file, format!("A cold start: {}", measure.words_with_unit()), axis, both));
            }
        }
    }
    plots
}

/// What one more of everything costs, whether that stays so, and what a large cluster comes to.
pub(super) fn table(figures: &[Figure]) -> String {
    let mut table = String::from(
        "| what | whose | with nothing | one more pod | node | object | bends by | 150,000 pods and 5,000 nodes |\n\
         | --- | --- | ---: | ---: | ---: | ---: | --- | ---: |\n",
    );
    let mut rows = 0;
    for measure in MEASURES {
        for whose in [OURS, ORIGINAL] {
            let fits = AXES.map(|(axis, _)| fit(&line(figures, axis, whose, measure).points));
            let [Some(pods), nodes, objects] = fits else { continue };
            let each =
                |fit: Option<&Fit>| fit.map_or_else(|| "–".to_owned(), |fit| measure.show_small(fit.each));
            let bends: Vec<_> = [Some(&pods), nodes.as_ref(), objects.as_ref()]
                .into_iter()
                .map(|fit| fit.map_or_else(|| "–".to_owned(), |fit| format!("{:.2}", fit.bend)))
                .collect();
            let far = pods.at_nothing
                + pods.each * AXES[0].1
                + nodes.as_ref().map_or(0.0, |nodes| nodes.each * AXES[1].1);
            rows += 1;
            let _ = writeln!(
                table,
                "| {} | {whose} | {} | {} | {} | {} | {} | {} |",
                measure.words_with_unit(),
                measure.show(pods.at_nothing * measure.unit()),
                each(Some(&pods)),
                each(nodes.as_ref()),
                each(objects.as_ref()),
                bends.join(", "),
                measure.show(far * measure.unit()),
            );
        }
    }
    if rows == 0 { String::new() } else { table }
}

fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let mut points = points.to_vec();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let [first, second, .., before_last, last] = points[..] else { return None };
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (middle_x, middle_y) = (mean(|point| point.0), mean(|point| point.1));
    let together: f64 = points.iter().map(|(x, y)| (x - middle_x) * (y - middle_y)).sum();
    let spread: f64 = points.iter().map(|(x, _)| (x - middle_x).powi(2)).sum();
    let each = together / spread;
    let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
    let bend = slope(before_last, last) / slope(first, second);
    Some(Fit { at_nothing: middle_y - each * middle_x, each, bend })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_found_and_does_not_bend() {
        let fit = fit(&[(4.0, 14.0), (1.0, 5.0), (2.0, 8.0), (8.0, 26.0)]).unwrap();
        assert!((fit.at_nothing - 2.0).abs() < 1e-9 && (fit.each - 3.0).abs() < 1e-9);
        assert!((fit.bend - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_grows_with_the_square_bends() {
        let fit = fit(&[1.0, 2.0, 4.0, 8.0].map(|x| (x, x * x))).unwrap();
        assert!(fit.bend > 3.0);
    }

    #[test]
    fn a_large_cluster_is_the_sum_of_its_parts() {
        let figure = |load: &str, size: f64, value: f64| Figure {
            load: format!("{PREFIX}{load}"),
            phase: format!("{size} {load}"),
            measure: Measure::Resident,
            whose: OURS.to_owned(),
            value: value * 1e6,
        };
        let pods = [1e3, 2e3, 4e3, 8e3].map(|size| figure("pods", size, 10.0 + size * 0.001));
        let nodes = [100.0, 200.0, 400.0, 800.0].map(|size| figure("nodes", size, 10.0 + size * 0.002));
        let figures: Vec<_> = pods.into_iter().chain(nodes).collect();
        assert!(table(&figures).contains("| 170.0 MB |"), "{}", table(&figures));
        assert_eq!(plots(&figures).len(), 2);
        assert_eq!(table(&figures[..3]), "");
    }
}
