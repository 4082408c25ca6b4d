"""Fixes of whole statements, from a file's bytes to its new bytes."""

from __future__ import annotations

from textwrap import dedent

import pytest

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile

HEAD = "import torch\n\n"
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'

FIXES = {
    "a move with arguments on several lines": (
        """
        def run(self, x):
            x = torch.from_numpy(x).cuda(self.get_device(),
                                         non_blocking=True)
        """,
        """
        def run(self, x):
            x = torch.from_numpy(x)
            if torch.cuda.is_available():
                x = x.cuda(self.get_device(), non_blocking=True)
        """,
    ),
    "a move with arguments on several lines and a comment": (
        """
        def run(self, y):
            x = f(y).cuda(self.get_device(),  # where
                                         non_blocking=True)
        """,
        """
        def run(self, y):
            x = f(y).cuda(self.get_device(),  # where
                                         non_blocking=True) if torch.cuda.is_available() else f(y)
        """,
    ),
    "a refusal in an elif": (
        """
        if a:
            run(1)
        elif not torch.cuda.is_available():
            raise OSError("no GPU")
        else:  # or else
            run(2)
        """,
        """
        if a:
            run(1)
        else:  # or else
            run(2)
        """,
    ),
    "a refusal in an elif beside the word else": (
        """
        if a: run("else")
        elif a == "else": run(3)
        elif (not torch.cuda.is_available()
              ):  # why else
            # else
            raise OSError("else")
        # before else
        else:

            run(2)
        """,
        """
        if a: run("else")
        elif a == "else": run(3)
        # before else
        else:

            run(2)
        """,
    ),
    "a refusal with comments": (
        """
        def main(x):
            # check
            if not torch.cuda.is_available():  # no GPU?
                # then stop
                raise OSError  # here
                # end
            # go on
            return x
        """,
        """
        def main(x):
            # go on
            return x
        """,
    ),
    "a string over several lines in a call": (
        "\n        class A:\n            def f(self, x):\n                if torch.cuda.is_available():\n"
        '                    run(x,\n                        """a\n        text""",\n'
        "                         1)\n                    # end\n                else:\n"
        "                    raise OSError\n                # after\n                return x\n        ",
        "\n        class A:\n            def f(self, x):\n                run(x,\n"
        '                    """a\n        text""",\n                     1)\n                # end\n'
        "                # after\n                return x\n        ",
    ),
    "an assert in an else": (
        """
        for i in xs:
            if i:
                run(i)
            else:
                assert torch.cuda.is_available()
        """,
        """
        for i in xs:
            if i:
                run(i)
        """,
    ),
    "guards that are all of an else": (
        """
        def wait(kind, on):
            if kind == "mps":
                torch.mps.synchronize()
            # or else
            else:  # CUDA
                # first
                torch.cuda.synchronize()  # now
                torch.cuda.reset_peak_memory_stats()
            if on: print(kind)
            elif kind: print(on)
            else: torch.cuda.synchronize()
            if on:
                torch.cuda.synchronize()
            else:
                print(kind)
                torch.cuda.synchronize()
        """,
        """
        def wait(kind, on):
            if kind == "mps":
                torch.mps.synchronize()
            # or else
            elif torch.cuda.is_available():  # CUDA
                # first
                torch.cuda.synchronize()  # now
                torch.cuda.reset_peak_memory_stats()
            if on: print(kind)
            elif kind: print(on)
            elif torch.cuda.is_available(): torch.cuda.synchronize()
            if on:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
            else:
                print(kind)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
        """,
    ),
    "a condition of all arms of a choice, or of some": (
        """
        a = x.to(f"cuda:{i}" if i else "cuda")
        b = x.to("cuda:1" if i else "cuda:2" if j else "cuda:3")
        c = x.to(("cuda:1" if i else "cuda:2") if j else y.device)
        d = x.to("cuda:1" if todo.pop() else "cuda")
        """,
        """
        a = x.to((f"cuda:{i}" if i else "cuda") if torch.cuda.is_available() else "cpu")
        b = x.to(("cuda:1" if i else "cuda:2" if j else "cuda:3") if torch.cuda.is_available() else "cpu")
        c = x.to((("cuda:1" if i else "cuda:2") if torch.cuda.is_available() else "cpu") if j else y.device)
        d = x.to(
            ("cuda:1" if torch.cuda.is_available() else "cpu")
            if todo.pop()
            else ("cuda" if torch.cuda.is_available() else "cpu")
        )
        """,
    ),
    "a guard in a file of tabs": (
        "\nfor i in x:\n\ttorch.cuda.synchronize()\n",
        "\nfor i in x:\n\tif torch.cuda.is_available():\n\t\ttorch.cuda.synchronize()\n",
    ),
    "the comments of a branch": (
        """
        def main():
          if torch.cuda.is_available():  # there is one
            # the first
            run(
              1,
                2)
            # done
          else:  # there is none
            # so stop
            raise OSError
            # and that's it
          # goodbye
          stop()
        """,
        """
        def main():
          # there is one
          # the first
          run(
            1,
              2)
          # done
          # goodbye
          stop()
        """,
    ),
    "a guard in a file of two spaces": (
        """
        def main():
          for a in b:
            torch.cuda.set_device(1)  # why
            torch.cuda.synchronize()
        """,
        """
        def main():
          for a in b:
            if torch.cuda.is_available():
              torch.cuda.set_device(1)  # why
              torch.cuda.synchronize()
        """,
    ),
    "an assert between blank lines": (
        """
        a = 1

        assert torch.cuda.is_available()

        run(a)
        """,
        """
        a = 1

        run(a)
        """,
    ),
    "an assert that is the body of an if": (
        """
        if args.train:
            assert torch.cuda.is_available()
        run()
        """,
        """
        run()
        """,
    ),
    "two asserts that are the body of a function": (
        """
        def check():
            assert torch.cuda.is_available()
            assert torch.cuda.is_available(), "no GPU"
        """,
        """
        def check():
            pass
        """,
    ),
    "an assert and a refusal in one block": (
        """
        if args.train:
            assert torch.cuda.is_available()
            if not torch.cuda.is_available():
                raise OSError  # why
        run()
        """,
        """
        run()
        """,
    ),
    "a refusal before another choice": (
        """
        if not torch.cuda.is_available():
            sys.exit(1)
        elif a:  # why
            run(1)
        else:
            run(2)
        """,
        """
        if a:  # why
            run(1)
        else:
            run(2)
        """,
    ),
}

WITH_DEVICE = {
    "a guard that moves": (
        """
        def move(x):
            if torch.cuda.is_available():
                # there
                x = x.cuda(  # to it
                    non_blocking=True)
                # done

            return x
        """,
        """
        def move(x):
            # there
            x = x.to(  # to it
                device, non_blocking=True)
            # done

            return x
        """,
    ),
    "a choice that moves": (
        """
        y = (x.cuda()  # there
             if torch.cuda.is_available() else x)
        """,
        """
        y = (x.to(device)  # there
             )
        """,
    ),
    "a choice in an argument that moves": (
        """
        y = f(x.cuda() if torch.cuda.is_available()  # if so
              else x,  # else
              2)
        """,
        """
        y = f(x.to(device)  # if so
              ,  # else
              2)
        """,
    ),
}


def fixed(text: str) -> str:
    data = text.encode()
    settings = Settings(fix=True, unsafe_fixes=True)  # what refuses under a condition may be right
    result = check_file(data, "m.py", settings, Project([ProjectFile(data, "m.py")]))
    return (result.output or data).decode()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", FIXES)
def test_a_statement_is_fixed(name: str, newline: str) -> None:
    before, after = (f"{HEAD}{dedent(text).lstrip()}".replace("\n", newline) for text in FIXES[name])
    assert fixed(before) == after
    assert fixed(after) == after


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_a_statement_is_fixed_with_a_device(name: str) -> None:
    before, after = (dedent(text).lstrip() for text in WITH_DEVICE[name])
    other = "\nz.{}\n"  # without which the guard would stay
    assert (
        fixed(f"{HEAD}{before}{other.format('cuda()')}")
        == f"{HEAD}{DEVICE}{after}{other.format('to(device)')}"
    )


def test_a_device_is_defined_above_the_comment_of_the_first_statement() -> None:
    before = (
        "import os\nimport torch\n\n\n"
        "def main():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n    move(1)\n\n\n"
        "def move(x):\n    # the first\n    x = make(x).cuda()\n"
    )
    assert "def move(x):\n    device = torch.device(" in fixed(before)
    assert "\n    # the first\n    x = make(x).to(device)\n" in fixed(before)


@pytest.mark.parametrize(
    "code",
    [
        "x.cuda((  # why\n    0))",
        "torch.Tensor.cuda(  # why\n    x)",
        "torch.zeros(3).pin_memory(  # why\n    )",
        "getattr(x,  # why\n    'cuda')()",
    ],
)
def test_a_fix_that_would_lose_a_comment_is_not_offered(code: str) -> None:
    data = f"{HEAD}y = {code}\n".encode()
    result = check_file(data, "m.py", Settings(fix=True), Project([ProjectFile(data, "m.py")]))
    (finding,) = result.findings
    assert finding.message.endswith(
        "(not fixed because the fix would remove a comment; move the comment first)"
    )
    assert result.output is None


def test_a_fix_that_keeps_a_comment_is_offered() -> None:
    assert "y = x.to(  # why\n    device)\n" in fixed(f"{HEAD}y = x.cuda(  # why\n    None)\n")


@pytest.mark.parametrize(
    "clause",
    ["elif not torch.cuda.is_available():\n    raise OSError", "else:\n    assert torch.cuda.is_available()"],
)
def test_a_clause_goes_at_the_end_of_a_file_without_a_line_end(clause: str) -> None:
    before = f"import torch\nif x:\n    run(1)\n{clause}"
    assert fixed(before) == "import torch\nif x:\n    run(1)\n"
