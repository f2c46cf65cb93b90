//! Reasons why hosts keep their order.

/// Reason why no other order of hosts is possible or useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplaceable {
    /// The plan runs on a single host.
    #[error("all ranks are on one host")]
    OneHost,
    /// All hosts are equally far apart.
    #[error("no level above a host is slower than the one below it: the order of hosts makes no difference")]
    AllAlike,
    /// Two groups of the plan overlap in a part.
    #[error("process groups overlap in a part, so that ranks form no grid")]
    Groups,
    /// A host has a part of a group that does not divide the group.
    #[error("a host of {0} GPUs has no whole part of the rank grid")]
    Host(u32),
    /// No arrangement fits the units of the network.
    #[error("no whole parts of the rank grid fill the units of the network")]
    Units,
    /// There are too many orders to enumerate, and the build has no integer programs.
    #[error("too many orders of hosts to try each, and this build has no solver of integer programs")]
    Solver,
}
