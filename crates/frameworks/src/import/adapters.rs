//! Low-rank adapters of a training: what a file says of them, and what of it is priced.

use super::finding::{Finding, Place};
use super::imported::{Adapters, Imported};
use meshwright_engine::workload::Adaptation;

/// A training of low-rank adapters as a file says it.
#[derive(Clone, Debug)]
pub(crate) struct Adapting {
    /// Setting that says it, in code marks.
    pub said: String,
    /// Its place.
    pub place: Place,
    /// Rank and targets.
    pub adapters: Adapters,
}

impl Adapting {
    /// Sets the workload to adapters, with a finding of what is priced: the rank does not enter the price.
    pub fn apply(self, imported: &mut Imported) {
        let Self { said, place, adapters } = self;
        let rank = adapters.rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
        let targets =
            if adapters.targets.is_empty() { String::new() } else { format!(" on {}", adapters.targets.join(", ")) };
        let message = format!("{said} trains adapters{rank}{targets}: priced as adapters of 0.2 % of the weights");
        imported.findings.push(Finding::note("adapters", message).at(&place));
        imported.work.adaptation =
            if adapters.are_of_attention() { Adaptation::LoraAttention } else { Adaptation::Lora };
        imported.adapters = Some(adapters);
    }
}

/// Finding of a training whose adapters are not low-rank matrices on a frozen base.
pub(crate) fn other_adapters(said: &str, place: &Place) -> Finding {
    let finding =
        Finding::warning("adapters", format!("{said} trains adapters of another kind, priced as training all"));
    finding.at(place).expected("`meshwright explain --lora` prices low-rank adapters")
}

/// Finding of an option of adapters that is priced as if it were off.
pub(crate) fn not_priced(said: &str, what: &str, place: Option<&Place>) -> Finding {
    Finding::warning("not-modelled", format!("{said}: {what}")).at_maybe(place)
}
