"""One case of checks/ranks: the steps of rank 0 of a torchtitan run, by torchtitan's own trainer.

    python3 checks/ranks/rank.py '{"model": "llama3", "flavor": "8B", "gpus": 64, ...}'

prints one JSON object: times of steps and of their forward and backward passes in µs, and memory in bytes. With "profile" a further step
is traced, and `kernels` lists its kernels: name, count and time in µs.
"""

import dataclasses
import json
import os
import sys
import time

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # as torchtitan's run_train.sh
os.environ["LOCAL_RANK"] = "0"

import torch

ON_GPU = torch.cuda.is_available()
if not ON_GPU:  # a dry run
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.get_device_name = lambda *_: "CPU"
    torch.cpu.get_device_properties = lambda *_: type("Properties", (), {"total_memory": 1})
    torch.histc = lambda values, bins, **_: torch.bincount(values.flatten(), minlength=bins)
    torch.cpu.memory_stats = lambda *_: {}
    torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda *_: None

from torchtitan import train
from torchtitan.models.moe import kernels
from torchtitan.config import JobConfig
from torchtitan.protocols import train_spec

import loopback

if not ON_GPU:
    kernels.fill_indices_wrapper = kernels.fill_indices_cpu

STEPS, WARMUPS = 4, 3
LISTED = 80  # kernels of a traced step that are listed, longest first


class Tokens:
    """Batches of random tokens, as a data loader gives them.

    They are of this rank's part of the vocabulary: since nothing is summed over tensor-parallel ranks, others would have an embedding of zeros,
    and kernels on zeros draw less power and run faster.
    """

    def __init__(self, batch, sequence, vocabulary):
        self.shape, self.vocabulary = (batch, sequence + 1), vocabulary

    def __iter__(self):
        while True:
            tokens = torch.randint(0, self.vocabulary, self.shape)
            yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()


def config_of(case):
    config = JobConfig()
    config.model.name, config.model.flavor = "measured", "measured"
    training, parallelism = config.training, config.parallelism
    training.local_batch_size, training.seq_len = case["batch"], case["sequence"]
    training.steps = 1000
    parallelism.data_parallel_replicate_degree = case.get("replicas", 1)
    parallelism.tensor_parallel_degree = case.get("tp", 1)
    parallelism.context_parallel_degree = case.get("cp", 1)
    parallelism.pipeline_parallel_degree = case.get("pp", 1)
    parallelism.expert_parallel_degree = case.get("ep", 1)
    parallelism.expert_tensor_parallel_degree = case.get("etp", 1)
    config.activation_checkpoint.mode = case["recompute"]
    if case["recompute"] == "selective":
        config.activation_checkpoint.selective_ac_option = "op"
    config.compile.enable = case["compiled"]
    config.metrics.log_freq = 10**6
    config.optimizer.lr = 1e-5
    return config


def register(case):
    """The model of the case with its number of layers, causal attention of the SDPA, and random tokens."""
    spec = train_spec.get_train_spec(case["model"])
    changes = {"n_layers": case["layers"]} if "layers" in case else {}
    args = dataclasses.replace(spec.model_args[case["flavor"]], attn_type="sdpa", attn_mask_type="causal", **changes)
    train_spec.register_train_spec(
        "measured",
        dataclasses.replace(
            spec,
            model_args={"measured": args},
            build_tokenizer_fn=None,
            build_dataloader_fn=lambda **_: Tokens(
                case["batch"], case["sequence"], args.vocab_size // case.get("tp", 1)
            ),
            build_validator_fn=None,
            state_dict_adapter=None,
        ),
    )
    return args


def mark():
    if not ON_GPU:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(first, last):
    """Time between two marks in µs."""
    return (last - first) * 1e6 if isinstance(first, float) else first.elapsed_time(last) * 1000


def measure(case):
    began = time.perf_counter()
    torch.manual_seed(7)
    loopback.start(case["gpus"])
    args = register(case)
    trainer = train.Trainer(config_of(case))
    parameters = [p for part in trainer.model_parts for p in part.parameters()]
    found = {
        **case,
        "layers": args.n_layers,
        "parameters": sum(p.numel() for p in parameters),
        "local_parameters": sum(getattr(p, "_local_tensor", p).numel() for p in parameters),
        "built_s": round(time.perf_counter() - began, 2),
    }
    batches = trainer.batch_generator(trainer.dataloader)
    passes, inner = [], trainer.forward_backward_step

    def forward_backward(**given):
        first = mark()
        loss = inner(**given)
        passes.append((first, mark()))
        return loss

    trainer.forward_backward_step = forward_backward
    steps, host = [], []
    for step in range(2, 2 + WARMUPS + STEPS):
        if step == 2 + WARMUPS:
            passes.clear()
            if ON_GPU:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            found["warm_s"] = round(time.perf_counter() - began, 2)
        trainer.step = step
        first, at = mark(), time.perf_counter()
        trainer.train_step(batches)
        host.append(time.perf_counter() - at)
        steps.append((first, mark()))
    if ON_GPU:
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        found |= {
            "peak_bytes": stats["allocated_bytes.all.peak"],
            "active_bytes": stats["active_bytes.all.peak"],
            "reserved_bytes": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
        }
    found["times_us"] = [round(between(*step)) for step in steps[WARMUPS:]]
    found["passes_us"] = [round(between(*part)) for part in passes]
    found["host_us"] = [round(seconds * 1e6) for seconds in host[WARMUPS:]]
    return found | (traced(trainer, batches) if case.get("profile") else {})


def traced(trainer, batches):
    """Kernels of one more step; operators in a dry run."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if ON_GPU else activity.CPU]) as profile:
        trainer.train_step(batches)
        if ON_GPU:
            torch.cuda.synchronize()
    time_of = "self_device_time_total" if ON_GPU else "self_cpu_time_total"
    kernels = [(event.key, event.count, getattr(event, time_of)) for event in profile.key_averages()]
    kernels = sorted((kernel for kernel in kernels if kernel[2] > 0), key=lambda kernel: -kernel[2])
    return {
        "launches": sum(count for _, count, _ in kernels),
        "kernels_us": round(sum(us for _, _, us in kernels)),
        "kernels": [[name[:160], count, round(us)] for name, count, us in kernels[:LISTED]],
    }


if __name__ == "__main__":
    print("\n" + json.dumps(measure(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # threads of the process group and of the compiler are not waited for
