//! Memoised evaluation for the search: each part is computed once, at the level of the search that fixes it.
//!
//! ```text
//! Mixing     tp, sp, cp and its kind, micro-batch                          attention and norms, the ends of the model
//! FeedForward tp, sp, tokens, ep, etp, dispatcher                           feed-forward parts, tensor collectives
//! Block      mixing × feed-forward                                         layers, nothing recomputed
//! Layers     block × recomputation                                         work and bytes of one layer of each choice
//! Stages     pp, schedule, split, first layers recomputed                  classes of identical ranks
//! Pipeline   layers × stages × dp × offloaded activations                  flow through the pipeline
//! Loaded     pipeline                                                      activations of each class of ranks
//! Sharding   degrees × stages × ZeRO, shard group, offload, rank order     exchange, update, states
//! price      loaded × sharding                                             step time and memory
//! ```
//!
//! Every stage calls the same functions of `cost` that [`Costs::evaluate`] calls; that is the reference implementation; they
//! agree to 1e-12 (`tests/laws/staged.rs`).

mod block;
mod exchange;
mod first_rank;
mod least;
mod least_time;
mod pipeline;
mod rank_memory;
mod sharding;
mod stages;
mod state_bytes;

pub use block::{Block, FeedForward, LayerParts, Layers, Mixing, ROUNDING, fullest_rank_bound, layer_bound};
pub use exchange::LeastExchange;
pub use first_rank::FirstRank;
pub use least::{Pairs, least_host_update_of_layers, least_memory_of_layers, least_parameters, most_optimizer_on_host};
pub use least_time::{AroundFlow, LeastTime, least_flow_of_passes, least_time_of_flow};
pub use pipeline::{Loaded, Pipeline, Price};
pub use rank_memory::{RankMemory, UnsharedMemory};
pub use sharding::{Parameters, Sharding, SharedParts, least_states};
pub use stages::Stages;
pub use state_bytes::LeastStates;
