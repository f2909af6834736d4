//! manifest.json: what an index is and which bytes it consists of (docs/formats/manifest.md).

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};

pub use crate::directory::MANIFEST_NAME;
use crate::directory::{Directory, open_together, unfinished};
use crate::error::{Error, InFile, Result};
use crate::pagefile::{BUILD_ID_BYTES, check_major};
use crate::vectors::VECTORS_FILE;

/// Newest format major of a manifest that this code reads: of hash tables with added ones, which readers of the third would
/// not search. Those of the second return what was deleted, and those of the first misread page files of the second.
const MAJOR: u16 = 4;
/// Record of a build beside the index; never part of it.
const RUN_NAME: &str = "run.json";
/// Files without which a graph index cannot be searched.
pub const GRAPH_FILES: [&str; 4] = ["codes.imx", "entries.imx", "graph.imx", "ids.imx"];
/// Files without which an index of hash tables cannot be searched.
pub const LSH_FILES: [&str; 5] = ["buckets.imx", "functions.imx", "ids.imx", "tables.imx", "vectors.imx"];
/// Files without which an index of inverted lists cannot be searched; it has one more for each batch.
pub const IVF_FILES: [&str; 2] = ["centroids.imx", "ids.imx"];
/// Name of the navigation graph, which an index may lack.
pub const NAVIGATION_FILE: &str = "navigation.imx";
/// Name of the metadata columns, which an index may lack.
pub const METADATA_FILE: &str = "metadata.parquet";

/// A manifest holds parameters and a few file entries; a larger file is not one.
const MAX_BYTES: u64 = 64 << 20;
const TAIL_BYTES: usize = 81;
const TAIL_START: &[u8] = b"  \"digest\": \"";
const TAIL_END: &[u8] = b"\"\n}\n";

/// What an index is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// A graph: [`crate::Index`].
    Graph,
    /// Hash tables: [`crate::LshIndex`].
    Lsh,
    /// Inverted lists: [`crate::IvfIndex`].
    Ivf,
}

impl Kind {
    const NAMES: [(&'static str, Kind); 3] = [("graph", Kind::Graph), ("lsh", Kind::Lsh), ("ivf", Kind::Ivf)];

    /// Name as in manifests.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |&(name, _)| name)
    }

    /// Files that a search needs.
    fn files(self) -> &'static [&'static str] {
        match self {
            Kind::Graph => &GRAPH_FILES,
            Kind::Lsh => &LSH_FILES,
            Kind::Ivf => &IVF_FILES,
        }
    }
}

/// The keys of the manifest that a reader needs.
#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    /// What the index is made of.
    pub kind: Kind,
    /// 64 hex digits; the first 32 stand in every page file.
    pub build_id: String,
    /// 1 for a build; missing in those before version 1.2.
    #[serde(default = "first")]
    generation: u64,
    /// Deletions since the index was built; `None` if all vectors are there.
    #[serde(default)]
    deleted: Option<Deleted>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    graph: GraphFacts,
    /// Every file of the index except the manifest and run.json, sorted by name.
    pub files: Vec<FileEntry>,
}

/// The parameters of the build that tell which files the index has.
#[derive(Debug, Clone, Default, Deserialize)]
struct Parameters {
    /// Whether exact vectors lie beside codes; missing in manifests of kinds and versions without that choice.
    #[serde(default)]
    keep_vectors: bool,
}

/// What is known of a graph.
#[derive(Debug, Clone, Default, Deserialize)]
struct GraphFacts {
    #[serde(default)]
    labels: Option<Labels>,
}

/// Edges of a graph that stay within labels, values of a metadata column.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Labels {
    /// The column.
    pub column: String,
    /// Fewest and most vectors of a label with such edges, deleted ones counted.
    pub least: u32,
    /// See `least`.
    pub most: u32,
}

/// Deletions since an index was built.
#[derive(Debug, Clone, Deserialize)]
pub struct Deleted {
    /// The file of their slots, one of those of the index.
    file: String,
    /// How many vectors were deleted.
    pub vectors: u32,
    /// The generation from which that of the manifest was made.
    previous: u64,
}

fn first() -> u64 {
    1
}

/// One file of an index.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct FileEntry {
    /// One path component of `[A-Za-z0-9._-]`, not starting with a dot.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of its bytes, 64 hex digits.
    pub sha256: String,
    /// 32 hex digits: the build id in the header of a page file that was taken over from an earlier index.
    #[serde(default)]
    pub build_id: Option<String>,
}

#[derive(Deserialize)]
struct Preamble {
    format: Format,
    kind: String,
}

#[derive(Deserialize)]
struct Format {
    name: String,
    major: u64,
}

/// Reads and checks the manifest of `directory`: digest, version, kind, names. Sizes are `check_sizes`'s part.
pub fn read(directory: &Directory) -> Result<Manifest> {
    let path = directory.join(MANIFEST_NAME);
    let file = match directory.open_file(MANIFEST_NAME, 0) {
        Ok(Some(file)) => file,
        Ok(None) => return Err(foreign(&path)),
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(unfinished(&path)),
        Err(e) => return Err(Error::io(&path, "open", e)),
    };
    let mut bytes = Vec::new();
    (&file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Error::io(&path, "read", e))?;
    directory.begin_with(file);
    if bytes.len() as u64 > MAX_BYTES {
        return Err(foreign(&path));
    }
    parse(&path, &bytes)
}

/// Reads and checks the manifest of the index in directory `path`, whichever has that name at the moment.
pub fn read_at(path: &Path) -> Result<Manifest> {
    open_together(path, &mut || false, |directory, _| read(directory).map(Some))
}

/// Checks the bytes of a manifest; see [`read`].
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Manifest> {
    let body = check_digest(path, bytes)?;
    // The body lacks the digest and the closing brace; the whole file is the JSON text.
    debug_assert!(body.len() < bytes.len());
    let text = |e: serde_json::Error| Error::corrupt(path, "text", "JSON with the keys of a manifest", e);
    let preamble: Preamble = serde_json::from_slice(bytes).map_err(text)?;
    if preamble.format.name != "indexmill" {
        return Err(foreign(path));
    }
    check_major(path, preamble.format.major, MAJOR)?;
    if !Kind::NAMES.iter().any(|(name, _)| *name == preamble.kind) {
        let known = Kind::NAMES.map(|(name, _)| format!("{name:?}")).join(" or ");
        let message = format!("kind: expected {known}, got {:?}; install a newer indexmill to read it", preamble.kind);
        return Err(Error::TooNew(InFile::of(path, message)));
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(text)?;
    check_entries(path, &manifest)?;
    Ok(manifest)
}

fn foreign(path: &Path) -> Error {
    Error::Foreign(InFile::of(path, "expected a manifest of indexmill, got something else; check the path"))
}

fn check_digest<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let (body, tail) = bytes.split_at(bytes.len().saturating_sub(TAIL_BYTES));
    let stored = tail.strip_prefix(TAIL_START).and_then(|t| t.strip_suffix(TAIL_END)).filter(|hex| hex.len() == 64);
    let Some(stored) = stored else {
        if !bytes.windows(11).any(|w| w == b"\"indexmill\"") {
            return Err(foreign(path));
        }
        let place = format!("offset {}", body.len());
        return Err(Error::corrupt(path, place, "the digest as the last key", tail.escape_ascii()));
    };
    let digest = hex(&Sha256::digest(body));
    if digest.as_bytes() != stored {
        return Err(Error::corrupt(path, "digest", stored.escape_ascii(), digest));
    }
    Ok(body)
}

fn check_entries(path: &Path, manifest: &Manifest) -> Result<()> {
    if !is_hex(&manifest.build_id, 64) {
        return Err(Error::corrupt(path, "build_id", "64 hex digits", format!("{:?}", manifest.build_id)));
    }
    for (i, entry) in manifest.files.iter().enumerate() {
        if !is_file_name(&entry.name) {
            let expected = "one component of [A-Za-z0-9._-] with no dot in front";
            return Err(Error::corrupt(path, format!("files[{i}]: name"), expected, format!("{:?}", entry.name)));
        }
        for (key, digits, value) in [("sha256", 64, Some(&entry.sha256)), ("build_id", 32, entry.build_id.as_ref())] {
            if let Some(value) = value.filter(|value| !is_hex(value, digits)) {
                let place = format!("files[{i}]: {key}");
                return Err(Error::corrupt(path, place, format!("{digits} hex digits"), format!("{value:?}")));
            }
        }
    }
    if !manifest.files.is_sorted_by(|a, b| a.name < b.name) {
        return Err(Error::corrupt(path, "files", "different names in order", "another order"));
    }
    if let Some(deleted) = &manifest.deleted {
        let entry = manifest.entry(path, &deleted.file)?;
        if !is_deleted_name(&entry.name) {
            let got = format!("{:?}", entry.name);
            return Err(Error::corrupt(path, "deleted: file", "\"deleted-\" and at least six digits", got));
        }
        let earlier = manifest.generation.saturating_sub(1);
        for (key, value, most) in
            [("vectors", deleted.vectors.into(), u32::MAX.into()), ("previous", deleted.previous, earlier)]
        {
            if !(1..=most).contains(&value) {
                return Err(Error::corrupt(path, format!("deleted: {key}"), format!("1..{most}"), value));
            }
        }
    }
    for name in manifest.kind.files() {
        manifest.entry(path, name)?;
    }
    if manifest.parameters.keep_vectors && !manifest.names(VECTORS_FILE) {
        let expected = format!("an entry for {VECTORS_FILE}, as \"keep_vectors\" of \"parameters\" is true");
        return Err(Error::corrupt(path, "files", expected, "none"));
    }
    Ok(())
}

fn is_file_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(allowed) && name != MANIFEST_NAME && name != RUN_NAME
}

/// Whether a file of slots of deleted vectors may have this name.
fn is_deleted_name(name: &str) -> bool {
    let digits = name.strip_prefix("deleted-").and_then(|rest| rest.strip_suffix(".imx"));
    digits.is_some_and(|digits| {
        let is_padded = digits.len() == 6 || digits.len() > 6 && !digits.starts_with('0');
        is_padded && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Lower-case hex digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Manifest {
    fn entry(&self, path: &Path, name: &str) -> Result<&FileEntry> {
        self.file(name).ok_or_else(|| Error::corrupt(path, "files", format!("an entry for {name}"), "none"))
    }

    /// The file of this name, if the index has it.
    pub fn file(&self, name: &str) -> Option<&FileEntry> {
        let at = self.files.binary_search_by(|entry| entry.name.as_str().cmp(name));
        at.ok().map(|i| &self.files[i])
    }

    /// The labels that edges stay within, if there are such edges: of a build, not of an index that vectors were added to.
    pub fn labels(&self) -> Option<&Labels> {
        self.graph.labels.as_ref()
    }

    /// What was deleted, and the file that says so.
    pub fn deleted(&self) -> Option<(&Deleted, &FileEntry)> {
        self.deleted.as_ref().and_then(|deleted| Some((deleted, self.file(&deleted.file)?)))
    }

    /// Whether the file of this name says what was deleted. It came after the build, whose id leaves it out.
    pub(crate) fn is_of_deletions(&self, name: &str) -> bool {
        self.deleted.as_ref().is_some_and(|deleted| deleted.file == name)
    }

    /// Refuses an index of another kind, in directory `path`.
    pub fn expect_kind(&self, path: &Path, kind: Kind) -> Result<()> {
        if self.kind != kind {
            let (want, got) = (kind.name(), self.kind.name());
            let message = format!("expected an index of kind {want:?}, got one of kind {got:?}");
            return Err(Error::OtherKind(InFile::of(path, format!("{message}; open it as its own kind"))));
        }
        Ok(())
    }

    /// Refuses a page file, at `path`, of another build than that which the manifest says it is of.
    pub fn check_build_id(&self, path: &Path, build_id: &[u8; BUILD_ID_BYTES]) -> Result<()> {
        let entry = path.file_name().and_then(|name| self.file(name.to_str()?));
        let taken_over = entry.and_then(|entry| entry.build_id.as_deref());
        let (got, want) = (hex(build_id), taken_over.unwrap_or(self.header_build_id()));
        if got != want {
            return Err(Error::corrupt(path, "build id in the header", want, got));
        }
        Ok(())
    }

    /// Whether the index has a file of this name.
    pub fn names(&self, name: &str) -> bool {
        self.file(name).is_some()
    }

    /// The 16 bytes that every page file of this index carries, as hex digits, unless it was taken over from another.
    pub fn header_build_id(&self) -> &str {
        self.build_id.get(..2 * BUILD_ID_BYTES).unwrap_or_default()
    }

    /// Checks that every named file is there with its stated size.
    pub fn check_sizes(&self, directory: &Directory) -> Result<()> {
        self.files.iter().try_for_each(|entry| open_listed(directory, entry).map(drop))
    }

    /// The metadata, if the index has some.
    pub(crate) fn open_metadata(&self, directory: &Directory) -> Result<Option<Arc<File>>> {
        self.file(METADATA_FILE).map(|entry| open_listed(directory, entry).map(Arc::new)).transpose()
    }
}

/// Opens the file of `entry`, which must be there with its stated size.
pub(crate) fn open_listed(directory: &Directory, entry: &FileEntry) -> Result<File> {
    let path = directory.join(&entry.name);
    let refuse = |place: &str, got: String| Error::corrupt(&path, place, format!("{} bytes", entry.bytes), got);
    let file = match directory.open_file(&entry.name, 0) {
        Ok(Some(file)) => file,
        Ok(None) => return Err(refuse("file", "no regular file".to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(refuse("file", "no such file".to_owned())),
        Err(e) => return Err(Error::io(&path, "open", e)),
    };
    let bytes = file.metadata().map_err(|e| Error::io(&path, "read its size", e))?.len();
    if bytes == entry.bytes { Ok(file) } else { Err(refuse("size of the file", format!("{bytes} bytes"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_taken_over_has_the_build_id_that_its_entry_states() {
        let entry = |name: &str, build_id: Option<&str>| FileEntry {
            name: name.to_owned(),
            bytes: 1,
            sha256: "0".repeat(64),
            build_id: build_id.map(str::to_owned),
        };
        let earlier = "cd".repeat(16);
        let files = vec![entry("batch-000000.imx", Some(&earlier)), entry("batch-000001.imx", None)];
        let mut manifest = Manifest {
            kind: Kind::Ivf,
            build_id: "ab".repeat(32),
            generation: 2,
            deleted: None,
            parameters: Parameters::default(),
            graph: GraphFacts::default(),
            files,
        };
        let is_accepted = |name: &str, byte| manifest.check_build_id(Path::new(name), &[byte; 16]).is_ok();
        assert!(is_accepted("/x/batch-000000.imx", 0xcd) && !is_accepted("/x/batch-000000.imx", 0xab));
        assert!(is_accepted("/x/batch-000001.imx", 0xab) && !is_accepted("/x/batch-000001.imx", 0xcd));
        for wrong in ["", "cd", &"g".repeat(32), &"c".repeat(64)] {
            manifest.files[0].build_id = Some(wrong.to_owned());
            let error = check_entries(Path::new("manifest.json"), &manifest).unwrap_err().to_string();
            assert!(error.contains("files[0]: build_id") && error.contains("32 hex digits"), "{error}");
        }
    }

    #[test]
    fn files_are_found_by_their_names() {
        let names = ["a.imx", "b", "b.imx", "batch-000002.imx", "ids.imx"];
        let entry =
            |name: &&str| FileEntry { name: (*name).to_owned(), bytes: 1, sha256: String::new(), build_id: None };
        let manifest = |n: usize| Manifest {
            kind: Kind::Ivf,
            build_id: String::new(),
            generation: 1,
            deleted: None,
            parameters: Parameters::default(),
            graph: GraphFacts::default(),
            files: names[..n].iter().map(entry).collect(),
        };
        for n in 0..=names.len() {
            for name in names.iter().chain(&["", "a", "b.im", "c", "z"]) {
                let found = manifest(n).file(name).map(|entry| entry.name.clone());
                assert_eq!(found.as_deref(), names[..n].contains(name).then_some(*name));
                assert_eq!(manifest(n).names(name), found.is_some());
            }
        }
    }
}
