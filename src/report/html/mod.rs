//! Reports as HTML: one file each, without scripts, that reads on a screen, in the dark, on a phone and on paper.
//!
//! All markup is made of [`element`]s, which escape their content; drawings are SVG, alone or in a report.

mod bars;
mod colour;
mod detail;
mod drawing;
mod element;
mod memory;
mod page;
mod pipeline;
mod scatter;
mod step;
mod sweep;
mod validation;

pub use detail::plan_sections;
pub use element::{HtmlElement, element};
pub use page::{HtmlReport, LargeFigure, code, figures, list, paragraph, table};
pub use step::step_drawing;
pub use sweep::{SweepResults, sweep_report};
pub use validation::{errors_figure, points_drawing, points_figure};
