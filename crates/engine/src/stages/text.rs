//! Recomputation of stages in words.

use super::{Mix, Stage, StagedPlan};

impl StagedPlan {
    /// Recomputation of the stages: one text if it is the same in all, else one line for each run of stages with the same;
    /// kinds of layer are named where the model has several (`kinds` > 1).
    pub fn recomputation(&self, kinds: usize) -> String {
        let texts: Vec<String> = self.stages.iter().map(|stage| of_stage(stage, kinds)).collect();
        let filled: Vec<&String> = texts.iter().filter(|text| !text.is_empty()).collect();
        if let Some(first) = filled.first()
            && filled.iter().all(|text| text == first)
            && self.recomputes_uniformly()
        {
            return (*first).clone();
        }
        let mut lines = Vec::new();
        let mut at = 0;
        while at < texts.len() {
            let run = texts[at..].iter().take_while(|text| **text == texts[at]).count();
            let stages = if run == 1 { format!("{at}") } else { format!("{at}-{}", at + run - 1) };
            if !texts[at].is_empty() {
                lines.push(format!("stage {stages}: {}", texts[at]));
            }
            at += run;
        }
        lines.join(";\n")
    }
}

fn of_stage(stage: &Stage, kinds: usize) -> String {
    let uniform = stage.mixes.windows(2).all(|pair| pair[0].recompute == pair[1].recompute);
    match stage.mixes.first() {
        None => String::new(),
        Some(first) if uniform => first.recompute.to_string(),
        Some(_) => {
            let text_of = |mix: &Mix| {
                let kind = if kinds == 1 { String::new() } else { format!(" of kind {}", mix.kind) };
                format!("{} layers{kind} {}", mix.layers, mix.recompute)
            };
            stage.mixes.iter().map(text_of).collect::<Vec<_>>().join(", ")
        }
    }
}
