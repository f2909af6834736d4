//! Coverage-guided fuzzing of [`indexmill_fuzz::verify`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::verify(data).ok();
});
