//! Coverage-guided fuzzing of [`indexmill_fuzz::lsh`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::lsh(data).ok();
});
