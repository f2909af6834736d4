//! Writes include/indexmill.h from the crate's source; an unchanged header is left alone.

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    #[cfg(target_os = "linux")]
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libindexmill.so.0");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    match cbindgen::generate(&root) {
        Ok(header) => {
            header.write_to_file(format!("{root}/include/indexmill.h"));
        }
        Err(error) => panic!("header: {error}"),
    }
}
