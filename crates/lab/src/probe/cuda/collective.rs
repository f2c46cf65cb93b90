//! Collectives through NCCL, in all groups of one size at once.

use std::collections::BTreeMap;

use cudarc::nccl::{result as nccl, sys as ncclsys};

use super::Cuda;
use super::compile::libraries;
use super::failure::{failed, missing};
use crate::probe::kernel::{Kernel, group_of};
use crate::probe::ranks::{ID_BYTES, Ranks};
use crate::probe::sample::Sample;
use crate::probe::source::{Effort, ProbeError};
use meshwright_engine::collective::Group;
use meshwright_engine::gpu::Collective;

/// Ranks that were started together, with a communicator of this rank's group for each requested size.
pub(super) struct Communicators {
    ranks: Ranks,
    of: BTreeMap<Group, ncclsys::ncclComm_t>,
}

impl Communicators {
    /// Communicator of this rank's group; all ranks request the same groups in the same order.
    fn communicator(&mut self, group: Group) -> Result<ncclsys::ncclComm_t, ProbeError> {
        if let Some(known) = self.of.get(&group) {
            return Ok(*known);
        }
        let make = || {
            let id = nccl::get_uniqueid().map_err(|error| format!("ncclGetUniqueId: {error:?}"))?;
            Ok(id.internal.map(i8::cast_unsigned))
        };
        let round = self.of.len() as u32;
        let id: [u8; ID_BYTES] = self.ranks.exchange(group, round, make)?;
        let id = ncclsys::ncclUniqueId { internal: id.map(u8::cast_signed) };
        let place = self.ranks.place(group).map_or(0, |(_, place)| place);
        let mut comm = std::ptr::null_mut();
        // SAFETY: NCCL writes the communicator; id and size are the same on all ranks of the group, and places differ.
        unsafe { nccl::comm_init_rank(&raw mut comm, group.ranks.cast_signed(), id, place.cast_signed()) }
            .map_err(|error| failed("ncclCommInitRank", error.0))?;
        self.of.insert(group, comm);
        Ok(comm)
    }
}

impl Cuda {
    /// Joins the other ranks in one NCCL communicator; communicators of smaller groups are created on first use.
    ///
    /// # Errors
    ///
    /// NCCL is missing or fails, or the ranks do not find each other.
    pub fn join(&mut self, ranks: Ranks) -> Result<(), ProbeError> {
        if !libraries().nccl {
            return Err(missing(
                "libnccl.so was not found: collectives cannot run",
                "pip install nvidia-nccl-cu12; `meshwright doctor` says where it looked and about libnccl.so.2",
            ));
        }
        let all = Group { ranks: ranks.world, stride: 1 };
        let mut communicators = Communicators { ranks, of: BTreeMap::new() };
        communicators.communicator(all)?;
        self.ranks = Some(communicators);
        Ok(())
    }

    /// Times a collective in all groups of its size at once, as a training step runs it.
    pub(super) fn collective(&mut self, kernel: &Kernel, effort: Effort) -> Result<Sample, ProbeError> {
        let unsupported = |why: String| ProbeError::Unsupported { kernel: kernel.to_string(), why };
        let Kernel::Collective { op, ranks, nodes, bytes } = *kernel else {
            return Err(unsupported("it is not a collective".into()));
        };
        let Some(communicators) = &mut self.ranks else {
            return Err(unsupported("it needs several ranks: start with torchrun or srun".into()));
        };
        let all = &communicators.ranks;
        let group = group_of(ranks, nodes, u64::from(all.per_node));
        if all.place(group).is_none() {
            return Err(unsupported(format!("{} ranks were started, {} on each node", all.world, all.per_node)));
        }
        let comm = communicators.communicator(group)?;
        let (whole, share) = (bytes as usize, (bytes / ranks) as usize);
        let (from, to) = (self.random(whole, "fill")?, self.random(whole, "fill")?);
        self.synchronize()?;
        let kind = ncclsys::ncclDataType_t::ncclBfloat16;
        let sum = ncclsys::ncclRedOp_t::ncclSum;
        let stream = self.stream.cast();
        // SAFETY: both buffers hold the whole tensor and live until `sample` has waited for the last call.
        self.sample(effort, &mut |_| {
            let called = unsafe {
                match op {
                    Collective::AllReduce => {
                        nccl::all_reduce(from.pointer(), to.pointer(), whole / 2, kind, sum, comm, stream)
                    }
                    Collective::AllGather => {
                        nccl::all_gather(from.pointer(), to.pointer(), share / 2, kind, comm, stream)
                    }
                    Collective::ReduceScatter => {
                        nccl::reduce_scatter(from.pointer(), to.pointer(), share / 2, kind, sum, comm, stream)
                    }
                    Collective::AllToAll => nccl::group_start().and_then(|_| {
                        for peer in 0..group.ranks.cast_signed() {
                            let at = peer as usize * share;
                            nccl::send(from.pointer().add(at), share / 2, kind, peer, comm, stream)?;
                            nccl::recv(to.pointer().add(at), share / 2, kind, peer, comm, stream)?;
                        }
                        nccl::group_end()
                    }),
                }
            };
            called.map(|_| ()).map_err(|error| failed(&kernel.to_string(), error.0))
        })
    }
}
