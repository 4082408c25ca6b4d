from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.expression import DeviceExpr
from devicefix.facts.configurations import Configurations
from devicefix.facts.flow.sinks import key_read
from devicefix.facts.path_conditions import conditions_around
from devicefix.facts.refusals import prints
from devicefix.facts.values import cpu, last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_uses import checked_for_uses
from devicefix.rules.shared.parsed_texts import Tie, parsed_texts, taken_texts

_SHOWN = 5  # files
_ONE_OF_MANY = "other settings, such as a list of devices, may need a GPU too"


class ConfiguredDevice(Rule):
    """
    ## What it does
    Finds code that reads a CUDA device or the NCCL backend from one of the project's YAML, JSON or TOML files. The rule
    finds only files in Hydra's `config_path` and files that match a path in the code, or in a command in a script or
    README.

    The rule follows the value through other files, objects and calls that pass all settings, such as `build(**config)`
    and `hydra.utils.instantiate(config.model)`.

    Also finds CUDA in strings that the program parses or runs, as in `json.loads('{"device": "cuda"}')` and
    `eval("x.cuda()")`.

    ## Why it matters
    Without CUDA, neither such a device nor NCCL works.

    ## Example
    ```python
    config = yaml.safe_load(open("config.yaml"))  # device: cuda
    model.to(config["device"])
    ```

    ## Use instead
    ```python
    config = yaml.safe_load(open("config.yaml"))  # device: cuda
    model.to(config["device"] if torch.cuda.is_available() or config["device"] != "cuda" else "cpu")
    ```

    ## Fix safety
    The fix is usually safe: it replaces only the value that the file or string contains, and only without CUDA, when
    the program would otherwise fail. A user who selects the same value gets the CPU, too. Another device that doesn't
    exist, such as `cuda:1`, still raises an error.

    The fix is unsafe if the program needs the index of the device, or does not allow the CPU. It is also unsafe for
    Lightning's `accelerator`, because the trainer's other settings may need a GPU too.

    Lists of settings (`from_dotlist(["device=cuda"])`), arguments of `parse_args`, and calls that pass all settings
    have no fix. No fix changes the file or string itself. With `--target accelerator`, this rule has no fixes.
    """

    code = "DF207"
    name = "configured-device"
    summary = "A configuration file or a parsed string selects CUDA or NCCL"
    words = (b"safe_load", b"full_load", b"yaml.load", b"OmegaConf.load", b"hydra.main")
    INVALID = (
        Example(
            "a device in JSON in the code",
            before="""
                import json
                import torch

                config = json.loads('{"device": "cuda"}')
                x = torch.ones(1).to(config["device"])
            """,
            after="""
                import json
                import torch

                config = json.loads('{"device": "cuda"}')
                x = torch.ones(1).to(config["device"] if torch.cuda.is_available() or config["device"] != "cuda" else "cpu")
            """,
        ),
        Example(
            "JSON between both kinds of quotation marks",
            before="""
                import json

                net.to(json.loads('{"d": "cuda"}')["d"])
            """,
            after="""
                import json
                import torch

                net.to(
                    json.loads('{"d": "cuda"}')["d"]
                    if torch.cuda.is_available() or json.loads('{"d": "cuda"}')["d"] != "cuda"
                    else "cpu"
                )
            """,
        ),
        Example(
            "several devices in TOML in a variable",
            before="""
                import tomllib
                import torch

                TEXT = '''
                [train]
                device = "cuda:0"
                [test]
                device = "cuda:1"
                '''
                config = tomllib.loads(TEXT)
                x = torch.ones(1).to(config["train"]["device"])
                print(config)
            """,
            after="""
                import tomllib
                import torch

                TEXT = '''
                [train]
                device = "cuda:0"
                [test]
                device = "cuda:1"
                '''
                config = tomllib.loads(TEXT)
                x = torch.ones(1).to(
                    config["train"]["device"] if torch.cuda.is_available() or config["train"]["device"] != "cuda:0" else "cpu"
                )
                print(config)
            """,
        ),
        Example(
            "settings that options may replace",
            before="""
                import torch
                from omegaconf import OmegaConf

                config = OmegaConf.merge(OmegaConf.create("device: cuda"), OmegaConf.from_cli())
                x = torch.ones(1).to(config.device)
            """,
            after="""
                import torch
                from omegaconf import OmegaConf

                config = OmegaConf.merge(OmegaConf.create("device: cuda"), OmegaConf.from_cli())
                x = torch.ones(1).to(config.device if torch.cuda.is_available() or config.device != "cuda" else "cpu")
            """,
        ),
        Example(
            "texts that may be others",
            before="""
                import json
                import os
                import sys
                import torch
                from omegaconf import OmegaConf

                config = json.loads(os.environ.get("CONFIG", '{"device": "cuda"}'))
                other = OmegaConf.from_dotlist(["train.device=cuda", *sys.argv[1:]])
                x = torch.ones(1).to(config["device"]), torch.ones(1).to(other.train.device)
            """,
        ),
        Example(
            "interpolated values",
            before="""
                import torch
                from omegaconf import OmegaConf

                config = OmegaConf.create(f"device: cuda:{rank}")
                other = OmegaConf.create("device: ${oc.env:DEVICE,cuda}")
                x = torch.ones(1).to(config.device), torch.ones(1).to(other.device)
            """,
        ),
        Example(
            "the arguments of a program",
            before="""
                import shlex
                import torch

                args = parser.parse_args(shlex.split("--size 3 --device cuda"))
                others, rest = parser.parse_known_args(args="--device=cuda:0".split())
                x = torch.ones(1).to(args.device), torch.ones(1).to(others.device)
            """,
        ),
        Example(
            "a configuration that goes to another file",
            before="""
                import torch
                from elsewhere import Config, train

                config = Config.model_validate_json('{"device": "cuda"}')
                train(config)
            """,
        ),
        Example(
            "a text of configparser",
            before="""
                import configparser
                import torch

                config = configparser.ConfigParser()
                config.read_string("[train]\\ndevice = cuda")
                x = torch.ones(1).to(config["train"]["device"])
            """,
        ),
        Example(
            "code in a text",
            before="""
                import timeit
                import torch

                CODE = '''
                y = torch.ones(1).cuda()
                '''
                exec(compile(CODE, "code", "exec"))
                step = eval("lambda x: x.to('cuda')")
                timeit.timeit("f(x)", setup="torch.cuda.synchronize()")
            """,
        ),
    )
    VALID = (
        Example(
            "a text that is not parsed, and code and values without a device",
            """
                import json
                import torch

                HELP = "--device cuda"
                print(HELP, '{"device": "cuda"}')
                parser = argparse.ArgumentParser(description="use --device cuda")
                args = parser.parse_args("--name cuda-test --device cpu".split())
                config = json.loads('{"title": "cuda", "about": "runs on cuda", "device": "cpu"}')
                same = eval("x.device.type == 'cuda'")
                exec("y = x.cuda() if torch.cuda.is_available() else x")
            """,
        ),
        Example(
            "a device in a text that is checked where it is read",
            """
                import json
                import torch

                config = json.loads('{"device": "cuda"}')
                x = torch.ones(1).to(config["device"] if torch.cuda.is_available() else "cpu")
                other = json.loads('{"device": "cuda"}')
                device = other["device"]
                if not torch.cuda.is_available():
                    device = "cpu"
                x.to(device)
                args = parser.parse_args("--device cuda".split())
                if args.device == "cuda" and not torch.cuda.is_available():
                    args.device = "cpu"
                x.to(args.device)
            """,
        ),
        Example(
            "a device that is taken out of a text and checked, and texts that no device is taken out of",
            """
                import torch

                MODES, PRESET = "cpu,cuda", "device=cuda,n=2"
                prefix = "torch.cuda" if torch.cuda.is_available() else "torch"


                def parse(text):
                    return dict(part.split("=") for part in text.split(","))


                assert name in MODES.split(",")
                options = parse(PRESET)
                device = options["device"]
                if not torch.cuda.is_available():
                    device = "cpu"
                x = torch.ones(1, device=device).type(f"{prefix}.FloatTensor")
                y = torch.ones(1).to(options["device"] if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a text for CUDA only",
            """
                import json
                import torch

                TEXT = '{"device": "cuda"}' if torch.cuda.is_available() else '{"device": "cpu"}'
                config = json.loads(TEXT)
                if torch.cuda.is_available():
                    exec("x.cuda()")
                x = torch.ones(1).to(config["device"])
            """,
        ),
        Example(
            "a configuration without a device for CUDA",
            """
                import torch
                import yaml

                config = yaml.safe_load(open("nothing-of-the-kind.yaml"))
                model.to(config["device"])
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        texts, fixed = parsed_texts(self.facts), set[ast.expr]()
        configurations = Configurations(self.facts, texts)
        placed = self.context.project.selected(self.devices.path)
        parsed_in = _by_key(texts)
        keys = {path.rpartition(".")[2] for *_, path in placed}.union(key for _, key in parsed_in)
        for key in sorted(keys - {""}):
            for read, ways in configurations.reads(key):
                is_made = self.facts.call(self.facts.tree.parents[read], "hydra.utils.instantiate")
                found = []
                for loader, before in ways:
                    if before or loader in texts or not is_made:
                        own = parsed_in[loader, key] if loader in texts else placed
                        found += _at(own, [*before.split("."), key])
                if found and not self._asks(read):
                    fixed.add(read)
                    yield self._found(read, found)
        for call, parsed in texts.items():
            reads = list(self._reads(call, set()))
            for text, why, key, device in dict.fromkeys(parsed):
                taking = [read for name, read in reads if name in ("", key.rpartition(".")[2])] if key else []
                if not taking or not all((device and read in fixed) or self._asks(read) for read in taking):
                    yield self.finding(text, why, unless="because devicefix does not rewrite strings")
        taken = taken_texts(self.facts, {tie[0] for parsed in texts.values() for tie in parsed})
        for text, why in {text: why for value, text, why in taken if not self._asks(value)}.items():
            yield self.finding(text, why, unless="because devicefix does not rewrite strings")

    def _reads(self, whole: ast.expr, seen: set[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
        """Yield what reads a part of a configuration, with its key, and where all goes out of sight, without one."""
        tree, found = self.facts.tree, self.context.forwards.of(whole)
        for use in found.uses:
            read, call = tree.parents.get(use), tree.parents.get(tree.parents.get(use))
            read = call if getattr(call, "func", None) is read else read
            if (key := key_read(read)) and isinstance(read, ast.expr) and read not in seen:
                seen.add(read)
                yield key, read
                yield from self._reads(read, seen)
            elif not (key or whole in seen or use in found.passed or prints(tree.statement(use))):
                yield "", use

    def _asks(self, read: ast.expr) -> bool:
        """Return whether code asks for CUDA where it reads a device, or sets its variable to the CPU."""
        lines = sorted({read.lineno, *(test.lineno for test, _ in conditions_around(self.facts.tree, read))})
        names = (
            each for each in self.facts.tree.nodes_at(lines) if isinstance(each, (ast.Name, ast.Attribute))
        )
        asked = self.facts.guards.names.union({"is_available"})
        variables = [read, *getattr(self.facts.tree.parents.get(read), "targets", ())]
        bound = [binding.value for variable in variables for binding in self.facts.bindings(variable)]
        if any(each.lineno in lines and last_name(each) in asked for each in names):
            return True
        return any(each and cpu(self.facts, each) for each in bound)

    def _found(self, value: ast.expr, found: list[list[str]]) -> Finding:
        code = self.context.source.code(value)
        places = list(dict.fromkeys(f"{file}, line {line}" for file, line, _ in found))
        shown = ", ".join(places[:_SHOWN]) + (f", and {len(places) - _SHOWN} more" if places[_SHOWN:] else "")
        texts = sorted({text for _, _, text in found})
        other = {"nccl": "gloo", "gpu": "auto"}.get(texts[0], "cpu")
        parent, advice = self.facts.tree.parents[value], "the CPU" if other == "cpu" else f"`{other}`"
        stars = "**" if isinstance(parent, ast.keyword) and parent.arg is None else ""
        is_whole = stars or self.facts.call(parent, "hydra.utils.instantiate")
        what = f"`{stars}{code}` can pass" if is_whole else f"`{code}` can be"
        devices = " or ".join(f"`{text}`" for text in texts)
        message = f"{what} {devices} (set in {shown}), which may not be available; without CUDA, use {advice}"
        if self.context.accelerator is not None or is_whole:
            return self.finding(
                value, message, unless="because the call passes all settings" if is_whole else ""
            )
        available = self.devices.available(value)
        quote = self.context.source.quoted('"', code)
        values = ", ".join(f"{quote}{text}{quote}" for text in texts)
        same = f"!= {values}" if len(texts) == 1 else f"not in ({values})"
        new = f"{code} if {available.text} or {code} {same} else {quote}{other}{quote}"
        fix = self.context.replace(value, DeviceExpr(new, available.needs))
        fix = replace(fix, why=_ONE_OF_MANY) if key_read(value) == "accelerator" else fix
        return checked_for_uses(self.context, value, self.finding(value, message, fix))


def _by_key(texts: dict[ast.expr, list[Tie]]) -> defaultdict[tuple[ast.expr, str], list[list[str]]]:
    """Return where strings set devices, by the call that parses them and the last key."""
    found: defaultdict[tuple[ast.expr, str], list[list[str]]] = defaultdict(list)
    for call, parsed in texts.items():
        for text, _, path, device in (each for each in parsed if each[3]):
            found[call, path.rpartition(".")[2]].append(["a string", str(text.lineno), device, path])
    return found


def _at(configured: list[list[str]], keys: list[str]) -> list[list[str]]:
    """Return where files set what is read by some keys, or by the last ones; in Hydra, a folder is a key, too."""
    keys = list(filter(None, keys))
    pattern = re.compile(r"(.*\W)?" + r"\W".join(r"\w+" if key == "*" else re.escape(key) for key in keys))
    found = [each for each in configured if pattern.fullmatch(f"{os.path.dirname(each[0])}/{each[3]}")]
    return [each[:3] for each in found if each[3].count(".") < len(keys)] or [each[:3] for each in found]
