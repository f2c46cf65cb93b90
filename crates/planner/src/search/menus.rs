//! Menus: shardings of a layout that no other dominates, grouped, with a lower bound of each group.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, RwLock};

use super::exchanges::Exchanges;
use super::on_host::{Fit, HostShares, Refused, ShardedPlan, shares_on_host};
use super::verdict::Verdict;
use crate::space::Space;
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::incremental::{
    LeastExchange, LeastStates, Parameters, Sharding, SharedParts, Stages, least_parameters, least_states,
};
use meshwright_engine::plan::{Layout, Offload, Plan, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::units::Seconds;

/// Shardings of one ZeRO stage and rank order.
#[derive(Debug)]
pub(super) struct ShardingGroup {
    /// Lower bound of all of them.
    pub floor: Sharding,
    pub shardings: Vec<HostShares>,
    /// Number of shardings.
    pub count: u64,
}

/// Menu of the non-dominated shardings of one layout and schedule.
#[derive(Debug)]
pub(super) struct Menu {
    /// Shardings with whole weights on each replica: ZeRO 0 to 2.
    pub replicated: ShardingList,
    /// Shardings that gather weights layer by layer: ZeRO 3.
    pub sharded: ShardingList,
    /// Number of shardings left out as dominated.
    pub dominated: u64,
    /// Shardings that are left out as refused.
    pub refused: Refused,
    /// Fewest bytes of model states and gathered weights of each class of ranks.
    pub least: Vec<LeastStates>,
    /// Parameters of the ranks.
    pub parameters: Arc<Parameters>,
}

/// Menu of one plan, computed on first use, with a lower bound of its memory.
#[derive(Debug)]
pub(super) struct PlanMenu {
    /// Lower bound of the bytes of model states and unsharded weights of each class of ranks.
    pub least: Vec<LeastStates>,
    parameters: Arc<Parameters>,
    ends: OnceLock<ReplicatedEnds>,
    menu: OnceLock<Arc<Menu>>,
}

/// Lower bounds of the time at both ends of a step under ZeRO 0 to 2, over many shardings, whether they fit or not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplicatedEnds {
    /// All of it, however much compute hides the exchange between replicas.
    pub time: Seconds,
    /// The exchange between replicas, as if nothing hid it.
    pub exchange: LeastExchange,
}

impl ReplicatedEnds {
    /// Bounds of ranks with these parameters, over all shardings s:
    ///
    /// ```text
    /// min (X(s) + U(s))  ≥  min X(s) + min U(s)        X = exchange that no flow hides, U = update
    /// ```
    fn new(space: &Space, plan: &Plan, parameters: &Parameters, exchanges: &Exchanges) -> Self {
        let time = least_update(space, plan, parameters) + exchanges.least_exposed(space, plan, parameters);
        Self { time, exchange: exchanges.least_exchange(space, plan, parameters) }
    }
}

/// Lower bound of the time of the update under ZeRO 0 to 2, over all shardings: with every replica in one shard group.
fn least_update(space: &Space, plan: &Plan, parameters: &Parameters) -> Seconds {
    let costs = space.costs();
    let stages = space.zero_stages(plan.layout.pp).into_iter().filter(|zero| *zero != ZeroStage::Three);
    let of_stage = |zero: ZeroStage| {
        let plan = Plan { zero, shard_group: None, ..plan.clone() };
        let shares = shares_on_host(space, &plan, &least_parameters(costs, &plan));
        (!shares.is_empty()).then(|| parameters.least_update(costs, &plan, &shares))
    };
    stages.filter_map(of_stage).reduce(Seconds::min).unwrap_or_default()
}

/// Position of a sharding in a list.
#[derive(Clone, Copy, Debug)]
struct ListPosition {
    /// Index of its group.
    group: u32,
    /// Index in the group.
    index: u32,
}

/// Shardings of one engine.
#[derive(Debug, Default)]
pub(super) struct ShardingList {
    pub groups: Vec<ShardingGroup>,
    /// Number of shardings.
    pub count: u64,
    /// Lower bound of the time at the ends of a step of all of them.
    pub edges: Seconds,
    /// Fewest bytes of model states and gathered weights of each class of ranks.
    least: Vec<LeastStates>,
    /// All shardings by ascending lower bound of that time; `None` where none leaves optimizer states on the host.
    by_edges: Option<Vec<ListPosition>>,
}

impl ShardingList {
    /// Adds shardings to the last group, or to a new one if that is of another ZeRO stage or rank order.
    fn push(&mut self, own: HostShares) {
        self.count += own.count();
        let same = |group: &&mut ShardingGroup| {
            (group.floor.zero(), group.floor.order()) == (own.floor.zero(), own.floor.order())
        };
        if let Some(group) = self.groups.last_mut().filter(same) {
            group.floor = group.floor.lesser(&own.floor);
            group.count += own.count();
            group.shardings.push(own);
        } else {
            let (floor, count) = (own.floor.clone(), own.count());
            self.groups.push(ShardingGroup { floor, shardings: vec![own], count });
        }
    }

    /// The list with its shardings in the order of the time at the ends of a step.
    fn ordered(mut self, costs: &Costs, plan: &Plan) -> Self {
        self.least = least_states(costs, plan, self.floors());
        let by_edges = self.by_edges();
        let least = |position: &ListPosition| self.own(*position).least_edges;
        self.edges = by_edges.first().map(least).unwrap_or_default();
        let with_hosts = self.groups.iter().flat_map(|group| &group.shardings).any(|own| own.count() > 1);
        self.by_edges = with_hosts.then_some(by_edges);
        self
    }

    /// Whether a sharding may fit, by the fewest bytes of any.
    fn may_fit(&self, fit: &Fit) -> bool {
        fit.beside.lower_bound(&self.least).bytes <= fit.hbm_budget
    }

    fn own(&self, position: ListPosition) -> &HostShares {
        &self.groups[position.group as usize].shardings[position.index as usize]
    }

    /// Each sharding, by ascending lower bound of the time at the ends of a step.
    fn by_edges(&self) -> Vec<ListPosition> {
        let positions = |(group, of): (usize, &ShardingGroup)| {
            (0..of.shardings.len()).map(move |index| ListPosition { group: group as u32, index: index as u32 })
        };
        let mut all: Vec<ListPosition> = self.groups.iter().enumerate().flat_map(positions).collect();
        sort_by_numbers(&mut all, |position| [self.own(*position).least_edges.get()]);
        all
    }

    fn floors(&self) -> impl Iterator<Item = &Sharding> {
        self.groups.iter().flat_map(|group| &group.shardings).map(|own| &own.floor)
    }
}

/// Settings of a plan that determine its menu.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MenuKey {
    layout: Layout,
    schedule: Schedule,
    split: LayerSplit,
    /// Number of layers of the last virtual stage, which tells one cost-balanced split from another.
    last_chunk: u32,
}

/// Settings that plans with the same menu have in common, besides the parameters of their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ContentKey {
    layout: Layout,
    /// Number of copies of the weights on a rank.
    weight_copies: u32,
    /// Whether one rank holds both the embedding and the output head.
    joins_ends: bool,
}

/// Menus of one set of restrictions: by plan, and by the parameters of its ranks, for many plans share a menu.
#[derive(Debug, Default)]
pub(super) struct Menus {
    by_plan: RwLock<BTreeMap<MenuKey, Arc<PlanMenu>>>,
    by_content: RwLock<BTreeMap<ContentKey, Vec<Arc<Menu>>>>,
    exchanges: Exchanges,
    /// Lower bounds of the time at both ends of a step, by layout.
    ends: RwLock<BTreeMap<Layout, ReplicatedEnds>>,
}

impl Menus {
    /// Entry of a plan's layout and schedule, whose menu is computed on first use.
    pub fn plan_menu(&self, space: &Space, plan: &Plan, stages: &Stages) -> Arc<PlanMenu> {
        let Plan { layout, schedule, ref split, .. } = *plan;
        let key = MenuKey { layout, schedule, split: split.clone(), last_chunk: stages.last_chunk() };
        if let Some(known) = self.by_plan.read().expect("no writer panics").get(&key) {
            return Arc::clone(known);
        }
        let parameters = Arc::new(Parameters::new(space.costs(), plan, stages));
        let least = least_bytes(space, plan, &parameters);
        let (ends, menu) = (OnceLock::new(), OnceLock::new());
        let menu = Arc::new(PlanMenu { least, parameters, ends, menu });
        Arc::clone(self.by_plan.write().expect("no writer panics").entry(key).or_insert(menu))
    }

    /// Lower bounds of the time at both ends of a step under ZeRO 0 to 2, over all shardings of a plan's layout; its menu is
    /// not needed.
    pub fn least_ends(&self, space: &Space, plan: &Plan, menu: &PlanMenu) -> ReplicatedEnds {
        *menu.ends.get_or_init(|| ReplicatedEnds::new(space, plan, &menu.parameters, &self.exchanges))
    }

    /// Lower bounds of the time at both ends of a step under ZeRO 0 to 2, over all pipelines and shardings of a plan's layout.
    pub fn least_ends_of_layout(&self, space: &Space, plan: &Plan) -> ReplicatedEnds {
        if let Some(known) = self.ends.read().expect("no writer panics").get(&plan.layout) {
            return *known;
        }
        // No schedule exchanges less than one that has both ends of the model on one rank.
        let plan = &Plan { schedule: Schedule::ZbV, ..plan.clone() };
        let parameters = Parameters::least_of_layout(space.costs(), plan);
        let ends = ReplicatedEnds::new(space, plan, &parameters, &self.exchanges);
        *self.ends.write().expect("no writer panics").entry(plan.layout).or_insert(ends)
    }

    /// Menu of an entry, computed on first use.
    pub fn menu(&self, space: &Space, plan: &Plan, menu: &PlanMenu) -> Arc<Menu> {
        Arc::clone(menu.menu.get_or_init(|| self.shared(space, plan, &menu.parameters)))
    }

    /// Menu of a plan, shared by all plans of its layout whose ranks have the same parameters. Of a schedule it depends
    /// only on how many copies of the weights a rank has, and on whether one rank has both ends of the model.
    fn shared(&self, space: &Space, plan: &Plan, parameters: &Arc<Parameters>) -> Arc<Menu> {
        let key = ContentKey {
            layout: plan.layout,
            weight_copies: plan.schedule.weight_copies(),
            joins_ends: plan.pipeline().joins_ends(),
        };
        let find = |menus: &[Arc<Menu>]| menus.iter().find(|known| known.parameters == *parameters).map(Arc::clone);
        let known = self.by_content.read().expect("no writer panics").get(&key).and_then(|all| find(all));
        if let Some(known) = known {
            return known;
        }
        let menu = Arc::new(Menu::new(space, plan, Arc::clone(parameters)));
        let mut shared = self.by_content.write().expect("no writer panics");
        let menus = shared.entry(key).or_default();
        if let Some(known) = find(menus) {
            return known;
        }
        menus.push(Arc::clone(&menu));
        menu
    }
}

/// Lower bound of the bytes of states and unsharded weights of each class of ranks, over all shardings of a plan's layout.
fn least_bytes(space: &Space, plan: &Plan, parameters: &Parameters) -> Vec<LeastStates> {
    let costs = space.costs();
    let of_layers = least_parameters(costs, plan);
    let of_stage = |zero: ZeroStage| {
        let plan = Plan { zero, shard_group: None, ..plan.clone() };
        let shares = shares_on_host(space, &plan, &of_layers);
        let offload = Offload { optimizer: shares.iter().copied().reduce(f64::max)?, ..plan.offload };
        Some(parameters.least_states(costs, &Plan { offload, ..plan }))
    };
    let lesser = |a: Vec<LeastStates>, b: Vec<LeastStates>| a.into_iter().zip(b).map(|(a, b)| a.lesser(b)).collect();
    space.zero_stages(plan.layout.pp).into_iter().filter_map(of_stage).reduce(lesser).unwrap_or_default()
}

/// Sharding that no other of a menu dominates so far.
struct Kept {
    sharding: Sharding,
    plan: Plan,
    /// Number of shares on the host that the space has for its ZeRO stage.
    of_space: usize,
    /// Shares that are not dominated.
    hosts: Arc<[f64]>,
}

impl Kept {
    /// Whether it is no worse than another with every share of that one.
    fn dominates(&self, other: &Self) -> bool {
        let is_shared = Arc::ptr_eq(&self.hosts, &other.hosts);
        let covers = || is_shared || other.hosts.iter().all(|share| self.hosts.contains(share));
        self.of_space == other.of_space && covers() && self.sharding.dominates(&other.sharding)
    }
}

impl Menu {
    /// Lower bound of the time at the ends of a step over the shardings of a list that fit; `None` if none does. A share of the
    /// optimizer on the host saves memory and takes time, so what does not fit on the device alone takes longer.
    pub fn edges_within(&self, list: &ShardingList, costs: &Costs, plan: &Plan, fit: &Fit) -> Option<Seconds> {
        let Some(by_edges) = &list.by_edges else { return Some(list.edges) };
        let sharded = ShardedPlan { costs, plan, parameters: &self.parameters };
        let mut least: Option<Seconds> = None;
        if !list.may_fit(fit) {
            return least;
        }
        for position in by_edges {
            let own = list.own(*position);
            if least.is_some_and(|least| least <= own.least_edges) {
                break; // nor is any that follows shorter
            }
            least = own.edges_within(sharded, fit, least);
        }
        least
    }

    /// Whether a sharding under ZeRO 0 to 2 fits with which a plan is not too slow, by lower bounds of the time at both ends of a
    /// step.
    pub fn verdict(&self, costs: &Costs, plan: &Plan, fit: &Fit, is_slow: impl Fn(Seconds) -> bool) -> Verdict {
        if self.any_fits(costs, plan, fit, is_slow) {
            Verdict::Open
        } else if self.any_fits(costs, plan, fit, |_| false) {
            Verdict::Slow
        } else {
            Verdict::TooLarge
        }
    }

    /// Whether a sharding under ZeRO 0 to 2 fits and is not too slow. Where none leaves optimizer states on the host, the fastest
    /// stands for all, whether it fits or not.
    fn any_fits(&self, costs: &Costs, plan: &Plan, fit: &Fit, is_slow: impl Fn(Seconds) -> bool) -> bool {
        let Some(by_edges) = &self.replicated.by_edges else { return !is_slow(self.replicated.edges) };
        let sharded = ShardedPlan { costs, plan, parameters: &self.parameters };
        if !self.replicated.may_fit(fit) {
            return false;
        }
        let own = |position: &ListPosition| self.replicated.own(*position);
        let mut fast = by_edges.iter().map(own).take_while(|own| !is_slow(own.least_edges));
        fast.any(|own| own.any_fits(sharded, fit, &is_slow))
    }

    /// Whether a sharding under ZeRO 3 fits and is not too slow.
    pub fn any_gathered_fits(
        &self,
        costs: &Costs,
        plan: &Plan,
        fit: &Fit,
        is_slow: &dyn Fn(&Sharding) -> bool,
    ) -> bool {
        let sharded = ShardedPlan { costs, plan, parameters: &self.parameters };
        let is_open = |sharding: &Sharding| fit.holds(sharding) && !is_slow(sharding);
        let groups = self.sharded.groups.iter().filter(|group| !is_slow(&group.floor));
        let mut all = groups.flat_map(|group| &group.shardings).filter(|own| is_open(&own.floor));
        self.sharded.may_fit(fit) && all.any(|own| own.each(sharded).iter().any(is_open))
    }

    /// Builds the menu. A shard group that another of its ZeRO stage and rank order dominates is left out with all its
    /// shares of offloaded optimizer states: a sharding that dominates on the device dominates with any offloaded share.
    fn new(space: &Space, plan: &Plan, parameters: Arc<Parameters>) -> Self {
        let costs = space.costs();
        let choices = space.shardings_by_host(&plan.layout);
        let mut kept: Vec<Kept> = Vec::with_capacity(choices.len());
        let (mut dominated, mut known, mut refused) = (0, SharedParts::default(), Refused::default());
        let of_layers = least_parameters(costs, plan);
        for (choice, all) in choices {
            let plan = choice.on(plan);
            let hosts = refused.accepted_shares(space, &plan, &all, &of_layers);
            if hosts.is_empty() {
                continue;
            }
            let sharding = Sharding::among(costs, &plan, &parameters, &mut known);
            let own = Kept { sharding, plan, of_space: all.len(), hosts };
            if kept.iter().any(|known| known.dominates(&own)) {
                dominated += own.hosts.len() as u64;
                continue;
            }
            kept.retain(|known| {
                let goes = own.dominates(known);
                dominated += if goes { known.hosts.len() as u64 } else { 0 };
                !goes
            });
            kept.push(own);
        }
        let (mut sharded, mut replicated) = (ShardingList::default(), ShardingList::default());
        for Kept { sharding, plan, hosts, of_space: _ } in kept {
            let list = if sharding.zero() == ZeroStage::Three { &mut sharded } else { &mut replicated };
            list.push(HostShares::new(ShardedPlan { costs, plan: &plan, parameters: &parameters }, sharding, hosts));
        }
        Self {
            least: least_states(costs, plan, replicated.floors().chain(sharded.floors())),
            replicated: replicated.ordered(costs, plan),
            sharded: sharded.ordered(costs, plan),
            dominated,
            refused,
            parameters,
        }
    }
}
