//! The price in stages: what plans share is computed once, at the level of the search that fixes it.
//!
//! ```text
//! Mixing     tp, sp, cp and its kind, micro-batch                          attention and norms, the ends of the model
//! Feeding    tp, sp, tokens, ep, etp, dispatcher                           feed-forward parts, tensor collectives
//! Block      mixing × feeding                                              layers, nothing recomputed
//! Layers     block × recomputation                                         works of each kind, bytes that it keeps
//! Stages     pp, schedule, split                                           which ranks hold and do the same
//! Pipeline   layers × stages × dp × offloaded activations                  flow through the pipeline
//! Loaded     pipeline                                                      what each class of ranks holds
//! Sharding   degrees × stages × ZeRO, shard group, offload, rank order     exchange, update, states
//! price      loaded × sharding                                             step time and memory
//! ```
//!
//! Every stage calls the same functions of `cost` that [`Costs::evaluate`] calls; that one stays the readable price and the
//! judge of this one: they agree to 1e-12 (`tests/staged.rs`).

mod block;
mod least;
mod pipeline;
mod sharding;
mod stages;

pub use block::{Block, Feeding, Layers, Mixing, layer_bound};
pub use least::{Pairs, least_time_of_flow};
pub use pipeline::{Loaded, Pipeline, Price};
pub use sharding::{Parameters, Sharding, least_states};
pub use stages::Stages;
