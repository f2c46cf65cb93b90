//! Ranks that find each other as `torchrun` and `srun` start them, and share NCCL's id over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::ProbeError;

/// Bytes of an NCCL unique id.
pub const ID_BYTES: usize = 128;
/// First words on every connection, so that a stranger's does not take a rank's place.
const GREETING: &[u8; 16] = b"meshwright-nccl1";
/// How long ranks wait for each other.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long a connection may stay silent: a stranger must not hold up the ranks behind it.
const SILENCE: Duration = Duration::from_secs(5);
/// Time between two attempts to reach rank 0.
const PAUSE: Duration = Duration::from_millis(50);

/// One rank of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// This one.
    pub rank: u32,
    /// How many.
    pub world: u32,
    /// This one on its node: the GPU that it uses.
    pub local: u32,
    /// Where rank 0 listens.
    pub address: String,
    /// How long to wait for the others.
    pub patience: Duration,
}

fn failed(call: impl Into<String>, why: impl std::fmt::Display) -> ProbeError {
    ProbeError::Failed { call: call.into(), why: why.to_string() }
}

impl Ranks {
    /// From the environment of `torchrun` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or `srun`
    /// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, with MASTER_ADDR set by hand); none where one process is alone.
    ///
    /// MASTER_PORT belongs to torchrun's own store, so the port after it is used.
    ///
    /// # Errors
    /// When a variable is no number, or several ranks have no MASTER_ADDR.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, ProbeError> {
        let number = |names: [&str; 2], default: u32| -> Result<u32, ProbeError> {
            let Some((name, text)) = names.iter().find_map(|name| variable(name).map(|text| (*name, text))) else {
                return Ok(default);
            };
            text.trim().parse().map_err(|_| failed(format!("{name}={text}"), "it must be a whole number"))
        };
        let world = number(["WORLD_SIZE", "SLURM_NTASKS"], 1)?;
        if world < 2 {
            return Ok(None);
        }
        let rank = number(["RANK", "SLURM_PROCID"], 0)?;
        let local = number(["LOCAL_RANK", "SLURM_LOCALID"], rank)?;
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
        Ok(Some(Self { rank, world, local, address: format!("{host}:{port}"), patience: PATIENCE }))
    }

    /// Rank 0 makes an id, the others get it.
    ///
    /// # Errors
    /// When rank 0 cannot make or serve it, or a rank does not come in time.
    pub fn exchange(
        &self,
        make: impl FnOnce() -> Result<[u8; ID_BYTES], String>,
    ) -> Result<[u8; ID_BYTES], ProbeError> {
        if self.rank == 0 {
            let id = make().map_err(|why| failed("making the id", why))?;
            self.serve(&id)?;
            Ok(id)
        } else {
            self.fetch()
        }
    }

    /// Gives the id to each other rank once; connections that do not greet are turned away.
    fn serve(&self, id: &[u8; ID_BYTES]) -> Result<(), ProbeError> {
        let call = || format!("listening on {}", self.address);
        let listener = TcpListener::bind(&self.address).map_err(|error| failed(call(), error))?;
        listener.set_nonblocking(true).map_err(|error| failed(call(), error))?;
        let until = Instant::now() + self.patience;
        let mut served = std::collections::BTreeSet::new();
        while served.len() + 1 < self.world as usize {
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Some(rank) = greeted(&stream, self.world)
                        && (&stream).write_all(id).is_ok()
                    {
                        served.insert(rank);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if Instant::now() > until {
                        let absent: Vec<String> = (1..self.world)
                            .filter(|rank| !served.contains(rank))
                            .map(|rank| rank.to_string())
                            .collect();
                        return Err(failed(call(), format!("ranks {} did not come", absent.join(", "))));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(failed(call(), error)),
            }
        }
        Ok(())
    }

    fn fetch(&self) -> Result<[u8; ID_BYTES], ProbeError> {
        let until = Instant::now() + self.patience;
        loop {
            match self.attempt() {
                Ok(id) => return Ok(id),
                Err(error) if Instant::now() > until => {
                    return Err(failed(format!("reaching rank 0 at {}", self.address), error));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn attempt(&self) -> std::io::Result<[u8; ID_BYTES]> {
        let addresses: Vec<SocketAddr> = self.address.to_socket_addrs()?.collect();
        let mut stream = TcpStream::connect(addresses.as_slice())?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.write_all(GREETING)?;
        stream.write_all(&self.rank.to_be_bytes())?;
        let mut id = [0; ID_BYTES];
        stream.read_exact(&mut id)?;
        Ok(id)
    }
}

/// The rank that a connection greets as; none for a stranger's.
fn greeted(mut stream: &TcpStream, world: u32) -> Option<u32> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(SILENCE)).ok()?;
    let mut greeting = [0; 16];
    let mut rank = [0; 4];
    stream.read_exact(&mut greeting).ok()?;
    stream.read_exact(&mut rank).ok()?;
    let rank = u32::from_be_bytes(rank);
    (greeting == *GREETING && rank > 0 && rank < world).then_some(rank)
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
        for wrong in [
            vec![("WORLD_SIZE", "two")],
            vec![("WORLD_SIZE", "2"), ("RANK", "0")],
            vec![("WORLD_SIZE", "2"), ("RANK", "2"), ("MASTER_ADDR", "x")],
        ] {
            assert!(Ranks::from_environment(environment(&wrong)).is_err(), "{wrong:?}");
        }
    }

    /// A free port of this machine.
    fn address() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    #[test]
    fn every_rank_gets_the_id_and_strangers_do_not_take_a_place() {
        let address = address();
        let ranks = |rank| Ranks { rank, world: 4, local: rank, address: address.clone(), patience: PATIENCE };
        let mut id = [7_u8; ID_BYTES];
        id[127] = 9;
        let threads: Vec<_> = (1..4)
            .rev()
            .map(|rank| {
                let ranks = ranks(rank);
                std::thread::spawn(move || ranks.exchange(|| unreachable!("only rank 0 makes an id")))
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
        assert_eq!(ranks(0).exchange(|| Ok(id)).unwrap(), id);
        for thread in threads {
            assert_eq!(thread.join().unwrap().unwrap(), id);
        }
        drop(stranger);
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let ranks = Ranks { rank: 0, world: 3, local: 0, address: address(), patience: Duration::from_millis(200) };
        let error = ranks.exchange(|| Ok([0; ID_BYTES])).unwrap_err().to_string();
        assert!(error.contains("ranks 1, 2 did not come"), "{error}");
        let alone = Ranks { rank: 1, ..ranks };
        assert!(alone.exchange(|| Ok([0; ID_BYTES])).unwrap_err().to_string().contains("reaching rank 0"));
    }
}
