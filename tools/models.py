#!/usr/bin/env python3
"""The models that `bowwave explain` is compared with, by the name of the policy.

As a program it prints the decisions of a model on a trace, as `bowwave explain TRACE --policy P --json` does:

    tools/models.py trace.csv --policy ondemand --ra-pages 32
"""

import argparse
import csv
import json
import sys

import model_legacy
import model_ondemand
import model_range

MODELS = {policy: module.Model
          for module in (model_ondemand, model_legacy, model_range) for policy in module.POLICIES}
POLICIES = tuple(MODELS)
# Policies that handle mapped faults.
MAPPED = model_range.POLICIES


def model(policy, ra_pages, file_pages):
    """A fresh model of a policy."""
    return MODELS[policy](policy, ra_pages, file_pages)


def rows(lines):
    """The rows of a trace, parsed."""
    reader = csv.reader(lines)
    if next(reader, None) != model_ondemand.HEADER:
        raise ValueError(f"the first line must be {','.join(model_ondemand.HEADER)}")
    for _time, pid, op, name, offset, length in reader:
        yield int(pid), op, name, int(offset), int(length)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", help="CSV, - for standard input")
    parser.add_argument("--policy", choices=POLICIES, required=True)
    parser.add_argument("--ra-pages", type=int, default=32)
    parser.add_argument("--file-pages", type=int)
    options = parser.parse_args()
    decide = model(options.policy, options.ra_pages, options.file_pages)
    with sys.stdin if options.trace == "-" else open(options.trace, newline="", encoding="utf-8") as lines:
        for row in rows(lines):
            for decision in decide.access(*row):
                print(json.dumps(decision, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
