//! Time of collectives on the bandwidth hierarchy.

mod all_to_all;
mod domain;
mod fabric;
mod group;
mod observer;
mod rank_mapping;
mod send;
mod time;
mod torus;

pub use all_to_all::Dispatch;
pub use domain::on_curve;
pub use fabric::Fabric;
pub use group::Group;
pub use observer::{Observer, PricedTransfer, TransferKind};
pub use rank_mapping::{Axis, RankMapping, units};
pub use time::GatherScatter;
