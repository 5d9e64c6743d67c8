//! One look for all progress bars.

use indicatif::ProgressStyle;

pub fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} left {eta}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
