#!/usr/bin/env python3
"""Writes docs/python-api.md from the docstrings of the Python package.

    tools/python_api.py [--check]

The package is the one that Python imports: `tools/python_tests.sh` stages it in target/python. With --check, nothing is
written, and the status is 1 if the page differs.
"""

import argparse
import functools
import importlib
import inspect
import os
import re
import sys
import textwrap

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "python-api.md")
#: Modules, and the names that are documented: those of `__all__`, or these.
MODULES = {
    "bowwave": None,
    "bowwave.fsspec": ["BowwaveFileSystem", "BowwaveCache"],
    "bowwave.parquet": ["plan", "read_chunks", "Chunk"],
    "bowwave.safetensors": ["load_file", "safe_open", "Tensor"],
    "bowwave.gguf": ["Model", "Tensor"],
    "bowwave.arrow": ["plan", "read_blocks", "Block"],
    "bowwave.hdf5": ["open"],
    "bowwave.tar": ["shards"],
    "bowwave.torch": ["Files", "PlannedSampler"],
    "bowwave.zarr": ["Store"],
}
#: The begin of the page.
HEAD = """# The Python package, call by call

`tools/python_api.py` writes this page from the docstrings, and a test compares both. The
[guide](guide-python.md) has the examples.
"""


def text_of(thing):
    # Docstrings of modules are not indented: `cleandoc` would take the indentation of their examples for their own.
    return (thing.__doc__ or "").strip() if inspect.ismodule(thing) else inspect.cleandoc(thing.__doc__ or "")


def signature_of(thing):
    try:
        # The metaclass of fsspec's classes hides their arguments.
        hides = inspect.isclass(thing) and type(thing).__call__ is not type.__call__
        signature = inspect.signature(thing.__init__ if hides else thing)
    except (TypeError, ValueError):
        return "(…)"
    # Annotations are text: without the quotes.
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature).replace("(self, ", "("))
    return re.sub(r"ForwardRef\('?([^()']+)'?\)", r"\1", text)


def call_of(name, thing):
    """A call, broken after commas."""
    glued = "\u00a0"
    text = f"{name}{signature_of(thing)}".replace(" ", glued).replace(f",{glued}", ", ")
    lines = textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [line.replace(glued, " ") for line in lines]


def wrapped(text):
    """Paragraphs at 100 characters; examples stay as they are."""
    out = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].startswith(" "):
            sys.exit(f"an example that is no doctest, so that no test runs it: {lines[0].strip()}")
        if lines and lines[0].startswith(">>>"):
            out.append("```python\n" + paragraph + "\n```")
        else:
            out.append("\n".join(textwrap.wrap(" ".join(line.strip() for line in lines), 100, break_long_words=False,
                                               break_on_hyphens=False)))
    return "\n\n".join(out)


def members_of(thing):
    # With those of files, which a class shares with others.
    shared = [base for base in thing.__mro__ if base is thing or base.__name__ == "Watched"]
    for name, member in (pair for base in shared for pair in vars(base).items()):
        if name.startswith("_"):
            continue
        is_property = isinstance(member, property | functools.cached_property)
        function = getattr(member, "fget", None) or getattr(member, "func", None) or member
        if text_of(function) and (inspect.isroutine(function) or is_property):
            arguments = len(inspect.signature(function).parameters) > 1
            yield name if is_property else f"{name}(…)" if arguments else f"{name}()", function


def lines_of(name, thing):
    if not inspect.isclass(thing) and not callable(thing):
        return [f"### `{name}`", "", f"`{thing!r}`", ""]
    out = [f"### `{name}`", "", "```python", *call_of(name, thing), "```", ""]
    out += [wrapped(text_of(thing)), ""]
    if inspect.isclass(thing):
        rows = []
        for member, function in members_of(thing):
            first = " ".join(text_of(function).split("\n\n")[0].split()).replace("|", "\\|")
            rows.append(f"| `{member}` | {first} |")
        if rows:
            out += ["| member | |", "|---|---|", *rows, ""]
    return out


def page():
    out = [HEAD]
    for module_name, names in MODULES.items():
        module = importlib.import_module(module_name)
        names = names or module.__all__
        out += [f"## {module_name}", ""]
        if module_name != "bowwave":
            out += [wrapped(text_of(module)), ""]
        for name in names:
            out += lines_of(name, getattr(module, name))
    return "\n".join(out).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    new = page()
    if options.check:
        with open(PAGE, encoding="utf-8") as file:
            if file.read() != new:
                sys.exit("docs/python-api.md is stale: run tools/python_api.py")
        return
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(new)


if __name__ == "__main__":
    main()
