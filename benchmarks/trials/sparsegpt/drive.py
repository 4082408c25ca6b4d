"""Prunes a tiny OPT to half, to 2:4 with quantization, and by magnitude; measures perplexity each time."""

import json
import runpy
import sys
import types

import torch
import transformers
from transformers import OPTConfig, OPTForCausalLM
from transformers.models.opt.modeling_opt import OPTDecoderLayer

torch.set_num_threads(1)
torch.manual_seed(0)


class Letters:
    """A tokenizer of letters."""

    def __call__(self, text, return_tensors):
        return types.SimpleNamespace(input_ids=torch.tensor([[4 + ord(c) % 28 for c in text]]))

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        return cls()


transformers.AutoTokenizer.from_pretrained = Letters.from_pretrained
words = [f"the quick brown fox jumps over {i * i} lazy dogs and more" for i in range(40)]


class Texts(dict):
    def __len__(self):
        return len(words)

    def __getitem__(self, key):
        return (
            dict.__getitem__(self, key)
            if isinstance(key, str)
            else {"text": words[key] if isinstance(key, int) else words[:8]}
        )


made = types.ModuleType("datasets")
made.load_dataset = lambda *args, split, **kwargs: Texts(
    text=words[: 20 if split == "train" else 3], sentence=words[: 20 if split == "train" else 3]
)
sys.modules["datasets"] = made


# ---- a layer takes no other arguments than the program passes, and returns a tuple, as transformers 4 has it
real_forward = OPTDecoderLayer.forward


def forward(self, hidden_states, attention_mask=None, **kwargs):
    out = real_forward(self, hidden_states, attention_mask=attention_mask, **kwargs)
    return out if isinstance(out, tuple) else (out,)


weights = OPTForCausalLM(
    OPTConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=2,
        ffn_dim=32,
        pad_token_id=1,
        max_position_embeddings=24,
        num_attention_heads=2,
        word_embed_proj_dim=16,
        bos_token_id=2,
        eos_token_id=2,
        dropout=0.0,
    )
).eval()
state = {k: v.clone() for k, v in weights.state_dict().items()}
models, texts = [], []


def from_pretrained(name, torch_dtype):
    model = OPTForCausalLM(weights.config)
    model.load_state_dict(state)
    models.append(model)
    return model


OPTForCausalLM.from_pretrained = from_pretrained
real_call = OPTDecoderLayer.__call__


def call(self, hidden_states, attention_mask=None, **kwargs):
    out = real_call(self, hidden_states, attention_mask=attention_mask, **kwargs)
    return out if isinstance(out, tuple) or kwargs else (out,)


OPTDecoderLayer.__call__ = call
real_print = print


def script(*argv):
    sys.argv = list(argv)
    return runpy.run_path(argv[0], run_name="__main__")


import builtins  # noqa: E402

perplexities = []


def listen(*args, **kwargs):
    if args and str(args[0]).startswith("Perplexity"):
        perplexities.append(float(str(args[0]).split()[-1]))
    real_print(*args, **kwargs)


builtins.print = listen
result = {}
for name, options in (
    ("half", ["--sparsity", "0.5"]),
    ("pattern", ["--prunen", "2", "--prunem", "4", "--wbits", "4"]),
    ("magnitude", ["--sparsity", "0.5", "--gmp"]),
):
    script("opt.py", "tiny", "wikitext2", "--nsamples", "4", "--blocksize", "8", *options)
    model = models[-1]
    parameters = [p.detach() for p in model.model.decoder.layers.parameters()]
    result |= {
        name + "_zeros": int(sum((p == 0).sum() for p in parameters)),
        name + "_weights": float(sum(p.double().abs().sum() for p in parameters)),
        name + "_wiki": perplexities[-3],
        name + "_c4": perplexities[-1],
    }
real_print("RESULT " + json.dumps(result))
