//! Coverage-guided fuzzing of [`indexmill_fuzz::centroids`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    indexmill_fuzz::centroids(data).ok();
});
