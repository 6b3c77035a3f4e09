"""Where a host gets its Debian packages from, what we add to that, and what apt would do with it. Pure.

Formats: sources.list(5); how apt calls its lists on the disk: URItoFileName in apt-pkg/contrib/strutl.cc; the lines of a
simulation: apt-private/private-output.cc and apt-pkg/algorithms.cc.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from roles.base.templates import TEMPLATES

SOURCES = "/etc/apt/sources.list.d"
KEYS = "/etc/apt/keyrings"
PREFERENCES = "/etc/apt/preferences.d"
COMPONENTS = f"{SOURCES}/gpuquilt-components.sources"
"""Our file with the distribution's own components that a host had not switched on."""
RECORDS = "/var/lib/gpuquilt/packages"
"""One file per role: the packages that were not there before and came by us."""
SCRIPTS = TEMPLATES / "apt"

NEEDED = ("ca-certificates", "curl", "gpg")
"""What fetching a key needs."""
ALIASES = frozenset({"stable", "oldstable", "testing"})
"""Suites of Debian that stand for one release today and for another tomorrow."""

_OFF = frozenset({"no", "false", "without", "off", "disable", "0"})
_ONE_LINE = re.compile(r"\s*(?P<type>deb|deb-src)\s+(?:\[(?P<options>[^]]*)]\s*)?(?P<uri>\S+)\s+(?P<rest>.*)")
_IN_DEB822 = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
"""Options that are called differently in the two formats, and are lists there."""
_NO_OPTIONS = frozenset({"types", "uris", "suites", "components", "enabled"})


@dataclass(frozen=True)
class Source:
    """One package source of a host: an address with its suites and components.

    :param uri: without a slash at its end
    :param components: empty for a suite that is a folder, such as ``/``
    :param file: where it stands
    :param types: ``deb``, ``deb-src``
    :param options: everything else, e.g. signed-by: as deb822 calls it, in lower case → its value as it stands there
    :param enabled: apt reads it
    """

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    file: str = ""
    types: tuple[str, ...] = ("deb",)
    options: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True

    @property
    def binary(self) -> bool:
        """Whether apt installs from it."""
        return self.enabled and "deb" in self.types


@dataclass(frozen=True)
class Repository:
    """A package repository that a role adds to a host, as one deb822 file with a key of its own.

    :param name: names its files: ``gpuquilt-NAME.sources`` and ``gpuquilt-NAME.asc``
    :param uri: http, https or file, without a slash at its end
    :param suites: e.g. ``bookworm``; ``/`` for a repository without suites, which then has no components
    :param components: e.g. ``stable``
    :param key: where its signing key is fetched from: an http, https or file URL
    :param fingerprint: of that key, 40 hexadecimal digits; a key with another one is refused
    """

    name: str
    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key: str
    fingerprint: str

    @property
    def file(self) -> str:
        return files_of(self.name)[0]

    @property
    def key_file(self) -> str:
        return files_of(self.name)[1]

    @property
    def text(self) -> str:
        """The deb822 file."""
        components = f"Components: {' '.join(self.components)}\n" if self.components else ""
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {' '.join(self.suites)}\n{components}"
            f"Architectures: amd64\nSigned-By: {self.key_file}\n"
        )

    def is_same(self, source: Source) -> bool:
        """Whether a source is this repository, or a part of it, however it is written."""
        return _place(source.uri) == _place(self.uri) and bool(_suites(source) & {_suite(suite) for suite in self.suites})


def files_of(name: str) -> tuple[str, str]:
    """The source file of a `Repository` of that name, and the file of its key."""
    return f"{SOURCES}/gpuquilt-{name}.sources", f"{KEYS}/gpuquilt-{name}.asc"


def below(path: str) -> str:
    """A path below apt's folder, as packages.sh wants it."""
    return path.removeprefix("/etc/apt/")


@dataclass(frozen=True)
class Apt:
    """What a host shows of its package sources.

    :param files: path → text of each file with sources
    :param codename: of its release, e.g. bookworm
    :param distribution: its ``ID``, e.g. debian
    :param keys: path → fingerprints of the keys in it that are still valid, of each of our key files
    :param lists: the release files that apt has fetched, by name → the ``Origin`` that they tell
    :param missing: what fetching a key needs and is not installed
    """

    files: Mapping[str, str] = field(default_factory=dict)
    codename: str = ""
    distribution: str = ""
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for path, text in self.files.items() for source in parse(path, text))

    def has_lists(self, repository: Repository) -> bool:
        """Whether apt knows what the repository holds."""
        return all(self._release(repository.uri, suite) is not None for suite in repository.suites)

    def origin(self, source: Source) -> str | None:
        """What the first suite of a source says of itself, e.g. Debian; None where apt has not fetched it yet."""
        return self._release(source.uri, source.suites[0]) if source.suites else None

    def _release(self, uri: str, suite: str) -> str | None:
        return next((self.lists[name] for name in release_files(uri, suite) if name in self.lists), None)


LOOK = f"""exec 2>/dev/null
for file in /etc/apt/sources.list {SOURCES}/*.list {SOURCES}/*.sources; do
    [ -f "$file" ] && echo "file $file" && sed 's/^/| /' "$file"
done
sed -n 's/^\\(ID\\|VERSION_CODENAME\\)="\\{{0,1\\}}\\([^"]*\\).*/os \\1 \\2/p' /etc/os-release
for file in {KEYS}/gpuquilt-*.asc; do
    [ -f "$file" ] || continue
    echo "key $file"
    # Without a home of its own gpg makes one for root.
    home=$(mktemp -d)
    gpg --homedir "$home" --batch --no-autostart --show-keys --with-colons "$file" | awk -F : -v file="$file" '
        $1 == "pub" {{ wanted = $2 !~ /[er]/ }}
        $1 == "fpr" && wanted {{ print "fingerprint " $10 " " file; wanted = 0 }}'
    rm -rf "$home"
done
for file in /var/lib/apt/lists/*Release; do
    [ -f "$file" ] && echo "list ${{file##*/}} $(head -n 30 "$file" | sed -n 's/^Origin: *//p')"
done
dpkg-query -W -f 'package ${{db:Status-Status}} ${{Package}}\\n' {" ".join(NEEDED)}
true"""
"""The shell command whose output `read` reads."""


def read(lines: Sequence[str]) -> Apt:
    """Read the output of `LOOK`; lines that it does not know are passed over."""
    files: dict[str, list[str]] = {}
    keys: dict[str, set[str]] = {}
    lists: dict[str, str] = {}
    words: dict[str, str] = {}
    installed = set()
    for line in lines:
        kind, _, rest = line.partition(" ")
        first, _, second = rest.partition(" ")
        if kind == "file":
            files[rest] = []
        elif kind == "|" and files:
            files[list(files)[-1]].append(rest)
        elif kind == "key":
            keys.setdefault(rest, set())
        elif kind == "fingerprint":
            keys.setdefault(second, set()).add(first)
        elif kind == "list":
            lists[first] = second
        elif kind == "os":
            words[first] = second
        elif kind == "package" and first == "installed":
            installed.add(second)
    return Apt(
        files={path: "".join(f"{line}\n" for line in content) for path, content in files.items()},
        codename=words.get("VERSION_CODENAME", ""),
        distribution=words.get("ID", ""),
        keys={path: frozenset(found) for path, found in keys.items()},
        lists=lists,
        missing=tuple(name for name in NEEDED if name not in installed),
    )


def parse(path: str, text: str) -> list[Source]:
    """The sources of one file, in the format that its name tells."""
    return parse_deb822(text, path) if path.endswith(".sources") else parse_one_line(text, path)


def parse_one_line(text: str, file: str = "") -> list[Source]:
    """``/etc/apt/sources.list`` and ``*.list``: ``deb [options] URI SUITE COMPONENT...``; other lines are left out."""
    return [source for line in text.splitlines() for source in _read_line(line, file)]


def _read_line(line: str, file: str = "") -> list[Source]:
    found = _ONE_LINE.fullmatch(line.partition("#")[0])
    if not found:
        return []
    suite, *components = found["rest"].split() or [""]
    if not suite or not (components or suite.endswith("/")):
        return []
    options = dict(_read_option(word) for word in (found["options"] or "").split() if "=" in word)
    return [Source(_address(found["uri"]), (suite,), tuple(components), file, (found["type"],), options)]


def _read_option(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    ending = {"+": "-add", "-": "-remove"}.get(name[-1:], "")
    name = name.rstrip("+-").lower()
    full = _IN_DEB822.get(name)
    return (full or name).lower() + ending, value.replace(",", " ") if full else value


def parse_deb822(text: str, file: str = "") -> list[Source]:
    """``*.sources``: stanzas of ``Field: values``; one source for each address."""
    return [source for lines in _paragraphs(text) for source in _read_stanza(lines, file)]


def _read_stanza(lines: Iterable[str], file: str = "") -> list[Source]:
    fields = _fields(lines)

    def words(name: str) -> tuple[str, ...]:
        return tuple(fields.get(name, "").split())

    options = {name: value for name, value in fields.items() if name not in _NO_OPTIONS}
    enabled = fields.get("enabled", "yes").lower() not in _OFF
    return [
        Source(_address(uri), words("suites"), words("components"), file, words("types"), options, enabled)
        for uri in words("uris")
    ]


def _paragraphs(text: str) -> Iterator[list[str]]:
    """The lines of a text, those with something in them and the empty ones between them in turn."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and bool(line.strip()) != bool(lines[-1].strip()):
            yield lines
            lines = []
        lines.append(line)
    if lines:
        yield lines


def _fields(lines: Iterable[str]) -> dict[str, str]:
    """Field in lower case → value; further lines of a value are kept as they are, because a key may stand there."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            if name:
                fields[name] += f"\n{line.rstrip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def _address(uri: str) -> str:
    return uri.rstrip("/")


def _place(uri: str) -> str:
    """What an address names, however it is reached."""
    return re.sub(r"^https?://", "//", _address(uri)).replace("$(ARCH)", "amd64").casefold()


def _suite(suite: str) -> str:
    return suite.removeprefix("./").rstrip("/") or "/"


def _suites(source: Source) -> set[str]:
    return {_suite(suite) for suite in source.suites}


def release_files(uri: str, suite: str) -> tuple[str, ...]:
    """How apt calls the release file of a suite in ``/var/lib/apt/lists``."""
    uri = uri.replace("$(ARCH)", "amd64")
    flat = suite.endswith("/")
    folder = f"{uri}/{suite.removeprefix('./').strip('/')}".rstrip("/") if flat else f"{uri}/dists/{suite}"
    path = re.sub(r"^[a-z0-9+.-]+:(//([^/@]*@)?)?", "", folder)
    quoted = re.sub(r'[\\|{}\[\]<>"^~_=!@#$%^&*\x00-\x20\x7f-\U0010ffff]', lambda one: _percent(one[0]), path)
    name = quoted.replace("/", "_")
    return f"{name}_InRelease", f"{name}_Release"


def _percent(character: str) -> str:
    return "".join(f"%{byte:02x}" for byte in character.encode())


def without(files: Mapping[str, str], repository: Repository) -> dict[str, str]:
    """The files that name a repository, each without it; our own file is passed over.

    What else is in a file stays as it is, and so does what apt does not read: comments, and entries that are switched off.

    :param files: path → text
    :return: path → text that is to stand there; empty for a file that is to go
    """
    changed = {}
    for path, text in files.items():
        if path == repository.file:
            continue
        new = _stanzas_without(text, repository) if path.endswith(".sources") else _lines_without(text, repository)
        if new != text:
            changed[path] = new if new.strip() else ""
    return changed


def _lines_without(text: str, repository: Repository) -> str:
    return "".join(
        line for line in text.splitlines(keepends=True) if not any(map(repository.is_same, _read_line(line.rstrip("\n"))))
    )


def _stanzas_without(text: str, repository: Repository) -> str:
    """Several addresses or suites in one stanza are one entry each."""
    kept: list[str] = []
    changed = False
    for lines in _paragraphs(text):
        sources = _read_stanza(lines)
        same = [source for source in sources if source.enabled and repository.is_same(source)]
        changed = changed or bool(same)
        kept += _rest(lines, sources, same, repository) if same else lines
    return "".join(f"{line}\n" for line in kept).lstrip("\n") if changed else text


def _rest(lines: list[str], sources: list[Source], same: list[Source], repository: Repository) -> list[str]:
    """What is left of a stanza: its other addresses, and the other suites of this one."""
    ours = {_suite(suite) for suite in repository.suites}
    addresses = [source.uri for source in sources if source not in same]
    suites = [suite for suite in same[0].suites if _suite(suite) not in ours]
    rest = _with_field(lines, "URIs", addresses) if addresses else []
    if suites:
        left = _with_field(lines, "URIs", [source.uri for source in same])
        rest += [*([""] if rest else []), *_with_field(left, "Suites", suites)]
    return rest


def _with_field(lines: Iterable[str], field: str, values: Iterable[str]) -> list[str]:
    """A stanza with another value of one field."""
    changed = []
    inside = False
    for line in lines:
        if line[:1] not in (" ", "\t", "#"):
            inside = line.partition(":")[0].strip().lower() == field.lower()
            changed += [f"{field}: {' '.join(values)}"] if inside else [line]
        elif not inside or line.startswith("#"):
            changed.append(line)
    return changed


def components_text(apt: Apt, names: Sequence[str]) -> str:
    """The file that switches on components of the distribution's own archive; empty where all of them are on already.

    Addresses, suites and every option are those of the entries that have ``main``: apt refuses to work where two entries of
    the same suite differ in one. What the file has already stays in it, because another role may need that.

    :param names: e.g. ``non-free-firmware``
    """
    ours = [name for source in apt.sources if source.file == COMPONENTS for name in source.components]
    names = sorted({*names, *ours})
    entries = list(_own_entries(apt))
    there = {(entry.uri, entry.suites, name) for entry in entries for name in entry.components}
    stanzas: dict[tuple[str, tuple[str, ...]], str] = {}
    for entry in entries:
        missing = tuple(name for name in names if (entry.uri, entry.suites, name) not in there)
        if "main" in entry.components and missing:
            stanzas.setdefault((entry.uri, entry.suites), _stanza(replace(entry, components=missing)))
    return "\n".join(stanzas.values())


def _own_entries(apt: Apt) -> Iterator[Source]:
    """The distribution's own archive, for the release that the host runs, one suite each."""
    entries = [
        replace(source, suites=(suite,))
        for source in apt.sources
        if source.binary and source.file != COMPONENTS and _is_distributions(apt, source)
        for suite in source.suites
    ]
    # One that names the release comes first: "testing" beside it is not what the host runs.
    for releases in ({apt.codename}, ALIASES):
        suites = {f"{release}{ending}" for release in releases for ending in ("", "-updates", "-security")}
        found = [entry for entry in entries if entry.suites[0] in suites]
        if found:
            yield from found
            return


def _is_distributions(apt: Apt, source: Source) -> bool:
    """Other vendors have a `main`, too, for suites of the same name."""
    origin = apt.origin(source)
    if origin is not None:
        return origin.casefold() == apt.distribution
    keys = source.options.get("signed-by", "")
    return not keys or f"{apt.distribution}-archive" in keys


def _stanza(source: Source) -> str:
    options = "".join(f"{name.title()}: {value}\n" for name, value in source.options.items())
    return (
        f"Types: deb\nURIs: {source.uri}\nSuites: {' '.join(source.suites)}\nComponents: {' '.join(source.components)}\n{options}"
    )


@dataclass(frozen=True)
class Record:
    """What came by us under a name.

    :param kept: there is such a record
    :param states: package → dpkg's word for it; those that are not there any more are left out
    """

    kept: bool = False
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether dpkg was interrupted in one of them, or has still to run a trigger for one."""
        return set(self.states.values()) - {"installed"} != set()


def look_at_record(name: str) -> str:
    """The shell command whose output `read_record` reads."""
    file = shlex.quote(f"{RECORDS}/{name}")
    query = "dpkg-query -W -f 'package ${db:Status-Status} ${Package}\\n'"
    return f"[ -f {file} ] && echo kept && [ -s {file} ] && {query} $(cat {file}) 2>/dev/null; true"


def read_record(lines: Sequence[str]) -> Record:
    """Read the output of `look_at_record`."""
    words = [line.split() for line in lines if line.startswith("package ")]
    states = {word[2]: word[1] for word in words if len(word) == 3 and word[1] not in ("not-installed", "config-files")}
    return Record("kept" in lines, states)


@dataclass(frozen=True)
class Change:
    """What a simulated installation would do with one package.

    :param action: ``install`` (or upgrade, or downgrade) or ``remove``
    :param package: its name; ``NAME:ARCHITECTURE`` where that is not the host's own
    :param version: that would be there afterwards; of one that is removed, the one that is there
    :param before: the version that is there; empty where there is none
    :param origin: where it would come from, in apt's words
    """

    action: str
    package: str
    version: str
    before: str = ""
    origin: str = ""


_INST = re.compile(r"Inst (?P<package>\S+)(?: \[(?P<before>[^]]*)])? \((?P<version>\S+)(?: (?P<origin>.*?))? ?\[[a-z0-9-]+]\).*")
_REMV = re.compile(r"(?:Remv|Purg) (?P<package>\S+)(?: \[(?P<version>[^]]*)])?.*")


def changes(lines: Iterable[str]) -> list[Change]:
    """Read what ``apt-get --simulate`` prints; lines that tell no change of a package are passed over."""
    found = []
    for line in lines:
        if there := _INST.fullmatch(line):
            words = {name: text or "" for name, text in there.groupdict().items()}
            found.append(Change("install", **words))
        elif there := _REMV.fullmatch(line):
            found.append(Change("remove", there["package"], there["version"] or "", there["version"] or ""))
    return found


def unwanted_removals(found: Iterable[Change], removable: Callable[[str], bool]) -> list[str]:
    """A sentence, without the host's name, where packages would be removed that may not be.

    :param removable: whether a package may, by its name
    """
    lost = [change.package for change in found if change.action == "remove" and not removable(change.package)]
    if not lost:
        return []
    return [
        f"apt would remove {', '.join(lost)} to install what is needed, so nothing was installed: remove them yourself if you"
        " can do without them, or see with `apt-get --simulate install` what stands in the way."
    ]


def install_command(names: Sequence[str], moved: bool) -> list[str]:
    """The arguments of ``apt-get`` for an installation, simulated or not.

    :param moved: what is there may be exchanged for the version that the pins want, an older one included
    """
    return ["install", "--no-install-recommends", *(["--allow-downgrades"] if moved else []), *names]


def unwanted_losses(found: Iterable[Change], recorded: Collection[str]) -> list[str]:
    """A sentence, without the host's name, where the removal of what came by us would touch something else.

    :param recorded: the names of what came by us
    """
    touched = [change.package for change in found if change.action != "remove" or change.package not in recorded]
    if not touched:
        return []
    return [
        f"{', '.join(dict.fromkeys(touched))} would be changed or removed with what gpuquilt has installed, so nothing was"
        " removed: remove them first, or keep the packages."
    ]


def simulation_failed(output: Sequence[str], errors: Sequence[str]) -> str:
    """Why apt does not even simulate, as a sentence without the host's name."""
    said = [line[3:].rstrip(".") for line in (*errors, *output) if line.startswith("E: ")]
    # apt explains itself in the lines after "The following packages have unmet dependencies:", indented.
    unmet = [" ".join(line.split()) for line in output if re.match(r" +\S+ : ", line)]
    reasons = "; ".join([*unmet, *said]) or "no reason was given"
    way = "see to it there with `apt-get install`"
    if any(re.search(r"[Pp]ackage '?(linux|proxmox)-headers-[0-9]", line) for line in said):
        way = "its package sources do not have the headers of that old kernel any more, so upgrade it with `apt-get dist-upgrade`"
    return f"apt cannot do what is needed ({reasons}): {way}, then run again."


def digest(lines: Iterable[str]) -> str:
    """Tells one simulation from another; packages.sh makes the same of the same lines."""
    return sha256("".join(f"{line}\n" for line in lines if line.startswith(("Inst ", "Remv ", "Purg "))).encode()).hexdigest()


def script(host: str, function: str, *arguments: str) -> str:
    """A shell script that calls one of the functions of templates/apt; it ends with 3 and a sentence when it cannot.

    :param host: name in the inventory, for the sentences
    """
    parts = [(SCRIPTS / name).read_text() for name in ("packages.sh", "repository.sh")]
    values = [f"host={shlex.quote(host)}", f"records={RECORDS}"]
    return "\n".join([*parts, *values, " ".join([function, *map(shlex.quote, arguments)]), ""])
