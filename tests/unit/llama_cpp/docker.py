"""A stand-in for Docker that keeps images in a folder, for scripts and commands that are run for real.

``$DOCKER_STATE`` is that folder: ``tags.json`` (tag → ID), ``images/ID`` (the commit of its label, and the root file system),
``told`` (every command). ``build`` makes what lies in ``built``, if anything does, and prints what stands in ``says``;
``built_by`` is how it was asked to. With a file ``dead`` it does not answer, and with
``starts_nothing`` no container starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = r"""
import json, os, re, shutil, subprocess, sys
from pathlib import Path

state = Path(os.environ["DOCKER_STATE"])
words = sys.argv[1:]
with (state / "told").open("a") as told:
    told.write(" ".join(words) + "\n")
kept = state / "tags.json"
tags = json.loads(kept.read_text()) if kept.exists() else {}
images = {folder.name: folder for folder in (state / "images").glob("*")}


def end(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(1)


def identity(name):
    found = tags.get(name, name)
    if found not in images:
        end(f"Error: No such image: {name}")
    return found


def write(new):
    kept.write_text(json.dumps(new))


if (state / "dead").exists():
    end("Cannot connect to the Docker daemon")
if words[:2] == ["image", "inspect"]:
    template = words[words.index("--format") + 1] if "--format" in words else ""
    found = identity(words[-1])
    line = template.replace("{{.Id}}", found)
    print(re.sub(r"{{index [^}]*revision\"}}", (images[found] / "commit").read_text(), line))
elif words[:2] == ["image", "tag"]:
    write(tags | {words[3]: identity(words[2])})
elif words[:2] == ["image", "rm"]:
    for name in words[2:]:
        found = identity(name)
        tags.pop(name, None)
        if found not in tags.values():
            shutil.rmtree(images[found])
    write(tags)
elif words[0] == "pull":
    end(f"Error response from daemon: pull access denied for {words[-1]}")
elif words[0] == "build":
    (state / "built_by").write_text(f"{os.environ['BUILDX_BUILDER']} {os.environ['DOCKER_BUILDKIT']}")
    print((state / "says").read_text(), end="", file=sys.stderr)
    if not (state / "built").exists():
        end("ERROR: failed to solve")
    found = (state / "built" / "id").read_text()
    shutil.copytree(state / "built", state / "images" / found, dirs_exist_ok=True)
    write(tags | {words[words.index("--tag") + 1]: found})
elif words[0] == "save":
    found = identity(words[1])
    archive = subprocess.run(["tar", "-C", images[found], "-c", "."], stdout=subprocess.PIPE, check=True).stdout
    sys.stdout.buffer.write(words[1].encode() + b"\n" + archive)
elif words[0] == "load":
    name, _, archive = sys.stdin.buffer.read().partition(b"\n")
    new = state / "new"
    new.mkdir()
    subprocess.run(["tar", "-C", new, "-x"], input=archive, check=True)
    found = (new / "id").read_text() + os.environ.get("DOCKER_STORE", "")
    (new / "id").write_text(found)
    new.rename(state / "images" / found)
    write(tags | {name.decode(): found})
elif words[0] == "run":
    if (state / "starts_nothing").exists():
        end("docker: Error response from daemon: no such device.\n\nRun 'docker run --help' for more information")
    found = identity(words[words.index("-c") - 1])
    inside = words[-1].replace(os.environ.get("HOST_ROOT", "//none"), str(images[found] / "root"))
    sys.exit(subprocess.run(["sh", "-c", inside]).returncode)
elif words[0] != "version":
    end(f"unknown: {words}")
"""


def put(folder: Path) -> Path:
    """Make the program ``docker`` in a folder; its state is the folder ``state`` beside.

    :return: the state
    """
    program = folder / "docker"
    program.write_text(f"#!{sys.executable}\n{SOURCE}")
    program.chmod(0o755)
    state = folder / "state"
    (state / "images").mkdir(parents=True)
    (state / "says").write_text("")
    return state


def make_image(folder: Path, identity: str, commit: str) -> Path:
    """Make what an image is made of.

    :return: its root file system
    """
    root = folder / "root"
    root.mkdir(parents=True)
    (folder / "id").write_text(identity)
    (folder / "commit").write_text(commit)
    return root
