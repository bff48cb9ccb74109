"""`milepost files`: the files that were saved with a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any

from milepost.checkpoint.output_files import write_files
from milepost.series.files import file_sizes, read_files
from milepost.tools import amounts
from milepost.tools.arguments import SUCCESS, add_checkpoint, add_command, add_json
from milepost.tools.fitting import Column
from milepost.tools.named import open_named
from milepost.tools.paths import typed_path
from milepost.tools.terminal import line, note, print_json, shown, table


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "files",
        run,
        "list the files that were saved with a checkpoint, such as those of a tokenizer, or write them into a directory",
        ["milepost files ./run", "milepost files ./run/ckpt-450 --to ./restored"],
        {0: "the files are listed or written; there may be none"},
        "A file that exists in DIRECTORY with the same bytes stays. One with others is not replaced, and then nothing is written.",
    )
    add_checkpoint(command)
    command.add_argument(
        "--to", metavar="DIRECTORY", type=typed_path, help="write the files below this directory, under their names"
    )
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    with open_named(options.checkpoint) as reader:
        sizes, path = file_sizes(reader), reader.prefix
        if options.to is not None:
            write_files(read_files(reader), options.to)
    if options.json:
        print_json({"checkpoint": path, "files": sizes, "to": options.to})
    elif not sizes:
        note(f"{shown(path)}: no files were saved with it")
    elif options.to is not None:
        counted = f"{amounts.plural(len(sizes), 'file')}, {amounts.size(sum(sizes.values()))}"
        line(f"{counted}, written to {shown(options.to)}")
    else:
        table(
            [Column("BYTES", right=True), Column("NAME", style="cyan", folds=True)],
            [[str(size), shown(name)] for name, size in sizes.items()],
        )
    return SUCCESS
