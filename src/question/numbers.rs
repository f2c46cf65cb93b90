//! Numbers of flags, with messages that say how to write them.

/// Share as `5%` or `0.05`.
///
/// # Errors
///
/// The text is neither.
pub fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| "is neither `5%` nor `0.05`".to_owned());
    match text.strip_suffix('%') {
        Some(percent) => Ok(number(percent)? / 100.0),
        None => number(text),
    }
}

/// Whole number without a unit.
///
/// # Errors
///
/// The text is none, or has a unit.
pub fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "is no whole number without a unit, such as 131072".to_owned())
}
