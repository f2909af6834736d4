//! Opening files that may not be what their names say: nothing is waited for, such as a writer at the other end of a
//! FIFO, and only accepted types of files are opened.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the file at `path` for reading, with further `flags` of open(2); `None` if `accepts` refuses its type.
pub fn open(path: &Path, flags: i32, accepts: fn(&FileType) -> bool) -> io::Result<Option<File>> {
    settled(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path)?, accepts)
}

/// A file that was opened with `O_NONBLOCK`, without that flag: under it io_uring fails reads that have to wait. `None`
/// if `accepts` refuses its type.
pub fn settled(file: File, accepts: fn(&FileType) -> bool) -> io::Result<Option<File>> {
    if !accepts(&file.metadata()?.file_type()) {
        return Ok(None);
    }
    // SAFETY: an open descriptor, and commands that touch no memory.
    let is_settled = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) >= 0
    };
    if is_settled { Ok(Some(file)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;
    use std::{fs, thread};

    use super::*;
    use crate::testing::make_fifo;

    #[test]
    fn a_fifo_is_neither_waited_for_nor_opened() {
        let path = std::env::temp_dir().join(format!("indexmill-fifo-{}", std::process::id()));
        make_fifo(&path);
        let opened = thread::spawn({
            let path = path.clone();
            move || open(&path, 0, FileType::is_file).map(|file| file.is_some())
        });
        assert!(!opened.join().unwrap().unwrap());
        assert!(open(&path, 0, FileType::is_fifo).unwrap().is_some());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_opened_file_waits_for_its_reads() {
        let path = std::env::temp_dir().join(format!("indexmill-settled-{}", std::process::id()));
        fs::write(&path, b"bytes").unwrap();
        let file = open(&path, 0, FileType::is_file).unwrap().unwrap();
        // SAFETY: an open descriptor.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0);
        fs::remove_file(&path).unwrap();
    }
}
