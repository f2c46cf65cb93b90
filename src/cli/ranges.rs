//! Options whose values have a range.

use meshwright_engine::range::Range;

/// Parser of a number within a range.
pub fn real(range: Range) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let value = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
        range.check("value", value).map_err(|_| format!("must be {range}"))?;
        Ok(value)
    }
}
