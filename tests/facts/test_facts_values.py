"""`devicefix.facts.values`: what an expression is, as a device."""

from __future__ import annotations

import ast

import pytest

from devicefix.facts import Facts, values


def parsed(code: str) -> tuple[Facts, ast.expr]:
    """Return the facts of a module and the expression that is its last statement."""
    facts = Facts.read(f"import torch\n{code}\n".encode())
    statement = facts.tree.module.body[-1]
    assert isinstance(statement, ast.Expr)
    return facts, statement.value


@pytest.mark.parametrize(
    ("name", "device", "devices", "index"),
    [
        ("device", True, False, False),
        ("dev", True, False, False),
        ("torch_device", True, False, False),
        ("map-device", True, False, False),
        ("device_name", True, False, False),
        ("devicestr", True, False, False),
        ("my_Device", True, False, False),
        ("device_type", False, False, False),
        ("devil", False, False, False),
        ("deviceful", False, False, False),
        ("devices", False, True, False),
        ("device_list", False, True, False),
        ("mydevices", False, False, False),
        ("gpu", False, False, True),
        ("local_rank", False, False, True),
        ("local-rank", False, False, True),
        ("gpu_id", False, False, True),
        ("cuda_idx", False, False, True),
        ("device_index", False, False, True),
        ("cuda", False, False, False),
        ("ranking", False, False, False),
        ("use_gpus", False, False, False),
    ],
)
def test_names(name: str, device: bool, devices: bool, index: bool) -> None:
    found = values.device_name(name), values.devices_name(name), values.index_name(name)
    assert found == (device, devices, index)


@pytest.mark.parametrize(("code", "expected"), [("a", "a"), ("a.b.c", "c"), ("a()", ""), ("a().b", "b")])
def test_last_name(code: str, expected: str) -> None:
    assert values.last_name(parsed(code)[1]) == expected


@pytest.mark.parametrize(
    ("code", "literal", "string"),
    [
        ("'cuda'", None, True),
        ("'cuda:0'", 0, True),
        ("'cuda:12'", 12, True),
        ("'cuda:'", "no", False),
        ("'cuda:x'", "no", False),
        ("'cudart'", "no", False),
        ("'cpu'", "no", False),
        ("b'cuda'", "no", False),
        ("f'cuda:{i}'", "no", True),
        ("f'cuda{i}'", "no", True),
        ("f'cuda:{i}{j}'", "no", False),
        ("f'gpu:{i}'", "no", False),
        ("'cuda:%d' % i", "no", True),
        ("'cuda:%s' % i", "no", True),
        ("'cuda:' + i", "no", True),
        ("'cuda' + i", "no", True),
        ("'cuda_x' + i", "no", False),
        ("'cuda:' * 2", "no", False),
        ("'cuda:{}'.format(i)", "no", True),
        ("'cuda:{0}'.format(i)", "no", True),
        ("'cuda is {}'.format(i)", "no", False),
        ("x", "no", False),
    ],
)
def test_strings(code: str, literal: int | str | None, string: bool) -> None:
    node = parsed(code)[1]
    assert (values.cuda_literal(node), values.cuda_string(node)) == (literal, string)


@pytest.mark.parametrize(
    ("code", "cpu", "cuda"),
    [
        ("'cpu'", True, False),
        ("torch.device('cpu')", True, False),
        ("torch.device()", False, False),
        ("device('cpu')", False, False),
        ("'cuda:1'", False, True),
        ("torch.device('cuda')", False, True),
        ("torch.device(f'cuda:{i}')", False, True),
        ("torch.device(0)", False, True),
        ("torch.device(-1)", False, False),
        ("torch.device(args.local_rank)", False, False),
        ("torch.device(args.device)", False, False),
        ("torch.device(type='cuda')", False, True),
        ("other.device('cuda')", False, False),
        ("x", False, False),
    ],
)
def test_devices(code: str, cpu: bool, cuda: bool) -> None:
    facts, node = parsed(code)
    assert (values.cpu(facts, node), values.cuda_device(facts, node)) == (cpu, cuda)


@pytest.mark.parametrize(
    ("code", "index"),
    [("0", 0), ("7", 7), ("-1", None), ("True", None), ("1.0", None), ("'0'", None), ("x", None)],
)
def test_literal_index(code: str, index: int | None) -> None:
    node = parsed(code)[1]
    assert values.literal_index(node) == index
    assert values.integer(node) is (index is not None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("'cuda' if x else 'cpu'", ("x", "'cuda'", "'cpu'")),
        ("'cpu' if x else 'cuda'", ("x", "'cuda'", "'cpu'")),
        ("a if x else b", None),
        ("'cuda'", None),
    ],
)
def test_choice(code: str, expected: tuple[str, str, str] | None) -> None:
    facts, node = parsed(code)
    arms = values.choice(facts, node)
    assert (arms and tuple(map(ast.unparse, arms))) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("'cuda'", True),
        ("'cuda:0'", False),
        ("'cpu'", False),
        ("'cuda' if x else 'cpu'", True),
        ("'cuda:1' if x else 'cpu'", False),
        ("'cuda' if x else 'mps'", False),
        ("torch.device('cuda')", True),
        ("torch.device('cuda', 0)", False),
        ("torch.device('cuda' if x else 'cpu')", True),
        ("d = 'cuda'\nd", True),
        ("d = 'cuda'\nd = 'cpu'\nd", False),
        ("d = e\ne = 'cuda'\nd", True),
        ("d = d\nd", False),
        ("torch.accelerator.current_accelerator()", True),
        ("torch.accelerator.current_accelerator().type", True),
        ("torch.cuda.current_device()", False),
        ("x", False),
    ],
)
def test_current_device(code: str, expected: bool) -> None:
    facts, node = parsed(code)
    assert values.current_device(facts, node) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("'cu' + 'da'", True),
        ("'CUDA'.lower()", True),
        ("':'.join(('cuda', '0'))", True),
        ("''.join(['cuda:', str(i)])", True),
        ("'%s' % 'cuda'", True),
        ("'%s:%d' % ('cuda', 0)", True),
        ("'{}:{}'.format('cuda', i)", True),
        ("f'cuda'", True),
        ("f'{\"cuda\"}:{i}'", True),
        ("str('cuda')", True),
        ("'cuda' + '_kernel'", False),
        ("'cu' + x", False),
        ("'%s' % x", False),
        ("'{:d}'.format(0)", False),
        ("','.join(names)", False),
    ],
)
def test_a_string_that_is_put_together(code: str, expected: bool) -> None:
    assert values.cuda_string(parsed(code)[1]) is expected
