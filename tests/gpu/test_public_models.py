"""A training step beside that of a public model, in turns in one process, in amp-bf16.

Public are torchvision's resnet50 and vit_b_16, and transformers' BertForPreTraining (logits of the
masked words alone, as ours) and LlamaForCausalLM, trained as their users train them: fused
optimizer, autocast, channels_last for ResNet-50.
"""

import statistics
import time

import pytest
from support import sessions
from support.gpu_attempts import choose_work
from support.gpu_report import NOT_FOR_THIS_GPU

pytestmark = pytest.mark.any_device
LIBRARIES = {
    "resnet50": "torchvision",
    "vit": "torchvision",
    "bert": "transformers",
    "llama": "transformers",
}
STEPS, PAIRS = 20, 3


@pytest.mark.parametrize("compiler", ["none", "torch.compile"])
@pytest.mark.parametrize("model", sorted(LIBRARIES))
def test_step_is_no_slower_than_that_of_a_public_model(model, compiler, device, hold):
    pytest.importorskip(LIBRARIES[model])
    is_gpu = device == "cuda"
    if compiler != "none" and not is_gpu:
        pytest.skip(f"{NOT_FOR_THIS_GPU}compiling takes minutes on a CPU")
    ours, public = sessions.run_elsewhere(time_steps, model, compiler, device)
    hold("ours", 1e3 * statistics.median(ours), "ms")
    hold("public", 1e3 * statistics.median(public), "ms")
    ratio = statistics.median(a / b for a, b in zip(ours, public))
    hold("ours over public", ratio, most=1.05 if is_gpu else None)


def time_steps(model, compiler, device):
    """Return seconds per step of ours and of the public model, in pairs of windows in turns."""
    import torch

    # the public models' own sizes, with one layer on a CPU
    work = {**choose_work(model, device), "model_parameters": {}}
    if device == "cpu" and model != "resnet50":
        shorter = {"sequence_length": 64} if model == "llama" else {}
        work["model_parameters"] = {"layers": 1, **shorter}
    precision = "amp-bf16" if device == "cuda" else "fp32"
    case = sessions.make_case("pytorch", precision=precision, compiler=compiler, **work)
    session = sessions.start(case)
    step = make_public_step(case, sessions.make_definition(case))
    steps = STEPS if device == "cuda" else 1

    def time_window(step):
        session.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / steps

    for one in (session.step, step):
        for _ in range(case.warmup_steps):
            one()
    ours, public = [], []
    for pair in range(PAIRS):
        turns = [(session.step, ours), (step, public)]
        for one, seconds in turns if pair % 2 == 0 else reversed(turns):
            seconds.append(time_window(one))
    return ours, public


def make_public_step(case, definition):
    """Return a function that does a training step of the public model of a case."""
    import torch

    device = torch.device(case.device)
    torch.manual_seed(1)
    model, compute = MAKERS[case.model](case.axes.batch_size, definition, device)
    model.train()
    if case.axes.compiler != "none":
        compute = torch.compile(compute, dynamic=False)
    if case.model == "resnet50":
        rule = {"lr": 0.01, "momentum": 0.875, "weight_decay": 3e-5}
        optimizer = torch.optim.SGD(model.parameters(), fused=True, **rule)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)
    is_mixed = case.axes.precision == "amp-bf16"

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(case.device, torch.bfloat16, enabled=is_mixed):
            loss = compute()
        loss.backward()
        if case.axes.clip_global_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def make_resnet50(batch, definition, device):
    import torch
    import torchvision

    layout = {"memory_format": torch.channels_last}
    model = torchvision.models.resnet50().to(device, **layout)
    images = torch.randn(batch, 3, 224, 224, device=device).to(**layout)
    return model, make_classification(model, images, torch.randint(1000, (batch,), device=device))


def make_vit(batch, definition, device):
    import torch
    import torchvision

    model = torchvision.models.VisionTransformer(224, 16, definition.layers, 12, 768, 3072)
    model.to(device)
    images = torch.randn(batch, 3, 224, 224, device=device)
    return model, make_classification(model, images, torch.randint(1000, (batch,), device=device))


def make_classification(model, images, labels):
    from torch.nn.functional import cross_entropy

    return lambda: cross_entropy(model(images), labels)


def make_bert(batch, definition, device):
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

    settings = transformers.BertConfig(num_hidden_layers=definition.layers)
    model = transformers.BertForPreTraining(settings).to(device)
    words = torch.randint(1000, 30522, (batch, 128), device=device)
    places = torch.rand(batch, 127, device=device).argsort(1)[:, :20] + 1
    places = torch.sort(places).values.unsqueeze(-1)
    types = (torch.arange(128, device=device) >= 64).long().expand(batch, -1).contiguous()
    masked = torch.randint(1000, 30522, (batch, 20), device=device)
    following = torch.randint(2, (batch,), device=device)

    def compute():
        out = model.bert(input_ids=words, token_type_ids=types)
        hidden = out.last_hidden_state
        hidden = hidden.gather(1, places.expand(-1, -1, hidden.shape[-1]))
        logits = model.cls.predictions(hidden)
        other = model.cls.seq_relationship(out.pooler_output)
        loss = cross_entropy(logits.flatten(0, 1), masked.flatten())
        return loss + cross_entropy(other, following)

    return model, compute


def make_llama(batch, definition, device):
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

    settings = transformers.LlamaConfig(
        vocab_size=definition.vocabulary_size,
        hidden_size=definition.hidden_size,
        intermediate_size=definition.intermediate_size,
        num_hidden_layers=definition.layers,
        num_attention_heads=definition.heads,
        num_key_value_heads=definition.kv_heads,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(settings).to(device)
    shape = (batch, definition.sequence_length)
    words, labels = (
        torch.randint(0, definition.vocabulary_size, shape, device=device) for _ in range(2)
    )

    def compute():
        logits = model(input_ids=words).logits
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

    return model, compute


MAKERS = {
    "resnet50": make_resnet50,
    "vit": make_vit,
    "bert": make_bert,
    "llama": make_llama,
}
