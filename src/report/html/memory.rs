//! Drawing of the memory of every pipeline rank: a column for each, stacked by tenant, below the ceiling.

use super::colour;
use super::drawing::{Anchor, AxisScale, Drawing, WIDTH, block, drawing, label, legend, line};
use super::element::{HtmlElement, element, worded};
use meshwright_engine::cost::{Footprint, Tenant};
use meshwright_engine::problem::Problem;
use meshwright_engine::units::significant;

const LEFT: f64 = 58.0;
const ACROSS: f64 = WIDTH - LEFT - 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 270.0;
/// Height of the drawing.
const HEIGHT: f64 = 326.0;

/// Drawing of the memory of all ranks; the columns fill the width.
pub fn memory(problem: &Problem, footprints: &[Footprint]) -> Drawing {
    let (budget, hbm) = (problem.hbm_budget().as_gib(), problem.cluster().gpu.hbm.value.as_gib());
    let fullest = footprints.iter().map(|footprint| footprint.peak().as_gib()).fold(0.0, f64::max);
    let axis = AxisScale::linear(fullest.max(hbm) * 1.02, (BOTTOM, TOP));
    let words = format!("Memory of {} pipeline ranks; the fullest has {fullest:.1} of {hbm:.1} GiB", footprints.len());
    let mut svg =
        drawing(HEIGHT, words).child(label(LEFT, 14.0, Anchor::Start, "GiB at the peak of each pipeline rank"));
    for tick in axis.ticks() {
        let y = axis.place(tick);
        svg = svg.child(line((LEFT, y), (LEFT + ACROSS, y), "grid"));
        svg = svg.child(label(LEFT - 6.0, y + 4.0, Anchor::End, tick.to_string()));
    }
    let column = ACROSS / footprints.len().max(1) as f64;
    let every = (26.0 / column).ceil().max(1.0) as usize;
    for (at, footprint) in footprints.iter().enumerate() {
        let x = LEFT + at as f64 * column;
        svg = svg.child(stack(footprint, &axis, x, column));
        if at.is_multiple_of(every) {
            svg = svg.child(label(x + column / 2.0, BOTTOM + 16.0, Anchor::Middle, footprint.rank.to_string()));
        }
    }
    for (gib, name, dash, dy) in [(hbm, "memory of the device", "none", -5.0), (budget, "may be filled", "6 3", 14.0)] {
        let y = axis.place(gib);
        svg = svg.child(line((LEFT, y), (LEFT + ACROSS, y), "ceiling").with("stroke-dasharray", dash));
        let words = format!("{} {name}", significant(gib));
        let halo = "paint-order:stroke;stroke:var(--card,#fff);stroke-width:3px;stroke-linejoin:round";
        svg = svg.child(label(LEFT + ACROSS - 4.0, y + dy, Anchor::End, words).with("style", halo));
    }
    let present = |tenant: Tenant| footprints.iter().any(|footprint| bytes_of(footprint, tenant) > 0.0);
    let names: Vec<_> = Tenant::ALL.iter().filter(|tenant| present(**tenant)).collect();
    let names: Vec<_> = names.into_iter().map(|tenant| (tenant.to_string(), colour::of_tenant(*tenant))).collect();
    Drawing { svg: svg.child(legend(LEFT, HEIGHT - 10.0, &names)), height: HEIGHT }
}

fn bytes_of(footprint: &Footprint, wanted: Tenant) -> f64 {
    footprint.tenants().into_iter().find(|(tenant, _)| *tenant == wanted).map_or(0.0, |(_, bytes)| bytes.as_gib())
}

/// Column of one rank; its figures are in its title.
fn stack(footprint: &Footprint, axis: &AxisScale, x: f64, column: f64) -> HtmlElement {
    let gap = (column * 0.12).min(6.0);
    let parts = footprint.tenants();
    let words = parts.iter().filter(|(_, bytes)| bytes.get() > 0.0);
    let words: Vec<String> = words.map(|(tenant, bytes)| format!("{tenant} {:.2}", bytes.as_gib())).collect();
    let title = format!("rank {}: {:.2} GiB; {}", footprint.rank, footprint.peak().as_gib(), words.join(", "));
    let mut gib = 0.0;
    element("g").child(worded("title", title)).children(parts.into_iter().filter_map(|(tenant, bytes)| {
        let from = axis.place(gib);
        gib += bytes.as_gib();
        let until = axis.place(gib);
        let fill = colour::of_tenant(tenant);
        (from - until > 0.05).then(|| block(x + gap / 2.0, until, (column - gap).max(0.5), from - until, fill))
    }))
}
