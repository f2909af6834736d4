//! The simulated device against its profile.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::file::{Access, DataFile};
use super::super::profile::Profile;
use super::super::simulated::{Device, Simulated};
use super::{Data, reap_all};
use crate::engine::Engine;
use crate::error::Error;
use crate::pagefile::PAGE_BYTES;

fn device(model: &str) -> Device {
    let text = format!("{{\"kind\": \"indexmill-device\", \"version\": 1, \"name\": \"d\", \"model\": {{{model}}}}}");
    Device::new(Profile::parse(Path::new("p.json"), text.as_bytes()).unwrap())
}

fn engine_of(device: &Arc<Device>, data: &Data, slots: usize) -> Simulated {
    let mut file = DataFile::open(&data.path, Access::Held, PAGE_BYTES).unwrap();
    file.hold(&mut || false).unwrap();
    Simulated::new(device.clone(), Arc::new(file), slots, PAGE_BYTES)
}

fn completion_s(device: &Device, now_s: f64, bytes: usize) -> f64 {
    let mut found = f64::NAN;
    device.completions_s(now_s, std::iter::once(bytes), |due_s| found = due_s);
    found
}

/// Memory of this process, in MiB.
#[cfg(target_os = "linux")]
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
#[cfg(target_os = "linux")]
fn holes_of_a_file_take_no_memory_in_its_copy_and_copying_can_be_interrupted() {
    let (data, mib) = (Data::new("holes", 3), 1024);
    std::fs::File::options().write(true).open(&data.path).unwrap().set_len(mib << 20).unwrap();
    let mut file = DataFile::open(&data.path, Access::Held, PAGE_BYTES).unwrap();
    let (before, mut asked) = (resident_mib(), 0);
    file.hold(&mut || {
        asked += 1;
        false
    })
    .unwrap();
    let more = resident_mib().saturating_sub(before);
    assert!(asked == mib && more < mib / 2, "asked {asked} times, {more} MiB");
    let held = |unit| file.held(file.hold_of(unit, PAGE_BYTES).unwrap());
    (0..3).for_each(|page| assert_eq!(held(page as u64), data.block(page, 1)));
    assert_eq!(held((mib << 20) / PAGE_BYTES as u64 - 1), [0; PAGE_BYTES]);
    for last in [1, 500] {
        let mut left = last;
        let ended = file.hold(&mut || {
            left -= 1;
            left == 0
        });
        assert!(matches!(ended, Err(Error::Interrupted)));
    }
}

#[test]
fn latencies_of_an_idle_device_follow_the_distribution() {
    let device =
        device("\"latency_us\": [[0, 50], [0.5, 100], [0.9, 200], [1, 1000]], \"iops\": null, \"mb_per_s\": null");
    let mut us: Vec<f64> =
        (0..20000).map(|i| (completion_s(&device, f64::from(i), 4096) - f64::from(i)) * 1e6).collect();
    us.sort_by(f64::total_cmp);
    for (fraction, want) in [(0.25, 75.0), (0.5, 100.0), (0.7, 150.0), (0.9, 200.0), (0.95, 600.0)] {
        let got = us[(fraction * 20000.0) as usize];
        assert!((got / want - 1.0).abs() < 0.05, "{got} us instead of {want} us at {fraction}");
    }
    assert!(us[0] >= 50.0 - 1e-3 && us[19999] <= 1000.0 + 1e-3);
}

#[test]
fn reads_start_no_faster_than_the_limits_and_at_once_after_a_rest() {
    let model = |limits: &str| device(&format!("\"latency_us\": [[0, 100], [1, 100]], {limits}"));
    for (device, bytes, gap_s) in [
        (model("\"iops\": 1000, \"mb_per_s\": null"), 4096, 1e-3),
        (model("\"iops\": null, \"mb_per_s\": 4.096"), 8192, 2e-3),
        (model("\"iops\": 1000, \"mb_per_s\": 4.096"), 512, 1e-3),
    ] {
        for i in 0..100 {
            let want = 5.0 + f64::from(i) * gap_s + 100e-6;
            assert!((completion_s(&device, 5.0, bytes) - want).abs() < 1e-9);
        }
        assert!((completion_s(&device, 9.0, bytes) - 9.0001).abs() < 1e-9);
    }
}

#[test]
fn two_engines_of_one_device_share_its_iops() {
    let data = Data::new("shared", 16);
    let device = Arc::new(device("\"latency_us\": [[0, 0], [1, 0]], \"iops\": 2000, \"mb_per_s\": null"));
    let begin = Instant::now();
    let mut engines = [engine_of(&device, &data, 50), engine_of(&device, &data, 50)];
    for slot in 0..50 {
        for engine in &mut engines {
            engine.queue(slot, slot as u64 % 16).unwrap();
            engine.flush().unwrap();
        }
    }
    engines.iter_mut().for_each(|engine| assert_eq!(reap_all(engine, 50).unwrap().len(), 50));
    // 100 reads start half a millisecond apart, the first one at once.
    assert!(begin.elapsed() >= Duration::from_micros(99 * 500), "{:?}", begin.elapsed());
}

#[test]
fn polling_does_not_wait_for_a_read_and_reaping_does() {
    let data = Data::new("unready", 1);
    let latency = Duration::from_millis(200);
    let device = Arc::new(device("\"latency_us\": [[0, 200000], [1, 200000]], \"iops\": null, \"mb_per_s\": null"));
    let mut engine = engine_of(&device, &data, 1);
    engine.queue(0, 0).unwrap();
    let (begin, mut done) = (Instant::now(), Vec::new());
    engine.poll(&mut done).unwrap();
    // Far more than a poll takes, for the sake of busy machines, and far less than the read.
    assert!(done.is_empty() && begin.elapsed() < latency / 4, "{done:?} after {:?}", begin.elapsed());
    let done = reap_all(&mut engine, 1).unwrap();
    assert!(done == [0] && begin.elapsed() >= latency, "{done:?} after {:?}", begin.elapsed());
}

#[test]
fn reaping_does_not_wait_for_a_read_that_takes_long() {
    let data = Data::new("slow", 1);
    let device = Arc::new(device("\"latency_us\": [[0, 1e6], [1, 1e6]], \"iops\": null, \"mb_per_s\": null"));
    let mut engine = engine_of(&device, &data, 1);
    let (begin, mut done) = (Instant::now(), Vec::new());
    engine.queue(0, 0).unwrap();
    engine.reap(&mut done).unwrap();
    // On a busy machine the wait may last so long that the read has come.
    assert!(done.is_empty() || begin.elapsed() > Duration::from_secs(2), "{done:?} after {:?}", begin.elapsed());
}

#[test]
fn no_read_comes_before_its_time_nor_in_another_order() {
    let data = Data::new("early", 16);
    let device = Arc::new(device("\"latency_us\": [[0, 3000], [1, 9000]], \"iops\": null, \"mb_per_s\": null"));
    let mut engine = engine_of(&device, &data, 16);
    let submitted = Instant::now();
    (0..16).for_each(|slot| engine.queue(slot, slot as u64).unwrap());
    let mut done = Vec::new();
    engine.poll(&mut done).unwrap();
    assert!(done.is_empty() || submitted.elapsed() >= Duration::from_millis(3));
    while done.len() < 16 {
        engine.reap(&mut done).unwrap();
        assert!(submitted.elapsed() >= Duration::from_millis(3));
    }
    assert!(submitted.elapsed() >= Duration::from_millis(7), "16 latencies of 3 to 9 ms: {:?}", submitted.elapsed());
    assert_ne!(done, (0..16).collect::<Vec<_>>(), "reads complete by their latency, not in order");
    (0..16).for_each(|slot| assert_eq!(engine.buffer(slot), data.block(slot, 1)));
}

#[test]
fn a_request_takes_the_processor_as_long_as_the_profile_says() {
    let data = Data::new("requests", 16);
    let device =
        Arc::new(device("\"latency_us\": [[0, 0], [1, 0]], \"iops\": null, \"mb_per_s\": null, \"request_us\": 500"));
    let mut engine = engine_of(&device, &data, 16);
    (0..16).for_each(|slot| engine.queue(slot, slot as u64).unwrap());
    let begin = Instant::now();
    engine.flush().unwrap();
    assert!(begin.elapsed() >= Duration::from_micros(16 * 500), "{:?}", begin.elapsed());
}

#[test]
fn a_read_beyond_the_end_is_an_error_and_a_file_that_is_cut_later_makes_no_difference() {
    let data = Data::new("held", 4);
    let device = Arc::new(device("\"latency_us\": [[0, 0], [1, 0]], \"iops\": null, \"mb_per_s\": null"));
    let mut engine = engine_of(&device, &data, 2);
    std::fs::File::options().write(true).open(&data.path).unwrap().set_len(0).unwrap();
    assert!(engine.queue(0, 4).unwrap_err().to_string().contains("the end of the file"));
    engine.queue(1, 3).unwrap();
    assert_eq!(reap_all(&mut engine, 1).unwrap(), [1]);
    assert_eq!(engine.buffer(1), data.block(3, 1));
}
