//! What the result of a read means, for every engine.

use std::io;
use std::time::Duration;

/// How often one read may be interrupted, or refused for lack of memory, before that is an error: with the pause after
/// each refusal, a second.
pub const MAX_REFUSALS: u32 = 1000;
/// Pause before a refused request is tried again.
pub const REFUSAL_PAUSE: Duration = Duration::from_millis(1);

/// Direct reads start and end at multiples of it.
const DIRECT_ALIGNMENT: usize = 512;

/// How far the read of one block got.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Where the block starts.
    pub unit: u64,
    wanted: usize,
    filled: usize,
    refusals: u32,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The block is whole.
    Done,
    /// Read what is missing.
    Again,
    /// Read what is missing after [`REFUSAL_PAUSE`].
    AgainLater,
}

/// Why a block cannot be read.
#[derive(Debug)]
pub enum Fault {
    /// The system says so.
    Failed(io::Error),
    /// The file ends before the block does.
    Cut,
}

impl Progress {
    /// Nothing read yet of the `wanted` bytes that start at `unit`.
    pub fn new(unit: u64, wanted: usize) -> Self {
        Progress { unit, wanted, filled: 0, refusals: 0 }
    }

    /// Bytes that are there.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes that are missing.
    pub fn missing(&self) -> usize {
        self.wanted - self.filled
    }

    /// Takes up the bytes got, or the error, of a read of what was missing. `direct` says whether it bypassed the page
    /// cache: such a read that is merely short ends aligned, so another end is the end of the file.
    pub fn take(&mut self, result: io::Result<usize>, direct: bool) -> Result<Next, Fault> {
        match result {
            Ok(0) => Err(Fault::Cut),
            Ok(got) => {
                self.filled += got;
                assert!(self.filled <= self.wanted, "{got} bytes came where fewer were asked for");
                if self.filled == self.wanted {
                    Ok(Next::Done)
                } else if direct && !got.is_multiple_of(DIRECT_ALIGNMENT) {
                    Err(Fault::Cut)
                } else {
                    Ok(Next::Again)
                }
            }
            Err(e) if is_transient(&e) && self.refusals < MAX_REFUSALS => {
                self.refusals += 1;
                Ok(if e.kind() == io::ErrorKind::Interrupted { Next::Again } else { Next::AgainLater })
            }
            Err(e) => Err(Fault::Failed(e)),
        }
    }
}

/// Whether trying again may help.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    #[test]
    fn a_whole_read_is_done_and_a_short_one_goes_on_where_it_ended() {
        assert_eq!(Progress::new(3, 4096).take(Ok(4096), true).unwrap(), Next::Done);
        let mut progress = Progress::new(3, 4096);
        assert_eq!(progress.take(Ok(512), true).unwrap(), Next::Again);
        assert_eq!((progress.filled(), progress.missing()), (512, 3584));
        assert_eq!(progress.take(Ok(3584), true).unwrap(), Next::Done);
    }

    #[test]
    fn the_end_of_the_file_inside_a_block_is_a_cut() {
        assert!(matches!(Progress::new(0, 4096).take(Ok(0), false), Err(Fault::Cut)));
        assert!(matches!(Progress::new(0, 4096).take(Ok(100), true), Err(Fault::Cut)));
        let mut buffered = Progress::new(0, 4096);
        assert_eq!(buffered.take(Ok(100), false).unwrap(), Next::Again);
        assert!(matches!(buffered.take(Ok(0), false), Err(Fault::Cut)));
    }

    #[test]
    fn interrupted_and_refused_reads_are_tried_again_but_not_for_ever() {
        for (code, next) in
            [(libc::EINTR, Next::Again), (libc::EAGAIN, Next::AgainLater), (libc::EBUSY, Next::AgainLater)]
        {
            let mut progress = Progress::new(0, 4096);
            for _ in 0..MAX_REFUSALS {
                assert_eq!(progress.take(errno(code), true).unwrap(), next);
                assert_eq!(progress.missing(), 4096);
            }
            assert!(
                matches!(progress.take(errno(code), true), Err(Fault::Failed(e)) if e.raw_os_error() == Some(code))
            );
        }
    }

    #[test]
    fn every_other_error_is_one() {
        for code in [libc::EIO, libc::EINVAL, libc::EFAULT, libc::EOPNOTSUPP, libc::ENODATA] {
            let fault = Progress::new(0, 4096).take(errno(code), true).unwrap_err();
            assert!(matches!(fault, Fault::Failed(e) if e.raw_os_error() == Some(code)));
        }
    }
}
