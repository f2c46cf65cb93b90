//! Samples: measured times with machine, date and method, and the file that stores them.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::kernel::{Gemm, Kernel};
use meshwright_engine::gpu::{Format, Gpu};
use meshwright_engine::sources::Basis;
use meshwright_engine::units::Seconds;
use meshwright_planner::catalog::parse_toml;
use meshwright_planner::median::median;

/// Times of one kernel on one machine, at least one, rounded to 0.1 ns so that a file reproduces them exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    times: Vec<Seconds>,
}

/// Grid steps in a microsecond.
const GRID: f64 = 1e4;
/// Range of valid times in microseconds: from a clock tick to an hour.
const RANGE_US: std::ops::RangeInclusive<f64> = 1e-3..=3.6e9;

impl Sample {
    /// Creates a sample from times in the order of measurement.
    ///
    /// # Errors
    ///
    /// The list is empty, or a time is not between 1 ns and an hour.
    pub fn new(times: impl IntoIterator<Item = Seconds>) -> Result<Self, String> {
        Self::from_micros(times.into_iter().map(|time| time.get() * 1e6))
    }

    /// Creates a sample from microseconds.
    ///
    /// # Errors
    ///
    /// As for [`Sample::new`].
    pub fn from_micros(times: impl IntoIterator<Item = f64>) -> Result<Self, String> {
        let times: Vec<Seconds> = times
            .into_iter()
            .map(|us| {
                let good = us.is_finite() && RANGE_US.contains(&us);
                good.then(|| Seconds::micros((us * GRID).round() / GRID))
                    .ok_or_else(|| format!("{us} us is not a valid time"))
            })
            .collect::<Result<_, _>>()?;
        if times.is_empty() { Err("there are no times".into()) } else { Ok(Self { times }) }
    }

    /// All times in the order of measurement.
    pub fn times(&self) -> &[Seconds] {
        &self.times
    }

    /// Appends the times of another sample of the same kernel.
    pub fn extend(&mut self, other: Self) {
        self.times.extend(other.times);
    }

    /// Median time: the middle one, or the mean of the two in the middle.
    pub fn median(&self) -> Seconds {
        let times = self.times.iter().map(|time| time.get()).collect();
        Seconds::new(median(times).expect("a sample has a time"))
    }

    /// Relative spread: half the interquartile range over the median. Zero for a single time.
    pub fn spread(&self) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_by(|a, b| a.get().total_cmp(&b.get()));
        let quantile = |share: f64| sorted[(share * (sorted.len() - 1) as f64).round() as usize];
        (quantile(0.75) - quantile(0.25)) / self.median() / 2.0
    }
}

/// Machine and software of a set of samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the device from the driver or the source.
    pub device: String,
    /// Version of the driver, or of the software of a published table.
    pub driver: String,
    /// Date of measurement or publication, as `2026-11-21`.
    pub date: String,
    /// Name of the host; empty if it does not matter.
    #[serde(default)]
    pub host: String,
    /// Libraries with their versions.
    #[serde(default)]
    pub libraries: Vec<String>,
    /// Clocks, power limit and ECC, as read before the run.
    #[serde(default)]
    pub state: Vec<String>,
    /// Command that took the samples.
    pub command: String,
}

/// Set of samples of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Machine of the samples.
    pub machine: Machine,
    /// Catalogue name of the device.
    pub gpu: String,
    /// Basis: measured here, published by others, or predicted.
    pub basis: Basis,
    /// Samples by kernel.
    pub of: BTreeMap<Kernel, Sample>,
    /// Runs of several kernels one after another, such as those of a layer.
    pub together: BTreeMap<Vec<Kernel>, Sample>,
    /// Device memory that tensors of these sizes took together, in bytes.
    pub held: BTreeMap<Vec<u64>, u64>,
}

/// Error in a file of samples or a calibration.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// The text is not TOML of the expected form.
    #[error(transparent)]
    Toml(#[from] Box<toml::de::Error>),
    /// A key of `[samples]` names no kernel.
    #[error(transparent)]
    Kernel(#[from] super::kernel::ParseKernelError),
    /// The times of a kernel are invalid.
    #[error("`{kernel}`: {why}")]
    Times {
        /// Name of the kernel.
        kernel: String,
        /// Reason, as text.
        why: String,
    },
    /// A date is invalid.
    #[error("`{0}` is not a date: write it as 2026-11-21")]
    Date(String),
}

/// One line of `[samples]`.
#[derive(Deserialize)]
pub(super) struct SampleRow {
    times_us: Vec<f64>,
}

/// Part of a file that has the samples; a calibration has more.
#[derive(Deserialize)]
struct File {
    gpu: String,
    basis: Basis,
    machine: Machine,
    #[serde(default)]
    samples: BTreeMap<String, SampleRow>,
    #[serde(default)]
    together: Vec<TogetherRow>,
    #[serde(default)]
    held: Vec<HeldRow>,
}

/// Run of several kernels: each name with the number of its runs in a row, such as `3 x stream copy rows=8 columns=1024`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TogetherRow {
    kernels: Vec<String>,
    times_us: Vec<f64>,
}

/// Tensors that were allocated together.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldRow {
    sizes: Vec<u64>,
    bytes: u64,
}

impl Samples {
    /// Parses a file of samples, or the samples of a calibration.
    ///
    /// # Errors
    ///
    /// The form is wrong, a kernel name is unknown, or a time is invalid.
    pub fn parse(text: &str) -> Result<Self, SamplesError> {
        let file: File = parse_toml(text).map_err(Box::new)?;
        check_date(&file.machine.date)?;
        Ok(Self {
            machine: file.machine,
            gpu: file.gpu,
            basis: file.basis,
            of: rows(file.samples)?,
            together: runs(file.together)?,
            held: held(file.held),
        })
    }

    /// Creates an empty set of samples.
    pub fn new(gpu: &str, basis: Basis, machine: Machine) -> Self {
        let (of, together, held) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { machine, gpu: gpu.to_owned(), basis, of, together, held }
    }

    /// Adds a sample to those of its kernel.
    pub fn add(&mut self, kernel: Kernel, sample: Sample) {
        match self.of.entry(kernel) {
            std::collections::btree_map::Entry::Occupied(mut there) => there.get_mut().extend(sample),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(sample);
            }
        }
    }

    /// Renames block-scaled GEMMs to the format for which the device has a curve: Blackwell runs them as MXFP8.
    ///
    /// Source: specification §2.1 (the table's "mxfp8 (block)").
    pub fn in_formats_of(&mut self, gpu: &Gpu) {
        if gpu.gemm.contains_key(&Format::Fp8Block) || !gpu.gemm.contains_key(&Format::Mxfp8) {
            return;
        }
        for (kernel, sample) in std::mem::take(&mut self.of) {
            let renamed = match kernel {
                Kernel::Gemm(gemm) if gemm.format == Format::Fp8Block => {
                    Kernel::Gemm(Gemm { format: Format::Mxfp8, ..gemm })
                }
                other => other,
            };
            self.add(renamed, sample);
        }
    }

    /// Text of the file, which [`parse`](Self::parse) reads back.
    pub fn to_toml(&self) -> String {
        let mut text =
            String::from("# Samples of `meshwright measure`; `meshwright calibrate` makes curves of them.\n");
        let _ = writeln!(text, "gpu = {}\nbasis = \"{}\"", quoted(&self.gpu), self.basis);
        text.push_str(&self.machine_toml());
        text.push_str("\n[samples]\n");
        for (kernel, sample) in &self.of {
            let _ = writeln!(text, "\"{kernel}\" = {{ times_us = {} }}", times(sample));
        }
        text.push_str(&self.together_toml());
        text
    }

    /// Text of the runs of several kernels, and of the allocated tensors.
    pub(super) fn together_toml(&self) -> String {
        let mut text = String::new();
        for (kernels, sample) in &self.together {
            let _ = writeln!(text, "\n[[together]]\nkernels = [");
            for run in kernels.chunk_by(PartialEq::eq) {
                let _ = writeln!(text, "  \"{} x {}\",", run.len(), run[0]);
            }
            let _ = writeln!(text, "]\ntimes_us = {}", times(sample));
        }
        for (sizes, bytes) in &self.held {
            let _ = writeln!(text, "\n[[held]]\nsizes = {sizes:?}\nbytes = {bytes}");
        }
        text
    }

    /// Text of the `[machine]` table.
    pub(super) fn machine_toml(&self) -> String {
        let Machine { device, driver, date, host, libraries, state, command } = &self.machine;
        let list = |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
        format!(
            "\n[machine]\ndevice = {}\ndriver = {}\ndate = {}\nhost = {}\nlibraries = [{}]\nstate = [{}]\ncommand = {}\n",
            quoted(device),
            quoted(driver),
            quoted(date),
            quoted(host),
            list(libraries),
            list(state),
            quoted(command)
        )
    }
}

/// Times of a sample as a TOML array of microseconds.
pub(super) fn times(sample: &Sample) -> String {
    let times: Vec<String> = sample.times.iter().map(|time| micros(*time)).collect();
    format!("[{}]", times.join(", "))
}

/// Time on the grid in microseconds, with at least one decimal.
pub(super) fn micros(time: Seconds) -> String {
    let text = format!("{:.4}", time.get() * 1e6);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Quoted TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Samples of a `[samples]` table.
pub(super) fn rows(rows: BTreeMap<String, SampleRow>) -> Result<BTreeMap<Kernel, Sample>, SamplesError> {
    rows.into_iter()
        .map(|(name, row)| {
            let kernel: Kernel = name.parse()?;
            let sample =
                Sample::from_micros(row.times_us).map_err(|why| SamplesError::Times { kernel: name.clone(), why })?;
            Ok((kernel, sample))
        })
        .collect()
}

/// Runs of `[[together]]` tables.
pub(super) fn runs(rows: Vec<TogetherRow>) -> Result<BTreeMap<Vec<Kernel>, Sample>, SamplesError> {
    rows.into_iter()
        .map(|TogetherRow { kernels: names, times_us }| {
            let wrong =
                |why: String| SamplesError::Times { kernel: format!("[[together]] of {} kernels", names.len()), why };
            let mut kernels = Vec::new();
            for name in &names {
                let counted = name.split_once(" x ").and_then(|(count, name)| Some((count.parse::<u16>().ok()?, name)));
                let (count, name) = counted.ok_or_else(|| wrong(format!("`{name}` is not a count, x and a kernel")))?;
                let kernel: Kernel = name.parse()?;
                kernels.extend(std::iter::repeat_n(kernel, usize::from(count)));
            }
            Ok((kernels, Sample::from_micros(times_us).map_err(wrong)?))
        })
        .collect()
}

/// Allocations of `[[held]]` tables.
pub(super) fn held(rows: Vec<HeldRow>) -> BTreeMap<Vec<u64>, u64> {
    rows.into_iter().map(|HeldRow { sizes, bytes }| (sizes, bytes)).collect()
}

/// Checks that a text is a date, year first.
///
/// # Errors
///
/// The text is not a date.
pub fn check_date(text: &str) -> Result<(), SamplesError> {
    let parsed: Option<toml::value::Datetime> = text.parse().ok();
    let is_day = parsed.is_some_and(|at| at.date.is_some() && at.time.is_none());
    if is_day { Ok(()) } else { Err(SamplesError::Date(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days() {
        assert!(check_date("2026-11-21").is_ok());
        for text in ["", "2026-13-01", "2026-11-21T10:00:00Z", "10:00:00", "21 November"] {
            assert!(matches!(check_date(text), Err(SamplesError::Date(named)) if named == text), "{text}");
        }
    }

    fn samples() -> Samples {
        let machine = Machine { device: "NVIDIA H100".into(), date: "2026-11-21".into(), ..Machine::default() };
        let mut samples = Samples::new("h100-sxm", Basis::Measured, machine);
        samples.add(Kernel::Launch, Sample::from_micros([3.1, 3.123_456_7]).unwrap());
        samples
    }

    #[test]
    fn a_file_gives_back_what_was_written() {
        let samples = samples();
        let text = samples.to_toml();
        assert!(text.contains("\"launch\" = { times_us = [3.1, 3.1235] }"), "{text}");
        let again = Samples::parse(&text).unwrap();
        assert_eq!(again, samples);
        assert_eq!(again.to_toml(), text);
    }

    #[test]
    fn medians_and_spreads() {
        let sample = Sample::from_micros([4.0, 1.0, 2.0, 3.0, 100.0]).unwrap();
        assert!((sample.median().get() - 3e-6).abs() < 1e-15);
        assert!((sample.spread() - 1.0 / 3.0).abs() < 1e-12);
        assert!(Sample::from_micros([f64::NAN]).is_err() && Sample::from_micros([]).is_err());
        assert!(Sample::from_micros([-1.0]).is_err());
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let good = samples().to_toml();
        for (from, to, says) in [
            ("launch", "lunch", "`lunch` is not a kind"),
            ("3.1,", "-3.1,", "-3.1 us is not a valid time"),
            ("2026-11-21", "21.11.2026", "is not a date"),
            ("gpu =", "gpus =", "missing field `gpu`"),
        ] {
            let error = Samples::parse(&good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
