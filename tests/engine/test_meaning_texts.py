"""Programs that parse a text in their code: a fix lets them run on a CPU, or a finding covers them."""

from __future__ import annotations

from textwrap import dedent

import meaning
import pytest
from meaning import Judge
from meaning_programs import Program

pytestmark = pytest.mark.needs("numpy", "torch", "yaml")

FIXED = {
    "JSON": """
        import json
        import torch
        config = json.loads('{"device": "cuda", "size": 2}')
        print(torch.ones(config["size"]).to(config["device"]) * 2)
    """,
    "YAML in a variable of a function, for a function": """
        import torch
        import yaml
        def build(options):
            return torch.nn.Linear(1, 1, bias=False, device=options["train"]["device"])
        def main():
            text = '''
            train:
                device: cuda:0
            '''
            config = yaml.safe_load(text)
            net = build(config)
            print(sum(p.numel() for p in net.parameters()))
        main()
    """,
    "a check where the device is read": """
        import argparse
        import shlex
        import torch
        parser = argparse.ArgumentParser(description="use --device cuda")
        parser.add_argument("--device")
        args = parser.parse_args(shlex.split("--device cuda"))
        if args.device == "cuda" and not torch.cuda.is_available():
            args.device = "cpu"
        print(torch.ones(2).to(args.device))
    """,
}
REPORTED = {
    "one of two texts": """
        import json
        import torch
        texts = '{"device": "cuda"}', '{"device": "cpu"}'
        TEXT = '{"device": "cuda"}' if len(texts) == 2 else '{"device": "cpu"}'
        config = json.loads(TEXT)
        device = torch.device(config["device"])
        print(torch.ones(2, device=device))
    """,
    "arguments, which an option converts": """
        import argparse
        import torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", type=torch.device)
        args = parser.parse_args("--device cuda".split())
        print(torch.ones(2).to(args.device), args.device.index)
    """,
    "arguments of the process": """
        import argparse
        import sys
        import torch
        sys.argv = "main.py --device=cuda".split()
        parser = argparse.ArgumentParser()
        parser.add_argument("--device")
        print(torch.ones(2).to(parser.parse_args().device))
    """,
    "configparser": """
        import configparser
        import torch
        config = configparser.ConfigParser()
        config.read_string("[train]\\ndevice = cuda")
        print(torch.ones(2).to(config["train"]["device"]))
    """,
    "a device that is also used elsewhere": """
        import json
        import torch
        config = json.loads('{"device": "cuda"}')
        x = torch.ones(2).to(config["device"])
        y = torch.ones(2).to(**{key: value for key, value in config.items()})
        print(x + y)
    """,
    "a computed number": """
        import json
        import torch
        rank = int("0")
        config = json.loads(f'{{"device": "cuda:{rank}"}}')
        print(torch.ones(2).to(config["device"]))
    """,
    "eval": """
        import torch
        x = torch.ones(2)
        print(eval("x.cuda()"))
    """,
    "exec of a text in a variable": """
        import torch
        CODE = '''
        y = torch.ones(2, device="cuda")
        '''
        space = {"torch": torch}
        exec(compile(CODE.strip(), "code", "exec"), space)
        print(space["y"])
    """,
    "lines of JSON": """
        import json
        import torch
        JOBS = '''
        {"n": 2, "device": "cuda"}
        {"n": 3, "device": "cuda:0"}
        '''
        for line in JOBS.strip().splitlines():
            job = json.loads(line)
            print(torch.ones(job["n"], device=job["device"]).sum())
    """,
    "pairs": """
        import torch
        SPEC = "size=3,device=cuda"
        spec = dict(part.split("=") for part in SPEC.split(","))
        print(torch.ones(int(spec["size"]), device=spec["device"]))
    """,
    "CSV": """
        import csv
        import torch
        row = next(csv.DictReader(["device,n", "cuda,2"]))
        print(torch.ones(int(row["n"]), device=row["device"]))
    """,
    "a regular expression": """
        import re
        import torch
        options = dict(re.findall(r"(\\w+)=(\\w+)", "device=cuda"))
        print(torch.ones(2, device=options["device"]))
    """,
    "XML": """
        import xml.etree.ElementTree as ET
        import torch
        root = ET.fromstring('<job><tensor size="2" device="cuda"/></job>')
        for node in root.iter("tensor"):
            print(torch.ones(int(node.get("size")), device=node.get("device")))
    """,
    "a query": """
        from urllib.parse import parse_qs, urlsplit
        import torch
        def handle(url):
            query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
            return torch.ones(int(query["n"]), device=query["device"]).sum()
        print(handle("http://localhost/sum?n=3&device=cuda"))
    """,
    "commands in a list": """
        import argparse
        import shlex
        import torch
        COMMANDS = ["train --n 2 --device cuda", "train --n 3 --device cpu"]
        def train(argv):
            parser = argparse.ArgumentParser()
            parser.add_argument("--n", type=int)
            parser.add_argument("--device")
            args = parser.parse_args(argv)
            return torch.ones(args.n).to(args.device).sum()
        for command in COMMANDS:
            program, *argv = shlex.split(command)
            print(globals()[program](argv))
    """,
    "a type whose module is a part of a text": """
        import torch
        use_gpu = True
        prefix = "torch.cuda" if use_gpu else "torch"
        print(torch.ones(2).type(f"{prefix}.DoubleTensor").sum())
    """,
    "a type that is put together": """
        import torch
        gpu = True
        print(torch.ones(2).type("torch." + ("cuda." if gpu else "") + "DoubleTensor").sum())
    """,
    "a type in code that is put together": """
        import torch
        kind = "FloatTensor"
        print(eval("torch.cuda." + kind)([1.0]).sum())
    """,
    "timeit": """
        import timeit
        import torch
        x = torch.ones(2)
        timeit.timeit("x.cuda()", number=1, globals=globals())
    """,
}


@pytest.mark.parametrize("program", FIXED.values(), ids=FIXED)
def test_program_is_fixed(judge: Judge, program: str) -> None:
    expect(judge, program, meaning.FINE)


@pytest.mark.parametrize("program", REPORTED.values(), ids=REPORTED)
def test_program_is_reported(judge: Judge, program: str) -> None:
    expect(judge, program, meaning.REPORTED, meaning.ELSEWHERE)


def expect(judge: Judge, program: str, *categories: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in categories, meaning.shown(found)
