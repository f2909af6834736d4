//! Coverage-guided fuzzing of [`indexmill_fuzz::ivf`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::ivf(data).ok();
});
