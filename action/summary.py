"""Add the statistics of `devicefix check` to the job summary as a table, and print the number of findings."""

import json
import os
import sys

rules = json.load(sys.stdin)
total = sum(rule["count"] for rule in rules)

lines = ["### devicefix", ""]
if rules:
    lines += ["| Rule | Name | Findings | Safe fixes |", "| --- | --- | ---: | ---: |"]
    lines += ["| {code} | {name} | {count} | {fixable_count} |".format(**rule) for rule in rules]
else:
    lines += ["No ties to CUDA found."]

with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as summary:
    summary.write("\n".join([*lines, "", ""]))
print(total)
