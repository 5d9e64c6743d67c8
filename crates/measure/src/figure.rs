//! Numbers as people read them: three digits and a unit.

pub fn nanoseconds(ns: f64) -> String {
    scaled(ns, 1000.0, &[" ns", " us", " ms", " s"])
}

pub fn bytes_s(bytes_s: f64) -> String {
    scaled(bytes_s, 1000.0, &[" B/s", " kB/s", " MB/s", " GB/s", " TB/s"])
}

pub fn bits_s(bits_s: f64) -> String {
    scaled(bits_s, 1000.0, &[" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"])
}

pub fn per_second(rate: f64) -> String {
    scaled(rate, 1000.0, &["/s", " k/s", " M/s", " G/s"])
}

pub fn bytes(count: f64) -> String {
    scaled(count, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for next in units {
        // 999.6 would print as four digits.
        if value.abs() < step - 0.5 {
            break;
        }
        value /= step;
        unit = next;
    }
    let decimals = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!(nanoseconds(56.04), "56.0 ns");
        assert_eq!(nanoseconds(999.7), "1.00 us");
        assert_eq!(bytes_s(12.34e9), "12.3 GB/s");
        assert_eq!(per_second(2_000_000.0), "2.00 M/s");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(bits_s(0.0), "0.00 bit/s");
    }
}
