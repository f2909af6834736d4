//! Coverage-guided fuzzing of [`indexmill_fuzz::search`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::search(data).ok();
});
