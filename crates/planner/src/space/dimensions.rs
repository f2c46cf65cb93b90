//! Values of the lower dimensions: dispatcher, schedule and split, recomputation, offload, sharding, rank order.

use std::sync::Arc;

use super::Space;
use super::sharding::{ShardingChoice, orders};
use crate::space::{divisors, plain_plan};
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::model::Ffn;
use meshwright_engine::plan::{Layout, Modules, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::{LayerSplit, layers as split};
use meshwright_engine::stack::{Dispatcher, Family};

/// Shares of optimizer states or activations that may be offloaded.
const SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

impl Space<'_> {
    fn family(&self) -> Family {
        self.restrictions.family(self.costs.problem.stack().family)
    }

    /// Dispatchers that the stack can use: its own, the all-to-all that every stack has, and all that are fixed by name.
    pub(super) fn dispatchers(&self, ep: u32) -> Vec<Dispatcher> {
        let own = self.costs.problem.stack().dispatcher;
        if ep == 1 {
            return vec![own];
        }
        let has_all = own == Dispatcher::DeepEp || self.restrictions.fixes("dispatcher");
        let all = if has_all { vec![Dispatcher::DeepEp, Dispatcher::AllToAll] } else { vec![own] };
        all.into_iter().filter(|d| self.restrictions.allows_word("dispatcher", &d.to_string())).collect()
    }

    /// Schedules with their splits on `pp` ranks: those that the framework runs, and those fixed by name.
    pub fn pipelines(&self, pp: u32) -> Vec<(Schedule, LayerSplit)> {
        let with_splits = |schedule: Schedule| self.splits_of(pp, schedule).map(move |split| (schedule, split));
        self.schedules(pp).into_iter().flat_map(with_splits).collect()
    }

    /// Splits of a schedule on `pp` ranks.
    pub(crate) fn splits_of(&self, pp: u32, schedule: Schedule) -> impl Iterator<Item = LayerSplit> {
        self.splits(pp).into_iter().chain(self.light_ends(pp, schedule))
    }

    /// Splits with fewer layers on the first or last rank ([`split::light_ends`]), if the framework has such options.
    ///
    /// Source: [megatron-lm] `--decoder-first-pipeline-num-layers`, `--decoder-last-pipeline-num-layers`.
    pub(super) fn light_ends(&self, pp: u32, schedule: Schedule) -> Vec<LayerSplit> {
        if !schedule.is_round_robin() || !matches!(self.family(), Family::Megatron | Family::Internal) {
            return Vec::new();
        }
        let asked: Vec<LayerSplit> = self.restrictions.fixed_splits().collect();
        split::light_ends(self.costs.problem.model().layers(), pp, schedule.virtual_stages())
            .into_iter()
            .filter(|ends| !asked.contains(ends) && self.restrictions.allows_word("split", &ends.to_string()))
            .collect()
    }

    /// Schedules on `pp` ranks that the framework runs, and those fixed by name.
    pub fn schedules(&self, pp: u32) -> Vec<Schedule> {
        if pp == 1 {
            let one = vec![Schedule::OneFOneB];
            return one.into_iter().filter(|_| self.restrictions.allows_number("vpp", 1)).collect();
        }
        let most = (self.costs.problem.model().layers() + 2) / pp;
        let of_chunks =
            |chunks: u32| Schedule::every(chunks).into_iter().filter(move |s| s.takes_chunks() == (chunks > 1));
        let family = self.family();
        let allowed = |schedule: &Schedule| {
            schedule.is_searched()
                && (family.runs(*schedule) || self.restrictions.names_schedule(*schedule))
                && self.restrictions.allows_word("schedule", schedule.name())
                && self.restrictions.allows_number("vpp", schedule.virtual_stages())
        };
        (1..=most.max(1)).flat_map(of_chunks).filter(allowed).collect()
    }

    /// Splits that every schedule supports: even, cost-balanced, and those fixed by name. Without a pipeline one value
    /// stands for all.
    pub(super) fn splits(&self, pp: u32) -> Vec<LayerSplit> {
        let own = self.costs.problem.stack().split.clone();
        if pp == 1 {
            return vec![own];
        }
        let mut all = vec![LayerSplit::Even, LayerSplit::CostBalanced];
        if let Some(own_split) = self.restrictions.limits().and_then(|limits| limits.own_split) {
            all = own_split(self.costs.problem.model(), pp).into_iter().collect();
        }
        for split in self.restrictions.fixed_splits() {
            if !all.contains(&split) {
                all.push(split);
            }
        }
        all.into_iter().filter(|split| self.restrictions.allows_word("split", &split.to_string())).collect()
    }

    /// Recomputations of a pipeline: none, every set of modules of the model, the first layers of each chunk, and full;
    /// restricted to what the framework supports or what is fixed by name. Cheaper ones come first where the order is
    /// known.
    ///
    /// Source: [megatron-lm] `--recompute-granularity`, `--recompute-method block`, `--recompute-modules`; [torchtitan]
    /// `activation_checkpoint`: full, per-op, every second layer; [maxtext] `remat_policy`; [deepspeed]: whole layers.
    pub fn recomputes(&self, pp: u32, schedule: Schedule) -> Arc<[Recompute]> {
        let chunk = self.costs.problem.model().layers().div_ceil(pp * schedule.virtual_stages());
        Arc::clone(self.recomputes[chunk as usize].get_or_init(|| self.recomputes_of(chunk).into()))
    }

    /// Recomputations where the longest chunk has `chunk` layers.
    fn recomputes_of(&self, chunk: u32) -> Vec<Recompute> {
        let family = self.family();
        let megatron = matches!(family, Family::Megatron | Family::MegatronDeepspeed | Family::Internal);
        let by_layer = matches!(family, Family::Torchtitan | Family::Fsdp | Family::Internal);
        let mut all = vec![Recompute::None];
        if megatron {
            all.extend(self.module_sets().into_iter().map(Recompute::Selective));
        }
        if by_layer {
            all.extend([Recompute::PerOp, Recompute::EveryOther]);
        }
        if family == Family::Jax {
            all.extend([Recompute::PerOp, Recompute::Selective(Modules::ATTENTION_AND_MLP)]);
        }
        if megatron {
            all.extend((1..chunk).map(Recompute::FirstLayers));
        }
        all.push(Recompute::Full);
        for fixed in self.restrictions.fixed_recompute() {
            if !all.contains(&fixed) {
                all.push(fixed);
            }
        }
        if self.restrictions.mentions("recompute") {
            all.retain(|recompute| self.restrictions.allows_word("recompute", &recompute.to_string()));
        }
        all
    }

    /// Sets of modules with different effects on this model: not empty, and without modules that another member of the set
    /// recomputes anyway.
    fn module_sets(&self) -> Vec<Modules> {
        let problem = self.costs.problem;
        let model = problem.model();
        let dense = model.kinds.iter().any(|layer| matches!(layer.ffn, Ffn::Dense(_)));
        let switch = |has: bool| if has { vec![false, true] } else { vec![false] };
        let scores = problem.stack().attention == AttentionKernel::Unfused || model.indexer().is_some();
        let all = itertools::iproduct!(
            switch(true),
            switch(true),
            switch(model.has_mla()),
            switch(scores),
            switch(dense),
            switch(model.is_moe())
        );
        let none = Modules::default();
        all.map(|(act, layernorm, mla_up_proj, core_attn, mlp, moe)| Modules {
            core_attn,
            layernorm,
            act,
            mla_up_proj,
            mlp,
            moe,
        })
        .filter(|set| *set != none)
        .filter(|set| !(set.act && (set.mlp || !dense) && (set.moe || !model.is_moe())))
        .collect()
    }

    /// Shares of activations that may be offloaded to the host.
    ///
    /// Source: [megatron-lm] `transformer_config.py`: `cpu_offloading` runs neither with a pipeline nor beside recomputation;
    /// [maxtext] `minimal_offloaded`: all outputs of matmuls, or none.
    pub fn offloaded_activations(&self, pp: u32, recompute: Recompute) -> Arc<[f64]> {
        let can = match self.family() {
            Family::Megatron => pp == 1 && recompute == Recompute::None,
            Family::Fsdp | Family::Internal => true,
            Family::Jax if recompute == Recompute::PerOp => {
                let all_or_none = |share: &f64| share.fract() == 0.0;
                return self.shares("offload-activations", true).into_iter().filter(all_or_none).collect();
            }
            Family::MegatronDeepspeed
            | Family::Deepspeed
            | Family::Torchtitan
            | Family::Nanotron
            | Family::Internevo
            | Family::Jax => false,
        };
        let shares =
            self.activation_shares[usize::from(can)].get_or_init(|| self.shares("offload-activations", can).into());
        Arc::clone(shares)
    }

    /// Largest share of optimizer states that a plan may offload to the host.
    pub fn most_optimizer_on_host(&self) -> f64 {
        let stages = [ZeroStage::Zero, ZeroStage::One, ZeroStage::Two, ZeroStage::Three];
        let shares = itertools::iproduct!(stages, [1, 2]).map(|(zero, pp)| self.expressible_on_host(zero, pp));
        shares.flat_map(|shares| shares.to_vec()).fold(0.0, f64::max)
    }

    /// Shares of optimizer states that may be offloaded to the host.
    ///
    /// Source: [megatron-lm] `--optimizer-cpu-offload` with the distributed optimizer; [deepspeed] ZeRO-Offload.
    pub(crate) fn offloaded_optimizer(&self, zero: ZeroStage) -> Arc<[f64]> {
        let has = matches!(
            self.family(),
            Family::Megatron | Family::MegatronDeepspeed | Family::Deepspeed | Family::Internal
        );
        let can = has && zero >= ZeroStage::One;
        let shares =
            self.optimizer_shares[usize::from(can)].get_or_init(|| self.shares("offload-optimizer", can).into());
        Arc::clone(shares)
    }

    /// Shares of [`Space::offloaded_optimizer`] that the requested framework can express.
    pub(crate) fn expressible_on_host(&self, zero: ZeroStage, pp: u32) -> Arc<[f64]> {
        let shares = self.expressible_shares[usize::from(u8::from(zero))][usize::from(pp > 1)].get_or_init(|| {
            let all = self.offloaded_optimizer(zero);
            let plain = plain_plan(self.costs.problem);
            let plain = Plan { zero, layout: Layout { pp, ..plain.layout }, ..plain };
            let with_share =
                |optimizer: f64| Plan { offload: Offload { optimizer, activations: 0.0 }, ..plain.clone() };
            let is_expressible = |share: &f64| self.inexpressible_on_host(&with_share(*share)).is_none();
            if all.iter().all(is_expressible) { all } else { all.iter().copied().filter(is_expressible).collect() }
        });
        Arc::clone(shares)
    }

    fn shares(&self, key: &str, can: bool) -> Vec<f64> {
        let asked = self.restrictions.fixed_shares(key);
        if !asked.is_empty() {
            return asked;
        }
        let all: &[f64] = if can { &SHARES } else { &SHARES[..1] };
        if !self.restrictions.mentions(key) {
            return all.to_vec();
        }
        all.iter().copied().filter(|share| self.restrictions.allows_word(key, &share.to_string())).collect()
    }

    /// ZeRO stages on `pp` ranks: 2 and 3 without a pipeline; with one, 3 under FSDP and 2 in an in-house framework.
    pub fn zero_stages(&self, pp: u32) -> Vec<ZeroStage> {
        let mut stages = vec![ZeroStage::One, ZeroStage::Zero];
        if pp == 1 || self.family() == Family::Internal {
            stages.push(ZeroStage::Two);
        }
        if pp == 1 || matches!(self.family(), Family::Torchtitan | Family::Fsdp) {
            stages.push(ZeroStage::Three);
        }
        stages.into_iter().filter(|z| self.restrictions.allows_word("zero", &u8::from(*z).to_string())).collect()
    }

    /// Shard groups of a ZeRO stage: all replicas, or a divisor of them if the framework has such groups.
    ///
    /// Source: [megatron-lm] `--num-distributed-optimizer-instances`; [torchtitan] `data_parallel_replicate_degree` and PyTorch's
    /// HSDP (ZeRO 3); [deepspeed] MiCS (ZeRO 3).
    fn shard_groups(&self, zero: ZeroStage, replicas: u32) -> Vec<Option<u32>> {
        let has = match self.family() {
            Family::Megatron | Family::Internevo | Family::Internal => zero >= ZeroStage::One,
            Family::Torchtitan | Family::Fsdp | Family::Deepspeed | Family::Jax => zero == ZeroStage::Three,
            Family::MegatronDeepspeed | Family::Nanotron => false,
        };
        let has = has || (self.restrictions.fixes("shard") && zero >= ZeroStage::One);
        let mut groups = Vec::new();
        if self.restrictions.allows_number("shard", replicas) {
            groups.push(None);
        }
        if has {
            let proper = divisors(replicas).into_iter().filter(|&g| g > 1 && g < replicas);
            groups.extend(proper.filter(|g| self.restrictions.allows_number("shard", *g)).map(Some));
        }
        groups
    }

    /// Whether FSDP frees gathered weights after the forward pass, by the values that it may have.
    fn reshards(&self, zero: ZeroStage) -> Vec<bool> {
        let has = matches!(self.family(), Family::Torchtitan | Family::Fsdp | Family::Deepspeed | Family::Internal);
        let all = if zero == ZeroStage::Three && has { vec![true, false] } else { vec![true] };
        all.into_iter().filter(|on| self.restrictions.allows_word("reshard", if *on { "on" } else { "off" })).collect()
    }

    /// Rank orders of a layout that the restrictions allow.
    fn orders(&self, layout: &Layout) -> Vec<RankOrder> {
        let all = orders(layout.pp, layout.dp).into_iter();
        all.filter(|order| self.restrictions.allows_word("order", &order.to_string())).collect()
    }

    /// Shardings of a layout without optimizer offload, each with the offloaded shares that it allows.
    pub(crate) fn shardings_by_host(&self, layout: &Layout) -> Vec<(ShardingChoice, Arc<[f64]>)> {
        let orders = self.orders(layout);
        let mut all = Vec::new();
        for zero in self.zero_stages(layout.pp) {
            let groups = self.shard_groups(zero, layout.dense_replicas());
            let (reshards, hosts) = (self.reshards(zero), self.offloaded_optimizer(zero));
            for (&order, &shard_group, &reshard_after_forward) in itertools::iproduct!(&orders, &groups, &reshards) {
                let optimizer_on_host = 0.0;
                let sharding = ShardingChoice { zero, shard_group, reshard_after_forward, optimizer_on_host, order };
                all.push((sharding, Arc::clone(&hosts)));
            }
        }
        all
    }

    /// Shardings of a layout under ZeRO 0 to 2 with different exchanges between replicas: ZeRO 2 moves what ZeRO 1 does.
    pub(crate) fn exchanges(&self, layout: &Layout) -> Vec<ShardingChoice> {
        let stages = self.zero_stages(layout.pp);
        let is_other = |zero: ZeroStage| match zero {
            ZeroStage::Zero | ZeroStage::One => true,
            ZeroStage::Two => !stages.contains(&ZeroStage::One),
            ZeroStage::Three => false,
        };
        let all = self.shardings_by_host(layout).into_iter().map(|(choice, _)| choice);
        all.filter(|choice| is_other(choice.zero)).collect()
    }

    /// Every sharding of a layout, in a fixed order.
    pub fn shardings(&self, layout: &Layout) -> Vec<ShardingChoice> {
        let all = self.shardings_by_host(layout).into_iter();
        all.flat_map(|(sharding, hosts)| {
            let with_share = move |&optimizer_on_host: &f64| ShardingChoice { optimizer_on_host, ..sharding };
            hosts.iter().map(with_share).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Number of shardings of a layout.
    pub(crate) fn count_shardings(&self, layout: &Layout) -> u64 {
        let of_stage = |zero| {
            let groups = self.shard_groups(zero, layout.dense_replicas()).len();
            (groups * self.reshards(zero).len() * self.offloaded_optimizer(zero).len()) as u64
        };
        let orders = self.orders(layout).len() as u64;
        self.zero_stages(layout.pp).into_iter().map(of_stage).sum::<u64>() * orders
    }
}
