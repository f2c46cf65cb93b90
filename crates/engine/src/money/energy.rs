//! Power at the wall, energy and emissions.

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::cost::StepTime;
use crate::goodput::Goodput;
use crate::gpu::{Host, IDLE_POWER};
use crate::sources::Sourced;
use crate::units::{Joules, KgPerJoule, Seconds, UsdPerJoule, Watts};

/// Site of a cluster: power overhead, electricity price and emissions.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Power usage effectiveness: power of the building over power of the machines.
    pub pue: Sourced<f64>,
    /// Power of host, NICs and fans for each GPU of an x86 server.
    pub host_x86: Sourced<Watts>,
    /// Power of host, NICs and fans for each GPU of a Grace tray.
    pub host_grace: Sourced<Watts>,
    /// Price of electricity.
    pub electricity: Sourced<UsdPerJoule>,
    /// Emissions of electricity.
    pub carbon: Sourced<KgPerJoule>,
}

/// Share of the power above idle that a busy device draws while its tensor cores wait. Source: specification §7.4.
const WAITING_POWER: f64 = 0.45;
/// Share of the power above idle that busy tensor cores add to it. Source: specification §7.4.
const TENSOR_CORE_POWER: f64 = 0.55;

/// Share of the step in which the tensor cores are busy.
///
/// ```text
/// duty = (compute + recompute)/T
/// ```
pub(crate) fn duty(step: &StepTime) -> f64 {
    (step.compute + step.recompute) / step.total()
}

/// Mean power of one device in a step.
///
/// ```text
/// P = P_idle + (TDP − P_idle)·(0.45 + 0.55·duty)          P_idle = 0.12·TDP, specification §7.4
/// ```
pub(crate) fn device_power(tdp: Watts, duty: f64) -> Watts {
    let idle = tdp * IDLE_POWER;
    idle + (tdp - idle) * (WAITING_POWER + TENSOR_CORE_POWER * duty)
}

impl Site {
    /// Power of host, NICs and fans for each GPU of a cluster.
    fn host(&self, cluster: &Cluster) -> Watts {
        match cluster.host {
            Host::X86 => self.host_x86.value,
            Host::Grace => self.host_grace.value,
        }
    }

    /// Critical load of one GPU with its share of the host: the power that the building must supply, without cooling.
    pub(crate) fn critical_load(&self, cluster: &Cluster) -> Watts {
        cluster.gpu.tdp.value + self.host(cluster)
    }

    /// Peak power at the wall.
    pub fn peak_power(&self, cluster: &Cluster) -> Watts {
        self.critical_load(cluster) * f64::from(cluster.gpus) * self.pue.value
    }

    /// Mean power at the wall: idle during restarts and maintenance, busy otherwise.
    ///
    /// ```text
    /// P = PUE·N·( (1−i)·P_device + i·P_idle + P_host ),  i = restarts + maintenance          specification §7.4
    /// ```
    pub(crate) fn mean_power(&self, cluster: &Cluster, step: &StepTime, goodput: &Goodput) -> Watts {
        let idle = goodput.losses.restarts + goodput.losses.maintenance;
        let tdp = cluster.gpu.tdp.value;
        let device = device_power(tdp, duty(step)) * (1.0 - idle) + tdp * (IDLE_POWER * idle);
        (device + self.host(cluster)) * f64::from(cluster.gpus) * self.pue.value
    }

    /// Energy of a job at the wall.
    pub fn energy(&self, cluster: &Cluster, step: &StepTime, goodput: &Goodput, time: Seconds) -> Joules {
        self.mean_power(cluster, step, goodput) * time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specification §7.4: about 0.75–0.9 of the board's power at an MFU of 40 %.
    #[test]
    fn a_busy_board_draws_most_of_its_power() {
        for busy in [0.6, 0.8] {
            let share = device_power(Watts::new(700.0), busy) / Watts::new(700.0);
            assert!((0.75..=0.91).contains(&share), "{share}");
        }
    }
}
