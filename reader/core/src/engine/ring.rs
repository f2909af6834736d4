//! One io_uring: setting it up, handing requests to the kernel, waiting for it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::contract::LONGEST_WAIT;
use super::progress::{MAX_REFUSALS, REFUSAL_PAUSE, is_transient};

/// The kernel's largest submission queue.
const MAX_ENTRIES: usize = 32768;
/// How long the kernel's polling thread looks for requests before it sleeps, and must be woken by a system call.
const POLLER_IDLE_MS: u32 = 20;
/// IORING_ENTER_GETEVENTS: wait, and run completions that were put off.
const GETEVENTS: u32 = 1;
/// IORING_ENTER_SQ_WAKEUP: wake the polling thread.
const WAKE_POLLER: u32 = 2;
/// IORING_ENTER_EXT_ARG: the argument says how long to wait.
const WITH_LIMIT: u32 = 8;

/// One io_uring. One thread uses it at a time: completions run on the thread that sent the request, so another one takes
/// it over only when none is missing.
pub struct Ring {
    ring: IoUring,
    /// Pushed, and not yet taken by the kernel as far as is known.
    unsubmitted: usize,
    /// A thread of the kernel takes requests by itself (SQPOLL).
    has_poller: bool,
}

impl Ring {
    /// A ring for `slots` requests at a time that are submitted by system calls. A finished read does not interrupt
    /// the submitting thread, where the kernel can do without (5.19 and later). Putting completions off until they
    /// are asked for (DEFER_TASKRUN) was measured as well: it hands over fewer reads a call, and to a thread that
    /// computes for 12 microseconds a read each costs 0.7 (32 in flight) to 3 (4 in flight) microseconds more.
    pub fn new(slots: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        // The flag says when there are completions to run, so that looking for some costs no system call.
        builder.setup_coop_taskrun().setup_taskrun_flag();
        let ring = match builder.build(entries(slots)) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries(slots))?,
            ring => ring?,
        };
        Ring { ring, unsubmitted: 0, has_poller: false }.tried()
    }

    /// A ring from which a kernel thread takes requests by itself: the thread of the ring `share`, or a new one.
    pub fn with_poller(slots: usize, share: Option<&Ring>) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_sqpoll(POLLER_IDLE_MS);
        if let Some(other) = share {
            builder.setup_attach_wq(other.ring.as_raw_fd());
        }
        Ring { ring: builder.build(entries(slots))?, unsubmitted: 0, has_poller: true }.tried()
    }

    /// Sends one empty request: some containers allow setting up a ring and forbid its use.
    fn tried(mut self) -> io::Result<Self> {
        // SAFETY: a no-op touches no memory.
        unsafe { self.push(&opcode::Nop::new().build()) }?;
        while self.next_completion().is_none() {
            self.enter(1)?;
        }
        Ok(self)
    }

    /// Registers the files by their positions, and the buffers as number 0. Limits on locked memory may refuse the
    /// buffers; reads work without either.
    ///
    /// # Safety
    /// The buffers stay where they are while requests are in flight.
    pub unsafe fn register(&self, files: &[RawFd], buffers: libc::iovec) -> (io::Result<()>, io::Result<()>) {
        let files = self.ring.submitter().register_files(files);
        // SAFETY: as the caller says.
        (files, unsafe { self.ring.submitter().register_buffers(&[buffers]) })
    }

    /// Puts a request into the queue for the next [`Ring::enter`].
    ///
    /// # Safety
    /// Memory and descriptor of the request are valid until it completes.
    pub unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: as the caller says.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter(0)?;
        }
        self.unsubmitted += 1;
        Ok(())
    }

    /// Whether requests wait for [`Ring::enter`].
    pub fn has_unsubmitted(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Whether [`Ring::enter`] would bring completions that are not in the queue yet.
    pub fn has_put_off(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// The next completion, if there is one.
    pub fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Whether a wait ends after [`LONGEST_WAIT`] (Linux 5.11).
    pub fn limits_waits(&self) -> bool {
        self.ring.params().is_feature_ext_arg()
    }

    /// Submits what was pushed, runs due completions and waits for `want` of them. A signal may end the wait early, and
    /// after [`LONGEST_WAIT`] it ends in any case, where the system can do that: see [`Ring::limits_waits`].
    pub fn enter(&mut self, want: u32) -> io::Result<()> {
        let mut refusals = 0;
        loop {
            match if self.has_poller { self.enter_beside_poller(want) } else { self.enter_once(want) } {
                Ok(()) if self.unsubmitted == 0 => return Ok(()),
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::ETIME) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted && self.unsubmitted == 0 => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_transient(&e) && refusals < MAX_REFUSALS => {
                    refusals += 1;
                    std::thread::sleep(REFUSAL_PAUSE);
                }
                Err(e) => return Err(e),
            }
            if !self.ring.completion().is_empty() {
                // Let the caller make room before trying again.
                return Ok(());
            }
        }
    }

    fn enter_once(&mut self, want: u32) -> io::Result<()> {
        let taken = self.call(want, GETEVENTS)?;
        self.unsubmitted -= taken.min(self.unsubmitted);
        Ok(())
    }

    /// The system is called only to wait, or to wake a poller that fell asleep.
    fn enter_beside_poller(&mut self, want: u32) -> io::Result<()> {
        let wake = if self.ring.submission().need_wakeup() { WAKE_POLLER } else { 0 };
        let flags = wake | if want > 0 { GETEVENTS } else { 0 };
        if flags != 0 {
            self.call(want, flags)?;
        }
        self.unsubmitted = 0;
        Ok(())
    }

    /// The system call; returns how many requests the kernel took.
    fn call(&self, want: u32, flags: u32) -> io::Result<usize> {
        let (n, submitter) = (self.unsubmitted as u32, self.ring.submitter());
        if want == 0 || !self.limits_waits() {
            // SAFETY: every pushed entry is valid, see `push`; no argument is passed.
            return unsafe { submitter.enter::<libc::sigset_t>(n, want, flags, None) };
        }
        let longest = types::Timespec::from(LONGEST_WAIT);
        let limit = types::SubmitArgs::new().timespec(&longest);
        // SAFETY: as above; the argument is what the flag says, and lives as long as the call.
        unsafe { submitter.enter(n, want, flags | WITH_LIMIT, Some(&limit)) }
    }
}

fn entries(slots: usize) -> u32 {
    slots.next_power_of_two().min(MAX_ENTRIES) as u32
}
