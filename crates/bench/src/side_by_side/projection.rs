//! Linear fits through the measured sizes, and their projection to large clusters.

use std::fmt::Write as _;

use super::growth::{PREFIX, size_of};
use super::plot::Line;
use super::report::{Measure, Measurement, ORIGINAL, OURS};

/// What grows, and the projected size, which does not fit on one machine.
const AXES: [(&str, f64); 3] = [("pods", 150_000.0), ("nodes", 5_000.0), ("objects", 500_000.0)];

const MEASURES: [Measure; 5] =
    [Measure::Resident, Measure::Peak, Measure::ManagerCpu, Measure::FirstWrite, Measure::FirstPod];

/// A least-squares line.
struct Fit {
    intercept: f64,
    slope: f64,
    /// The slope between the two largest sizes relative to that between the two smallest: about 1 if the
    /// cost is linear, more if it grows faster.
    bend: f64,
}

/// The measurements of one manager along one axis.
pub(super) fn line(measurements: &[Measurement], axis: &str, whose: &str, measure: Measure) -> Line {
    let load = format!("{PREFIX}{axis}");
    let selected = measurements.iter().filter(|measurement| {
        measurement.load == load && measurement.whose == whose && measurement.measure == measure
    });
    let points = selected
        .filter_map(|measurement| Some((size_of(&measurement.phase)?, measurement.value / measure.unit())));
    Line { name: whose.to_owned(), points: points.collect() }
}

/// Every plot that has data: its file, title, axis and lines.
pub(super) fn plots(measurements: &[Measurement]) -> Vec<(String, String, &'static str, [Line; 2])> {
    let mut plots = Vec::new();
    for (axis, _) in AXES {
        for measure in MEASURES {
            let both = [OURS, ORIGINAL].map(|whose| line(measurements, axis, whose, measure));
            if both.iter().any(|line| !line.points.is_empty()) {
                let file = format!("{PREFIX}{axis}-{}.svg", measure.short());
                plots.push((file, format!("A cold start: {}", measure.words_with_unit()), axis, both));
            }
        }
    }
    plots
}

/// The cost of one more pod, node and object, its linearity, and the projection to a large cluster.
pub(super) fn table(measurements: &[Measurement]) -> String {
    let mut table = String::from(
        "| what | whose | with nothing | one more pod | node | object | bends by | 150,000 pods and 5,000 nodes |\n\
         | --- | --- | ---: | ---: | ---: | ---: | --- | ---: |\n",
    );
    let mut rows = 0;
    for measure in MEASURES {
        for whose in [OURS, ORIGINAL] {
            let fits = AXES.map(|(axis, _)| fit(&line(measurements, axis, whose, measure).points));
            let [Some(pods), nodes, objects] = fits else { continue };
            let shown =
                |fit: Option<&Fit>| fit.map_or_else(|| "–".to_owned(), |fit| measure.show_small(fit.slope));
            let bends: Vec<_> = [Some(&pods), nodes.as_ref(), objects.as_ref()]
                .into_iter()
                .map(|fit| fit.map_or_else(|| "–".to_owned(), |fit| format!("{:.2}", fit.bend)))
                .collect();
            let projected = pods.intercept
                + pods.slope * AXES[0].1
                + nodes.as_ref().map_or(0.0, |nodes| nodes.slope * AXES[1].1);
            rows += 1;
            let _ = writeln!(
                table,
                "| {} | {whose} | {} | {} | {} | {} | {} | {} |",
                measure.words_with_unit(),
                measure.show(pods.intercept * measure.unit()),
                shown(Some(&pods)),
                shown(nodes.as_ref()),
                shown(objects.as_ref()),
                bends.join(", "),
                measure.show(projected * measure.unit()),
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
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = covariance / variance;
    let gradient = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
    let bend = gradient(before_last, last) / gradient(first, second);
    Some(Fit { intercept: mean_y - slope * mean_x, slope, bend })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straight_line_has_bend_one() {
        let fit = fit(&[(4.0, 14.0), (1.0, 5.0), (2.0, 8.0), (8.0, 26.0)]).unwrap();
        assert!((fit.intercept - 2.0).abs() < 1e-9 && (fit.slope - 3.0).abs() < 1e-9);
        assert!((fit.bend - 1.0).abs() < 1e-9);
    }

    #[test]
    fn quadratic_growth_bends() {
        let fit = fit(&[1.0, 2.0, 4.0, 8.0].map(|x| (x, x * x))).unwrap();
        assert!(fit.bend > 3.0);
    }

    #[test]
    fn projection_adds_pods_and_nodes() {
        let measurement = |load: &str, size: f64, value: f64| Measurement {
            load: format!("{PREFIX}{load}"),
            phase: format!("{size} {load}"),
            measure: Measure::Resident,
            whose: OURS.to_owned(),
            value: value * 1e6,
        };
        let pods = [1e3, 2e3, 4e3, 8e3].map(|size| measurement("pods", size, 10.0 + size * 0.001));
        let nodes = [100.0, 200.0, 400.0, 800.0].map(|size| measurement("nodes", size, 10.0 + size * 0.002));
        let measurements: Vec<_> = pods.into_iter().chain(nodes).collect();
        assert!(table(&measurements).contains("| 170.0 MB |"), "{}", table(&measurements));
        assert_eq!(plots(&measurements).len(), 2);
        assert_eq!(table(&measurements[..3]), "");
    }
}
