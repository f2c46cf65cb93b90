"""MaxText: its own training step, compiled by XLA for TPUs that are not there, and the memory that XLA assigned."""

import contextlib
import functools
import io
import logging
import os
import pathlib

os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", HF_HUB_OFFLINE="1")
os.environ["DECOUPLE_GCLOUD"] = "TRUE"  # MaxText's own switch: no client of a cloud is imported
logging.disable(logging.CRITICAL)

GIB = 2.0**30
# Topologies count cores: two a chip on v4 and v5p.
CORES = {"v4": 2, "v5e": 1, "v5p": 2, "v6e": 1}


def settings(size, plan):
    """MaxText's settings of a plan, of a decoder with gated MLP."""
    return {
        "compile_topology": f"{plan.tpu}-{plan.tp * plan.dp * CORES[plan.tpu]}",
        "compile_topology_num_slices": 1,
        "base_emb_dim": size.hidden,
        "base_mlp_dim": size.ffn,
        "base_num_decoder_layers": size.layers,
        "base_num_query_heads": size.heads,
        "base_num_kv_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "vocab_size": size.vocab,
        "logits_via_embedding": size.tied,
        "per_device_batch_size": plan.mbs / plan.tp,
        "gradient_accumulation_steps": plan.accum,
        "max_target_length": plan.seq,
        "remat_policy": plan.remat,
        "ici_fsdp_parallelism": plan.dp,
        "ici_tensor_parallelism": plan.tp,
        "dataset_type": "synthetic",
        "enable_checkpointing": False,
        "attention": "flash",
        "use_iota_embed": True,
    }


@functools.cache
def imported():
    from flax.linen import partitioning
    from maxtext.configs import pyconfig
    from maxtext.trainers.pre_train import train, train_compile
    from maxtext.utils import maxtext_utils, sharding

    return partitioning, pyconfig, train, train_compile, maxtext_utils, sharding


def compiled(size, plan):
    """The training step as MaxText compiles it ahead of time."""
    partitioning, pyconfig, train, ahead, utils, sharding = imported()
    base = pathlib.Path(pyconfig.__file__).with_name("base.yml")
    config = pyconfig.initialize(["", str(base), *(f"{key}={value}" for key, value in settings(size, plan).items())])
    mesh = ahead.get_topology_mesh(config)
    arguments, named, states, _, model = ahead.get_shaped_inputs(mesh, config)
    parameters, states = sharding.maybe_update_params_sharding_with_opt(config, states)
    inputs = sharding.build_zero1_input_state_mesh_shardings(config, states, parameters)
    data = sharding.get_input_data_sharding(config, mesh)
    step = utils.get_functional_train_with_signature(train.train_step, data, inputs, model, config, parameters)
    function, *rest = step
    rules = partitioning.axis_rules(config.logical_axis_rules)
    return ahead.jit_and_compile(function, arguments, named, mesh, *rest, config, rules)


def measured(size, plan):
    """Memory that XLA assigns to a step, in GiB: what it is given (weights, moments, data), what it holds for a while, and both."""
    with contextlib.redirect_stdout(io.StringIO()):
        assigned = compiled(size, plan).memory_analysis()
    arguments, temporaries = assigned.argument_size_in_bytes / GIB, assigned.temp_size_in_bytes / GIB
    return {
        "arguments_gib": round(arguments, 4),
        "temporaries_gib": round(temporaries, 4),
        "assigned_gib": round(arguments + temporaries, 4),
    }
