//! Coverage-guided fuzzing of [`indexmill_fuzz::manifest`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::manifest(data).ok();
});
