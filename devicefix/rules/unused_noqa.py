from __future__ import annotations

from devicefix.facts.comments import UNUSED
from devicefix.rules.base import Example, Rule


class UnusedNoqa(Rule):
    """
    ## What it does
    Finds `# noqa` comments with a devicefix code that suppresses no finding on its line or belongs to no rule. The rule
    ignores other tools' codes, codes of disabled rules, and `# noqa` without codes.

    Enable this rule with `--extend-select DF001`.

    ## Why it matters
    Such a code may hide a new finding on its line.

    ## Example
    ```python
    x = x.to(device)  # noqa: DF101, E501
    ```

    ## Use instead
    ```python
    x = x.to(device)  # noqa: E501
    ```

    ## Fix safety
    The fix is safe: it changes only the comment. If the fix removes all codes, it also removes a reason after them.
    Because findings can depend on other files, check all of a program's files together. To exempt a comment, add
    `DF001` to it.
    """

    code = UNUSED
    name = "unused-noqa"
    summary = "A `noqa` code suppresses nothing"
    default = False

    INVALID = (
        Example(
            "a code that is not found in its line",
            before="""
                x = 1  # noqa: DF101
            """,
            after="""
                x = 1
            """,
        ),
        Example(
            "next to the code of another tool",
            before="""
                x = 1  # noqa: F401, DF101
            """,
            after="""
                x = 1  # noqa: F401
            """,
        ),
        Example(
            "between other codes, with a reason",
            before="""
                x = 1  # noqa:DF101,E501,DF102 why
            """,
            after="""
                x = 1  # noqa:E501 why
            """,
        ),
        Example(
            "a reason goes with the only code",
            before="""
                x = 1  # noqa: DF101 since it is so
            """,
            after="""
                x = 1
            """,
        ),
        Example(
            "a type comment follows",
            before="""
                x = 1  # noqa: DF101  # type: ignore
            """,
            after="""
                x = 1  # type: ignore
            """,
        ),
        Example(
            "a type comment comes first",
            before="""
                x = 1  # type: ignore # noqa: DF101
            """,
            after="""
                x = 1  # type: ignore
            """,
        ),
        Example(
            "a comment on its own line",
            before="""
                if x:
                    # noqa: DF101
                    pass
            """,
            after="""
                if x:
                    pass
            """,
        ),
        Example(
            "a code that no rule has",
            before="""
                x = 1  # noqa: DF999
            """,
            after="""
                x = 1
            """,
        ),
        Example(
            "a prefix of which nothing is found",
            before="""
                x = 1  # noqa: DF1
            """,
            after="""
                x = 1
            """,
        ),
        Example(
            "behind a string over several lines",
            before='''
                x = """
                """  # noqa: DF101
            ''',
            after='''
                x = """
                """
            ''',
        ),
        Example(
            "one of two codes is found",
            before="""
                x = x.cuda()  # noqa: DF101, DF102
            """,
            after="""
                x = x.cuda()  # noqa: DF101
            """,
        ),
    )
    VALID = (
        Example(
            "a noqa without codes",
            """
                x = 1  # noqa
            """,
        ),
        Example(
            "codes of other tools",
            """
                x = 1  # noqa: F401, ACME1
            """,
        ),
        Example(
            "a comment that silences this rule as well",
            """
                x = 1  # noqa: DF101, DF001
            """,
        ),
        Example(
            "a code that is found",
            """
                x = x.cuda()  # noqa: DF101
            """,
        ),
        Example(
            "at the end of a call over two lines",
            """
                x = x.cuda(
                )  # noqa: DF101
            """,
        ),
        Example(
            "at the end of a continued line",
            """
                x = x.cuda() + \\
                    1  # noqa: DF101
            """,
        ),
        Example(
            "behind a string that a found expression ends with",
            '''
                x = x.cuda() + """
                """  # noqa: DF101
            ''',
        ),
        Example(
            "inside a string",
            """
                x = "# noqa: DF101"
            """,
        ),
        Example(
            "inside a docstring",
            '''
                """
                x = 1  # noqa: DF101
                """
            ''',
        ),
    )
