"""Devices that a program reads from the configuration files of its project."""

from __future__ import annotations

import pytest
from helpers import Cli, Git, ProjectFolder
from running import run_program

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.runner.run import check_files, check_text

YAML = 'model:\n  size: 3\n  device: "cuda"\n'
LOAD = """\
import torch
import yaml

with open("config.yaml") as file:
    config = yaml.safe_load(file)
"""
FIX = 'if torch.cuda.is_available() or config["model"]["device"] != "cuda" else "cpu"'


def findings(project: ProjectFolder, files: dict[str, str], config: str = YAML) -> list[str]:
    """Return the findings in `main.py`: the code, and how safe the fix is."""
    project.write({"config.yaml": config, **files})
    outcomes = check_files(sorted(project.path.rglob("*.py")), Everywhere(Settings()))
    assert not any(outcome.error for outcome in outcomes)
    found = [finding for outcome in outcomes for finding in outcome.result.findings]
    return [f"{finding.code} {finding.safety.value if finding.safety else None}" for finding in found]


@pytest.mark.parametrize(
    "use",
    [
        'torch.ones(1).to(config["model"]["device"])\n',
        'torch.ones(1, device=config["model"].get("device"))\n',
        'device = torch.device(config["model"]["device"])\n',
        'place = config["model"]["device"]\ntorch.ones(1).to(place)\n',
        'def f(options):\n    return torch.ones(1, device=options["device"])\n\n\nf(config["model"])\n',
        "class A:\n    def __init__(self, c):\n        self.c = c\n\n"
        '    def f(self, x):\n        return x.to(self.c["device"])\n\n\nA(config)\n',
        'def read():\n    return config\n\n\ntorch.ones(1).to(read()["device"])\n',
        "from munch import Munch\n\noptions = Munch(config)\ntorch.ones(1).to(options.model.device)\n",
        'torch.ones(1).to(getattr(config["model"], "device"))\n',
        "class Config:\n    size: int\n    device: str\n\n\n"
        'made = Config(**config["model"])\ntorch.ones(1).to(made.device)\n',
        "class Config:\n    def __init__(self, given):\n        for name, value in given.items():\n"
        "            setattr(self, name, value)\n\n\n"
        'made = Config(config["model"])\ntorch.ones(1).to(made.device)\n',
    ],
)
def test_a_device_out_of_a_file_that_the_program_names(project: ProjectFolder, use: str) -> None:
    assert findings(project, {"main.py": LOAD + use}) == ["DF207 safe"]


@pytest.mark.parametrize(
    "use",
    [
        'config.update(vars(args))\ntorch.ones(1).to(config["device"])\n',
        'for name, value in given:\n    config[name] = value\ntorch.ones(1).to(config["device"])\n',
        'if given:\n    config = given\ntorch.ones(1).to(config["device"])\n',
        'options = {**config}\nboth = merge(config, given)\ntorch.ones(1).to(both["device"])\n',
        "args = parser.parse_args()\nvars(args).update(config)\ntorch.ones(1).to(args.device)\n",
        'parser.set_defaults(**config["model"])\nargs = parser.parse_args()\ntorch.ones(1).to(args.device)\n',
    ],
)
def test_a_device_that_the_user_may_replace(project: ProjectFolder, use: str) -> None:
    assert findings(project, {"main.py": LOAD + use}) == ["DF207 safe"]


@pytest.mark.parametrize(
    "given",
    [
        'config_path="conf", config_name="base"',
        'config_path="conf"',
        'config_path=str(pathlib.Path(__file__).parent.joinpath("conf"))',
        'config_name="base", config_path=os.path.join(HERE, "conf")',
        'config_path=CONF, config_name="base"',
    ],
)
def test_hydra(project: ProjectFolder, given: str) -> None:
    main = f"""
        import copy, os, pathlib
        import hydra
        import torch

        CONF = str(pathlib.Path(__file__).parent / "conf")


        class Workspace:
            def __init__(self, cfg):
                self.cfg = cfg

            def run(self):
                cfg = copy.deepcopy(self.cfg)
                return torch.ones(1).to(cfg.device)


        @hydra.main(version_base=None, {given})
        def main(cfg):
            Workspace(cfg).run()
    """
    assert findings(project, {"main.py": main, "conf/base.yaml": "device: cuda:1\n"}) == ["DF207 safe"]


HYDRA = """\
import hydra
import torch


@hydra.main(config_path="conf", config_name="base")
def main(cfg):
    torch.ones(1).to(cfg.model.device)
"""
DEFAULT = {"main.py": HYDRA, "conf/base.yaml": "defaults:\n  - model: small\n"}


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"conf/model/small.yaml": "size: 3\ndevice: cuda\n"}, "small.yaml, line 2"),
        ({"conf/base.yaml": "device: cuda\nmodel:\n  device: ${device}\n"}, "base.yaml, line 3"),
        ({"conf/base.yaml": "device: cuda\nmodel:\n  device: cpu\n"}, ""),
        ({"conf/other/small.yaml": "device: cuda\n"}, ""),
    ],
)
def test_the_key_of_a_group_or_of_an_interpolated_value(
    project: ProjectFolder, config: dict[str, str], line: str
) -> None:
    project.write({**DEFAULT, **config})
    found = check_files([project / "main.py"], Everywhere(Settings()))[0].result.findings
    assert [finding.code for finding in found] == ["DF207"] * bool(line)
    assert all(line in finding.message for finding in found)


def test_a_configuration_that_hydra_composes(project: ProjectFolder) -> None:
    main = """
        import torch
        from hydra import compose, initialize

        with initialize(version_base=None, config_path="conf"):
            cfg = compose(config_name="base")
        torch.ones(1).to(cfg.device)
    """
    assert findings(project, {"main.py": main, "conf/base.yaml": "device: cuda\n"}) == ["DF207 safe"]


@pytest.mark.parametrize("path", ["sorted(glob.glob('configs/*.yaml'))[0]", "f'configs/{name}.yaml'"])
def test_a_path_with_a_computed_name(project: ProjectFolder, path: str) -> None:
    main = f"import torch, yaml\nconfig = yaml.safe_load(open({path}))\ntorch.ones(1).to(config['device'])\n"
    assert findings(project, {"main.py": main, "configs/a.yaml": "device: cuda\n"}, "") == ["DF207 safe"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ({"run.sh": "python main.py --size 3 \\\n  --config configs/a.yaml\n"}, ["DF207 safe"]),
        ({"README.md": "Train:\n\n    python main.py --config configs/a.yaml\n"}, ["DF207 safe"]),
        ({"run.sh": "python other_main.py --config configs/a.yaml\n"}, []),
    ],
)
def test_a_script_names_the_file(project: ProjectFolder, script: dict[str, str], code: list[str]) -> None:
    main = """
        import argparse
        import torch
        import yaml

        parser = argparse.ArgumentParser()
        parser.add_argument("--config", required=True)
        config = yaml.safe_load(open(parser.parse_args().config))
        torch.ones(1).to(config["device"])
    """
    project.write(script)
    assert findings(project, {"main.py": main, "configs/a.yaml": "device: cuda\n"}, "") == code


READ = "import yaml\n\n\ndef read(path):\n    with open(path) as file:\n        return yaml.safe_load(file)\n"
NEEDED = {"main.py": "from reading import read\n\nconfig = read('config.yaml')\n", "reading.py": READ}


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"main.py": f"{NEEDED['main.py']}x.to(config['model']['device'])\n"}, ["DF207 safe"]),
        ({"main.py": f"{NEEDED['main.py']}x.to(config['train']['device'])\n"}, []),
        (
            {
                "main.py": f"import train\n{NEEDED['main.py']}train.Trainer(config['model'])\n",
                "train.py": """
                    class Trainer:
                        def __init__(self, options):
                            self.options = options

                        def move(self, x):
                            return x.to(self.options["device"])
                """,
            },
            ["DF207 safe"],
        ),
        (
            {
                "main.py": f"from train import move\n{NEEDED['main.py']}move(config['model']['device'], x)\n",
                "train.py": "def move(where, x):\n    return x.to(where)\n",
            },
            ["DF207 safe"],
        ),
        (
            {
                "main.py": f"from train import build\n{NEEDED['main.py']}build(**config['model'])\n",
                "train.py": "def build(size, device):\n    return torch.ones(size, device=device)\n",
            },
            ["DF207 None"],
        ),
        (
            {
                "main.py": "from reading import Config\n\nx.to(Config('config.yaml').device)\n",
                "reading.py": """
                    import yaml

                    class Config:
                        def __init__(self, path):
                            with open(path) as file:
                                self.__dict__.update(yaml.safe_load(file)["model"])
                """,
            },
            ["DF207 safe"],
        ),
        (
            {
                "main.py": "from reading import Net\n\nx.to(Net('config.yaml').device)\n",
                "reading.py": """
                    import yaml

                    class Net:
                        def __init__(self, path):
                            self.size = yaml.safe_load(open(path))["size"]
                """,
            },
            [],
        ),
    ],
)
def test_a_configuration_in_several_files(
    project: ProjectFolder, files: dict[str, str], code: list[str]
) -> None:
    assert findings(project, {**NEEDED, **files}) == code


def test_a_backend_out_of_a_file(project: ProjectFolder, cli: Cli) -> None:
    source = LOAD + 'torch.distributed.init_process_group(config["dist"]["backend"])\n'
    project.write({"main.py": source, "config.yaml": "dist:\n  backend: nccl\n"})
    assert cli("rewrite", "--in-place", project.path).exit_code == 0
    new = 'if torch.cuda.is_available() or config["dist"]["backend"] != "nccl" else "gloo"'
    assert new in " ".join(project.read("main.py").split())


def test_one_fix_for_all_uses_of_an_attribute(project: ProjectFolder) -> None:
    use = """
class A:
    def __init__(self):
        self.device = config["model"]["device"]
        self.x = torch.ones(1).to(self.device)

    def f(self, x):
        return x.to(self.device)
"""
    assert findings(project, {"main.py": LOAD + use}) == ["DF207 safe"]


@pytest.mark.parametrize(
    ("use", "config"),
    [
        ('torch.ones(1).to(config["device"])\n', "device: cpu\n"),
        ('torch.ones(1).to(config["device"])\n', "other: cuda\n"),
        ('torch.ones(1).to(other["device"])\n', YAML),
        ('torch.ones(1).to(config["device"] if torch.cuda.is_available() else "cpu")\n', YAML),
        (
            'device = config["device"]\nif not torch.cuda.is_available():\n    device = "cpu"\n'
            "torch.ones(1).to(device)\n",
            YAML,
        ),
    ],
)
def test_no_device_or_one_that_is_checked(project: ProjectFolder, use: str, config: str) -> None:
    assert not findings(project, {"main.py": LOAD + use}, config)


def test_a_device_object_is_no_text_of_a_file(project: ProjectFolder) -> None:
    """A comparison with a string would always be false."""
    use = (
        'class A:\n    def __init__(self, c):\n        self.device = torch.device(c["device"])\n'
        "        self.x = torch.ones(1, device=self.device)\n\n\nA(config)\n"
    )
    main = LOAD + use
    assert findings(project, {"main.py": main}) == ["DF207 safe"]
    (finding,) = check_files([project / "main.py"], Everywhere(Settings()))[0].result.findings
    assert main.splitlines()[finding.line - 1].strip() == 'self.device = torch.device(c["device"])'


def test_another_module_names_the_file(project: ProjectFolder) -> None:
    main = LOAD.replace('"config.yaml"', "options.PATH").replace("import yaml", "import options\nimport yaml")
    files = {
        "main.py": main + 'torch.ones(1).to(config["device"])\n',
        "options.py": 'PATH = "configs/a.yml"\n',
        "configs/a.yml": "device: cuda\n",
    }
    assert findings(project, files, "") == ["DF207 safe"]


def test_the_rewritten_program_runs(project: ProjectFolder, cli: Cli) -> None:
    source = LOAD + 'device = torch.device(config["model"]["device"])\nprint(device.type)\n'
    project.write({"main.py": source, "config.yaml": YAML})
    assert cli("rewrite", "--in-place", project.path).exit_code == 0
    expected = source.replace('["device"]', f'["device"] {FIX}')
    assert "".join(project.read("main.py").split()) == "".join(expected.split())
    assert not cli("check", "--no-cache", project.path).stdout.count("DF")
    pytest.importorskip("torch")
    for text, device in (
        (YAML, "cpu"),
        ("model: {device: meta}", "meta"),
        ("model: {device: 'cuda:0'}", "cuda"),
    ):
        project.write({"config.yaml": text})
        ran = run_program(project.path, project.read("main.py"), watch=False)
        assert ran.output == f"{device}\n", ran.errors


def test_a_folder_of_a_repository(
    project: ProjectFolder, git: Git, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be in a folder above the current one."""
    git("init", "-q")
    project.write(
        {"config.yaml": YAML, "sub/main.py": f'{LOAD}torch.ones(1).to(config["model"]["device"])\n'}
    )
    monkeypatch.chdir(project / "sub")
    assert "main.py:6:18: DF207" in cli("check", ".").output


def test_a_changed_configuration_is_seen_in_spite_of_the_cache(project: ProjectFolder) -> None:
    source = LOAD + 'torch.ones(1).to(config["model"]["device"])\n'
    others = {f"m{number}.py": "import torch\n" for number in range(60)}
    paths = project.write({"main.py": source, **others})
    settings = Settings(cache_dir=project / "cache")
    for text, number in ((YAML, 1), ("model: {device: cpu}\n", 0), (YAML, 1)):
        project.write({"config.yaml": text})
        outcomes = check_files(paths, Everywhere(settings))
        assert sum(len(outcome.result.findings) for outcome in outcomes) == number


def test_a_text_that_is_not_on_disk(project: ProjectFolder) -> None:
    project.write({"config.yaml": YAML})
    source = LOAD + 'torch.ones(1).to(config["model"]["device"])\n'
    found = check_text(source.encode(), str(project / "main.py"), Settings()).result.findings
    assert [finding.code for finding in found] == ["DF207"]
    assert "config.yaml, line 3)" in found[0].message


LIGHTNING = "trainer:\n  accelerator: gpu\n  devices: 2\n"


@pytest.mark.parametrize(
    ("use", "safety"),
    [
        ('Trainer(**config["trainer"])', None),
        (
            'Trainer(max_epochs=2, **{**config["trainer"]})',
            "silent",
        ),  # what a display unpacks is not followed
        ('pl.Fabric(**config["trainer"])', None),
        ('Trainer(accelerator=config["trainer"]["accelerator"], devices=1)', "unsafe"),
        ('options = dict(accelerator=config["trainer"]["accelerator"])\nTrainer(**options)', "unsafe"),
        ('hydra.utils.instantiate(config["trainer"], callbacks=[])', None),
        ("hydra.utils.instantiate(config)", "silent"),  # of another file, perhaps
        ('other(**config["trainer"])', "silent"),
        ('print(config["trainer"]["accelerator"])', "silent"),
        ('if torch.cuda.is_available():\n    Trainer(**config["trainer"])', "silent"),
    ],
)
def test_an_accelerator_of_lightning(project: ProjectFolder, use: str, safety: str | None) -> None:
    imports = (
        "import hydra\nimport lightning as pl\nfrom lightning.pytorch import Trainer\nfrom x import other\n"
    )
    expected = [] if safety == "silent" else [f"DF207 {safety}"]
    assert findings(project, {"main.py": f"{imports}{LOAD}{use}\n"}, LIGHTNING) == expected
    assert findings(project, {"main.py": f"{imports}{LOAD}{use}\n"}, LIGHTNING.replace("gpu", "auto")) == []


def test_what_hydra_instantiates_with_a_device(project: ProjectFolder, cli: Cli) -> None:
    main = HYDRA.replace("torch.ones(1).to(cfg.model.device)", "net = hydra.utils.instantiate(cfg.model)")
    files = {"main.py": main, "conf/base.yaml": "defaults:\n  - model: small\n"}
    small = "_target_: net.Net\ndevice: cuda\n"
    assert findings(project, {**files, "conf/model/small.yaml": small}) == ["DF207 None"]
    shown = cli("check", "--output-format", "concise", ".").stdout
    assert "main.py:7:35: DF207 `cfg.model` can pass `cuda` (set in conf/model/small.yaml, line 2)" in shown


@pytest.mark.parametrize(("name", "expected"), [("../set.yaml", ["DF207 safe"]), ("../../set.yaml", [])])
def test_a_path_stays_in_the_work_tree(project: ProjectFolder, name: str, expected: list[str]) -> None:
    main = LOAD.replace("config.yaml", name) + 'torch.ones(1).to(config["model"]["device"])\n'
    (project.path.parent / "set.yaml").write_text(YAML)
    files = {"set.yaml": YAML, "other.py": "", "source/main.py": main}
    assert findings(project, files) == expected
