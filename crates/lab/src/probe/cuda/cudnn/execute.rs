//! Execution of attention plans on the GPU.

use std::collections::BTreeMap;

use super::plan::{ExecutionPlan, PlanDevice};
use super::{Cudnn, kernels, refused};
use crate::probe::cuda::failure::failed;
use crate::probe::cuda::memory::Buffer;
use crate::probe::cuda::{Cuda, Run};
use crate::probe::kernel::Attention;
use crate::probe::sdpa::{Graph, Role};
use crate::probe::source::ProbeError;
use meshwright_engine::kernel::Pass;

/// Memory of the tensors of one core, in either pass.
type Memory = BTreeMap<Role, Buffer>;

/// One kernel of a core with its operands, in as many copies as rotation through the cache needs.
struct Stage {
    plan: ExecutionPlan,
    /// Forward plan that must run before backward.
    forward: Option<ExecutionPlan>,
    sets: Vec<Memory>,
}

impl Cuda {
    /// Opens the library on first use, if it can run a core.
    pub(in crate::probe::cuda) fn open_cudnn(&mut self, core: &Attention) -> Result<(), ProbeError> {
        kernels(core)?;
        if self.cudnn.is_none() {
            self.cudnn = Some(Cudnn::open(self.stream)?);
        }
        Ok(())
    }

    /// Launch of the library's attention. Backward uses the outputs of forward.
    pub(in crate::probe::cuda) fn library_attention(
        &self,
        core: &Attention,
        most_sets: usize,
    ) -> Result<Run<'_>, ProbeError> {
        let Some(Cudnn(handle)) = &self.cudnn else { return Err(failed("attention", "cuDNN was not opened")) };
        let handle = *handle;
        let stages: Vec<Stage> = kernels(core)?
            .iter()
            .map(|kernel| self.stage(kernel, &PlanDevice::Here(handle), most_sets))
            .collect::<Result<_, ProbeError>>()?;
        let plans = stages.iter().flat_map(|stage| stage.forward.iter().chain([&stage.plan]));
        let workspace = Buffer::new(plans.map(|plan| plan.workspace).max().unwrap_or(0))?;
        let run = move |plan: &ExecutionPlan, set: &Memory| {
            plan.run(handle, &|role| set.get(&role).map_or(std::ptr::null_mut(), Buffer::pointer), workspace.pointer())
        };
        for Stage { plan: _, forward, sets } in &stages {
            if let Some(forward) = forward {
                sets.iter().try_for_each(|set| run(forward, set))?;
            }
        }
        Ok(Box::new(move |at| stages.iter().try_for_each(|Stage { plan, sets, .. }| run(plan, &sets[at % sets.len()]))))
    }

    fn stage(&self, kernel: &Attention, device: &PlanDevice, most_sets: usize) -> Result<Stage, ProbeError> {
        let no_engine = |error: ProbeError| refused(kernel, format!("cuDNN has no engine for it: {error}"));
        let wanted = Graph::of(kernel);
        let forward = match kernel.pass {
            Pass::Forward => None,
            Pass::Dgrad | Pass::Wgrad => {
                let before = Graph::of(&Attention { pass: Pass::Forward, ..*kernel });
                Some(ExecutionPlan::new(&before, device).map_err(no_engine)?)
            }
        };
        let bytes: u64 = wanted.caller_tensors().map(|(.., bytes)| bytes).sum();
        let count = self.sets(bytes as usize).min(most_sets);
        let sets = (0..count).map(|_| self.memory(&wanted)).collect::<Result<_, ProbeError>>()?;
        Ok(Stage { plan: ExecutionPlan::new(&wanted, device).map_err(no_engine)?, forward, sets })
    }

    /// Allocates random operands, and memory for results.
    fn memory(&self, graph: &Graph) -> Result<Memory, ProbeError> {
        let buffer = |(_, role, bytes): (usize, Role, u64)| {
            let bytes = usize::try_from(bytes).map_err(|error| failed("the size of a tensor", error))?;
            let made = match role {
                Role::Q | Role::K | Role::V | Role::Gradient => self.random(bytes, "fill")?,
                Role::O | Role::Stats | Role::Dq | Role::Dk | Role::Dv | Role::Delta | Role::DqSum => {
                    Buffer::new(bytes)?
                }
            };
            Ok((role, made))
        };
        graph.caller_tensors().map(buffer).collect()
    }
}
