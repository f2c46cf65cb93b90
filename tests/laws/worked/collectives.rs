//! §3: collectives, sends and all-to-alls.

use meshwright::catalog;
use meshwright::cluster::Cluster;
use meshwright::collective::{Dispatch, Fabric, GatherScatter, Group};
use meshwright::gpu::Collective::{AllGather, AllReduce, ReduceScatter};
use meshwright::stack::Dispatcher;
use meshwright::units::{Bytes, Seconds};

use super::{close, cluster, prints, te24};

fn fabric(cluster: &Cluster) -> Fabric<'_> {
    Fabric::new(cluster, &te24())
}

/// So few bytes that a collective takes its latency.
const NOTHING: Bytes = Bytes::new(1e-30);
const NODE: Group = Group { ranks: 8, stride: 1 };

/// The text gives the H200 as "about 480": its table (H100 row: 611 GB/s, 27.1 MB, 0.40) and its formula give 495.
#[test]
fn section_3_2_a_gibibyte_all_reduce_reaches_236_gb_per_s_on_an_a100_and_495_on_an_h200() {
    let payload = Bytes::gib(1.0);
    for (name, printed) in [("dgx-a100-1k", 236.0), ("h200-1k", 495.0)] {
        let cluster = cluster(name);
        let time = fabric(&cluster).time(AllReduce, payload, NODE, 1.0);
        close(1.75 * payload.get() / time.get() / 1e9, printed, 0.01);
    }
}

#[test]
fn additions_3_3_512_buckets_over_256_ranks_wait_0_34_s() {
    let mut cluster = cluster("dgx-h100-1k");
    for level in &mut cluster.levels {
        level.hop_latency = 1.0;
    }
    let fabric = fabric(&cluster);
    let group = Group { ranks: 256, stride: 1 };
    let latency = |buckets: f64| fabric.time(ReduceScatter, NOTHING, group, buckets);
    close(latency(1.0).get(), 668e-6, 1e-6); // 10 us, and λ = 658 us
    close(latency(512.0).get(), 0.34, 0.01);
}

/// Version 1.1 replaced the α of both algorithms (§3.3): what stays is that the tree wins, and by how much its latency does.
#[test]
fn section_3_3_a_small_all_reduce_over_64_nodes_takes_the_tree() {
    let mut cluster = cluster("dgx-h100-1k");
    for level in &mut cluster.levels {
        level.hop_latency = 1.0;
    }
    let fabric = fabric(&cluster);
    let group = Group { ranks: 64, stride: 8 };
    let time = |payload| fabric.time(AllReduce, payload, group, 1.0);
    let ring = Seconds::micros(8.4 + 126.0 * 14.0);
    close(ring.get(), 1.77e-3, 0.01);
    close(time(NOTHING).get(), 10e-6 + 148e-6, 1e-6);
    assert!(time(Bytes::new(262_144.0)) < ring);
}

/// A gather and a scatter of the same group, priced together and each alone.
#[test]
fn a_gather_and_a_scatter_together_take_what_each_takes_alone() {
    for name in catalog::cluster_names() {
        let cluster = cluster(name);
        let fabric = fabric(&cluster);
        for (ranks, stride, buckets) in itertools::iproduct!([1, 2, 8, 64], [1, 4, 8, 64], [1.0, 20.0]) {
            let group = Group { ranks, stride };
            for (gathered, scattered) in [(1e9, 1e9), (1e9, 2e9), (0.0, 0.0)] {
                let (gathered, scattered) = (Bytes::new(gathered), Bytes::new(scattered));
                let time = |op, payload| fabric.time(op, payload, group, buckets);
                let alone =
                    GatherScatter { gather: time(AllGather, gathered), scatter: time(ReduceScatter, scattered) };
                assert_eq!(fabric.gather_and_scatter(gathered, scattered, group, buckets), alone, "{name} {group:?}");
            }
        }
    }
}

/// Buckets approach the wire rate as messages of their size do, where a stack says so.
#[test]
fn as_many_messages_take_as_many_times_as_long() {
    let cluster = cluster("dgx-h100-1k");
    let mut stack = te24();
    stack.fills_by_message = true;
    let fabric = Fabric::new(&cluster, &stack);
    for group in [Group { ranks: 64, stride: 8 }, Group { ranks: 256, stride: 1 }] {
        for op in [AllReduce, AllGather, ReduceScatter] {
            let one = fabric.time(op, Bytes::new(25e6), group, 1.0);
            let all = fabric.time(op, Bytes::new(25e6 * 200.0), group, 200.0);
            close(all.get(), one.get() * 200.0, 1e-12);
        }
    }
}

#[test]
fn section_3_4_4_gib_over_four_nodes_of_h200_take_24_6_ms() {
    let cluster = cluster("h200-1k");
    let fabric = fabric(&cluster);
    let group = Group { ranks: 32, stride: 1 };
    close(fabric.bus_bandwidth(group).get(), 340e9, 1e-9);
    close(fabric.time(AllReduce, Bytes::gib(4.0), group, 1.0).get(), 24.6e-3, 0.01);
}

#[test]
fn section_3_5_deepseek_v3_dispatches_in_2_44_ms_and_combines_in_4_86() {
    let cluster = cluster("h800-2048");
    let time = |bytes: f64| {
        let what = Dispatch {
            tokens: 4096.0,
            token_bytes: Bytes::new(7168.0 * bytes),
            top_k: 8.0,
            most_domains: 4.0,
            dispatcher: Dispatcher::DeepEp,
        };
        fabric(&cluster).dispatch(&what, Group { ranks: 64, stride: 1 })
    };
    close(time(1.0).get(), 2.44e-3, 0.01);
    close(time(2.0).get(), 4.86e-3, 0.01);
}

#[test]
fn section_3_6_the_22b_model_all_reduces_in_0_92_ms() {
    let cluster = cluster("dgx-a100-1k");
    let payload = Bytes::new(4.0 * 2048.0 * 6144.0 * 2.0);
    close(payload.get(), 100.7e6, 0.001);
    close(fabric(&cluster).time(AllReduce, payload, NODE, 1.0).get(), 0.92e-3, 0.01);
}

#[test]
fn section_3_6_llama_3_405b_gathers_in_0_73_ms_and_scatters_in_0_72() {
    let cluster = cluster("dgx-h100-1k");
    let time = |op| fabric(&cluster).time(op, Bytes::new(8192.0 * 16384.0 * 2.0), NODE, 1.0).get();
    close(time(AllGather), 0.73e-3, 0.01);
    close(time(ReduceScatter), 0.72e-3, 0.01);
    close(2.0 * (time(AllGather) + time(ReduceScatter)), 2.9e-3, 0.01);
}

#[test]
fn section_3_7_keys_and_values_of_131072_tokens_ring_in_1_7_ms_and_gather_in_1_9() {
    let cluster = cluster("dgx-h100-16k");
    let fabric = fabric(&cluster);
    let keys_and_values = Bytes::new(2.0 * 131_072.0 * 128.0 * 2.0);
    close(keys_and_values.get(), 67.1e6, 0.001);
    let step = fabric.send(keys_and_values / 16.0, 8);
    close(step.get(), 0.114e-3, 0.01);
    prints(15.0 * step.get() * 1e3, 1.7, 0.1);
    let gather = fabric.time(AllGather, keys_and_values, Group { ranks: 16, stride: 8 }, 1.0);
    prints(gather.get() * 1e3, 1.9, 0.1);
}

#[test]
fn section_3_8_a_stage_of_llama_3_405b_sends_in_0_80_ms() {
    let cluster = cluster("dgx-h100-16k");
    close(fabric(&cluster).send(Bytes::new(8192.0 * 16384.0 * 2.0 / 8.0), 512).get(), 0.80e-3, 0.01);
}

#[test]
fn section_3_9_gradients_of_a_70b_scatter_over_16_nodes_in_391_ms() {
    let cluster = cluster("dgx-h100-1k");
    let group = Group { ranks: 16, stride: 8 };
    close(fabric(&cluster).bus_bandwidth(group).get(), 42.5e9, 1e-9);
    close(fabric(&cluster).time(ReduceScatter, Bytes::new(17.6e9), group, 1.0).get(), 391e-3, 0.01);
}

#[test]
fn section_5_4_a_layer_of_llama_2_7b_gathers_in_1_07_ms_over_8_ranks_and_1_30_over_64() {
    let cluster = cluster("dgx-h100-1k");
    let time = |ranks| fabric(&cluster).time(AllGather, Bytes::new(405e6), Group { ranks, stride: 1 }, 1.0).get();
    close(time(8), 1.07e-3, 0.01);
    close(time(64), 1.30e-3, 0.01);
}

/// The example halves the time of one axis for two. Over both, 256 chips, each receives 255/256 of the array and not 15/16:
/// 0.67 ms, as the engine has it.
#[test]
fn section_3_11_a_v5p_gathers_268_mb_over_a_ring_of_16_in_1_26_ms() {
    let mut cluster = cluster("tpu-v5p-1024");
    cluster.scale_up.axes = vec![16, 16, 4];
    let time = |ranks| fabric(&cluster).time(AllGather, Bytes::new(268e6), Group { ranks, stride: 1 }, 1.0).get();
    close(time(16), 1.26e-3, 0.01);
    close(time(256), 0.63e-3 * (255.0 / 256.0) / (15.0 / 16.0), 0.01);
}
