//! Deletions of a written index: the file of slots, and a manifest that names it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{page_file, write_manifest};

/// Slots to delete, and what the files say of them; a test may change these.
pub struct Deletion {
    pub file: &'static str,
    /// Of the header.
    pub n_vertices: u64,
    pub n_deleted: u64,
    /// Of the manifest.
    pub vectors: u64,
    pub previous: u64,
    /// First byte of the build id in the header, by what it differs.
    pub build_id_off: u8,
    pub slots: Vec<u32>,
}

impl Deletion {
    /// Of `slots`, ascending, of an index of `n`.
    pub fn new(n: usize, slots: &[u32]) -> Self {
        let (n_vertices, count) = (n as u64, slots.len() as u64);
        let (file, slots) = ("deleted-000002.imx", slots.to_vec());
        Deletion { file, n_vertices, n_deleted: count, vectors: count, previous: 1, build_id_off: 0, slots }
    }

    /// Makes it the second generation of the index at `path`.
    pub fn write(&self, path: &Path) {
        let text = fs::read_to_string(path.join("manifest.json")).unwrap();
        let mut manifest: Value = serde_json::from_str(&text).unwrap();
        let mut build_id: Vec<u8> = fs::read(path.join("ids.imx")).unwrap()[16..32].to_vec();
        build_id[0] ^= self.build_id_off;
        let payload = self.slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let fields = [("n_vertices", self.n_vertices), ("n_deleted", self.n_deleted)];
        let bytes = page_file(b"DELS", &build_id, &fields, &[("slots", payload)]);
        fs::write(path.join(self.file), &bytes).unwrap();
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let files = manifest["files"].as_array_mut().unwrap();
        files.retain(|entry| entry["name"] != self.file);
        files.push(json!({"name": self.file, "bytes": bytes.len(), "sha256": sha256}));
        files.sort_by_key(|entry| entry["name"].as_str().unwrap().to_owned());
        manifest["deleted"] = json!({"file": self.file, "vectors": self.vectors, "previous": self.previous});
        manifest["generation"] = json!(2);
        manifest["format"] = json!({"name": "indexmill", "major": 3, "minor": 0});
        manifest.as_object_mut().unwrap().remove("digest");
        let text = serde_json::to_string_pretty(&manifest).unwrap();
        write_manifest(path, &(text.strip_suffix("\n}").unwrap().to_owned() + ",\n"));
    }
}

/// Deletes `slots`, ascending, of the index of `n` at `path`.
pub fn delete(path: &Path, n: usize, slots: &[u32]) {
    Deletion::new(n, slots).write(path);
}
