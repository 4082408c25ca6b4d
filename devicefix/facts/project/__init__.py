"""Answer questions about all files of a project together, and record the answers.

In the order in which they need one another: `file` holds one file, `questions` records the answers,
`files` follows imports, `classes`, `names`, `values` and `compiled` combine the exports of the files, each of
one sort, and `project` is all of them.
"""

from devicefix.facts.project.file import TREES, ProjectFile
from devicefix.facts.project.files import candidates
from devicefix.facts.project.project import Project
from devicefix.facts.project.questions import Answers

__all__ = ["TREES", "Answers", "Project", "ProjectFile", "candidates"]
