//! Release of Megatron core.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Release of Megatron core: `0.13` has the number 13. Megatron-LM before core counts as 0.0 (2021) and 0.1 (2022).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct CoreRelease(u32);

impl CoreRelease {
    /// Release 0.`number` of Megatron core.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// Text of a stack's file: `0.13`.
impl fmt::Display for CoreRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0.{}", self.0)
    }
}

impl FromStr for CoreRelease {
    type Err = String;

    /// Reads `0.13`.
    ///
    /// # Errors
    /// The text is not of that form.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("0.").and_then(|number| number.parse().ok());
        number.map(Self).ok_or_else(|| format!("`{text}` is no release of Megatron core, such as \"0.13\""))
    }
}

impl TryFrom<String> for CoreRelease {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CoreRelease> for String {
    fn from(release: CoreRelease) -> Self {
        release.to_string()
    }
}
