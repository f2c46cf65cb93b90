"""torchtitan: its own Llama 3, parallelised by its own code."""

import types

import torch

from job import Job, adamw


def torchtitan(size, plan, world):
    import torchtitan.tools.utils as utils

    utils.device_type, utils.device_module = "cpu", torch.cpu
    import torchtitan.distributed.utils as distributed
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
    from torchtitan.models import llama3
    from torchtitan.models.common.attention import ScaledDotProductAttention

    parallelism = ParallelismConfig(
        data_parallel_shard_degree=plan.dp,
        tensor_parallel_degree=plan.tp,
        fsdp_reshard_after_forward="always" if plan.reshard else "never",
    )
    dims = ParallelDims.from_config(parallelism, world)
    dims.build_mesh()
    training = TrainingConfig(local_batch_size=plan.mbs, seq_len=plan.seq)
    rope = llama3.ComplexRoPE.Config(dim=size.head_dim, max_seq_len=plan.seq, theta=500000, scaling="llama")
    config = llama3.Llama3Model.Config(
        dim=size.hidden,
        vocab_size=size.vocab,
        enable_weight_tying=size.tied,
        tok_embeddings=llama3.Embedding.Config(num_embeddings=size.vocab, embedding_dim=size.hidden),
        norm=llama3.RMSNorm.Config(normalized_shape=size.hidden),
        lm_head=llama3.Linear.Config(in_features=size.hidden, out_features=size.vocab),
        layers=llama3._build_llama3_layers(
            n_layers=size.layers,
            dim=size.hidden,
            n_heads=size.heads,
            n_kv_heads=size.kv_heads,
            hidden_dim=size.ffn,
            fuse_qkv=plan.qkv == "fused",
            rope=rope,
            attn_backend="varlen",
        ),
    )
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.update_from_config(config=types.SimpleNamespace(parallelism=parallelism, training=training))

    def build():
        no_compile = CompileConfig(enable=False)
        with torch.device("meta"):
            model = config.build()
        model = llama3.parallelize_llama(
            model,
            parallel_dims=dims,
            training=training,
            parallelism=parallelism,
            compile_config=no_compile,
            ac_config={"none": None, "full": FullAC.Config(), "selective": SelectiveAC.Config()}[plan.ac],
            dump_folder="",
        )
        model.to_empty(device="cpu")
        if size.tied:
            model.tok_embeddings.weight = model.lm_head.weight
        loss = CrossEntropyLoss.Config(global_vocab_size=size.vocab)
        chunked = plan.loss == "chunked"
        loss = (ChunkedLossWrapper.Config(loss_fn=loss) if chunked else loss).build(compile_config=no_compile)
        if chunked:
            loss.set_lm_head(model.lm_head)
            model._skip_lm_head = True
        tokens, labels = (torch.empty(plan.mbs, plan.seq, dtype=torch.long) for _ in range(2))
        valid = torch.empty((), dtype=torch.int64)
        return Job(
            model,
            model.lm_head,
            adamw(model, plan),
            lambda: model(tokens),
            lambda output: loss(output, labels, valid)[0],
            distributed.get_spmd_context(parallel_dims=dims, spmd_typechecking=False),
        )

    return build
