//! Coverage-guided fuzzing of [`indexmill_fuzz::navigation`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::navigation(data).ok();
});
