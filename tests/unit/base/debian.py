"""A Debian in a folder: real apt, dpkg and gpg, with package sources, packages and keys of its own, and no network."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from roles.base import apt
from roles.base.apt import Apt, Record, Repository

RELEASE = "Origin: {origin}\nLabel: {origin}\nSuite: {suite}\nCodename: {suite}\nComponents: main\nArchitectures: amd64\n"


@dataclass(frozen=True)
class Key:
    """A signing key.

    :param file: the public key
    """

    home: Path
    fingerprint: str
    file: Path


def make_key(folder: Path, armoured: bool = True, lasts: str = "never") -> Key:
    """A new key in a new folder.

    :param lasts: e.g. ``seconds=1``
    """
    home = folder / "gnupg"
    home.mkdir(parents=True, mode=0o700)
    _gpg(home, "--quick-gen-key", "gpuquilt test", "ed25519", "sign", lasts)
    fingerprint = next(line.split(":")[9] for line in _gpg(home, "--with-colons", "-k").splitlines() if line.startswith("fpr"))
    file = folder / "key"
    _gpg(home, *(["--armor"] if armoured else []), "--output", str(file), "--export", fingerprint)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
    return Key(home, fingerprint, file)


def _gpg(home: Path, *arguments: str, given: str = "") -> str:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Ended:
    """What a script did: its exit status, and the lines of its log."""

    status: int
    log: list[str]


class Debian:
    """A folder that plays a host."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.etc = self.root / "etc/apt"
        self.records = self.root / "records"
        for name in (
            "etc/apt/sources.list.d",
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "var/lib/apt/lists/partial",
            "var/lib/dpkg/updates",
        ):
            (self.root / name).mkdir(parents=True)
        for name in ("var/lib/dpkg/info", "var/cache/apt/archives/partial", "var/log/apt", "tmp"):
            (self.root / name).mkdir(parents=True)
        for name in ("status", "available"):
            (self.root / "var/lib/dpkg" / name).touch()
        (self.root / "etc/os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
        configuration = folder / "apt.conf"
        configuration.write_text(
            f'Dir "{self.root}";\nDir::State::status "{self.root}/var/lib/dpkg/status";\nAPT::Architecture "amd64";\n'
            # The tests' folder is closed to others.
            'APT::Sandbox::User "root";\n#clear DPkg::Post-Invoke;\n#clear APT::Update::Post-Invoke;\n'
        )
        (folder / "programs").mkdir()
        self.programs = folder / "programs"
        self.environment = os.environ | {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "APT_CONFIG": str(configuration),
            "DPKG_ROOT": str(self.root),
            "DPKG_ADMINDIR": f"{self.root}/var/lib/dpkg",
            "DPKG_FORCE": "script-chrootless,not-root",
            "LC_ALL": "C",
        }

    def plays(self, program: str, script: str) -> None:
        """Have a shell script in the place of a program."""
        (self.programs / program).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / program).chmod(0o755)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=60, check=False)

    def script(self, function: str, *arguments: str) -> Ended:
        """Run one of ours as `long_work` would, on this folder."""
        return self.long_work(apt.script("w1", function, *arguments))

    def long_work(self, script: str) -> Ended:
        """Likewise, of its text."""
        work = self.root / "work"
        work.mkdir(exist_ok=True)
        (work / "script").write_text(script.replace(apt.RECORDS, str(self.records)))
        with (work / "log").open("w") as log:
            ended = subprocess.run(
                ["sh", str(work / "script")],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment | {"etc": str(self.etc)},
                timeout=60,
                check=False,
            )
        return Ended(ended.returncode, (work / "log").read_text().splitlines())

    def look(self) -> Apt:
        """What our fact would show, with the paths that a host has."""
        command = apt.LOOK
        for path in ("/etc/apt", "/etc/os-release", "/var/lib/apt/lists"):
            command = command.replace(path, f"{self.root}{path}")
        # gpg and curl come from the computer that the tests run on.
        lines = self.run("sh", "-c", command.replace("dpkg-query", "env -u DPKG_ROOT -u DPKG_ADMINDIR dpkg-query")).stdout
        return apt.read(lines.replace(str(self.root), "").splitlines())

    def record(self, name: str) -> Record:
        command = apt.look_at_record(name).replace(apt.RECORDS, str(self.records))
        return apt.read_record(self.run("sh", "-c", command).stdout.splitlines())

    def files(self) -> dict[str, str]:
        """Every file below /etc/apt."""
        return {str(path.relative_to(self.etc)): path.read_text() for path in sorted(self.etc.rglob("*")) if path.is_file()}

    def add(self, repository: Repository, missing: str = "") -> Ended:
        """What the operation does when something differs.

        :param missing: the packages that fetching a key needs and the host lacks
        """
        seen = self.look()
        others = apt.without(seen.files, repository)
        return self.script(
            "add_repository",
            "" if repository.fingerprint in seen.keys.get(repository.key_file, ()) else repository.key,
            repository.fingerprint,
            apt.below(repository.key_file),
            apt.below(repository.file),
            repository.text,
            missing,
            *(word for path, text in others.items() for word in (apt.below(path), text)),
        )

    def installed(self) -> dict[str, str]:
        """Package → version."""
        lines = self.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n").stdout.splitlines()
        return {line.split()[1]: line.split()[2] for line in lines if line.startswith("installed")}


def make_package(
    folder: Path,
    name: str,
    version: str = "1.0",
    preinst: str = "",
    postinst: str = "",
    prerm: str = "",
    postrm: str = "",
    **fields: str,
) -> Path:
    """A package without content."""
    tree = folder / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    wanted = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "x <x@example>", "Description": "x"}
    (tree / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in (wanted | fields).items()))
    for script, text in (("preinst", preinst), ("postinst", postinst), ("prerm", prerm), ("postrm", postrm)):
        if text:
            (tree / "DEBIAN" / script).write_text(f"#!/bin/sh\n{text}\n")
            (tree / "DEBIAN" / script).chmod(0o755)
    path = folder / f"{name}_{version}_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(tree), str(path)], check=True, capture_output=True)
    return path


def publish(folder: Path, key: Key, packages: Sequence[Path] = (), suite: str = "bookworm", origin: str = "Vendor") -> str:
    """A signed repository with these packages; its address."""
    where = folder / "dists" / suite / "main/binary-amd64"
    where.mkdir(parents=True, exist_ok=True)
    (folder / "pool").mkdir(exist_ok=True)
    index = ""
    for package in packages:
        content = package.read_bytes()
        (folder / "pool" / package.name).write_bytes(content)
        control = subprocess.run(["dpkg-deb", "-f", str(package)], capture_output=True, text=True, check=True).stdout
        index += f"{control}Filename: pool/{package.name}\nSize: {len(content)}\nSHA256: {sha256(content).hexdigest()}\n\n"
    (where / "Packages").write_text(index)
    release = RELEASE.format(origin=origin, suite=suite) + "Date: Sat, 01 Nov 2025 00:00:00 UTC\nSHA256:\n"
    release += f" {sha256(index.encode()).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
    (folder / "dists" / suite / "InRelease").write_text(_gpg(key.home, "--clearsign", given=release))
    subprocess.run(["gpgconf", "--homedir", str(key.home), "--kill", "all"], check=True)
    return f"file:{folder}"
