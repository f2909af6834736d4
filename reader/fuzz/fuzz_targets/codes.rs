//! Coverage-guided fuzzing of [`indexmill_fuzz::codes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::codes(data).ok();
});
