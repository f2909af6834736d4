//! Coverage-guided fuzzing of [`indexmill_fuzz::vectors`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::vectors(data).ok();
});
