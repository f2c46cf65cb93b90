"""Training steps of Transformers' own models on one GPU: Accelerate's FSDP2 or one process alone, PEFT's adapters, experts by kind."""

import os
import tempfile
import time
from dataclasses import dataclass
from unittest import mock

import torch

from layer import allocated, peak, reset_peak

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WARMUPS, STEPS, SEQUENCE = 2, 5, 4096
CASE_S = 6  # seconds that a case is expected to take


@dataclass
class Case:
    """A model and how it is trained. `fsdp` is Accelerate's version, 0 for one process whose model is in BF16."""

    name: str
    config: dict
    layers: int
    fsdp: int = 2
    checkpointing: bool = False
    adapters: int = 0
    experts: str = ""

    def title(self):
        words = [
            self.name,
            f"of {self.layers} layers",
            f"fsdp{self.fsdp}" if self.fsdp else "alone",
            "checkpointing" if self.checkpointing else "",
            f"lora {self.adapters}" if self.adapters else "",
            f"experts {self.experts}" if self.experts else "",
        ]
        return " ".join(word for word in words if word)


CASES = [
    Case("llama3-8b", LLAMA, 4),
    Case("llama3-8b", LLAMA, 4, checkpointing=True),
    Case("llama3-8b", LLAMA, 16, fsdp=0, checkpointing=True, adapters=16),
    Case("llama3-8b", LLAMA, 16, fsdp=2, checkpointing=True, adapters=16),
    Case("llama3-8b", LLAMA, 16, fsdp=1, checkpointing=True, adapters=16),
    Case("llama3-8b", LLAMA, 16, fsdp=0, adapters=16),
    Case("qwen3-30b-a3b", QWEN3_MOE, 4, experts="grouped_mm"),
    Case("qwen3-30b-a3b", QWEN3_MOE, 4, experts="eager"),
    Case("qwen3-30b-a3b", QWEN3_MOE, 4, experts="eager", checkpointing=True),
    Case("qwen3-30b-a3b", QWEN3_MOE, 4, fsdp=0, experts="eager"),
]


def measure(run):
    os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "TRANSFORMERS_VERBOSITY": "error"}
    if not run.gpu:
        on_a_processor()
    store = os.path.join(tempfile.mkdtemp(), "store")
    backend = "nccl" if run.gpu else "gloo"
    torch.distributed.init_process_group(backend, init_method=f"file://{store}", rank=0, world_size=1)
    for case in CASES:
        if run.gpu and run.section_end - time.perf_counter() < CASE_S:
            run.skip(f"{case.title()}: too little time left")
            run.write(case.title(), failed="too little time left")
            continue
        with run.attempt(case.title()):
            measure_case(run, case)
        run.free()
    torch.distributed.destroy_process_group()


def on_a_processor():
    """Lets Accelerate shard on a processor, which it does for GPUs alone."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    kind = lambda: DistributedType.MULTI_GPU if "LOCAL_RANK" in os.environ else DistributedType.NO
    PartialState._prepare_backend = lambda self, *_, **__: ("gloo", kind())


def config_of(run, case):
    import transformers

    sizes = dict(case.config) | ({} if run.gpu else TINY)
    if not run.gpu and case.experts:
        sizes |= {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
    kind = sizes.pop("model_type")
    layers = run.pick(case.layers, 2)
    return transformers.AutoConfig.for_model(
        kind,
        num_hidden_layers=layers,
        use_cache=False,
        tie_word_embeddings=False,
        max_position_embeddings=8192,
        **sizes,
    )


def model_of(run, case):
    """The model on the device with random weights, checkpointed and adapted as Transformers' trainer does it."""
    import transformers

    dtype = torch.bfloat16 if case.fsdp == 0 or case.adapters else torch.float32
    with torch.device(run.device):
        model = transformers.AutoModelForCausalLM.from_config(
            config_of(run, case), attn_implementation="sdpa", dtype=dtype
        )
    if case.experts:
        model.set_experts_implementation(case.experts)
    if case.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case.adapters:
        import peft

        if case.checkpointing:
            model.enable_input_require_grads()
        config = peft.LoraConfig(r=case.adapters, lora_alpha=case.adapters, target_modules=PROJECTIONS)
        # Under FSDP all of a unit is of one type; else adapters are in FP32.
        model = peft.get_peft_model(model, config, autocast_adapter_dtype=case.fsdp == 0)
    return model.train()


def accelerator_of(run, case):
    """Accelerate in the state that its launcher gives it."""
    import accelerate
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    if case.fsdp == 0:
        return accelerate.Accelerator(mixed_precision="bf16" if case.adapters else "no")
    settings = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": str(case.fsdp),
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "FULL_SHARD" if case.fsdp == 1 else "true",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
        "FSDP_USE_ORIG_PARAMS": "false" if case.adapters else "true",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "ACCELERATE_MIXED_PRECISION": "bf16",
    }
    with mock.patch.dict(os.environ, settings):
        made = accelerate.Accelerator(mixed_precision="bf16")
    if case.fsdp == 1:
        made.state.fsdp_plugin.sync_module_states = False
    return made


def measure_case(run, case):
    left = allocated(run)  # by earlier cases
    accelerator = accelerator_of(run, case)
    model = model_of(run, case)
    if case.adapters and case.fsdp == 1:
        from peft.utils.other import fsdp_auto_wrap_policy

        accelerator.state.fsdp_plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    totals = [sum(p.numel() for p in group) for group in (model.parameters(), trained)]
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(trained, lr=1e-4, fused=run.gpu))
    del trained  # sharding makes other parameters of these
    shape = (1, run.pick(SEQUENCE, 32))
    ids = torch.randint(0, run.pick(case.config, TINY)["vocab_size"], shape, device=run.device)
    marks = []

    def mark(phase):
        event = torch.cuda.Event(enable_timing=True) if run.gpu else time.perf_counter()
        if run.gpu:
            event.record()
        marks.append((phase, event))

    def step():
        loss = model(input_ids=ids, labels=ids).loss
        mark("forward")
        accelerator.backward(loss)
        mark("backward")
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mark("update")
        return loss.detach()

    for _ in range(WARMUPS):
        step()
    resting = allocated(run)
    reset_peak(run)
    marks.clear()
    mark("update")
    for _ in range(run.pick(STEPS, 2)):
        loss = step()
    report(run, case, marks, (left, resting), totals, loss.item(), type(model).__name__)
    accelerator.free_memory()


def report(run, case, marks, rest, totals, loss, wrapper):
    highest, (left, resting) = peak(run), rest
    between = lambda a, b: a.elapsed_time(b) * 1000 if run.gpu else (b - a) * 1e6
    fields = {
        "model": case.name,
        "layers": run.pick(case.layers, 2),
        "fsdp": case.fsdp,
        "checkpointing": case.checkpointing,
        "adapters": case.adapters,
        "experts": case.experts,
        "sequence": run.pick(SEQUENCE, 32),
        "batch": 1,
        "wrapper": wrapper,
        "parameters": totals[0],
        "trained": totals[1],
    }
    title = case.title()
    ends = [at for phase, at in marks if phase == "update"]
    run.times(f"{title} step", [between(a, b) for a, b in zip(ends, ends[1:])], **fields, loss=round(loss, 4))
    for phase in ("forward", "backward", "update"):
        run.times(
            f"{title} {phase}", [between(a[1], b[1]) for a, b in zip(marks, marks[1:]) if b[0] == phase], **fields
        )
    run.write(
        f"{title} memory",
        **fields,
        at_rest_bytes=left,
        before_step_bytes=resting,
        peak_bytes=highest,
        reserved_bytes=torch.cuda.memory_reserved() if run.gpu else 0,
        allocator=os.environ.get("PYTORCH_ALLOC_CONF", ""),
    )
