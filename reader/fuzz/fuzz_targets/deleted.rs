//! Coverage-guided fuzzing of [`indexmill_fuzz::ids`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::deleted(data).ok();
});
