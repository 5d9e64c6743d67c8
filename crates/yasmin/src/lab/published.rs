//! What the sources published, beside which the report puts its own figures.
//!
//! "Performance of parallel programs under paravirtualisation": Xen 3.1.2, a dual-core AMD at
//! 2 GHz, LAM/MPI 7.1.2, gcc 4.1.2. Guest: one with 2 virtual CPUs. All figures are seconds.

/// Times of MPI programs by the number of workers, in the order of `Row::seconds`.
pub struct Published {
    pub what: &'static str,
    pub columns: &'static [&'static str],
    pub rows: &'static [Row],
}

pub struct Row {
    pub workers: u32,
    pub seconds: &'static [f64],
}

const fn row(workers: u32, seconds: &'static [f64]) -> Row {
    Row { workers, seconds }
}

const GUEST_NATIVE: &[&str] = &["published, guest", "published, native"];

pub const PRODUCT: Published = Published {
    what: "matrix product, 500 x 500",
    columns: GUEST_NATIVE,
    rows: &[
        row(1, &[2.70, 2.75]),
        row(2, &[2.70, 2.93]),
        row(3, &[2.23, 2.20]),
        row(4, &[2.20, 2.67]),
        row(5, &[2.43, 2.33]),
        row(6, &[2.13, 2.53]),
        row(7, &[2.33, 2.20]),
        row(8, &[2.37, 2.83]),
        row(9, &[2.47, 2.33]),
        row(11, &[2.30, 2.53]),
        row(23, &[2.50, 3.20]),
        row(35, &[3.00, 4.13]),
    ],
};

pub const HEAT: Published = Published {
    what: "Heat2D, 500 x 500, 500 steps",
    columns: GUEST_NATIVE,
    rows: &[
        row(1, &[7.57, 7.5]),
        row(2, &[4.53, 8.33]),
        row(3, &[5.53, 6.07]),
        row(4, &[4.67, 7.43]),
        row(5, &[5.20, 6.43]),
        row(6, &[4.63, 7.67]),
        row(7, &[5.03, 6.87]),
        row(8, &[4.70, 8.10]),
        row(9, &[5.00, 7.30]),
        row(11, &[5.00, 7.87]),
        row(23, &[5.20, 11.23]),
        row(35, &[5.50, 14.60]),
    ],
};

pub const IS_C: Published = Published {
    what: "NPB IS, class C",
    columns: &["published, 1 guest", "published, 2 guests", "published, native"],
    rows: &[
        row(1, &[54.93, 54.33, 41.17]),
        row(3, &[57.2, 56.90, 42.53]),
        row(7, &[60.67, 60.00, 46.33]),
        row(15, &[66.33, 66.33, 53.50]),
        row(31, &[93.33, 95.67, 67.07]),
    ],
};

/// What was said in words.
pub const SAID: [&str; 5] = [
    "MPI, two guests against native: product 20 % and Heat2D 21 % better.",
    "OpenMP, guest against native: product 10 % better, Heat2D 8 % worse; with 4 virtual CPUs on 2 \
     cores 86 and 88 % worse, with 8 virtual CPUs 321 and 355 % worse.",
    "IS in OpenMP: guest 3 % better, with 4 threads 9 %.",
    "Under the SEDF scheduler IS reaches 65 % of Credit's operations a second with 2 processes, 46 % \
     with 4.",
    "Shared memory between two Xen guests, 8,192 ints there and back: 116 us, by messages 14,978 us.",
];

/// What is not the same here, and what that does to the figures.
pub const DIFFERS: [&str; 5] = [
    "Processor: this machine's cores are a good deal faster than 2 GHz cores of 2007, so compute \
     takes a smaller part of every time and communication a larger one. Compare shapes and ratios, \
     not seconds.",
    "Guests: the published guests ran on Xen, on two cores. A report has guests only where their \
     placement was chosen; native workers and namespaces have no virtual CPU to be scheduled.",
    "MPI: LAM/MPI is no longer kept up. Open MPI and MPICH run here, and both are held to one path at \
     a time; which one LAM/MPI took was not published.",
    "Collection: the product's time has the distribution of A and B and the collection of C; \
     Heat2D's has no collection. The sources do not say what theirs has.",
    "Sizes: a quick run has smaller problems than the published ones; figures of other sizes stand \
     in tables of their own.",
];

impl Published {
    pub fn seconds(&self, workers: u32, column: usize) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.workers == workers)?;
        row.seconds.get(column).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_every_column() {
        for table in [PRODUCT, HEAT, IS_C] {
            assert!(table.rows.iter().all(|row| row.seconds.len() == table.columns.len()));
        }
        assert_eq!(HEAT.seconds(2, 1), Some(8.33));
        assert_eq!(HEAT.seconds(10, 1), None);
    }
}
