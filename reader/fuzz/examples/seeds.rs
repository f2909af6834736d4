//! Writes the generated seeds again, after a change of a format: `cargo run -p indexmill-fuzz --example seeds`.

use std::fs;

use indexmill_fuzz::{TARGETS, seeds};

fn main() -> std::io::Result<()> {
    for target in &TARGETS {
        let folder = seeds::folder(target.name);
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(seeds::VALID)) {
                fs::remove_file(path)?;
            }
        }
    }
    for seed in seeds::all() {
        fs::write(seeds::folder(seed.target).join(&seed.name), &seed.bytes)?;
    }
    Ok(())
}
