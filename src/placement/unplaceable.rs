//! Reasons why hosts keep their order.

/// Reason why no other order of hosts is possible or useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplaceable {
    /// The plan runs on a single host.
    #[error("all ranks are on one host")]
    OneHost,
    /// All hosts are equally far apart.
    #[error("no level above a host is slower than the one below it: the order of hosts makes no difference")]
    Equidistant,
    /// Two process groups of the plan share some ranks and not others.
    #[error("process groups overlap only in part, so that ranks form no grid")]
    OverlappingGroups,
    /// The ranks of a group on one host do not divide the group; the number of GPUs of a host.
    #[error("a host of {0} GPUs has no whole part of the rank grid")]
    IndivisibleHost(u32),
    /// No blocks of the rank grid fill the units of the network.
    #[error("no whole parts of the rank grid fill the units of the network")]
    IndivisibleUnits,
    /// There are too many orders to enumerate, and the build has no solver of integer programs.
    #[error("too many orders of hosts to try each, and this build has no solver of integer programs")]
    NoSolver,
}
