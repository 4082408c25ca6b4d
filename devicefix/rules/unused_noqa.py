from __future__ import annotations

from devicefix.facts.comments import UNUSED
from devicefix.rules.base import Changed, Rule


class UnusedNoqa(Rule):
    """
    ## What it does
    Reports a `# noqa` comment that names a code of devicefix which is not found on its line, or which no rule
    has. Codes of other tools in the same comment are left alone, and so is a `# noqa` that names none. Of rules
    that are off, nothing is said.

    ## Why it matters
    What the comment has silenced is gone; what comes next to that line would be silenced unseen. It is off by
    default, as in ruff: select it with `--extend-select DF001`, best after a rewrite.

    ## Example
    ```python
    x = x.to(device)  # noqa: DF101, E501
    ```

    ## Use instead
    ```python
    x = x.to(device)  # noqa: E501
    ```

    ## Fix safety
    Safe: only the comment changes. The words that follow the codes are taken for their reason, and go with the
    last of them. What one file says can depend on the others, so give all files of a program at once. To keep
    a comment as it is, name DF001 in it as well.
    """

    code = UNUSED
    name = "unused-noqa"
    summary = "A `noqa` comment names a rule that finds nothing there"
    default = False

    MATCHES = (
        Changed("x = 1  # noqa: DF101\n", "x = 1\n"),
        Changed("x = 1  # noqa: F401, DF101\n", "x = 1  # noqa: F401\n"),
        Changed("x = 1  # noqa:DF101,E501,DF102 why\n", "x = 1  # noqa:E501 why\n"),
        Changed("x = 1  # noqa: DF101 since it is so\n", "x = 1\n"),
        Changed("x = 1  # noqa: DF101  # type: ignore\n", "x = 1  # type: ignore\n"),
        Changed("x = 1  # type: ignore # noqa: DF101\n", "x = 1  # type: ignore\n"),
        Changed("if x:\n    # noqa: DF101\n    pass\n", "if x:\n    pass\n"),
        Changed("x = 1  # noqa: DF999\n", "x = 1\n"),
        Changed("x = 1  # noqa: DF1\n", "x = 1\n"),
        Changed('x = """\n"""  # noqa: DF101\n', 'x = """\n"""\n'),
        Changed("x = x.cuda()  # noqa: DF101, DF102\n", "x = x.cuda()  # noqa: DF101\n"),
    )
    LEAVES = (
        "x = 1  # noqa\n",
        "x = 1  # noqa: F401, ACME1\n",
        "x = 1  # noqa: DF101, DF001\n",
        "x = x.cuda()  # noqa: DF101\n",
        "x = x.cuda(\n)  # noqa: DF101\n",
        "x = x.cuda() + \\\n    1  # noqa: DF101\n",
        'x = x.cuda() + """\n"""  # noqa: DF101\n',
        'x = "# noqa: DF101"\n',
        '"""\nx = 1  # noqa: DF101\n"""\n',
    )
