"""Lines that fixes make too long: they break in front of an argument, as a person would break them."""

from __future__ import annotations

import pytest
from helpers import analyze

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile

MANY = 100 * "#\n"
IF = "torch.cuda.is_available()"

# Programs without `import torch`, before and after.
CASES = {
    "an argument that is added": (
        "state = torch.load(path_of_the_checkpoint_that_was_written_before)[0]\n",
        "state = torch.load(path_of_the_checkpoint_that_was_written_before,\n"
        f'                   map_location=None if {IF} else "cpu")[0]\n',
    ),
    "an argument that is added too far on the right": (
        "net.load_the_state_of_all_parts_at_once(torch.load(a_long_path_of_it), strict=False)\n",
        "net.load_the_state_of_all_parts_at_once(\n"
        f'    torch.load(a_long_path_of_it, map_location=None if {IF} else "cpu"), strict=False\n)\n',
    ),
    "an argument that gets longer": (
        'from library import place\nx = place(first_argument, second_argument, third, device=f"cuda:{k}")\n',
        "from library import place\nx = place(first_argument, second_argument, third,\n"
        f'          device=f"cuda:{{k}}" if {IF} else "cpu")\n',
    ),
    "an argument on a line of its own call": (
        "from library import place\n"
        'x = place(\n\tfirst_argument, second_one, the_third, device=f"cuda:{k}"\n)\n',
        "from library import place\nx = place(\n\tfirst_argument,\n\tsecond_one,\n\tthe_third,\n"
        f'\tdevice=f"cuda:{{k}}" if {IF} else "cpu",\n)\n',
    ),
    "a condition that has its own line in brackets": (
        "x = (\n    the_first_of_several_kinds"
        " if torch.cuda.get_device_capability()[0] >= 8 else the_second_kind\n)\n",
        f"x = (\n    the_first_of_several_kinds\n    if {IF} and torch.cuda.get_device_capability()[0] >= 8\n"
        "    else the_second_kind\n)\n",
    ),
    "the default of a parameter": (
        'def make(first_parameter, second_parameter, third_parameter, device="cuda"):\n'
        "    return torch.zeros(2, device=device)\n",
        "def make(first_parameter, second_parameter, third_parameter,\n"
        f'         device="cuda" if {IF} else "cpu"):\n    return torch.zeros(2, device=device)\n',
    ),
    "several arguments of one line": (
        "map_location = _map_location = 3\nuse(torch.load(first_path), torch.load(second_path), strict)\n",
        "map_location = _map_location = 3\n"
        f'use(torch.load(first_path, map_location=None if {IF} else "cpu"),\n'
        f'    torch.load(second_path, map_location=None if {IF} else "cpu"),\n    strict)\n',
    ),
    "an argument with others behind it": (
        "from library import place\n"
        'x = place(first_argument, device=f"cuda:{k}", third_argument=3, the_fourth_argument=4, fifth=5)\n',
        "from library import place\n"
        f'x = place(first_argument, device=f"cuda:{{k}}" if {IF} else "cpu",\n'
        "          third_argument=3, the_fourth_argument=4, fifth=5)\n",
    ),
    "an argument with a long rest of the line behind it": (
        "net = torch.load(path_of_the_checkpoint)[0].the_part_of_it.eval().requires_grad_(False)\n",
        "net = torch.load(\n    path_of_the_checkpoint,"
        f' map_location=None if {IF} else "cpu"\n)[0].the_part_of_it.eval().requires_grad_(False)\n',
    ),
    "the last call of a chain": (
        "y = torch.tensor(the_value, dtype=torch.int64, pin_memory=True).cuda(non_blocking=True)\n",
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
        "y = torch.tensor(the_value, dtype=torch.int64,\n"
        f"                 pin_memory={IF}).to(device, non_blocking=True)\n",
    ),
    "the first call of a chain": (
        "y = torch.tensor(the_first_value_of_all, dtype=torch.int64, pin_memory=True).cuda().view(1)\n",
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
        "y = torch.tensor(the_first_value_of_all, dtype=torch.int64,\n"
        f"                 pin_memory={IF}).to(device).view(1)\n",
    ),
    "a condition": (
        "event = torch.cuda.Event(enable_timing=True)\n"
        "elapsed_time_in_milliseconds = event.elapsed_time(event)\n",
        f"event = torch.cuda.Event(enable_timing=True) if {IF} else None\n"
        "elapsed_time_in_milliseconds = (\n"
        f'    event.elapsed_time(event) if {IF} else float("nan")\n)\n',
    ),
    "a condition in parentheses": (
        "event = torch.cuda.Event(enable_timing=True)\n"
        "seconds_of_all_steps = event.elapsed_time(event) / 1000\n",
        f"event = torch.cuda.Event(enable_timing=True) if {IF} else None\n"
        "seconds_of_all_steps = (\n"
        f'    event.elapsed_time(event) / 1000 if {IF} else float("nan")\n)\n',
    ),
    "a condition in a block": (
        "if distributed:\n    print()\n"
        '    flags = torch.device("cuda", torch.cuda.current_device())\nelse:\n'
        '    flags = torch.device("cpu")\n',
        "if distributed:\n    print()\n    flags = (\n"
        f'        torch.device("cuda", torch.cuda.current_device())\n        if {IF}\n'
        '        else torch.device("cpu")\n'
        '    )\nelse:\n    flags = torch.device("cpu")\n',
    ),
    "a condition that only starts with a parenthesis": (
        "resume_state = torch.load(path_of_the_state, map_location=lambda storage, loc: storage.cuda(k))\n",
        "resume_state = torch.load(\n    path_of_the_state,\n"
        f'    map_location=(lambda storage, loc: storage.cuda(k)) if {IF} else "cpu",\n)\n',
    ),
}


# The same in a file that a formatter has broken.
FORMATTED = {
    "arguments that fit on a line": (
        "state = torch.load(p, pickle_module=dill)\n",
        f'state = torch.load(\n    p, pickle_module=dill, map_location=None if {IF} else "cpu"\n)\n',
    ),
    "arguments that do not": (
        "state = torch.load(path_of_the_checkpoint_that_was_written, pickle_module=dill_or_more)\n",
        "state = torch.load(\n    path_of_the_checkpoint_that_was_written,\n    pickle_module=dill_or_more,\n"
        f'    map_location=None if {IF} else "cpu",\n)\n',
    ),
    "a lambda as an argument": (
        "x = torch.zeros(the_number_of_rows, out=choose, key=lambda one, other: one, device=f'cuda:{k}')\n",
        "x = torch.zeros(\n    the_number_of_rows,\n    out=choose,\n    key=lambda one, other: one,\n"
        f"    device=f'cuda:{{k}}' if {IF} else 'cpu',\n)\n",
    ),
    "below a definition that is new": (
        "state = torch.load(path_of_the_checkpoint_that_was_written, mmap=True)\nother = torch.load(path)\n",
        f'map_location = None if {IF} else "cpu"\n\nstate = torch.load(\n'
        "    path_of_the_checkpoint_that_was_written, mmap=True, map_location=map_location\n)\n"
        "other = torch.load(path, map_location=map_location)\n",
    ),
    "an argument that fits beside the longest of the others": (
        "state = torch.load(\n    path_of_the_checkpoint.with_suffix(suffix_of_it, and_one_more)\n)\n",
        "state = torch.load(\n    path_of_the_checkpoint.with_suffix(suffix_of_it, and_one_more),\n"
        f'    map_location=None if {IF} else "cpu",\n)\n',
    ),
    "an argument in the brackets of others": (
        "nets = {\n    name: parallel(net, device_ids=[get_the_rank_of_this_process()], find_unused=True)\n"
        "    for name in x\n}\nimport torch.nn.parallel\nnets = {\n"
        "    name: torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])\n    for name in x\n}\n",
        "nets = {\n    name: parallel(net, device_ids=[get_the_rank_of_this_process()], find_unused=True)\n"
        "    for name in x\n}\nimport torch.nn.parallel\nnets = {\n"
        "    name: torch.nn.parallel.DistributedDataParallel(\n"
        f"        net, device_ids=[rank] if {IF} else None\n    )\n    for name in x\n}}\n",
    ),
    "a comment for a tool": (
        "state = torch.load(path)  # nosec B614, pickles are our own\n",
        f'state = torch.load(path, map_location=None if {IF} else "cpu")'
        "  # nosec B614, pickles are our own\n",
    ),
}


def rewritten(source: str) -> str:
    output = analyze(source, fix=True).output
    assert output is not None
    return output.decode()


@pytest.mark.parametrize(("before", "after"), FORMATTED.values(), ids=FORMATTED)
def test_a_line_is_broken_as_formatters_do(before: str, after: str) -> None:
    formatted = "y = f(\n    1\n)\n" + MANY
    assert rewritten(f"import torch\n\n{before}{formatted}") == f"import torch\n\n{after}{formatted}"


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_that_gets_too_long_is_broken(before: str, after: str, newline: str) -> None:
    before, after = (f"import torch\n\n{text}{MANY}".replace("\n", newline) for text in (before, after))
    assert rewritten(before) == after


LONG = f"call({'x' * 70}, {'y' * 40}, torch.load(path))\n"


@pytest.mark.parametrize(
    ("line", "more", "lines"),
    [
        pytest.param(LONG, "", 5, id="it grows by a condition"),
        pytest.param(LONG, f"# {'-' * 200}\n" * 5, 8, id="the file has many lines as long as that"),
        pytest.param(LONG.replace("torch.load(path)", "net.cuda()"), "", 5, id="it grows little"),
    ],
)
def test_a_line_that_was_too_long_before_is_broken_if_it_grows_much(line: str, more: str, lines: int) -> None:
    assert len(rewritten(f"import torch\n\n{line}{more}").splitlines()) == lines


@pytest.mark.parametrize(
    ("code", "more", "lines"),
    [
        pytest.param("device = 'cuda'", "", 1, id="where a person puts it"),
        pytest.param(
            "device = 'cuda' ", "\nx = [\n    1\n]\n", 3, id="where formatters put it, which count it"
        ),
    ],
)
def test_a_comment_counts_only_for_formatters(code: str, more: str, lines: int) -> None:
    source = f"import torch\n\n{code} # {'-' * 100}\nnet.to(device)\n{more}"
    assert len(rewritten(source).splitlines()) == len(source.splitlines()) + lines - 1


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        pytest.param(MANY, 104, id="many short lines"),
        pytest.param(f"{MANY}# {'-' * 98}\n", 104, id="a longer line"),
        pytest.param("", 3, id="a short file, which shows no limit"),
    ],
)
def test_a_line_may_be_as_long_as_the_longest_of_the_file(more: str, lines: int) -> None:
    text = f"import torch\n\nx = torch.load(path_of_the_checkpoint)\n{more}"
    assert len(rewritten(text).splitlines()) == lines


@pytest.mark.parametrize(("length", "lines"), [(120, 3), (100, 4)])
def test_a_line_may_be_as_long_as_the_project_says(length: int, lines: int) -> None:
    source = b"import torch\n\nthe_state = torch.load(path, pickle_module=dill, mmap=True)\n"
    settings = Settings(fix=True, line_length=length)
    output = check_file(source, "m.py", settings, Project([ProjectFile(source, "m.py")])).output
    assert output is not None
    assert len(output.splitlines()) == lines
