"""The fault that each check of a rehearsal must find; a check without one is not tested."""

from rehearsal.combinations import Combination

H100 = 90


def break_on_purpose(fault: str, model: str, precision: str, step: str = "plain", ranks: int = 1):
    return Combination(model, precision, step, H100, ranks, fault)


# check -> the faults that it must find
SELF_CHECKS = {
    "waits": (
        break_on_purpose("read the loss", "bert", "amp-fp16"),
        break_on_purpose("do not wait for inference", "resnet50", "fp32", "val"),
    ),
    "copies": (
        break_on_purpose("do not pin batches", "bert", "amp-bf16", "host"),
        break_on_purpose("copy on the stream of the steps", "vit", "amp-bf16", "host"),
    ),
    "memory": (break_on_purpose("give memory back", "bert", "bf16"),),
    "kernels": (
        break_on_purpose("do not fuse the optimizer", "bert", "amp-bf16"),
        break_on_purpose("attend by plain products", "bert", "amp-fp16"),
    ),
    "numbers": (
        break_on_purpose("leave autocast off", "bert", "amp-bf16"),
        break_on_purpose("leave autocast off", "resnet50", "amp-fp16", "val"),
        break_on_purpose("leave tf32 as torch has it", "resnet50", "fp32"),
        break_on_purpose("leave tf32 as torch has it", "bert", "tf32"),
        break_on_purpose("always allow tf32", "bert", "fp32"),
    ),
    "mean": (
        break_on_purpose("average nothing", "resnet50", "fp32", ranks=2),
        break_on_purpose("average each batch", "bert", "amp-bf16", "accumulate", ranks=2),
        break_on_purpose("send parts in another type", "llama", "fp32", "shard", ranks=2),
    ),
    "known": (break_on_purpose("call what is not known", "bert", "fp32"),),
    "alike": (break_on_purpose("do more in each step", "bert", "fp32"),),
    "device": (break_on_purpose("leave something on the first gpu", "bert", "fp32", ranks=2),),
}

# faults of TensorFlow 2 for the check "numbers"; its own default is TF32
TENSORFLOW_FAULTS = tuple(
    Combination(model, precision, "plain", H100, 1, fault, "tensorflow2")
    for fault, model, precision in (
        ("leave tf32 as tensorflow has it", "bert", "fp32"),
        ("leave tf32 as tensorflow has it", "resnet50", "fp32"),
        ("never allow tf32", "bert", "tf32"),
    )
)
