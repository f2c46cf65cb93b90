//! One option: a value for each axis that the sweep names.

/// What an axis changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The machine or how it is used: another search.
    Machine,
    /// Prices, failures, storage: the same plan, another bill.
    Bill,
}

/// Every axis there is, slowest first: those that change the machine, then those that change the bill.
pub const AXES: &[(&str, Changes)] = &[
    ("cluster", Changes::Machine),
    ("gpu", Changes::Machine),
    ("gpus", Changes::Machine),
    ("scale_up", Changes::Machine),
    ("nic", Changes::Machine),
    ("oversubscription", Changes::Machine),
    ("stack", Changes::Machine),
    ("precision", Changes::Machine),
    ("storage", Changes::Bill),
    ("checkpoints", Changes::Bill),
    ("spares", Changes::Bill),
    ("terms", Changes::Bill),
    ("price", Changes::Bill),
    ("buy", Changes::Bill),
    ("electricity", Changes::Bill),
    ("pue", Changes::Bill),
];

/// Values of an option, in the order of [`AXES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice(pub Vec<(&'static str, String)>);

impl Choice {
    /// The value of an axis.
    pub fn get(&self, axis: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| *key == axis).map(|(_, value)| value.as_str())
    }

    /// The part that a search depends on.
    #[must_use]
    pub fn machine(&self) -> Self {
        let machine = |key: &str| AXES.iter().any(|(name, changes)| *name == key && *changes == Changes::Machine);
        Self(self.0.iter().filter(|(key, _)| machine(key)).cloned().collect())
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        for (at, (key, value)) in self.0.iter().enumerate() {
            let gap = if at == 0 { "" } else { ", " };
            match *key {
                "gpu" | "cluster" | "terms" | "precision" | "stack" => write!(f, "{gap}{value}")?,
                "gpus" => write!(f, "{gap}{value} GPUs")?,
                "scale_up" => write!(f, "{gap}domains of {value}")?,
                "nic" => write!(f, "{gap}{value} NICs")?,
                "oversubscription" => write!(f, "{gap}1:{value}")?,
                _ => write!(f, "{gap}{key} {value}")?,
            }
        }
        Ok(())
    }
}
