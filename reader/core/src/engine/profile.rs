//! Device profiles: written by measuring a device, followed by the simulated one.
//!
//! A profile is a JSON object: `kind` is "indexmill-device", `version` 1, `name` a text, and `model` has
//!
//! * `latency_us`: points (fraction, microseconds) of the inverse distribution function of the latency, straight
//!   lines in between; fractions increase from 0 to 1, latencies do not decrease;
//! * `iops`: reads a second that the device does not exceed, or null;
//! * `mb_per_s`: megabytes (10^6 bytes) a second that it does not exceed, or null;
//! * `request_us`: microseconds of processor time that it takes to ask for a read; null, or no such key: as long as here.
//!
//! Other keys, such as what was measured, are not read.

use std::fmt::Display;
use std::fs::FileType;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, InFile, Result};
use crate::files;

const KIND: &str = "indexmill-device";
const VERSION: u64 = 1;
/// A profile is a few KiB.
const MAX_BYTES: usize = 16 << 20;
const MAX_POINTS: usize = 65536;
/// Bounds of times: a read ends soon, and the arithmetic of times stays far from its limits.
const MAX_LATENCY_US: f64 = 1e6;
const IOPS: (f64, f64) = (10.0, 1e9);
const MB_PER_S: (f64, f64) = (0.1, 1e6);
const REQUEST_US: (f64, f64) = (0.0, 1000.0);

/// A device, by its name and its behaviour.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// What its maker calls it.
    pub name: String,
    /// How it behaves.
    pub model: Model,
}

/// Latency of single reads, and how many the device takes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// (fraction, microseconds), see the module's head.
    pub latency_us: Vec<(f64, f64)>,
    /// Reads a second at most.
    pub iops: Option<f64>,
    /// 10^6 bytes a second at most.
    pub mb_per_s: Option<f64>,
    /// Microseconds of processor time that a request takes at least.
    pub request_us: Option<f64>,
}

impl Profile {
    /// Reads the profile at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let opened = files::open(path, 0, FileType::is_file).map_err(|e| Error::io(path, "open", e))?;
        let file = opened.ok_or_else(|| Parser { path }.foreign("no regular file".to_owned()))?;
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|e| Error::io(path, "read it", e))?;
        Self::parse(path, &bytes)
    }

    /// Parses the bytes of a profile; `path` is for messages.
    ///
    /// # Errors
    /// `Foreign` for another kind of file, `TooNew` for a later version, `Config` for everything else.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let parser = Parser { path };
        if bytes.len() > MAX_BYTES {
            return Err(parser.wrong("size", format!("{MAX_BYTES} bytes at most"), "more"));
        }
        let root: Value = serde_json::from_slice(bytes).map_err(|e| parser.foreign(format!("no JSON ({e})")))?;
        match root.get("kind") {
            Some(Value::String(kind)) if kind == KIND => {}
            other => return Err(parser.foreign(format!("kind {}", shown(other)))),
        }
        match root.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                let message = format!("version: expected {VERSION}, got {newer}; use a newer indexmill");
                return Err(Error::TooNew(InFile::of(path, message)));
            }
            _ => return Err(parser.wrong("version", VERSION, shown(root.get("version")))),
        }
        let name = match root.get("name") {
            Some(Value::String(name)) => name.clone(),
            other => return Err(parser.wrong("name", "a text", shown(other))),
        };
        let Some(model @ Value::Object(_)) = root.get("model") else {
            return Err(parser.wrong("model", "an object", shown(root.get("model"))));
        };
        let latency_us = parser.latencies(model.get("latency_us"))?;
        let iops = parser.limit("model.iops", model.get("iops"), IOPS)?;
        let mb_per_s = parser.limit("model.mb_per_s", model.get("mb_per_s"), MB_PER_S)?;
        let request_us = match model.get("request_us") {
            None => None,
            given => parser.limit("model.request_us", given, REQUEST_US)?,
        };
        Ok(Profile { name, model: Model { latency_us, iops, mb_per_s, request_us } })
    }
}

impl Model {
    /// The latency below which `fraction` of all reads lie, in microseconds.
    pub fn latency_us(&self, fraction: f64) -> f64 {
        let points = &self.latency_us;
        let after = points.partition_point(|&(f, _)| f <= fraction).clamp(1, points.len() - 1);
        let ((f0, t0), (f1, t1)) = (points[after - 1], points[after]);
        t0 + (t1 - t0) * (fraction - f0) / (f1 - f0)
    }

    /// Seconds for which a read of `bytes` bytes keeps the device from starting the next one.
    pub fn occupied_s(&self, bytes: usize) -> f64 {
        let by_count = self.iops.map_or(0.0, |iops| 1.0 / iops);
        by_count.max(self.mb_per_s.map_or(0.0, |mb| bytes as f64 / (mb * 1e6)))
    }
}

/// Makes the messages.
struct Parser<'a> {
    path: &'a Path,
}

impl Parser<'_> {
    fn wrong(&self, key: impl Display, expected: impl Display, got: impl Display) -> Error {
        let path = self.path.display();
        Error::Config(format!("{path}: {key}: expected {expected}, got {got}; correct it, or measure the device again"))
    }

    fn foreign(&self, got: String) -> Error {
        let message = format!("expected a device profile (kind \"{KIND}\"), got {got}; check the path");
        Error::Foreign(InFile::of(self.path, message))
    }

    fn latencies(&self, value: Option<&Value>) -> Result<Vec<(f64, f64)>> {
        const KEY: &str = "model.latency_us";
        let Some(Value::Array(pairs)) = value else {
            return Err(self.wrong(KEY, "an array of [fraction, microseconds]", shown(value)));
        };
        if !(2..=MAX_POINTS).contains(&pairs.len()) {
            return Err(self.wrong(KEY, format!("2..{MAX_POINTS} points"), pairs.len()));
        }
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(pairs.len());
        for (i, pair) in pairs.iter().enumerate() {
            let numbers = pair.as_array().filter(|p| p.len() == 2);
            let point = numbers.and_then(|p| Some((p[0].as_f64()?, p[1].as_f64()?)));
            let key = format!("{KEY}[{i}]");
            let Some((fraction, us)) = point else {
                return Err(self.wrong(key, "[fraction, microseconds]", shown(Some(pair))));
            };
            let (least, least_us) = points.last().copied().unwrap_or((-1.0, 0.0));
            if i == 0 && fraction != 0.0 {
                return Err(self.wrong(key, "fraction 0 first", fraction));
            }
            if fraction <= least {
                return Err(self.wrong(key, format!("a fraction above {least}"), fraction));
            }
            if !(least_us..=MAX_LATENCY_US).contains(&us) {
                return Err(self.wrong(key, format!("{least_us}..{MAX_LATENCY_US} microseconds"), us));
            }
            points.push((fraction, us));
        }
        let last = points[points.len() - 1].0;
        if last != 1.0 {
            return Err(self.wrong(format!("{KEY}[{}]", points.len() - 1), "fraction 1 last", last));
        }
        Ok(points)
    }

    fn limit(&self, key: &str, value: Option<&Value>, (least, most): (f64, f64)) -> Result<Option<f64>> {
        match value {
            Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) if n.as_f64().is_some_and(|x| (least..=most).contains(&x)) => Ok(n.as_f64()),
            other => Err(self.wrong(key, format!("a number in {least}..{most}, or null"), shown(other))),
        }
    }
}

/// A value in a message: short, however long it is.
fn shown(value: Option<&Value>) -> String {
    const LONGEST: usize = 40;
    let Some(value) = value else { return "nothing".to_owned() };
    let text = match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        value => value.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Profile> {
        Profile::parse(Path::new("p.json"), text.as_bytes())
    }

    fn with_model(model: &str) -> String {
        format!("{{\"kind\":\"indexmill-device\",\"version\":1,\"name\":\"d\",\"model\":{model},\"measured\":[7]}}")
    }

    #[test]
    fn a_profile_says_latencies_and_limits() {
        let text = with_model("{\"latency_us\":[[0.0,61.0],[0.5,75.0],[1,900]],\"iops\":97000.0,\"mb_per_s\":null}");
        let profile = parse(&text).unwrap();
        assert_eq!((profile.name.as_str(), profile.model.iops, profile.model.mb_per_s), ("d", Some(97000.0), None));
        assert_eq!(profile.model.request_us, None);
        for (fraction, us) in [(0.0, 61.0), (0.25, 68.0), (0.5, 75.0), (0.75, 487.5), (1.0, 900.0)] {
            assert_eq!(profile.model.latency_us(fraction), us);
        }
    }

    #[test]
    fn the_tighter_limit_decides_how_long_a_read_occupies_the_device() {
        let model =
            |iops, mb_per_s| Model { latency_us: vec![(0.0, 1.0), (1.0, 1.0)], iops, mb_per_s, request_us: None };
        assert_eq!(model(None, None).occupied_s(4096), 0.0);
        assert_eq!(model(Some(1000.0), Some(4.096)).occupied_s(512), 0.001);
        assert_eq!(model(Some(1000.0), Some(4.096)).occupied_s(8192), 0.002);
    }

    #[test]
    fn a_malformed_profile_is_refused_with_key_expected_and_got() {
        let points = |list: &str| with_model(&format!("{{\"latency_us\":{list},\"iops\":null,\"mb_per_s\":null}}"));
        let limits = |rest: &str| with_model(&format!("{{\"latency_us\":[[0,1],[1,2]],{rest}}}"));
        let cases = [
            ("".to_owned(), "no JSON"),
            ("[]".to_owned(), "got kind nothing"),
            ("{\"kind\":\"other\"}".to_owned(), "got kind \"other\""),
            (with_model("1").replace("\"version\":1", "\"version\":2"), "version: expected 1, got 2; use a newer"),
            (with_model("1").replace("\"version\":1", "\"version\":\"1\""), "version: expected 1, got \"1\""),
            (with_model("1").replace("\"d\"", "null"), "name: expected a text, got null"),
            (with_model("[]"), "model: expected an object, got an array of 0"),
            (with_model("{}"), "model.latency_us: expected an array of [fraction, microseconds], got nothing"),
            (points("[[0,1]]"), "model.latency_us: expected 2..65536 points, got 1"),
            (points("[[0,1],[1]]"), "model.latency_us[1]: expected [fraction, microseconds], got an array of 1"),
            (points("[[0,1],[1,\"2\"]]"), "model.latency_us[1]: expected [fraction, microseconds]"),
            (points("[[0.1,1],[1,2]]"), "model.latency_us[0]: expected fraction 0 first, got 0.1"),
            (points("[[0,1],[0,2],[1,3]]"), "model.latency_us[1]: expected a fraction above 0, got 0"),
            (points("[[0,1],[0.9,2]]"), "model.latency_us[1]: expected fraction 1 last, got 0.9"),
            (points("[[0,1],[1.5,2]]"), "model.latency_us[1]: expected fraction 1 last, got 1.5"),
            (points("[[0,-1],[1,2]]"), "model.latency_us[0]: expected 0..1000000 microseconds, got -1"),
            (points("[[0,5],[1,2]]"), "model.latency_us[1]: expected 5..1000000 microseconds, got 2"),
            (points("[[0,5],[1,1000001]]"), "model.latency_us[1]: expected 5..1000000 microseconds, got 1000001"),
            (points("[[0,5],[1,1e300]]"), "model.latency_us[1]: expected 5..1000000 microseconds, got 1"),
            (limits("\"mb_per_s\":1"), "model.iops: expected a number in 10..1000000000, or null, got nothing"),
            (limits("\"iops\":0,\"mb_per_s\":1"), "model.iops: expected a number"),
            (limits("\"iops\":9.9,\"mb_per_s\":1"), "model.iops: expected a number"),
            (
                limits("\"iops\":10,\"mb_per_s\":-4"),
                "model.mb_per_s: expected a number in 0.1..1000000, or null, got -4",
            ),
            (limits("\"iops\":10,\"mb_per_s\":\"fast\""), "got \"fast\""),
            (
                limits("\"iops\":10,\"mb_per_s\":1,\"request_us\":1001"),
                "model.request_us: expected a number in 0..1000, or null, got 1001",
            ),
        ];
        for (text, words) in cases {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with("p.json: ") && error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn cut_and_flipped_profiles_never_panic() {
        let text = with_model("{\"latency_us\":[[0.0,61.0],[0.5,75.0],[1,900]],\"iops\":97000.0,\"mb_per_s\":null}");
        for end in 0..text.len() {
            assert!(parse(&text[..end]).is_err());
        }
        for at in 0..text.len() {
            for byte in [b'"', b'-', b'9', b'e', b'[', b'}', 0xff] {
                let mut bytes = text.clone().into_bytes();
                bytes[at] = byte;
                if let Ok(profile) = Profile::parse(Path::new("p.json"), &bytes) {
                    assert!(profile.model.latency_us(0.999).is_finite() && profile.model.occupied_s(4096).is_finite());
                }
            }
        }
    }
}
