//! Low-rank adapters of a training: their settings in a file, and findings on how they are priced.

use super::finding::{Finding, Place};
use super::imported::{Adapters, Imported};
use meshwright_engine::workload::Adaptation;

/// Training of low-rank adapters, as a file sets it.
#[derive(Clone, Debug)]
pub(crate) struct AdapterTraining {
    /// The setting, in code marks.
    pub setting: String,
    /// Its place.
    pub place: Place,
    /// Rank and targets.
    pub adapters: Adapters,
}

impl AdapterTraining {
    /// Sets the workload to adapters, with a finding on how they are priced: their rank does not enter the price.
    pub fn apply(self, imported: &mut Imported) {
        let Self { setting, place, adapters } = self;
        let rank = adapters.rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
        let targets =
            if adapters.targets.is_empty() { String::new() } else { format!(" on {}", adapters.targets.join(", ")) };
        let message = format!("{setting} trains adapters{rank}{targets}: priced as adapters of 0.2 % of the weights");
        imported.findings.push(Finding::note("adapters", message).at(&place));
        imported.work.adaptation =
            if adapters.are_of_attention() { Adaptation::LoraAttention } else { Adaptation::Lora };
        imported.adapters = Some(adapters);
    }
}

/// Finding of a training whose adapters are not low-rank matrices on a frozen base.
pub(crate) fn other_adapters(setting: &str, place: &Place) -> Finding {
    let finding =
        Finding::warning("adapters", format!("{setting} trains adapters of another kind, priced as training all"));
    finding.at(place).expected("`meshwright explain --lora` prices low-rank adapters")
}

/// Finding of an option of adapters that is priced as if it were off.
pub(crate) fn not_priced(setting: &str, what: &str, place: Option<&Place>) -> Finding {
    Finding::warning("not-modelled", format!("{setting}: {what}")).at_maybe(place)
}
