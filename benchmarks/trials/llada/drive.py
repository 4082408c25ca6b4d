"""Generates with generate.py, chat.py and eval_reverse.py, and scores with get_log_likelihood.py."""

import builtins
import contextlib
import json
import runpy
import sys
import types

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
WORDS = 126400


class Model(nn.Module):
    """A few layers in the place of the language model; in float32, so that both machines agree."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(3)
        self.words, self.mix, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, WORDS)
        for p in self.parameters():
            p.data.copy_(torch.randn(p.shape, generator=g))

    @classmethod
    def from_pretrained(cls, name, trust_remote_code, torch_dtype):
        assert torch_dtype is torch.bfloat16
        return cls()

    @property
    def device(self):
        return self.out.weight.device

    def forward(self, x, attention_mask=None):
        h = self.words(x)
        if attention_mask is not None:
            h = h * attention_mask[..., None]
        h = h + torch.tanh(self.mix(h.cumsum(1) + h.sum(1, keepdim=True)))
        return types.SimpleNamespace(logits=self.out(h))


seen = []


class Tokenizer:
    padding_side, pad_token_id = "left", 0

    @classmethod
    def from_pretrained(cls, name, trust_remote_code):
        return cls()

    def apply_chat_template(self, messages, add_generation_prompt, tokenize):
        return "".join(m["content"] for m in messages)

    def __call__(self, texts, add_special_tokens=True, padding=False, return_tensors=None):
        if isinstance(texts, str):
            return {"input_ids": [ord(c) % 997 + 1 for c in texts[:12]]}
        rows = [[ord(c) % 997 + 1 for c in text[: 8 + i]] for i, text in enumerate(texts)]
        wide = max(map(len, rows))
        return {
            "input_ids": torch.tensor([[0] * (wide - len(r)) + r for r in rows]),
            "attention_mask": torch.tensor([[0] * (wide - len(r)) + [1] * len(r) for r in rows]),
        }

    def batch_decode(self, rows, skip_special_tokens):
        seen.append(float((rows.cpu().double() * torch.arange(1, rows.shape[1] + 1)).sum()))
        return [" ".join(map(str, row.tolist())) for row in rows]


made = types.ModuleType("transformers")
made.AutoModel = made.AutoModelForCausalLM = Model
made.AutoTokenizer = Tokenizer
sys.modules["transformers"] = made

import generate  # noqa: E402

real_generate = generate.generate
generate.generate = lambda *a, **k: real_generate(
    *a, **{**k, "steps": 4, "gen_length": 8, "block_length": 4, "temperature": 0.5}
)
generate.main()
import get_log_likelihood  # noqa: E402

said, real_print = [], builtins.print
real_score = get_log_likelihood.get_log_likelihood
get_log_likelihood.get_log_likelihood = lambda *a, mc_num, **k: real_score(
    *a, mc_num=6, batch_size=3, cfg_scale=0.5, **k
)
builtins.print = lambda *a, **k: said.append(a[0])
get_log_likelihood.main()
builtins.print = real_print
questions = iter(["What is it?", "And then?"])
builtins.input = lambda text: next(questions, None) or sys.exit(0)
with contextlib.suppress(SystemExit):
    runpy.run_path("chat.py", run_name="__main__")
with open("data/poem_data.json", encoding="utf-8") as file:
    poems = json.load(file)
with open("data/poem_data.json", "w", encoding="utf-8") as file:
    json.dump(poems[:2], file)
sys.argv = ["eval_reverse.py", "--eos_inf"]
runpy.run_path("eval_reverse.py", run_name="__main__")
print(
    "RESULT "
    + json.dumps(
        {"likelihood": said[-1], "answers": len(seen), **{f"said{i}": v for i, v in enumerate(seen)}}
    )
)
