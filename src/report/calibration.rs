//! Residuals of a calibration, before and after the fit.

use super::Sheet;
use meshwright_engine::units::percent;
use meshwright_lab::probe::Calibration;
use meshwright_lab::probe::curves::Residual;

/// Table of the residuals by figure.
pub fn residuals(calibration: &Calibration, residuals: &[Residual]) -> Sheet {
    let machine = &calibration.samples.machine;
    let title = format!(
        "{} of {} ({}), {} samples from {}: mean error before and after, bias and largest error after",
        calibration.samples.gpu,
        machine.date,
        calibration.samples.basis,
        calibration.samples.of.len(),
        calibration.source
    );
    let mut sheet = Sheet::new(title, &["figure", "samples", "before", "after", "bias", "worst"]);
    for residual in residuals {
        let Residual { figure, samples, before, after, bias, worst } = residual;
        sheet.push([
            figure.to_string(),
            samples.to_string(),
            percent(*before),
            percent(*after),
            percent(*bias),
            percent(*worst),
        ]);
    }
    sheet
}
