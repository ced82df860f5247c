//! Milli values as quantities in the original's notation.
//!
//! Parity: `NewMilliQuantity(…).String()` of k8s.io/apimachinery/pkg/api/resource.

/// In decimal SI: with the largest suffix that leaves no fraction.
pub(super) fn decimal(milli: i64) -> String {
    const SUFFIXES: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
    if milli == 0 {
        return "0".to_owned();
    }
    let (mut number, mut index) = (milli, 0);
    while number % 1000 == 0 && index + 1 < SUFFIXES.len() {
        number /= 1000;
        index += 1;
    }
    format!("{number}{}", SUFFIXES[index])
}

/// In binary SI. A value that is no whole number or below 1024 is written in decimal SI, which loses nothing.
pub(super) fn binary(milli: i64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if milli % 1000 != 0 || (milli / 1000).abs() < 1024 {
        return decimal(milli);
    }
    let (mut number, mut index) = (milli / 1000, 0);
    while number % 1024 == 0 && index + 1 < SUFFIXES.len() {
        number /= 1024;
        index += 1;
    }
    format!("{number}{}", SUFFIXES[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_largest_suffix_without_a_fraction() {
        for (milli, text) in [
            (0, "0"),
            (1500, "1500m"),
            (2000, "2"),
            (1_000_000, "1k"),
            (-250, "-250m"),
            (12_000_000_000, "12M"),
        ] {
            assert_eq!(decimal(milli), text);
        }
        for (milli, text) in [
            (1_023_000, "1023"),
            (1_024_000, "1Ki"),
            (1_536_000, "1536"),
            (104_857_600_000, "100Mi"),
            (104_857_600_333, "104857600333m"),
        ] {
            assert_eq!(binary(milli), text);
        }
    }
}
