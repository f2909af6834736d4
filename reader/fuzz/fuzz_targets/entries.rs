//! Coverage-guided fuzzing of [`indexmill_fuzz::entries`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::entries(data).ok();
});
