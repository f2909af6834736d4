//! Coverage-guided fuzzing of [`indexmill_fuzz::profile`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::profile(data).ok();
});
