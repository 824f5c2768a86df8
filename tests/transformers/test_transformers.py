"""Our PyTorch models with our weights -> the logits that those of Hugging Face have with the same.

make test-transformers
"""

import pytest

from dlperf_slurm.worker.models import llama, vit
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.weights import generate_weights

torch = pytest.importorskip("torch", reason="run by `make test-transformers`")
transformers = pytest.importorskip("transformers", reason="run by `make test-transformers`")

from dlperf_slurm.worker.frameworks.pytorch import llama as llama_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch import vit as vit_builder  # noqa: E402
from dlperf_slurm.worker.frameworks.pytorch.device import load_weights  # noqa: E402

SMALL_LLAMA = dict(llama.VERIFICATION.model_parameters)
SMALL_VIT = dict(vit.VERIFICATION.model_parameters)
SEED = 7
LLAMA_NAMES = {
    "embedding.": "model.embed_tokens.",
    "head.": "lm_head.",
    "normalization.": "model.norm.",
    "layers.": "model.layers.",
    ".attention_normalization.": ".input_layernorm.",
    ".feed_forward_normalization.": ".post_attention_layernorm.",
    ".attention.query.": ".self_attn.q_proj.",
    ".attention.key.": ".self_attn.k_proj.",
    ".attention.value.": ".self_attn.v_proj.",
    ".attention.output.": ".self_attn.o_proj.",
    ".gate.": ".mlp.gate_proj.",
    ".up.": ".mlp.up_proj.",
    ".down.": ".mlp.down_proj.",
}

VIT_NAMES = {
    "class_token": "vit.embeddings.cls_token",
    "positions": "vit.embeddings.position_embeddings",
    "patch_embedding.": "vit.embeddings.patch_embeddings.projection.",
    "normalization.": "vit.layernorm.",
    "layers.": "vit.layers.",
    ".attention_normalization.": ".layernorm_before.",
    ".feed_forward_normalization.": ".layernorm_after.",
    ".attention.query.": ".attention.q_proj.",
    ".attention.key.": ".attention.k_proj.",
    ".attention.value.": ".attention.v_proj.",
    ".attention.output.": ".attention.o_proj.",
    ".intermediate.": ".mlp.fc1.",
    ".output.": ".mlp.fc2.",
}


def rename(name, names):
    """Rename a weight by the first prefix and then the first part that matches."""
    for ours, theirs in names.items():
        if not ours.startswith(".") and name.startswith(ours):
            name = theirs + name[len(ours) :]
            break
    for ours, theirs in names.items():
        if ours.startswith(".") and ours in name:
            return name.replace(ours, theirs)
    return name


def describe_llama(definition):
    return transformers.LlamaConfig(
        vocab_size=definition.vocabulary_size,
        hidden_size=definition.hidden_size,
        intermediate_size=definition.intermediate_size,
        num_hidden_layers=definition.layers,
        num_attention_heads=definition.heads,
        num_key_value_heads=definition.kv_heads,
        max_position_embeddings=definition.sequence_length,
        rms_norm_eps=definition.normalization_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": definition.rotary_theta},
        tie_word_embeddings=definition.tied_embedding,
    )


def describe_vit(definition):
    return transformers.ViTConfig(
        image_size=definition.image_size,
        patch_size=definition.patch_size,
        hidden_size=definition.hidden_size,
        num_hidden_layers=definition.layers,
        num_attention_heads=definition.heads,
        intermediate_size=definition.intermediate_size,
        layer_norm_eps=definition.LAYER_NORM_EPSILON,
        hidden_act="gelu",
        num_labels=definition.classes,
    )


def load_theirs(model, weights, tied=()):
    """Their model with these weights, none of which is left over, and none but the tied missing."""
    shapes = {name: values.shape for name, values in model.state_dict().items()}
    own = {name: torch.from_numpy(values).reshape(shapes[name]) for name, values in weights.items()}
    missing, unexpected = model.load_state_dict(own, strict=False)
    assert (missing, unexpected) == ([*tied], [])
    return model.eval()


def build_ours(builder, definition):
    built = builder.Model(definition)
    load_weights(built, generate_weights(definition, SEED))
    return built.eval()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_heads": 4},
        {"kv_heads": 1, "tied_embedding": True},
        {"rotary_theta": 500000.0, "normalization_epsilon": 1e-6},
    ],
)
def test_llama_has_the_logits_of_hugging_face(changes):
    definition = llama.Definition(**{**SMALL_LLAMA, **changes})
    weights = dict(generate_weights(definition, SEED))
    theirs = load_theirs(
        transformers.LlamaForCausalLM(describe_llama(definition)),
        {rename(name, LLAMA_NAMES): values for name, values in weights.items()},
        ["lm_head.weight"] if definition.tied_embedding else [],
    )
    ours = build_ours(llama_builder, definition)
    input_ids = torch.from_numpy(make_batch(definition, 3, SEED, 0)["input_ids"])
    with torch.no_grad():
        torch.testing.assert_close(ours(input_ids), theirs(input_ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"image_size": 48, "heads": 8}])
def test_vit_has_the_logits_of_hugging_face(changes):
    definition = vit.Definition(**{**SMALL_VIT, **changes})
    weights = dict(generate_weights(definition, SEED))
    theirs = load_theirs(
        transformers.ViTForImageClassification(describe_vit(definition)),
        {rename(name, VIT_NAMES): values for name, values in weights.items()},
    )
    ours = build_ours(vit_builder, definition)
    images = torch.from_numpy(make_batch(definition, 3, SEED, 0)["images"])
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).logits, rtol=1e-5, atol=1e-5)
