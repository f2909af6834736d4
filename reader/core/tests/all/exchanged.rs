//! An index directory that changes under its readers: what is no regular file, and another index in its place.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::ivf::{IvfSpec, write_ivf};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::common::{Spec, Written, write_index};
use indexmill_core::directory::Directory;
use indexmill_core::lsh::InMemory;
use indexmill_core::manifest::{self, MANIFEST_NAME};
use indexmill_core::verify::verify;
use indexmill_core::{Error, Index, IvfIndex, LshIndex, Result};

/// The result of `work`, which must not wait for anything.
fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()).ok());
    result.recv_timeout(Duration::from_secs(60)).expect("it waits")
}

fn make_fifo(path: &Path) {
    fs::remove_file(path).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a zero-terminated path.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Each file of an index as a FIFO; `open` refuses it.
fn assert_no_fifo_is_waited_for(directory: &Path, open: fn(&Path) -> Result<()>) {
    open(directory).unwrap();
    let files = fs::read_dir(directory).unwrap();
    for path in files.map(|entry| entry.unwrap().path()).collect::<Vec<_>>() {
        let content = fs::read(&path).unwrap();
        make_fifo(&path);
        let (at, name) = (directory.to_owned(), path.display().to_string());
        let error = at_once(move || open(&at)).unwrap_err();
        let is_manifest = name.ends_with(MANIFEST_NAME);
        assert!(matches!(error, Error::Foreign(_)) == is_manifest, "{error}");
        assert!(matches!(error, Error::Corrupt(_)) != is_manifest && error.to_string().contains(&name), "{error}");
        let at = directory.to_owned();
        assert!(at_once(move || verify(&at))[0].contains(&name));
        fs::remove_file(&path).unwrap();
        fs::write(&path, content).unwrap();
    }
    open(directory).unwrap();
}

#[test]
fn a_fifo_in_place_of_any_file_is_refused_at_once() {
    let graph = write_index(Spec { n: 30, ..Spec::default() });
    assert_no_fifo_is_waited_for(graph.path(), |path| Index::open(path, "auto").map(drop));
    let lists = write_ivf(IvfSpec { n: 60, ..IvfSpec::default() });
    assert_no_fifo_is_waited_for(lists.path(), |path| IvfIndex::open(path, "auto").map(drop));
    let tables = write_lsh(LshSpec::default());
    assert_no_fifo_is_waited_for(tables.path(), |path| LshIndex::open(path, "auto", InMemory::default()).map(drop));
}

#[test]
fn a_fifo_in_place_of_a_device_profile_is_refused_at_once() {
    let graph = write_index(Spec { n: 30, ..Spec::default() });
    let profile = graph.path().join("device.json");
    fs::write(&profile, "{}").unwrap();
    make_fifo(&profile);
    let (at, engine) = (graph.path().to_owned(), format!("simulated:{}", profile.display()));
    let error = at_once(move || Index::open(&at, &engine).map(drop)).unwrap_err();
    assert!(matches!(error, Error::Foreign(_)) && error.path() == Some(&*profile), "{error}");
}

#[test]
fn files_are_those_of_the_directory_that_was_opened() {
    let (first, second) = (write_index(Spec::default()), write_index(Spec { seed: 2, n: 400, ..Spec::default() }));
    let directory = Directory::open(first.path()).unwrap();
    let before = manifest::read(&directory).unwrap();
    let aside = first.path().with_extension("aside");
    fs::rename(first.path(), &aside).unwrap();
    fs::rename(second.path(), first.path()).unwrap();
    let after = manifest::read(&directory).unwrap();
    assert_eq!(after.build_id, before.build_id);
    after.check_sizes(&directory).unwrap();
    assert_ne!(manifest::read_at(first.path()).unwrap().build_id, before.build_id);
    fs::remove_dir_all(&aside).unwrap();
    let error = after.check_sizes(&directory).unwrap_err().to_string();
    assert!(error.contains("got no such file"), "{error}");
}

/// In one process with a thread, as in `tests/reader/test_replaced.py` with another process.
#[test]
fn an_index_that_is_replaced_and_deleted_all_the_time_opens() {
    let specs = [Spec::default(), Spec { seed: 2, n: 400, ..Spec::default() }];
    let home = write_index(specs[0]);
    let path = home.path().join("ix");
    let link = |written: &Written| {
        // A link is replaced by one rename: the directory that it led to is deleted afterwards.
        let fresh = home.path().join("fresh");
        std::os::unix::fs::symlink(written.path(), &fresh).unwrap();
        fs::rename(&fresh, &path).unwrap();
    };
    let mut last = write_index(specs[0]);
    link(&last);
    let at = path.clone();
    let (stop, stopped) = mpsc::channel::<()>();
    let opener = std::thread::spawn(move || {
        let mut sizes = [0, 0];
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let index = Index::open(&at, "pread").unwrap();
            sizes[usize::from(index.graph.layout().n_vertices == 400)] += 1;
            index.manifest.check_build_id(&at, &index.graph.build_id).unwrap();
        }
        sizes
    });
    for i in 0..60 {
        let next = write_index(specs[(i + 1) % 2]);
        link(&next);
        last = next; // deletes the one before
    }
    drop(stop);
    let sizes = opener.join().unwrap();
    assert!(sizes[0] > 0 && sizes[1] > 0, "{sizes:?}");
    drop(last);
}
