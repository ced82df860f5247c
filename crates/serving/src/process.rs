//! The `process_*` metrics, read from `/proc` at each scrape.

use std::fs;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Gauge, Metric, MetricFamily, MetricType};

/// Clock ticks per second in `/proc/self/stat`; 100 on every supported Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Name, help and whether the metric is a counter.
const METRICS: [(&str, &str, bool); 9] = [
    ("process_cpu_seconds_total", "CPU time spent by this process.", true),
    ("process_max_fds", "File descriptors that this process may open.", false),
    ("process_network_receive_bytes_total", "Bytes received over the network.", true),
    ("process_network_transmit_bytes_total", "Bytes sent over the network.", true),
    ("process_open_fds", "File descriptors that this process has open.", false),
    ("process_resident_memory_bytes", "Memory of this process that is in RAM.", false),
    ("process_start_time_seconds", "When this process started, in Unix time.", false),
    ("process_virtual_memory_bytes", "Memory that this process has mapped.", false),
    ("process_virtual_memory_max_bytes", "Memory that this process may map.", false),
];

/// The `process_*` metrics.
pub(crate) struct ProcessMetrics {
    started_at_seconds: f64,
    descriptions: Vec<Desc>,
}

impl ProcessMetrics {
    pub(crate) fn new(started_at: Duration) -> Self {
        let description = |(name, help, _): &(&str, &str, bool)| {
            Desc::new((*name).to_owned(), (*help).to_owned(), Vec::new(), std::collections::HashMap::new())
                .ok()
        };
        Self {
            started_at_seconds: started_at.as_secs_f64(),
            descriptions: METRICS.iter().filter_map(description).collect(),
        }
    }

    fn value(&self, name: &str) -> Option<f64> {
        match name {
            "process_cpu_seconds_total" => cpu_seconds(&fs::read_to_string("/proc/self/stat").ok()?),
            "process_max_fds" => limit("Max open files"),
            "process_network_receive_bytes_total" => octets("InOctets"),
            "process_network_transmit_bytes_total" => octets("OutOctets"),
            "process_open_fds" => Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64),
            "process_resident_memory_bytes" => status_bytes("VmRSS:"),
            "process_start_time_seconds" => Some(self.started_at_seconds),
            "process_virtual_memory_bytes" => status_bytes("VmSize:"),
            "process_virtual_memory_max_bytes" => limit("Max address space"),
            _ => None,
        }
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let family = |(name, help, grows): &(&str, &str, bool)| {
            let value = self.value(name)?;
            let mut metric = Metric::default();
            if *grows {
                let mut counter = prometheus::proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            let mut family = MetricFamily::default();
            family.set_name((*name).to_owned());
            family.set_help((*help).to_owned());
            family.set_field_type(if *grows { MetricType::COUNTER } else { MetricType::GAUGE });
            family.set_metric(vec![metric]);
            Some(family)
        };
        METRICS.iter().filter_map(family).collect()
    }
}

/// Fields 14 and 15: time in user mode and in the kernel. Field 2 is the program's name, which may contain
/// spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, words) = stat.rsplit_once(')')?;
    let ticks = words.split_whitespace().skip(11).take(2).map(|word| word.parse::<f64>().ok());
    Some(ticks.sum::<Option<f64>>()? / TICKS_PER_SECOND)
}

fn status_bytes(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        // The original reports `unlimited` as the largest number.
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// A counter of the network namespace; Linux has none per process.
fn octets(name: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_process_metrics_have_values() {
        let metrics = ProcessMetrics::new(Duration::from_millis(1500));
        let families = metrics.collect();
        let names: Vec<_> = families.iter().map(MetricFamily::name).collect();
        assert_eq!(names, METRICS.map(|(name, ..)| name));
        let value = |name| metrics.value(name).unwrap();
        assert!((value("process_start_time_seconds") - 1.5).abs() < f64::EPSILON);
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0);
    }

    #[test]
    fn process_name_with_parentheses_is_parsed() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
    }
}
