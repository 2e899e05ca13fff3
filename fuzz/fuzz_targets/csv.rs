//! The CSV reader against the crate `csv`: equal rows, equal NULLs, equal errors at equal places, and no panic.
#![no_main]

use awa_ingest_core::csv::reference::{Case, compare};
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus {
    match Case::of(data) {
        Some(case) => {
            compare(&case);
            Corpus::Keep
        }
        None => Corpus::Reject,
    }
});
