//! Where io_uring is forbidden, as in many containers, "auto" reads by pread and says so. Each test runs in a process
//! of its own, which forbids itself the system calls.

use std::os::fd::AsRawFd;
use std::process::Command;

use crate::common::{Spec, Written, write_index};
use indexmill_core::graph::{Entry, Policy, SearchParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::{Error, Index};

const CHILD: &str = "INDEXMILL_CHILD";

/// Runs `body` in a new process of this test program.
fn in_child(test: &str, body: fn()) {
    let test = &format!("forbidden_ring::{test}");
    if std::env::var(CHILD).as_deref() == Ok(test.as_str()) {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program).args(["--exact", test, "--nocapture"]).env(CHILD, test).output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

/// Makes system call `number` fail with EPERM from now on, in this thread and those it starts.
fn forbid(number: libc::c_long) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter is valid for the length of the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter), 0);
        assert_eq!(libc::syscall(number, 0, 0, 0, 0, 0, 0), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM));
    }
}

/// The 5 nearest of each of `n` queries; of all that are there, since the list holds every vertex.
fn search(written: &Written, index: &Index, n: usize) -> indexmill_core::Result<Vec<i64>> {
    let floats: Vec<f32> = (0..n).flat_map(|i| written.query(i)).collect();
    let queries = Queries { values: Values::Float32(&floats), n, dim: written.spec.dim };
    let (list_size, policy, entry) = (written.spec.n, Policy::Page, Entry::Centroids);
    let params = SearchParams::new(5)
        .list_size(list_size)
        .beam_width(4)
        .policy(policy)
        .entry(entry)
        .threads(n.min(2))
        .inflight(4)
        .deterministic(true);
    index.search(&queries, &params).map(|found| found.slots)
}

fn exact(written: &Written, n: usize) -> Vec<i64> {
    (0..n).flat_map(|i| written.exact(&written.query(i), 5)).map(|(_, slot)| slot).collect()
}

fn falls_back_at_open(number: libc::c_long) {
    let written = write_index(Spec::default());
    forbid(number);
    let index = Index::open(written.path(), "auto").unwrap();
    assert_eq!(index.engine_name(), "pread");
    let note = index.engine_note().unwrap();
    assert_eq!(note.matches("io_uring is not available: Operation not permitted").count(), 1, "{note}");
    assert_eq!(search(&written, &index, 20).unwrap(), exact(&written, 20));
    assert_eq!(index.engine_note().unwrap(), note);
    let refused = Index::open(written.path(), "io_uring").err().unwrap();
    assert!(matches!(refused, Error::Config(_)), "{refused}");
    let want = "engine io_uring: Operation not permitted (os error 1); use \"auto\" or \"pread\"";
    assert_eq!(refused.to_string(), want);
}

#[test]
fn auto_reads_by_pread_where_no_ring_can_be_set_up() {
    in_child("auto_reads_by_pread_where_no_ring_can_be_set_up", || {
        falls_back_at_open(libc::SYS_io_uring_setup);
        let refused = Index::open(write_index(Spec::default()).path(), "sqpoll").err().unwrap();
        assert!(matches!(refused, Error::Config(_)), "{refused}");
        assert!(refused.to_string().starts_with("engine sqpoll: Operation not permitted"), "{refused}");
    });
}

#[test]
fn auto_reads_by_pread_where_a_ring_cannot_be_used() {
    in_child("auto_reads_by_pread_where_a_ring_cannot_be_used", || falls_back_at_open(libc::SYS_io_uring_enter));
}

/// "auto" as io_uring, which the callers then make impossible.
fn open_with_ring(written: &Written) -> Option<Index> {
    let index = Index::open(written.path(), "auto").unwrap();
    if index.engine_name() == "io_uring" {
        return Some(index);
    }
    eprintln!("skipped: {:?}", index.engine_note());
    None
}

fn says_once_that_a_thread_fell_back(index: &Index, reason: &str) {
    let note = index.engine_note().unwrap();
    assert_eq!(note.matches("a search thread got no io_uring and reads by pread: ").count(), 1, "{note}");
    assert!(note.contains(reason), "{note}");
}

#[test]
fn a_search_reads_by_pread_when_rings_were_forbidden_after_open() {
    in_child("a_search_reads_by_pread_when_rings_were_forbidden_after_open", || {
        let written = write_index(Spec::default());
        let Some(index) = open_with_ring(&written) else { return };
        let strict = Index::open(written.path(), "io_uring").unwrap();
        forbid(libc::SYS_io_uring_setup);
        assert_eq!(search(&written, &index, 20).unwrap(), exact(&written, 20));
        says_once_that_a_thread_fell_back(&index, "Operation not permitted");
        let refused = search(&written, &strict, 1).unwrap_err().to_string();
        assert!(refused.contains("set up io_uring: Operation not permitted"), "{refused}");
    });
}

#[test]
fn a_search_reads_by_pread_when_descriptors_ran_out_after_open() {
    in_child("a_search_reads_by_pread_when_descriptors_ran_out_after_open", || {
        let written = write_index(Spec::default());
        let Some(index) = open_with_ring(&written) else { return };
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as libc::rlim_t;
        let limit = libc::rlimit { rlim_cur: next, rlim_max: next };
        // SAFETY: from here on this process opens nothing more.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        assert_eq!(search(&written, &index, 1).unwrap(), exact(&written, 1));
        says_once_that_a_thread_fell_back(&index, "Too many open files");
    });
}

#[test]
fn a_search_tells_that_nothing_could_be_registered() {
    in_child("a_search_tells_that_nothing_could_be_registered", || {
        let written = write_index(Spec::default());
        let Some(index) = open_with_ring(&written) else { return };
        forbid(libc::SYS_io_uring_register);
        assert_eq!(search(&written, &index, 20).unwrap(), exact(&written, 20));
        let note = index.engine_note().unwrap();
        let words = "io_uring reads without registered files: Operation not permitted";
        assert_eq!(note.matches(words).count(), 1, "{note}");
        assert_eq!(index.engine_name(), "io_uring");
    });
}
