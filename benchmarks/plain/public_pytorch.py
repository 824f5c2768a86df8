"""Train a model of Hugging Face's transformers in a plain loop; print seconds per step as JSON.

python public_pytorch.py bert|llama|resnet50|vit BATCH_SIZE SEQUENCE_LENGTH STEPS
"""

import json
import sys
import time

import torch
import transformers


def build_bert():
    words = torch.randint(1000, 30522, (batch_size, length))
    labels = torch.where(torch.rand(words.shape) < 0.15, words, -100)
    model = transformers.BertForPreTraining(transformers.BertConfig())
    batch = {"input_ids": words, "labels": labels}
    return model, {**batch, "next_sentence_label": torch.randint(2, (batch_size,))}


def build_llama():
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=12,
        use_cache=False,
    )
    words = torch.randint(0, 32000, (batch_size, length))
    return transformers.LlamaForCausalLM(config), {"input_ids": words, "labels": words}


def build_vit():
    config = transformers.ViTConfig(num_labels=1000)
    return transformers.ViTForImageClassification(config), make_images()


def build_resnet50():
    config = transformers.ResNetConfig(num_labels=1000)
    return transformers.ResNetForImageClassification(config), make_images()


def make_images():
    labels = torch.randint(1000, (batch_size,))
    return {"pixel_values": torch.randn(batch_size, 3, 224, 224), "labels": labels}


name = sys.argv[1]
batch_size, length, steps = (int(value) for value in sys.argv[2:])
builders = {"bert": build_bert, "llama": build_llama, "vit": build_vit, "resnet50": build_resnet50}
model, batch = builders[name]()
model.train()
if name == "resnet50":
    optimizer = torch.optim.SGD(model.parameters(), 0.002, momentum=0.875, weight_decay=3e-5)
else:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01)
seconds = []
for _ in range(steps):
    start = time.perf_counter()
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
