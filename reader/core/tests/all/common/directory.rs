//! Files of an index that a test may change before it writes them.

use std::ops::DerefMut;
use std::path::Path;

use indexmill_core::verify::verify;
use indexmill_core::{Error, Result};

use super::{Scratch, element_bytes, ids_file, page_file, rows_in_pages, write_directory};

/// Fields and sections of one file.
pub struct Contents {
    pub name: &'static str,
    pub kind: &'static [u8; 4],
    pub fields: Vec<(&'static str, u64)>,
    pub sections: Vec<(&'static str, Vec<u8>)>,
}

/// An index without ids of its own: `ids.imx` counts its vectors.
pub struct Directory {
    pub scratch: Scratch,
    pub n_vectors: usize,
    pub files: Vec<Contents>,
}

impl Directory {
    pub fn new(n_vectors: usize) -> Self {
        Directory { scratch: Scratch::new(), n_vectors, files: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        &self.scratch.0
    }

    /// Writes the files as they are now.
    pub fn seal(&self) {
        let page = |f: &Contents| (f.name, page_file(f.kind, &[0; 16], &f.fields, &f.sections));
        let mut files: Vec<(&str, Vec<u8>)> = self.files.iter().map(page).collect();
        let ids: Vec<u32> = (0..self.n_vectors as u32).collect();
        files.push(("ids.imx", ids_file(&ids, 1)));
        write_directory(&self.scratch.0, &mut files);
    }

    fn file(&mut self, name: &str) -> &mut Contents {
        self.files.iter_mut().find(|file| file.name == name).unwrap()
    }

    pub fn field(&mut self, file: &str, field: &str) -> &mut u64 {
        &mut self.file(file).fields.iter_mut().find(|(name, _)| *name == field).unwrap().1
    }

    /// Payload of a section.
    pub fn section(&mut self, file: &str, section: &str) -> &mut Vec<u8> {
        &mut self.file(file).sections.iter_mut().find(|(name, _)| *name == section).unwrap().1
    }
}

/// `vectors.imx` of hash tables and inverted lists.
pub fn vectors_file(vectors: &[Vec<f32>], dtype: u64, metric: u64, max_norm: f64) -> Contents {
    let dim = vectors[0].len();
    let vector_bytes = (dim * element_bytes(dtype, 0.0).len()).next_multiple_of(4);
    let row = |vector: &Vec<f32>| vector.iter().flat_map(|&x| element_bytes(dtype, x)).collect();
    Contents {
        name: "vectors.imx",
        kind: b"VECT",
        fields: vec![
            ("n_vectors", vectors.len() as u64),
            ("dim", dim as u64),
            ("dtype", dtype),
            ("metric", metric),
            ("max_norm", max_norm.to_bits()),
            ("vector_bytes", vector_bytes as u64),
            ("rows_per_page", 4096 / vector_bytes as u64),
            ("pages_per_row", vector_bytes.div_ceil(4096) as u64),
        ],
        sections: vec![("vectors", rows_in_pages(vectors.iter().map(row), vector_bytes))],
    }
}

/// After `change`, both `use_index` and `verify` name `file` and say `words`.
#[track_caller]
pub fn assert_refused<W: DerefMut<Target = Directory>>(
    mut written: W,
    use_index: impl Fn(&W) -> Result<()>,
    file: &str,
    words: &str,
    change: impl Fn(&mut W),
) {
    change(&mut written);
    written.seal();
    let error = use_index(&written).expect_err("damage that nobody notices");
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let named = format!("{}: ", written.path().join(file).display());
    let texts = verify(written.path());
    for text in texts.iter().chain([&error.to_string()]) {
        assert!(text.starts_with(&named) && text.contains(words), "{text}");
    }
    assert!(!texts.is_empty());
}
