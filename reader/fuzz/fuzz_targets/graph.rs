//! Coverage-guided fuzzing of [`indexmill_fuzz::graph`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::graph(data).ok();
});
