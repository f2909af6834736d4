//! Coverage-guided fuzzing of [`indexmill_fuzz::functions`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::functions(data).ok();
});
