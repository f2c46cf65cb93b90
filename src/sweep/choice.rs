//! Choice of one option: a value for each axis that the sweep names.

/// Effect of an axis on the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Changes the machine or its use, and so needs a search of its own.
    Machine,
    /// Changes prices, failures or storage: the plan stays, the bill changes.
    Bill,
}

/// All axes, slowest first: those that change the machine, then those that change the bill.
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
    ("nic_price", Changes::Bill),
    ("port_price", Changes::Bill),
    ("electricity", Changes::Bill),
    ("pue", Changes::Bill),
];

/// Values of an option, in the order of [`AXES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice(pub Vec<(&'static str, String)>);

impl Choice {
    /// Value of an axis, if the option has one.
    pub fn get(&self, axis: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| *key == axis).map(|(_, value)| value.as_str())
    }

    /// Values of the axes on which a search depends.
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
                "nic_price" => write!(f, "{gap}{value} a NIC")?,
                "port_price" => write!(f, "{gap}{value} a port")?,
                _ => write!(f, "{gap}{key} {value}")?,
            }
        }
        Ok(())
    }
}
