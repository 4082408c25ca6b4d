"""Trains twice for two steps, with AdamW on the GPU and with its states in pinned memory."""

import json
import os
import sys
import types

import pandas as pd
import safetensors.torch
import tokenizers
import torch
import yaml

torch.set_num_threads(1)

# ---- a tokenizer of letters, with a chat template
letters = [chr(i) for i in range(32, 127)] + ["\n"]
vocab = {token: i for i, token in enumerate(["<pad>", "<end>", "<unk>", *letters])}
made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [], unk_token="<unk>"))
made.add_special_tokens(["<pad>", "<end>"])
os.makedirs("tiny")
made.save("tiny/tokenizer.json")
with open("tiny/tokenizer_config.json", "w") as f:
    json.dump(
        {
            "chat_template": "{% for m in messages %}{{ m.content[:24] }}\n{% endfor %}",
            "eos_token": "<end>",
            "pad_token": "<pad>",
        },
        f,
    )

# ---- weights of a tiny model
config = {
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "hidden_act": "silu",
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 256,
    "max_window_layers": 2,
    "model_type": "qwen2",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "vocab_size": len(vocab),
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "sliding_window": 256,
    "use_sliding_window": False,
    "use_cache": True,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
with open("tiny/config.json", "w") as f:
    json.dump(config, f)
g = torch.Generator().manual_seed(0)


def w(*shape):
    return torch.randn(*shape, generator=g) * 0.2


state = {"model.embed_tokens.weight": w(len(vocab), 16), "model.norm.weight": torch.ones(16)}
for i in range(2):
    at = f"model.layers.{i}."
    for name, out, bias in (("q", 16, True), ("k", 8, True), ("v", 8, True), ("o", 16, False)):
        state[f"{at}self_attn.{name}_proj.weight"] = w(out, 16)
        if bias:
            state[f"{at}self_attn.{name}_proj.bias"] = w(out)
    state |= {
        at + "mlp.up_proj.weight": w(24, 16),
        at + "mlp.gate_proj.weight": w(24, 16),
        at + "mlp.down_proj.weight": w(16, 24),
        at + "input_layernorm.weight": torch.ones(16),
        at + "post_attention_layernorm.weight": torch.ones(16),
    }
safetensors.torch.save_file(state, "tiny/model-1.safetensors")

puzzles = pd.DataFrame({"nums": [[i, i + 2, 5] for i in range(12)], "target": [i * 3 for i in range(12)]})
pd.read_parquet = lambda path: puzzles
scalars = {}


class SummaryWriter:
    def __init__(self, log_dir):
        pass

    def add_scalar(self, name, value, step):
        scalars.setdefault(name, []).append(float(value))

    def add_text(self, name, text, step):
        scalars.setdefault("letters", []).append(len(text))


writer = types.ModuleType("torch.utils.tensorboard.writer")
writer.SummaryWriter = SummaryWriter
sys.modules["torch.utils.tensorboard"] = types.ModuleType("torch.utils.tensorboard")
sys.modules["torch.utils.tensorboard.writer"] = writer

result = {}
for name in ("config.yaml", "config_24GB.yaml"):
    with open(name) as f:
        settings = yaml.safe_load(f)
    settings["model"].update(pretrained_model_path="tiny", dtype="float32")
    settings["data"]["test_size"] = 4
    settings["training"].update(
        max_gen_len=8,
        batch_size=4,
        num_questions_per_batch=2,
        micro_batch_size=2,
        learning_rate=1e-2,
        ckpt_save_interval=2,
        eval_interval=2,
    )
    with open("tiny.yaml", "w") as f:
        yaml.safe_dump(settings, f)
    # reward what a random model does: an odd number of letters
    import train

    train.reward_function = lambda response, numbers, target, end_token: {
        "reward": float(sum(map(ord, response)) % 7),
        "reward_info": {"format_reward": 0.0, "answer_reward": 1.0},
    }

    class Some(train.CountdownTasksDataset):
        def __len__(self):
            return 4

    train.CountdownTasksDataset = Some
    scalars.clear()
    train.main("tiny.yaml")
    saved = torch.load("ckpt/ckpt_000002.pt", map_location="cpu")
    key = name.split(".")[0]
    result |= {
        key + "_loss": sum(scalars["loss"]),
        key + "_grad": sum(scalars["grad_norm"]),
        key + "_entropy": sum(scalars["entropy"]),
        key + "_steps": len(scalars["loss"]),
        key + "_eval": scalars["success_rate/eval"][0],
        key + "_letters": sum(scalars["letters"]),
        key + "_weights": float(sum(v.double().abs().sum() for v in saved.values())),
    }
    torch.set_default_device(None)
print("RESULT " + json.dumps(result))
