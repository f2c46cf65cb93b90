#!/usr/bin/env python3
"""Two optimizer steps of an emitted DeepSpeed configuration, on gloo ranks: `deepspeed.initialize` of a small Llama of transformers,
cut by AutoTP where the plan says so, or of a `PipelineModule`. Started once a rank, with the environment of torchrun.

Stood in for: the fused CPU Adam, which is compiled, by PyTorch's; float16, which no CPU accelerator has, by bfloat16.
"""

import argparse
import json
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
os.environ["DS_ACCELERATOR"] = "cpu"
import on_cpu
import torch
import torch.distributed as dist

STEPS, VOCAB, WIDTH, LENGTH = 2, 256, 64, 32


def settings(path):
    """The configuration, and what of it changed."""
    made, changed = json.load(open(path)), []
    made.setdefault("optimizer", {"type": "AdamW", "params": {"lr": 1e-3}})
    if made["optimizer"]["type"].lower() in ("adam", "adamw"):
        made["optimizer"].setdefault("params", {})["torch_adam"] = True
        changed.append("optimizer.params.torch_adam")
    if made.get("fp16", {}).get("enabled"):
        made.pop("fp16")
        made["bf16"] = {"enabled": True}
        changed.append("fp16")
    return made, changed


def llama(layers):
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=False,
        )
    )


class Block(torch.nn.Module):
    """A layer of a pipeline."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(WIDTH),
            torch.nn.Linear(WIDTH, 2 * WIDTH),
            torch.nn.Linear(2 * WIDTH, WIDTH),
        )

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def pipeline(stages, layers):
    from deepspeed.pipe import LayerSpec, PipelineModule

    specs = [
        LayerSpec(torch.nn.Embedding, VOCAB, WIDTH),
        *[LayerSpec(Block) for _ in range(layers)],
        LayerSpec(torch.nn.Linear, WIDTH, VOCAB),
    ]
    loss = lambda out, labels: torch.nn.functional.cross_entropy(out.float().flatten(0, 1), labels.flatten())
    return PipelineModule(
        layers=specs, num_stages=stages, loss_fn=loss, partition_method="uniform", checkpointable_layers=["Block"]
    )


def train(path, plan, _batch):
    import deepspeed

    tp, pp = int(plan.get("tp", 1)), int(plan.get("pp", 1))
    module = sys.modules.get("deepspeed.comm.torch")
    if hasattr(module, "build_shm_op"):
        module.build_shm_op = lambda: None  # compiled too: plain gloo
    dist.init_process_group("gloo")
    deepspeed.comm.init_distributed(dist_backend="gloo", verbose=False, auto_mpi_discovery=False)
    torch.manual_seed(0)
    config, changed = settings(path)
    model = pipeline(pp, 2 * pp) if pp > 1 else llama(4)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=[p for p in model.parameters() if p.requires_grad], config=config
    )
    from deepspeed.utils import groups

    replica = dist.get_rank() // tp if pp == 1 else engine.grid.get_data_parallel_rank()
    counts, losses, sums, at = [], [], [on_cpu.checksum(on_cpu.weights_of([engine.module]))], 0

    def tokens(at):
        seed = torch.Generator().manual_seed(1000 * replica + at)
        return torch.randint(0, VOCAB, (engine.train_micro_batch_size_per_gpu(), LENGTH), generator=seed)

    if pp > 1:
        forward = type(engine)._exec_forward_pass

        def run(self, *args, **kwargs):
            counts[-1] += 1
            return forward(self, *args, **kwargs)

        type(engine)._INSTRUCTION_MAP = {
            kind: run if method is forward else method for kind, method in type(engine)._INSTRUCTION_MAP.items()
        }
    for _ in range(STEPS):
        counts.append(0)
        if pp > 1:
            words = ((x, x) for x in (tokens(at + more) for more in range(10**6)))
            at += 1000
            losses.append([float(engine.train_batch(data_iter=words))])
        else:
            goal, own = engine.global_steps + 1, []
            while engine.global_steps < goal:
                ids = tokens(at)
                loss = engine(input_ids=ids, labels=ids).loss
                engine.backward(loss)
                engine.step()
                own.append(float(loss))
                counts[-1] += 1
                at += 1
            losses.append(own)
        sums.append(on_cpu.checksum(on_cpu.weights_of([engine.module])))
    of = (
        {"dp": engine.grid.get_data_parallel_group(), "pp": engine.grid.get_pipe_parallel_group()}
        if pp > 1
        else {
            "dp": groups._get_data_parallel_group(),
            **({"tp": groups.get_tensor_model_parallel_group()} if tp > 1 else {}),
        }
    )
    on_cpu.close(
        {
            "steps": engine.global_steps,
            "micro_batches": counts,
            "losses": [[sum(x) / len(x) for x in losses]],
            "sums": sums,
            "groups": {name: on_cpu.members(group) for name, group in of.items()},
            "zero": int(engine.zero_optimization_stage()),
            "instead": changed,
        }
    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("file")
    ap.add_argument("--plan", required=True)
    ap.add_argument("--batch", type=int, required=True)
    o = ap.parse_args()
    train(o.file, dict(word.split("=", 1) for word in o.plan.split()), o.batch)
