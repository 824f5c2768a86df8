"""The ratio of our training step in PyTorch to that of a public model, for each model.

    python benchmarks/public_models.py [MODEL ...]

The public models are those of Hugging Face's transformers, at full size, fp32 without a compiler,
on two threads, in the environment of `make test-transformers`. Their BERT computes logits of all
tokens, ours only of the masked ones, as the original BERT does.
"""

import sys
from dataclasses import replace

from frameworks import CHECKOUT, PLAIN, make_case, measure_pairs
from rows import Row

PYTHON = CHECKOUT / ".venv" / "transformers" / "bin" / "python"
SCRIPT = PLAIN / "public_pytorch.py"
LENGTHS = {"bert": 128, "llama": 256}  # words of a sequence
BATCH_SIZES = {"bert": 4, "llama": 1, "resnet50": 4, "vit": 4}
PAIRS = 3


def main() -> None:
    """Print a line per model."""
    for model in sys.argv[1:] or BATCH_SIZES:
        print(measure_model(model, PAIRS), flush=True)


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of all models; a quick run measures the decoder alone."""
    if is_quick:
        return [measure_model("llama", 1)]
    return [measure_model(model, PAIRS) for model in BATCH_SIZES]


def measure_model(model: str, pairs: int) -> Row:
    """Return the median times of a step, and the range of their ratio over the pairs."""
    name = f"pytorch: a training step of {model}, beside a public model"
    if not PYTHON.exists():
        problem = "no environment; make .venv/transformers/installed"
        return Row(part=8, name=name, measured=None, unit="ms", problem=problem)
    batch_size, length = BATCH_SIZES[model], LENGTHS.get(model)
    case = make_case("pytorch", model, {"sequence_length": length} if length else {}, batch_size)
    script = [str(PYTHON), str(SCRIPT), model, str(batch_size), str(length or 0)]
    row = measure_pairs(case, PYTHON, script, pairs)
    return replace(
        row,
        name=f"{name}; {row.name}",
        command=f"python benchmarks/public_models.py {model}",
        peer="transformers",
        target_ratio=1.0,
        why_missed="the ratios of the pairs vary with what else the machine does: see their range",
    )


if __name__ == "__main__":
    main()
