//! Targets of one file each.

use std::fs;
use std::path::Path;

use indexmill_core::Result;
use indexmill_core::codes::{CodeTable, Codes};
use indexmill_core::directory::Directory;
use indexmill_core::engine::{EngineChoice, Profile};
use indexmill_core::graph::entries::Entries;
use indexmill_core::graph::file::Graph;
use indexmill_core::graph::navigation::Navigation;
use indexmill_core::ids::{Ids, UserId};
use indexmill_core::living::Living;
use indexmill_core::manifest::{self, IVF_FILES, MANIFEST_NAME};
use indexmill_core::pagefile::{BUILD_ID_BYTES, PAGE_BYTES, PageFile};

use crate::input::{self, DELETED, SEALED, named, split_flags, write_page_file};

/// Parses a manifest; the names it accepts must stay in its directory.
pub fn manifest(data: &[u8]) -> Result<()> {
    let (flags, data) = split_flags(data);
    let scratch = input::scratch();
    let path = scratch.0.join(MANIFEST_NAME);
    let manifest = named(&path, manifest::parse(&path, &input::manifest(flags, data)))?;
    for entry in &manifest.files {
        let inside = scratch.0.join(&entry.name);
        assert_eq!(inside.parent(), Some(scratch.0.as_path()), "{:?} leaves the directory", entry.name);
        assert_eq!(inside.file_name().and_then(|n| n.to_str()), Some(entry.name.as_str()));
    }
    assert_eq!(manifest.header_build_id().len(), 32);
    let directory = Directory::open(&scratch.0).expect("it was just made");
    assert!(manifest.check_sizes(&directory).is_err(), "no file is there");
    Ok(())
}

/// Opens graph.imx, checks every block and parses every node.
pub fn graph(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("graph.imx", data);
    let graph = named(&path, Graph::open(&directory, &mut || false))?;
    let bytes = fs::read(&path).expect("it was just written");
    let layout = graph.layout();
    let (mut nodes, mut outcome) = (0u64, Ok(()));
    for block in 0..layout.n_blocks() {
        let start = layout.page_of(block) as usize * PAGE_BYTES;
        let block_bytes = &bytes[start..start + layout.block_bytes()];
        let mut check = named(&path, graph.check_block(block, block_bytes));
        let (first, count) = layout.slots_of(block);
        for slot in first..first + count {
            assert_eq!(layout.block_of(slot), block);
            let node = named(&path, layout.node(&path, block_bytes, slot));
            check = check.and(node.map(|node| {
                assert_eq!(node.vector, layout.vector(block_bytes, slot));
                assert!(node.neighbours.len() <= 4 * layout.max_degree);
                let (neighbours, rest) = node.neighbours.as_chunks::<4>();
                assert!(rest.is_empty() && neighbours.iter().all(|&s| u32::from_le_bytes(s) < layout.n_vertices));
            }));
        }
        nodes += u64::from(count);
        outcome = outcome.and(check);
    }
    assert_eq!(nodes, u64::from(layout.n_vertices));
    assert!((1..=layout.dim).contains(&graph.user_dim()));
    outcome
}

/// Opens codes.imx, fills a table and scores every slot.
pub fn codes(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("codes.imx", data);
    let (n, dim) = (field(&path, b"CODE", "n_vertices"), field(&path, b"CODE", "dim"));
    let codes = named(&path, Codes::open(&directory, n, dim, &mut || false))?;
    let query: Vec<f32> = (0..dim).map(|i| i as f32).collect();
    let slots: Vec<u32> = (0..n as u32).collect();
    let (mut table, mut scores, mut n_within) = (CodeTable::default(), Vec::new(), 0);
    codes.fill_table(&query, &mut table)?;
    codes.score(&mut table, &slots, None, |_, distance| scores.push(distance));
    assert_eq!(scores.len() as u64, n);
    assert!(scores.iter().all(|x| x.is_nan() || *x >= 0.0));
    let bar = scores[scores.len() / 2];
    codes.score(&mut table, &slots, Some(bar), |i, distance| {
        assert_eq!(distance.to_bits(), scores[i].to_bits());
        n_within += usize::from(distance <= bar);
    });
    assert_eq!(n_within, scores.iter().filter(|&&x| x <= bar).count());
    codes.prefetch(&[n as u32 - 1]);
    Ok(())
}

/// Opens entries.imx and looks for the entry of a few queries.
pub fn entries(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("entries.imx", data);
    let (n, dim) = (field(&path, b"ENTR", "n_vertices"), field(&path, b"ENTR", "dim"));
    let entries = named(&path, Entries::open(&directory, n, dim, &mut || false))?;
    assert!(!entries.is_empty() && entries.len() <= u32::MAX as usize && u64::from(entries.medoid) < n);
    for value in [0.0, -1.5, f32::MAX] {
        assert!(u64::from(entries.nearest(&vec![value; dim as usize])) < n);
    }
    Ok(())
}

/// Opens navigation.imx and walks through its graph.
pub fn navigation(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("navigation.imx", data);
    let n = field(&path, b"NAVI", "n_vertices");
    let navigation = named(&path, Navigation::open(&directory, n, &mut || false))?;
    let len = navigation.len() as u32;
    assert!(!navigation.is_empty() && navigation.entry < len);
    assert!(navigation.slots.iter().all(|&slot| u64::from(slot) < n));
    assert!((0..len).all(|local| navigation.neighbours(local).iter().all(|&neighbour| neighbour < len)));
    Ok(())
}

/// Opens ids.imx and looks up every slot: one by one, all at once, every other one, and one that is not there; then all
/// again in memory.
pub fn ids(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("ids.imx", data);
    let n = field(&path, b"IDMP", "n_vertices");
    let ids = named(&path, Ids::open(&directory, n))?;
    let slots: Vec<u32> = (0..n as u32).rev().collect();
    let alternate: Vec<u32> = slots.iter().copied().step_by(2).collect();
    let vector_ids = named(&path, ids.vector_ids(&slots));
    if let Ok(found) = &vector_ids {
        assert!(found.len() == slots.len() && found.iter().all(|&id| u64::from(id) < n));
    }
    let user_ids = named(&path, ids.user_ids(&slots));
    let some = named(&path, ids.user_ids(&alternate));
    for found in [&user_ids, &some].into_iter().flatten() {
        assert!(content_bytes(found) <= ids.content_bytes().unwrap_or(0), "ids that overlap");
    }
    if let Ok(found) = &user_ids {
        assert_eq!(
            some.expect("a part of what was found").as_slice(),
            found.iter().step_by(2).cloned().collect::<Vec<_>>()
        );
        for (&slot, id) in slots.iter().zip(found).take(64) {
            assert_eq!(ids.user_ids(&[slot]).expect("it was found before"), std::slice::from_ref(id));
        }
    }
    if named(&path, ids.hold()).is_ok() {
        let (held, vector_ids_held) = (named(&path, ids.user_ids(&slots)), named(&path, ids.vector_ids(&slots)));
        assert_eq!(
            (held.ok(), vector_ids_held.ok()),
            (user_ids.as_ref().ok().cloned(), vector_ids.as_ref().ok().cloned())
        );
    }
    if let Ok(past) = u32::try_from(n) {
        assert!(ids.user_ids(&[past]).is_err() && ids.vector_ids(&[past]).is_err());
    }
    vector_ids.and(user_ids).map(drop)
}

/// Opens a file of deletions under a manifest that says the same of it; what is left is all but as many slots.
pub fn deleted(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file(DELETED, data);
    // No more slots than a bitmap of 128 KiB has room for.
    let (n, n_deleted) = (field(&path, b"DELS", "n_vertices").min(1 << 20), field(&path, b"DELS", "n_deleted"));
    let build_id = PageFile::open(&path, b"DELS").map_or([0; BUILD_ID_BYTES], |file| file.header.build_id);
    let hex: String = build_id.iter().chain(&[0; 16]).map(|byte| format!("{byte:02x}")).collect();
    let files = [IVF_FILES[0], DELETED, IVF_FILES[1]]
        .map(|name| format!("{{\"name\": \"{name}\", \"bytes\": 0, \"sha256\": \"{hex}\"}}"))
        .join(", ");
    let text = format!(
        "{{\"format\": {{\"name\": \"indexmill\", \"major\": 3}}, \"kind\": \"ivf\", \"build_id\": \"{hex}\", \
         \"generation\": 2, \"deleted\": {{\"file\": \"{DELETED}\", \"vectors\": {n_deleted}, \"previous\": 1}}, \
         \"files\": [{files}],\n"
    );
    let manifest = manifest::parse(&path, &input::manifest(SEALED, text.as_bytes()))?;
    let living = named(&path, Living::open(&directory, &manifest, n as u32, &mut || false))?.expect("it names a file");
    assert_eq!(u64::from(living.n_deleted()), n_deleted);
    assert_eq!(living.slots().iter().count() as u64, n - n_deleted);
    assert!(living.slots().iter().all(|slot| u64::from(slot) < n && living.slots().contains(slot)));
    Ok(())
}

fn content_bytes(ids: &[UserId]) -> u64 {
    let bytes = |id: &UserId| match id {
        UserId::String(text) => text.len() as u64,
        UserId::Binary(bytes) => bytes.len() as u64,
        _ => 0,
    };
    ids.iter().map(bytes).sum()
}

/// A field of the file itself, as if graph.imx said the same; 1 where it is not a number that graph.imx may hold.
fn field(path: &Path, kind: &[u8; 4], name: &str) -> u64 {
    let value = PageFile::open(path, kind).and_then(|file| file.field(name)).unwrap_or(1);
    if (1..=u64::from(u32::MAX)).contains(&value) { value } else { 1 }
}

/// Reads a device profile; what it accepts is an inverse distribution function with caps that can be kept, and makes a
/// device.
pub fn profile(data: &[u8]) -> Result<()> {
    let scratch = input::scratch();
    let path = scratch.0.join("device.json");
    fs::write(&path, data).expect("a place for the inputs");
    let model = named(&path, Profile::read(&path))?.model;
    let points = &model.latency_us;
    assert!(points.len() >= 2 && points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    assert!(points[0].0 == 0.0 && points[points.len() - 1].0 == 1.0);
    assert!(points.iter().all(|point| point.1.is_finite() && point.1 >= 0.0));
    assert!([model.iops, model.mb_per_s].into_iter().flatten().all(|cap| cap.is_finite() && cap > 0.0));
    for fraction in [0.0, 0.3, 0.999, 1.0] {
        let us = model.latency_us(fraction);
        assert!(us >= points[0].1 && us <= points[points.len() - 1].1 * (1.0 + 1e-9), "{us} at {fraction}");
    }
    assert!((0.0..=0.2).contains(&model.occupied_s(PAGE_BYTES)));
    let engine = EngineChoice::new(&format!("simulated:{}", path.display())).expect("its profile was accepted");
    assert_eq!(engine.name(), "simulated");
    Ok(())
}
