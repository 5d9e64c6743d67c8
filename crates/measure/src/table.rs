//! Tables for a terminal, without lines.

use comfy_table::{CellAlignment, Table, presets};

use crate::spread::Spread;

/// Columns from `first_number` on hold numbers, and stand to the right.
pub fn draw<H: Into<String>>(
    headings: impl IntoIterator<Item = H>,
    first_number: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(headings.into_iter().map(Into::into).collect::<Vec<String>>());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(first_number) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// `median [lowest highest]`.
pub fn spread(spread: &Spread, show: impl Fn(f64) -> String) -> String {
    if spread.samples.is_empty() {
        return "-".to_owned();
    }
    format!("{} [{} {}]", show(spread.median), show(spread.min), show(spread.max))
}

/// How many times better.
pub fn gain(times: f64) -> String {
    if times >= 9.95 { format!("{times:.0}x") } else { format!("{times:.2}x") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let rows =
            [vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "1000".to_owned()]];
        let text = draw(["who", "rate"], 1, rows).trim_fmt();
        assert!(text.contains("\n a       1"), "{text}");
    }

    #[test]
    fn a_spread_has_its_ends() {
        let show = |value| format!("{value:.0}");
        assert_eq!(spread(&Spread::of(vec![3.0, 1.0, 2.0]), show), "2 [1 3]");
        assert_eq!(spread(&Spread::default(), show), "-");
        assert_eq!((gain(9.5), gain(9.96)), ("9.50x".to_owned(), "10x".to_owned()));
    }
}
