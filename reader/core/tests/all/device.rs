//! Measuring a device, on a small file.

use std::path::PathBuf;

use crate::common::{Random, Scratch};
use indexmill_core::Error;
use indexmill_core::device::{Load, Measured, measure, measure_unless};

fn load(block_bytes: usize, depth: usize, threads: usize) -> Load {
    Load::new(block_bytes, depth, 0.05).threads(threads).seed(1)
}

fn file_of(scratch: &Scratch, bytes: usize) -> PathBuf {
    let path = scratch.0.join("data");
    let mut random = Random(3);
    std::fs::write(&path, (0..bytes).map(|_| random.next() as u8).collect::<Vec<u8>>()).unwrap();
    path
}

fn run(path: &std::path::Path, load: Load) -> Result<Measured, Error> {
    measure(path, &load)
}

#[test]
fn every_read_has_a_latency_that_lies_in_the_time_it_took() {
    let scratch = Scratch::new();
    let path = file_of(&scratch, 1 << 20);
    for (block_bytes, depth, threads) in [(4096, 1, 1), (4096, 32, 1), (4096, 5, 3), (512, 4, 1), (65536, 3, 8)] {
        let measured = match run(&path, load(block_bytes, depth, threads)) {
            // A device of larger blocks.
            Err(e) if block_bytes == 512 => {
                assert!(e.to_string().contains("measure with block_bytes 4096"), "{e}");
                continue;
            }
            measured => measured.unwrap(),
        };
        assert!(measured.reads >= depth && measured.reads == measured.latencies_us.len());
        // The last read may end a while before the clock says that the time is over.
        assert!(measured.elapsed_s >= 0.025, "{}", measured.elapsed_s);
        let most_us = measured.elapsed_s as f32 * 1e6;
        assert!(measured.latencies_us.iter().all(|&us| us > 0.0 && us <= most_us));
        // Little's law: reads in flight = rate x latency, less what the start, the end and our own work leave idle.
        let busy_s: f64 = measured.latencies_us.iter().map(|&us| f64::from(us) * 1e-6).sum();
        assert!(busy_s / measured.elapsed_s <= depth as f64 * 1.001, "more than {depth} in flight");
    }
}

#[test]
fn a_load_or_file_that_makes_no_sense_is_refused_with_the_remedy() {
    let scratch = Scratch::new();
    let path = file_of(&scratch, 10_000);
    let cases = [
        (load(0, 8, 2), "block_bytes: expected a power of two in 512..16777216, got 0"),
        (load(5000, 8, 2), "got 5000"),
        (load(16384, 8, 2), "expected 16384 bytes or more, got 10000; name a larger file"),
        (load(4096, 0, 2), "depth: expected 1..4096, got 0"),
        (load(4096, 8, 257), "threads: expected 1..256, got 257"),
        (Load::new(4096, 8, 0.0), "seconds: expected more than 0"),
        (Load::new(4096, 8, f64::NAN), "got NaN"),
        (Load::new(4096, 8, f64::INFINITY), "got inf"),
    ];
    for (load, words) in cases {
        let error = run(&path, load).unwrap_err();
        assert!(matches!(error, Error::Config(_)) && error.to_string().contains(words), "{error}");
    }
    let error = run(&scratch.0, load(4096, 8, 2)).unwrap_err().to_string();
    assert!(error.contains("expected a file or block device, got something else"), "{error}");
    let error = run(&scratch.0.join("none"), load(4096, 8, 2)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn an_interrupted_measurement_ends_soon_with_that_error() {
    let scratch = Scratch::new();
    let path = file_of(&scratch, 1 << 20);
    let begin = std::time::Instant::now();
    let result = measure_unless(&path, &Load::new(4096, 8, 600.0).threads(2), &mut || true);
    assert!(matches!(result, Err(Error::Interrupted)));
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}
