//! Laws of the cost model and of the search: random plans, slow reference implementations, worked numbers.

#[path = "../random/mod.rs"]
mod random;

mod beside;
mod brute_force;
mod documents;
mod front;
mod goodput;
mod kernels_by_stack;
mod larger;
mod laws;
mod meter;
mod muon;
mod narrow;
mod one_price;
mod origins;
mod policies;
mod routing;
mod sparse;
mod staged;
mod timed;
mod trust;
mod worked;
