//! Measuring a device: random reads of one size with a fixed number in flight, as fio's randread does it.
//!
//! Reads go through the engine that searches use: io_uring, bypassing the page cache, where the system allows both.
//! Each thread keeps its share of the depth in flight, and sends a new read for each finished one. A read's latency
//! runs from just before its submission until the thread handles it, which at large depths includes the wait for its
//! turn.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Access, DataFile, Engine, EngineChoice};
use crate::error::{Error, Result};
use crate::files;
use crate::pagefile::PAGE_BYTES;
use crate::random::Random;

const MIN_BLOCK_BYTES: usize = 512;
const MAX_BLOCK_BYTES: usize = 16 << 20;
const MAX_DEPTH: usize = 4096;
const MAX_THREADS: usize = 256;
const MAX_SECONDS: f64 = 3600.0;
/// Latencies kept, 4 bytes each; a measurement ends early when it has them.
const MAX_READS: usize = 1 << 26;
/// How often the caller is asked whether to go on.
const INTERRUPT_EVERY: Duration = Duration::from_millis(20);

/// The load of a measurement. Later versions may add fields: begin with [`Load::new`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Load {
    /// Bytes a read, a power of two from 512 on, and its alignment.
    pub block_bytes: usize,
    /// Reads in flight, over all threads.
    pub depth: usize,
    /// Threads, at most as many as reads in flight.
    pub threads: usize,
    /// Duration.
    pub seconds: f64,
    /// Seed of the offsets.
    pub seed: u64,
}

/// Results of a measurement.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Measured {
    /// Reads completed.
    pub reads: usize,
    /// From the first submission to the last completion.
    pub elapsed_s: f64,
    /// Whether reads bypassed the page cache.
    pub direct: bool,
    /// "io_uring" or "pread".
    pub engine: &'static str,
    /// Latency of every read: one thread after the other, each in the order of completion.
    pub latencies_us: Vec<f32>,
}

/// Reads blocks of the file or block device at `path`, each chosen uniformly. The file must have no holes: the file
/// system answers for those without the device.
///
/// # Errors
/// `Config` for a load out of range, a path without a whole block and blocks smaller than the device's; `Io` when the
/// system refuses a read.
pub fn measure(path: &Path, load: &Load) -> Result<Measured> {
    measure_unless(path, load, &mut || false)
}

/// As [`measure`]. `interrupted` is asked now and then, on the calling thread only; once it says true the measurement ends
/// with `Interrupted`.
pub fn measure_unless(path: &Path, load: &Load, interrupted: &mut dyn FnMut() -> bool) -> Result<Measured> {
    load.check()?;
    let choice = EngineChoice::new("auto")?;
    let (file, n_blocks) = open(path, load.block_bytes)?;
    let run = Run { load, choice, file: Arc::new(file), n_blocks, stopped: AtomicBool::new(false) };
    let mut parts = Vec::new();
    let mut was_interrupted = false;
    std::thread::scope(|scope| {
        let run = &run;
        let spawn = |i| std::thread::Builder::new().spawn_scoped(scope, move || run.work(i));
        let mut workers = Vec::new();
        for i in 0..load.used_threads() {
            let worker = spawn(i);
            let is_refused = worker.is_err();
            workers.push(worker);
            if is_refused {
                run.stopped.store(true, Ordering::Relaxed);
                break;
            }
        }
        while workers.iter().flatten().any(|worker| !worker.is_finished()) {
            std::thread::sleep(INTERRUPT_EVERY);
            if !was_interrupted && interrupted() {
                was_interrupted = true;
                run.stopped.store(true, Ordering::Relaxed);
            }
        }
        parts.extend(workers.into_iter().map(|worker| {
            let worker = worker.map_err(|e| Error::io(path, "start a measuring thread", e))?;
            worker.join().unwrap_or_else(|panic| Err(Error::panicked(&*panic)))
        }));
    });
    if was_interrupted {
        return Err(Error::Interrupted);
    }
    Ok(run.unite(parts.into_iter().collect::<Result<Vec<Part>>>()?))
}

impl Load {
    /// Keeps `depth` reads of `block_bytes` bytes in flight for some seconds; one thread.
    pub fn new(block_bytes: usize, depth: usize, seconds: f64) -> Self {
        Load { block_bytes, depth, threads: 1, seconds, seed: 0 }
    }

    /// Reads from so many threads.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Load { threads, ..self }
    }

    /// Chooses other blocks.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Load { seed, ..self }
    }

    fn check(&self) -> Result<()> {
        let block = self.block_bytes;
        if !block.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block) {
            let message = format!("block_bytes: expected a power of two in {MIN_BLOCK_BYTES}..{MAX_BLOCK_BYTES}");
            return Err(Error::Config(format!("{message}, got {block}; 4096 is a page")));
        }
        Error::expect_count("depth", self.depth, MAX_DEPTH)?;
        Error::expect_count("threads", self.threads, MAX_THREADS)?;
        if !(self.seconds > 0.0 && self.seconds <= MAX_SECONDS) {
            let message = format!("seconds: expected more than 0 and at most {MAX_SECONDS}, got {}", self.seconds);
            return Err(Error::Config(format!("{message}; a few are enough")));
        }
        Ok(())
    }

    fn used_threads(&self) -> usize {
        self.threads.min(self.depth)
    }
}

/// The file and how many whole blocks it has.
fn open(path: &Path, block_bytes: usize) -> Result<(DataFile, usize)> {
    let refuse = |expected: &str, got: &str, advice: &str| {
        Err(Error::Config(format!("{}: expected {expected}, got {got}; {advice}", path.display())))
    };
    let opened = files::open(path, 0, |kind| kind.is_file() || kind.is_block_device());
    if opened.map_err(|e| Error::io(path, "open", e))?.is_none() {
        return refuse("a file or block device", "something else", "name a large file on the device");
    }
    let file = DataFile::open(path, Access::Direct, block_bytes)?;
    if !file.direct && block_bytes < PAGE_BYTES && DataFile::open(path, Access::Direct, PAGE_BYTES)?.direct {
        let got = format!("block_bytes {block_bytes}");
        return refuse("blocks that the device reads directly", &got, "measure with block_bytes 4096");
    }
    let bytes = file.bytes()?;
    match (bytes / block_bytes as u64) as usize {
        0 => refuse(&format!("{block_bytes} bytes or more"), &bytes.to_string(), "name a larger file"),
        n_blocks => Ok((file, n_blocks)),
    }
}

/// What the threads of one measurement share.
struct Run<'a> {
    load: &'a Load,
    choice: EngineChoice,
    file: Arc<DataFile>,
    n_blocks: usize,
    stopped: AtomicBool,
}

/// What one thread did.
struct Part {
    begin: Instant,
    end: Instant,
    latencies_us: Vec<f32>,
}

impl Run<'_> {
    /// Everything that thread `i` does; its error makes the others end soon.
    fn work(&self, i: usize) -> Result<Part> {
        let (depth, threads) = (self.load.depth, self.load.used_threads());
        let share = depth / threads + usize::from(i < depth % threads);
        let random = Random::new(Random::new(self.load.seed.wrapping_add(i as u64)).next());
        let engine = self.choice.start(&self.file, share, self.load.block_bytes);
        let part = engine.and_then(|mut engine| self.read(&mut *engine, random));
        if part.is_err() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        part
    }

    /// Keeps every buffer of `engine` busy until it is time to stop.
    fn read(&self, engine: &mut dyn Engine, mut random: Random) -> Result<Part> {
        let limit = Duration::from_secs_f64(self.load.seconds);
        let most = MAX_READS / self.load.used_threads();
        let begin = Instant::now();
        let mut part = Part { begin, end: begin, latencies_us: Vec::new() };
        let mut submitted = vec![begin; engine.slots()];
        let mut idle: Vec<usize> = (0..engine.slots()).collect();
        loop {
            let is_over = begin.elapsed() >= limit || part.latencies_us.len() >= most;
            if !is_over && !self.stopped.load(Ordering::Relaxed) {
                for slot in idle.drain(..) {
                    // Submits the read before this one: each is sent alone, as fio does. Reads sent together reach the
                    // device together, which cost a tenth of the rate at a depth of 32 when measured.
                    engine.flush()?;
                    submitted[slot] = Instant::now();
                    engine.queue(slot, random.below(self.n_blocks) as u64)?;
                }
            } else if idle.len() == engine.slots() || self.stopped.load(Ordering::Relaxed) {
                return Ok(part);
            }
            let before = idle.len();
            engine.reap(&mut idle)?;
            part.end = Instant::now();
            let latency_us = |&slot: &usize| (part.end - submitted[slot]).as_secs_f32() * 1e6;
            part.latencies_us.extend(idle[before..].iter().map(latency_us));
        }
    }

    fn unite(&self, parts: Vec<Part>) -> Measured {
        let begin = parts.iter().map(|part| part.begin).min();
        let end = parts.iter().map(|part| part.end).max();
        let elapsed = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
        let latencies_us: Vec<f32> = parts.into_iter().flat_map(|part| part.latencies_us).collect();
        Measured {
            reads: latencies_us.len(),
            elapsed_s: elapsed.as_secs_f64(),
            direct: self.file.direct,
            engine: if self.choice.fell_back() { "pread" } else { self.choice.name() },
            latencies_us,
        }
    }
}
