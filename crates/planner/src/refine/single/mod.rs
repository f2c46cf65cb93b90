//! One stage a rank: bisection of the bottleneck over shortest paths, with a bound from the schedule's dependency paths.

mod bisection;
pub mod exact;
mod table;

pub use bisection::solve;
