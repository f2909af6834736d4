//! Writes include/indexmill.h from the crate's source; an unchanged header is left alone.

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    // IM_ABI_VERSION of src/lib.rs: programs of another version do not load this library.
    #[cfg(target_os = "linux")]
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libindexmill.so.3");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    match cbindgen::generate(&root) {
        Ok(header) => {
            header.write_to_file(format!("{root}/include/indexmill.h"));
        }
        Err(error) => panic!("header: {error}"),
    }
}
