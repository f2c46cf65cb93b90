//! Rendezvous of ranks started by `torchrun` or `srun`, which share an NCCL id in each group over TCP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::source::ProbeError;
use meshwright_engine::collective::Group;

/// Bytes of an NCCL unique id.
pub(crate) const ID_BYTES: usize = 128;
/// Greeting on every connection, so that an unrelated client cannot take a rank's place.
const GREETING: &[u8; 16] = b"meshwright-nccl2";
/// Time that ranks wait for each other.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time that a connection may stay silent, so that an unrelated client does not delay the ranks behind it.
const SILENCE: Duration = Duration::from_secs(5);
/// Time between two attempts to reach rank 0.
const PAUSE: Duration = Duration::from_millis(50);

/// Rank of a distributed measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Number of this rank.
    pub rank: u32,
    /// Number of all ranks.
    pub world: u32,
    /// Number of this rank on its node, which is the GPU that it uses.
    pub local: u32,
    /// Number of ranks on each node.
    pub per_node: u32,
    /// Address on which rank 0 listens.
    pub address: String,
    /// Time to wait for the other ranks.
    pub patience: Duration,
}

fn failed(call: impl Into<String>, why: impl std::fmt::Display) -> ProbeError {
    ProbeError::Failed { call: call.into(), why: why.to_string() }
}

impl Ranks {
    /// Reads the environment of `torchrun` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or `srun`
    /// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, with MASTER_ADDR set by hand); `None` for a process of neither, and for one
    /// task of `srun`.
    ///
    /// MASTER_PORT belongs to torchrun's own store, so the port after it is used. One rank of `torchrun` meets no other, but
    /// joins NCCL as several do.
    ///
    /// # Errors
    ///
    /// A variable is not a number, or several ranks have no MASTER_ADDR.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, ProbeError> {
        let number = |names: [&str; 2], default: u32| -> Result<u32, ProbeError> {
            let Some((name, text)) = names.iter().find_map(|name| variable(name).map(|text| (*name, text))) else {
                return Ok(default);
            };
            text.trim().parse().map_err(|_| failed(format!("{name}={text}"), "it must be a whole number"))
        };
        let world = number(["WORLD_SIZE", "SLURM_NTASKS"], 1)?;
        if world < 2 && variable("WORLD_SIZE").is_none() {
            return Ok(None);
        }
        let rank = number(["RANK", "SLURM_PROCID"], 0)?;
        let local = number(["LOCAL_RANK", "SLURM_LOCALID"], rank)?;
        let nodes = number(["GROUP_WORLD_SIZE", "SLURM_NNODES"], 1)?.max(1);
        let per_node = number(["LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"], world / nodes)?;
        let port = number(["MASTER_PORT", "MASTER_PORT"], 29500)?;
        let port = u16::try_from(port).ok().and_then(|port| port.checked_add(1));
        let (Some(host), Some(port)) = (variable("MASTER_ADDR"), port) else {
            return Err(failed(
                format!("{world} ranks"),
                "they need MASTER_ADDR (and MASTER_PORT below 65535) to find each other",
            ));
        };
        if rank >= world {
            return Err(failed(format!("RANK={rank}"), format!("there are {world} ranks, from 0")));
        }
        Ok(Some(Self {
            rank,
            world,
            local,
            per_node: per_node.max(1),
            address: format!("{host}:{port}"),
            patience: PATIENCE,
        }))
    }

    /// First rank of this rank's group, and its index in the group; `None` if the ranks do not form whole groups.
    ///
    /// A group is `ranks` ranks that are `stride` apart; groups that interleave fill blocks of `ranks · stride` ranks.
    pub fn place(&self, group: Group) -> Option<(u32, u32)> {
        let Group { ranks, stride } = group;
        let block = ranks.checked_mul(stride).filter(|block| *block > 0 && self.world.is_multiple_of(*block))?;
        Some((self.rank / block * block + self.rank % stride, self.rank / stride % ranks))
    }

    /// Id of this rank's group: its first rank creates the id, and the others receive it through rank 0. All ranks call it
    /// at once; `round` counts the calls, so that a rank that is ahead waits.
    ///
    /// # Errors
    ///
    /// The ranks do not form whole groups, an id cannot be created, rank 0 cannot listen, or a rank is late.
    pub fn exchange(
        &self,
        group: Group,
        round: u32,
        make: impl FnOnce() -> Result<[u8; ID_BYTES], String>,
    ) -> Result<[u8; ID_BYTES], ProbeError> {
        let Some((first, _)) = self.place(group) else {
            let Group { ranks, stride } = group;
            let why = format!("{} ranks make no whole groups of {ranks} that lie {stride} apart", self.world);
            return Err(failed("sharing an id", why));
        };
        let id = if first == self.rank { make().map_err(|why| failed("making the id", why))? } else { [0; ID_BYTES] };
        if self.rank == 0 { self.serve(group, round, id) } else { self.fetch(round, &id) }
    }

    /// Accepts an id from each other rank, and answers with its group's; connections without the greeting are refused.
    fn serve(&self, group: Group, round: u32, own: [u8; ID_BYTES]) -> Result<[u8; ID_BYTES], ProbeError> {
        let call = || format!("listening on {}", self.address);
        let listener = TcpListener::bind(&self.address).map_err(|error| failed(call(), error))?;
        listener.set_nonblocking(true).map_err(|error| failed(call(), error))?;
        let until = Instant::now() + self.patience;
        let mut arrived: BTreeMap<u32, (TcpStream, [u8; ID_BYTES])> = BTreeMap::new();
        while arrived.len() + 1 < self.world as usize {
            match listener.accept() {
                Ok((stream, _)) => {
                    // A rank that lost its connection connects again.
                    if let Some((rank, id)) = greeted(&stream, self.world, round) {
                        arrived.insert(rank, (stream, id));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if Instant::now() > until {
                        let absent: Vec<String> = (1..self.world)
                            .filter(|rank| !arrived.contains_key(rank))
                            .map(|rank| rank.to_string())
                            .collect();
                        return Err(failed(call(), format!("ranks {} did not come", absent.join(", "))));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(failed(call(), error)),
            }
        }
        let id_of = |rank: u32| {
            let first = Self { rank, ..self.clone() }.place(group).map_or(0, |(first, _)| first);
            arrived.get(&first).map_or(own, |(_, id)| *id)
        };
        for (&rank, (stream, _)) in &arrived {
            let mut stream = stream;
            stream.write_all(&id_of(rank)).map_err(|error| failed(format!("answering rank {rank}"), error))?;
        }
        Ok(own)
    }

    /// Sends this rank's id to rank 0 until it answers with the group's, or patience ends.
    fn fetch(&self, round: u32, id: &[u8; ID_BYTES]) -> Result<[u8; ID_BYTES], ProbeError> {
        let until = Instant::now() + self.patience;
        loop {
            match self.attempt(round, id) {
                Ok(id) => return Ok(id),
                Err(error) if Instant::now() > until => {
                    return Err(failed(format!("reaching rank 0 at {}", self.address), error));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// One connection to rank 0: sends rank, round and id, and waits for the group's id.
    fn attempt(&self, round: u32, id: &[u8; ID_BYTES]) -> std::io::Result<[u8; ID_BYTES]> {
        let addresses: Vec<SocketAddr> = self.address.to_socket_addrs()?.collect();
        let mut stream = TcpStream::connect(addresses.as_slice())?;
        // The answer arrives after the last rank has connected.
        stream.set_read_timeout(Some(self.patience))?;
        stream.write_all(GREETING)?;
        stream.write_all(&self.rank.to_be_bytes())?;
        stream.write_all(&round.to_be_bytes())?;
        stream.write_all(id)?;
        let mut answer = [0; ID_BYTES];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

/// Rank and id that a connection presents; `None` for an unrelated client or another round.
fn greeted(mut stream: &TcpStream, world: u32, round: u32) -> Option<(u32, [u8; ID_BYTES])> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(SILENCE)).ok()?;
    let mut words = [[0; 4]; 6];
    stream.read_exact(words.as_flattened_mut()).ok()?;
    let mut id = [0; ID_BYTES];
    let [greeting @ .., rank, their_round] = words;
    // An unrelated client may send nothing more.
    if greeting.as_flattened() != GREETING.as_slice() {
        return None;
    }
    stream.read_exact(&mut id).ok()?;
    let (rank, their_round) = (u32::from_be_bytes(rank), u32::from_be_bytes(their_round));
    (rank > 0 && rank < world && their_round == round).then_some((rank, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn launchers_are_understood() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "16"),
            ("LOCAL_RANK", "3"),
            ("MASTER_ADDR", "node-0"),
            ("MASTER_PORT", "29400"),
        ];
        let ranks = Ranks::from_environment(environment(&torchrun)).unwrap().unwrap();
        assert_eq!((ranks.rank, ranks.world, ranks.local, ranks.address.as_str()), (3, 16, 3, "node-0:29401"));
        let srun = [("SLURM_PROCID", "9"), ("SLURM_NTASKS", "16"), ("SLURM_LOCALID", "1"), ("MASTER_ADDR", "node-0")];
        let ranks = Ranks::from_environment(environment(&srun)).unwrap().unwrap();
        assert_eq!((ranks.rank, ranks.local, ranks.address.as_str()), (9, 1, "node-0:29501"));
        assert_eq!(Ranks::from_environment(environment(&[])).unwrap(), None);
        assert_eq!(Ranks::from_environment(environment(&[("SLURM_NTASKS", "1")])).unwrap(), None);
        let alone = [("WORLD_SIZE", "1"), ("RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29400")];
        let alone = Ranks::from_environment(environment(&alone)).unwrap().unwrap();
        assert_eq!((alone.world, alone.per_node), (1, 1));
        assert_eq!(alone.exchange(Group { ranks: 1, stride: 1 }, 0, || Ok([7; ID_BYTES])).unwrap(), [7; ID_BYTES]);
        for wrong in [
            vec![("WORLD_SIZE", "two")],
            vec![("WORLD_SIZE", "2"), ("RANK", "0")],
            vec![("WORLD_SIZE", "2"), ("RANK", "2"), ("MASTER_ADDR", "x")],
        ] {
            assert!(Ranks::from_environment(environment(&wrong)).is_err(), "{wrong:?}");
        }
    }

    const ALL: Group = Group { ranks: 4, stride: 1 };

    /// A free port of this machine.
    fn address() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    #[test]
    fn every_rank_gets_the_id_and_strangers_do_not_take_a_place() {
        let address = address();
        let ranks =
            |rank| Ranks { rank, world: 4, local: rank, per_node: 4, address: address.clone(), patience: PATIENCE };
        let mut id = [7_u8; ID_BYTES];
        id[127] = 9;
        let threads: Vec<_> = (1..4)
            .rev()
            .map(|rank| {
                let ranks = ranks(rank);
                std::thread::spawn(move || ranks.exchange(ALL, 0, || unreachable!("only rank 0 makes an id")))
            })
            .collect();
        let stranger = {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut stream = loop {
                    match TcpStream::connect(&address) {
                        Ok(stream) => break stream,
                        Err(_) => std::thread::sleep(Duration::from_millis(5)),
                    }
                };
                let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n and more than a greeting");
            })
        };
        assert_eq!(ranks(0).exchange(ALL, 0, || Ok(id)).unwrap(), id);
        for thread in threads {
            assert_eq!(thread.join().unwrap().unwrap(), id);
        }
        drop(stranger);
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let ranks = Ranks {
            rank: 0,
            world: 3,
            local: 0,
            per_node: 4,
            address: address(),
            patience: Duration::from_millis(200),
        };
        let three = Group { ranks: 3, stride: 1 };
        let error = ranks.exchange(three, 0, || Ok([0; ID_BYTES])).unwrap_err().to_string();
        assert!(error.contains("ranks 1, 2 did not come"), "{error}");
        let alone = Ranks { rank: 1, ..ranks };
        assert!(alone.exchange(three, 0, || Ok([0; ID_BYTES])).unwrap_err().to_string().contains("reaching rank 0"));
    }

    /// Eight ranks as neighbours, as pairs that lie four apart, and all together, one round after the other.
    #[test]
    fn every_group_has_its_own_id_in_every_round() {
        let groups = [(2, 1), (2, 4), (8, 1)].map(|(ranks, stride)| Group { ranks, stride });
        let address = address();
        let threads: Vec<_> = (0..8)
            .map(|rank| {
                let ranks =
                    Ranks { rank, world: 8, local: rank, per_node: 4, address: address.clone(), patience: PATIENCE };
                std::thread::spawn(move || {
                    let id = |round: u32| [rank as u8 + 1 + 16 * round as u8; ID_BYTES];
                    let rounds = groups.iter().zip(0..);
                    rounds
                        .map(|(&group, round)| ranks.exchange(group, round, || Ok(id(round))).unwrap()[5])
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for (rank, thread) in (0_u8..).zip(threads) {
            assert_eq!(thread.join().unwrap(), [rank / 2 * 2 + 1, rank % 4 + 17, 33], "rank {rank}");
        }
        let ranks = Ranks { rank: 5, world: 8, local: 5, per_node: 4, address, patience: PATIENCE };
        assert_eq!(ranks.place(Group { ranks: 2, stride: 4 }), Some((1, 1)));
        assert_eq!(ranks.place(Group { ranks: 3, stride: 1 }), None);
        let error = ranks.exchange(Group { ranks: 3, stride: 1 }, 0, || Ok([0; ID_BYTES])).unwrap_err().to_string();
        assert!(error.contains("no whole groups of 3"), "{error}");
    }
}
