//! manifest.json: what an index is and which bytes it consists of (docs/formats/manifest.md).

use std::fs;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::pagefile::{BUILD_ID_BYTES, check_major};

/// Name of the manifest in an index directory.
pub const MANIFEST_NAME: &str = "manifest.json";
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

/// A manifest holds parameters and a few file entries; a larger file is not one.
const MAX_BYTES: u64 = 64 << 20;
const TAIL_BYTES: usize = 81;
const TAIL_START: &[u8] = b"  \"digest\": \"";
const TAIL_END: &[u8] = b"\"\n}\n";

/// What an index is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Every file of the index except the manifest and run.json, sorted by name.
    pub files: Vec<FileEntry>,
}

/// One file of an index.
#[derive(Debug, Clone, Deserialize)]
pub struct FileEntry {
    /// One path component of `[A-Za-z0-9._-]`, not starting with a dot.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of its bytes, 64 hex digits.
    pub sha256: String,
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
pub fn read(directory: &Path) -> Result<Manifest> {
    let path = directory.join(MANIFEST_NAME);
    let bytes = match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_BYTES => {
            fs::read(&path).map_err(|e| Error::io(&path, "read", e))?
        }
        Ok(_) => return Err(foreign(&path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("{}: expected a manifest, got no such file", path.display());
            return Err(Error::Foreign(format!("{message}; the directory is not a finished index")));
        }
        Err(e) => return Err(Error::io(&path, "read", e)),
    };
    parse(&path, &bytes)
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
    check_major(path, preamble.format.major)?;
    if !Kind::NAMES.iter().any(|(name, _)| *name == preamble.kind) {
        let known = Kind::NAMES.map(|(name, _)| format!("{name:?}")).join(" or ");
        let message = format!("{}: kind: expected {known}, got {:?}", path.display(), preamble.kind);
        return Err(Error::TooNew(format!("{message}; install a newer indexmill to read it")));
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(text)?;
    check_entries(path, &manifest)?;
    Ok(manifest)
}

fn foreign(path: &Path) -> Error {
    let message = format!("{}: expected a manifest of indexmill, got something else", path.display());
    Error::Foreign(format!("{message}; check the path"))
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
    if !is_hex(&manifest.build_id) {
        return Err(Error::corrupt(path, "build_id", "64 hex digits", format!("{:?}", manifest.build_id)));
    }
    for (i, entry) in manifest.files.iter().enumerate() {
        if !is_file_name(&entry.name) {
            let expected = "one component of [A-Za-z0-9._-] with no dot in front";
            return Err(Error::corrupt(path, format!("files[{i}]: name"), expected, format!("{:?}", entry.name)));
        }
        if !is_hex(&entry.sha256) {
            return Err(Error::corrupt(
                path,
                format!("files[{i}]: sha256"),
                "64 hex digits",
                format!("{:?}", entry.sha256),
            ));
        }
    }
    if !manifest.files.is_sorted_by(|a, b| a.name < b.name) {
        return Err(Error::corrupt(path, "files", "different names in order", "another order"));
    }
    for name in manifest.kind.files() {
        manifest.entry(path, name)?;
    }
    Ok(())
}

fn is_file_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(allowed) && name != MANIFEST_NAME && name != RUN_NAME
}

fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Lower-case hex digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Manifest {
    fn entry(&self, path: &Path, name: &str) -> Result<&FileEntry> {
        let found = self.files.iter().find(|f| f.name == name);
        found.ok_or_else(|| Error::corrupt(path, "files", format!("an entry for {name}"), "none"))
    }

    /// Refuses an index of another kind, in directory `path`.
    pub fn expect_kind(&self, path: &Path, kind: Kind) -> Result<()> {
        if self.kind != kind {
            let (path, want, got) = (path.display(), kind.name(), self.kind.name());
            let message = format!("{path}: expected an index of kind {want:?}, got one of kind {got:?}");
            return Err(Error::Config(format!("{message}; open it as its own kind")));
        }
        Ok(())
    }

    /// Refuses a page file, at `path`, of another build.
    pub fn check_build_id(&self, path: &Path, build_id: &[u8; BUILD_ID_BYTES]) -> Result<()> {
        let (got, want) = (hex(build_id), self.header_build_id());
        if got != want {
            return Err(Error::corrupt(path, "build id in the header", want, got));
        }
        Ok(())
    }

    /// Whether the index has a file of this name.
    pub fn names(&self, name: &str) -> bool {
        self.files.iter().any(|f| f.name == name)
    }

    /// The 16 bytes that every page file of this index carries, as hex digits.
    pub fn header_build_id(&self) -> &str {
        self.build_id.get(..2 * BUILD_ID_BYTES).unwrap_or_default()
    }

    /// Checks that every named file is there with its stated size.
    pub fn check_sizes(&self, directory: &Path) -> Result<()> {
        self.files.iter().try_for_each(|entry| check_size(directory, entry))
    }
}

/// Checks that the file of `entry` is there with its stated size.
pub fn check_size(directory: &Path, entry: &FileEntry) -> Result<()> {
    let path = directory.join(&entry.name);
    let expected = format!("{} bytes", entry.bytes);
    match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() == entry.bytes => Ok(()),
        Ok(meta) => Err(Error::corrupt(&path, "size of the file", expected, format!("{} bytes", meta.len()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::corrupt(&path, "file", expected, "no such file"))
        }
        Err(e) => Err(Error::io(&path, "read its size", e)),
    }
}
