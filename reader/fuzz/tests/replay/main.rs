//! The committed inputs and a fixed number of mutations of them, on stable Rust: no panic, no hang.

mod mutate;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use indexmill_fuzz::{Random, TARGETS, Target, seeds};

/// A few milliseconds are usual.
const LONGEST: Duration = Duration::from_secs(20);

/// Committed inputs of a target by name.
fn committed(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = seeds::folder(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

/// Runs one input; one that panics is kept in a file.
fn try_input(target: &Target, label: &str, bytes: &[u8]) -> indexmill_core::Result<()> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).unwrap_or_else(|panic| {
        let kept = std::env::temp_dir().join(format!("indexmill-{}-{label}", target.name));
        fs::write(&kept, bytes).ok();
        eprintln!("target {} panicked on {label}; the input is kept in {}", target.name, kept.display());
        resume_unwind(panic)
    })
}

/// Runs a target's share on a thread of its own, which must report every input in time.
fn watch(target: &'static Target, work: impl FnOnce(&mut dyn FnMut(&str, &[u8])) + Send + 'static) {
    let (started, progress) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        work(&mut |label, bytes| {
            started.send(label.to_owned()).ok();
            try_input(target, label, bytes).ok();
        });
    });
    let mut last = "nothing".to_owned();
    loop {
        match progress.recv_timeout(LONGEST) {
            Ok(label) => last = label,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("target {}: {last} takes over {LONGEST:?}", target.name),
        }
    }
    worker.join().unwrap_or_else(|panic| resume_unwind(panic));
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|t| t.name == name).unwrap();
    let inputs = committed(target);
    watch(target, move |run| {
        inputs.iter().for_each(|(name, bytes)| run(name, bytes));
        let mut random = Random(target.name.len() as u64);
        for i in 0..target.mutations {
            let (seed, other) = (&inputs[i % inputs.len()], &inputs[random.below(inputs.len())]);
            run(&format!("mutation-{i}-of-{}", seed.0), &mutate::mutate(&seed.1, &other.1, &mut random));
        }
    });
}

#[test]
fn no_manifest_makes_the_reader_panic() {
    replay("manifest");
}

#[test]
fn no_graph_file_makes_the_reader_panic() {
    replay("graph");
}

#[test]
fn no_codes_file_makes_the_reader_panic() {
    replay("codes");
}

#[test]
fn no_navigation_file_makes_the_reader_panic() {
    replay("navigation");
}

#[test]
fn no_profile_makes_the_reader_panic() {
    replay("profile");
}

#[test]
fn no_entries_file_makes_the_reader_panic() {
    replay("entries");
}

#[test]
fn no_ids_file_makes_the_reader_panic() {
    replay("ids");
}

#[test]
fn no_directory_makes_verify_panic() {
    replay("verify");
}

#[test]
fn no_resealed_index_makes_a_search_panic() {
    replay("search");
}

#[test]
fn no_functions_file_makes_the_reader_panic() {
    replay("functions");
}

#[test]
fn no_vectors_file_makes_the_reader_panic() {
    replay("vectors");
}

#[test]
fn no_resealed_hash_tables_make_a_search_panic() {
    replay("lsh");
}

#[test]
fn no_centroids_file_makes_the_reader_panic() {
    replay("centroids");
}

#[test]
fn no_directory_of_lists_makes_the_reader_panic() {
    replay("ivf");
}

#[test]
fn no_deletions_file_makes_the_reader_panic() {
    replay("deleted");
}

#[test]
fn every_generated_seed_is_committed_and_accepted() {
    let generated = seeds::all();
    for target in &TARGETS {
        let of_target = generated.iter().filter(|seed| seed.target == target.name);
        let want: Vec<(String, Vec<u8>)> = of_target.map(|seed| (seed.name.clone(), seed.bytes.clone())).collect();
        let want: BTreeSet<_> = want.into_iter().collect();
        assert!(!want.is_empty(), "target {} has no seeds", target.name);
        for (name, bytes) in &want {
            try_input(target, name, bytes).unwrap_or_else(|e| panic!("{} refuses {name}: {e}", target.name));
        }
        let found = committed(target).into_iter().filter(|(name, _)| name.starts_with(seeds::VALID));
        let found: BTreeSet<_> = found.collect();
        let differ: Vec<_> = want.symmetric_difference(&found).map(|(name, _)| name).collect();
        assert!(differ.is_empty(), "{}: {differ:?}: cargo run -p indexmill-fuzz --example seeds", target.name);
    }
}

#[test]
fn every_target_has_a_binary_and_a_replay() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (bins, here) = (fs::read_to_string(root.join("Cargo.toml")).unwrap(), include_str!("main.rs"));
    for target in &TARGETS {
        let name = target.name;
        assert!(bins.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} has no [[bin]]");
        let code = fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(code.contains(&format!("indexmill_fuzz::{name}(data)")), "{name}");
        assert!(here.contains(&format!("replay(\"{name}\")")), "{name} is not replayed");
    }
    assert_eq!(fs::read_dir(root.join("fuzz_targets")).unwrap().count(), TARGETS.len());
}
