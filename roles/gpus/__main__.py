"""Says what GPUs a pasted lspci text shows, as JSON."""

from __future__ import annotations

import argparse
import codecs
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roles.gpus.catalog import load
from roles.gpus.gpu import gpus_of
from roles.gpus.lspci import parse

_ABOUT = """\
Say what GPUs a text of lspci shows: what they are, and how their PCI Express links are. The text may be of any version of lspci,
and hold other lines; most is in what `lspci -nn -vv` prints as root, bridges included.

Prints one JSON list with all GPUs of all FILEs, each with the name of its file; a text without a GPU adds none."""


def main(arguments: Sequence[str]) -> int:
    """:return: 0, or 2 where a file cannot be read as text"""
    parser = argparse.ArgumentParser(
        prog="python -m roles.gpus", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a text that lspci printed, or - for standard input")
    gpus: list[dict[str, Any]] = []
    for file in parser.parse_args(arguments).files:
        try:
            text = _read(file)
        except (OSError, ValueError) as error:
            print(f"{file}: {error.strerror if isinstance(error, OSError) else error}", file=sys.stderr)
            return 2
        gpus += [{"file": file, **asdict(gpu)} for gpu in gpus_of(parse(text), load())]
    print(json.dumps(gpus, indent=2), flush=True)
    return 0


def _read(file: str) -> str:
    """:raises ValueError: it is not text"""
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    # PowerShell writes UTF-16. What counts in the text is ASCII, so that letters in some older encoding do not matter.
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    text = content.decode(encoding, errors="replace")
    if "\0" in text:
        raise ValueError("this is not text: give what lspci printed")
    return text


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        # Who reads the output has seen enough; without this Python complains again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
