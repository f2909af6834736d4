//! Which instructions the kernels use: the widest of this CPU, or those that `INDEXMILL_ISA` names.
//!
//! | unit | distances | products of blocks |
//! |---|---|---|
//! | `scalar` | portable code | portable code |
//! | `avx2` | AVX2 with FMA and F16C | AVX2 |
//! | `avx512` | AVX-512 F, BW and VL; VBMI for bounds of codes, if the CPU has it | AVX-512 VNNI if the CPU has it, else AVX2 |
//! | `amx` | the same | AMX, if the system lets the process use it |
//! | `neon` | NEON | NEON |
//! | `dotprod` | the same | dot products of NEON (SDOT) |
//!
//! Every unit gives the same bits, so a choice changes times alone. A process chooses once.

use std::sync::OnceLock;

use super::block;
use super::floors;
use super::level::Kernels;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::error::{Error, Result};

/// The environment variable that names a unit; empty means unset.
const VARIABLE: &str = "INDEXMILL_ISA";

/// Instructions that go together.
pub struct Unit {
    /// Its name in `INDEXMILL_ISA`.
    pub name: &'static str,
    /// Distances of single vectors.
    pub kernels: &'static Kernels,
    /// Products of many vectors with many.
    pub products: &'static block::Level,
    /// Why a wider unit of this CPU is not in use, if the system refuses it.
    pub note: Option<String>,
}

/// The unit in use.
///
/// # Errors
/// `Config` if `INDEXMILL_ISA` names a unit that is unknown or that this machine lacks. Opening an index asks, too.
pub fn unit() -> Result<&'static Unit> {
    static CHOSEN: OnceLock<std::result::Result<Unit, String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let named = std::env::var_os(VARIABLE).unwrap_or_default();
        choose(&named.to_string_lossy(), block::amx)
    });
    chosen.as_ref().map_err(|refusal| Error::Config(refusal.clone()))
}

/// Distances of the unit in use; portable ones where `unit` fails.
pub fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<&'static Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| unit().map_or(&scalar::KERNELS, |unit| unit.kernels))
}

/// Products of the unit in use; portable ones where `unit` fails.
pub fn products() -> &'static block::Level {
    static CHOSEN: OnceLock<&'static block::Level> = OnceLock::new();
    CHOSEN.get_or_init(|| unit().map_or(block::available()[0], |unit| unit.products))
}

/// Bounds of code distances of the unit in use, if it has instructions for them.
pub(super) fn floors() -> Option<&'static floors::Level> {
    static CHOSEN: OnceLock<Option<&'static floors::Level>> = OnceLock::new();
    *CHOSEN.get_or_init(|| floors::level_of(kernels().name))
}

/// Distances of every level this CPU can run, slowest first. Tests compare them.
pub fn available() -> Vec<&'static Kernels> {
    #[allow(unused_mut)]
    let mut levels = vec![&scalar::KERNELS];
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        if has_avx2 {
            levels.push(&avx2::KERNELS);
        }
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if has_avx2 && has_avx512 {
            levels.push(&avx512::KERNELS);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        levels.push(&neon::KERNELS);
    }
    levels
}

/// Returns the unit that is `named`, or the widest if the name is empty; or why there is none.
///
/// `amx` asks the system for AMX: it is not called when a narrower unit is named.
fn choose(
    named: &str,
    amx: impl Fn() -> std::result::Result<Option<&'static block::Level>, String>,
) -> std::result::Result<Unit, String> {
    let (levels, kernels) = (block::available(), available());
    let (widest, widest_kernels) = (levels[levels.len() - 1], kernels[kernels.len() - 1]);
    let of_products =
        |products: &'static block::Level| Unit { name: products.name, kernels: widest_kernels, products, note: None };
    let mut units: Vec<Unit> = kernels
        .iter()
        .map(|&kernels| {
            let own = levels.iter().rfind(|level| level.name.starts_with(kernels.name));
            Unit { name: kernels.name, kernels, products: own.unwrap_or(&widest), note: None }
        })
        .collect();
    let is_own = |level: &&block::Level| !kernels.iter().any(|kernels| level.name.starts_with(kernels.name));
    units.extend(levels.iter().copied().filter(is_own).map(of_products));
    let mut note = None;
    if !units.iter().any(|unit| unit.name == named) {
        match amx() {
            Ok(Some(products)) => units.push(of_products(products)),
            Ok(None) => (),
            Err(why) => note = Some(why),
        }
    }
    let names = units.iter().map(|unit| unit.name).collect::<Vec<_>>().join(", ");
    let found = if named.is_empty() { units.pop() } else { units.into_iter().find(|unit| unit.name == named) };
    match found {
        Some(unit) => Ok(Unit { note, ..unit }),
        None => Err(format!(
            "{VARIABLE}: expected a unit that host {} has ({names}), got {named:?}{}; name one of these, or unset \
             {VARIABLE} to use the widest",
            host_name(),
            note.map(|why| format!(" ({why})")).unwrap_or_default(),
        )),
    }
}

/// Name of this machine, for messages.
fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: room for as many bytes as are told; the last one stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> std::result::Result<Option<&'static block::Level>, String> {
        Ok(None)
    }

    fn denied() -> std::result::Result<Option<&'static block::Level>, String> {
        Err("the system says no".into())
    }

    #[test]
    fn every_unit_offered_can_be_named_and_the_widest_is_the_default() {
        for kernels in available() {
            let unit = choose(kernels.name, || panic!("AMX is not asked for")).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!((unit.name, unit.kernels.name), (kernels.name, kernels.name));
            let widest = block::available().pop().unwrap().name;
            assert!(unit.products.name.starts_with(unit.name) || unit.products.name == widest);
        }
        let widest = choose("", none).ok().unwrap();
        assert_eq!(widest.kernels.name, available().pop().unwrap().name);
        assert!([widest.kernels.name, widest.products.name].contains(&widest.name));
        assert!(widest.products.name == block::available().pop().unwrap().name && widest.note.is_none());
        assert_eq!(choose("scalar", none).ok().unwrap().products.name, "scalar");
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn amx_is_the_widest_where_it_is_granted_and_can_be_named() {
        let granted = || Ok(Some(&block::amx::LEVEL)); // no product is computed
        for named in ["", "amx"] {
            let unit = choose(named, granted).ok().unwrap();
            assert_eq!((unit.name, unit.products.name, unit.note), ("amx", "amx", None));
            assert_eq!(unit.kernels.name, available().pop().unwrap().name);
        }
        assert_eq!(choose("scalar", granted).ok().unwrap().name, "scalar");
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn dot_products_are_a_unit_of_their_own_beside_plain_neon() {
        let products = |named| choose(named, none).map(|unit| (unit.name, unit.kernels.name, unit.products.name));
        assert_eq!(products("neon"), Ok(("neon", "neon", "neon")));
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            assert_eq!(products("dotprod"), Ok(("dotprod", "neon", "dotprod")));
            assert_eq!(products(""), products("dotprod"));
        } else {
            assert!(products("dotprod").unwrap_err().contains("got \"dotprod\""));
            assert_eq!(products(""), products("neon"));
        }
    }

    #[test]
    fn a_unit_that_is_unknown_is_refused_with_what_there_is() {
        let message = choose("sse9", none).err().unwrap();
        for part in ["INDEXMILL_ISA", "\"sse9\"", &host_name(), "(scalar"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(available().iter().all(|kernels| message.contains(kernels.name)), "{message}");
    }

    #[test]
    fn refused_amx_is_told_and_replaced() {
        assert_eq!(choose("", denied).ok().unwrap().note.as_deref(), Some("the system says no"));
        assert!(choose("amx", denied).err().unwrap().contains("got \"amx\" (the system says no)"));
        assert!(choose("amx", none).err().unwrap().contains("got \"amx\";"));
    }
}
