"""What the comparisons of `bowwave explain` with the models share: options, traces as CSV, calls, and the first difference."""

import argparse
import itertools
import json
import subprocess
import sys

from model_ondemand import HEADER


def parser_of(document, count, traces="traces"):
    """A parser of the options that each comparison has, for a program with this documentation."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to check")
    parser.add_argument("-n", type=int, default=count, help=f"how many {traces}")
    parser.add_argument("--seed", type=int, default=0, help="the first trace's seed; each next one has the next")
    parser.add_argument("--print", action="store_true", help="write the trace of --seed instead of comparing")
    return parser


def csv_of(rows, tick=1):
    """A trace whose rows, without time, are `tick` apart."""
    return csv_of_timed((time * tick, *row) for time, row in enumerate(rows))


def csv_of_timed(rows):
    return "\n".join([",".join(HEADER), *(",".join(map(str, row)) for row in rows)]) + "\n"


def decisions(command, text, where=""):
    """What a call of explain prints for a trace, or exits with `where` and what it says."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{where}{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def same(expected, found, where):
    """The number of decisions; exits with the first that differs, and `where`, which may depend on it."""
    for number, (want, got) in enumerate(itertools.zip_longest(expected, found)):
        if want != got:
            place = where(number, want or got) if callable(where) else where
            sys.exit(f"{place}:\n  model   {json.dumps(want)}\n  explain {json.dumps(got)}")
    return len(expected)
