//! Current date, for files of measurements.

/// Current date (UTC), such as 2026-11-21.
pub(super) fn today() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86400)
}

/// Date of the Gregorian calendar, by the days since 1970.
///
/// Days are counted from the first of March of the year 0, so that a leap day is the last of its year: eras of 400 years, then
/// years, then months of 30.6 days.
fn date(days: u64) -> String {
    let days = days + 719_468; // from the first of March of the year 0 to 1970
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_dates() {
        for (days, text) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_778, "2026-11-21"),
            (20_819, "2027-01-01"),
        ] {
            assert_eq!(date(days), text);
        }
    }
}
