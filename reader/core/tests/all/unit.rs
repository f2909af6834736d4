//! A unit that `INDEXMILL_ISA` names in vain is refused when an index is opened. A process chooses its unit once, hence
//! the test runs again in a process of its own.

use std::process::Command;

use crate::common::{Spec, write_index};
use indexmill_core::{Error, Index};

const TEST: &str = "unit::an_index_is_not_opened_for_an_unknown_unit";

#[test]
fn an_index_is_not_opened_for_an_unknown_unit() {
    if std::env::var("INDEXMILL_ISA").as_deref() != Ok("sse9") {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).args(["--exact", TEST]).env("INDEXMILL_ISA", "sse9").output().unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let refused = Index::open(write_index(Spec::default()).path(), "auto").err().unwrap();
    assert!(matches!(refused, Error::Config(_)), "{refused}");
    assert!(refused.to_string().starts_with("INDEXMILL_ISA: expected a unit that host "), "{refused}");
}
