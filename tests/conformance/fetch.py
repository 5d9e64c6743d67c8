"""Debian's packages and sources, unpacked in a cache outside of the repository."""

import re
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Unavailable(Exception):
    """A suite cannot be had here; the reason is for the user."""


def call(argv, **more):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, **more)
    except FileNotFoundError:
        raise Unavailable(f"{argv[0]} is not installed") from None
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(map(str, argv))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def download(cache, names):
    """The packages' files; fetched unless they are there."""
    folder = cache / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not list(folder.glob(f"{name}_*.deb"))]
    if missing:
        try:
            call(["apt-get", "download", *missing], cwd=folder)
        except Unavailable:  # the lists are old, or there are none
            call(["apt-get", "-qq", "update"])
            call(["apt-get", "download", *missing], cwd=folder)
    return {name: next(iter(folder.glob(f"{name}_*.deb"))) for name in names}


def version(cache, name):
    (found,) = download(cache, [name]).values()
    return call(["dpkg-deb", "-f", found, "Version"]).strip()


def packages(cache, names):
    """A folder with the packages unpacked in it, as under /."""
    root = cache / f"root-{names[0]}"
    if not (root / ".complete").exists():
        for found in download(cache, names).values():
            call(["dpkg-deb", "-x", found, root])
        (root / ".complete").touch()
    return root


def linux(cache, paths):
    """The wanted paths of Debian's linux-source-6.1."""
    root = cache / "linux"
    if not (root / ".complete").exists():
        root.mkdir(parents=True, exist_ok=True)
        (found,) = download(cache, ["linux-source-6.1"]).values()
        wildcards = " ".join(f"'*/{path}'" for path in paths)
        unpack = (
            f"dpkg-deb --fsys-tarfile {found} | tar -xO --wildcards '*.tar.xz' | "
            f"tar -xJ -C {root} --strip-components=1 --wildcards {wildcards}"
        )
        call(["bash", "-o", "pipefail", "-c", unpack])
        (root / ".complete").touch()
    return root


def npm(cache, name, number):
    """The folder of a package of npm's."""
    folder = cache / f"{name.replace('/', '-')}-{number}"
    if not (folder / ".complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        call(["npm", "pack", "--silent", f"{name}@{number}"], cwd=folder)
        (archive,) = folder.glob("*.tgz")
        call(["tar", "-xzf", archive, "-C", folder])
        archive.unlink()
        (folder / ".complete").touch()
    return folder / "package"


def mirror():
    """Where this machine gets Debian's packages from."""
    what = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Identifier: Packages"]
    for line in call(what).splitlines():
        label, _, address = line.partition(" ")
        if label == "Debian":
            return address
    raise Unavailable("apt has no list of Debian's packages; apt-get update")


def source(cache, name, *releases):
    """Folder and version of a source package's upstream part, as the first of these releases has it
    that the mirror holds whole: some list a version and have an older one only."""
    reasons = []
    for release in releases:
        try:
            return source_of(cache, name, release)
        except Unavailable as why:
            reasons.append(str(why))
    raise Unavailable("\n".join(reasons))


def source_of(cache, name, release):
    state = cache / f"apt-{release}"
    folder = cache / f"source-{name}-{release}"
    if not (folder / ".complete").exists():
        for below in ("lists/partial", "cache/archives/partial"):
            (state / below).mkdir(parents=True, exist_ok=True)
        line = f"deb-src [signed-by={KEYRING}] {mirror()} {release} main\n"
        (state / "sources.list").write_text(line)
        options = [
            f"-oDir::Etc::sourcelist={state}/sources.list",
            "-oDir::Etc::sourceparts=/dev/null",
            f"-oDir::State::lists={state}/lists",
            f"-oDir::Cache={state}/cache",
        ]
        call(["apt-get", *options, "update"])
        folder.mkdir(parents=True, exist_ok=True)
        call(["apt-get", *options, "source", "--download-only", name], cwd=folder)
        (archive,) = [
            path
            for path in folder.iterdir()
            if re.fullmatch(rf"{re.escape(name)}_.*\.orig\.tar\.[a-z0-9]+", path.name)
        ]
        (folder / "tree").mkdir(exist_ok=True)
        call(["tar", "-xf", archive, "-C", folder / "tree", "--strip-components=1"])
        (folder / ".complete").touch()
    (description,) = folder.glob("*.dsc")
    found = re.search(r"^Version: (.*)$", description.read_text(), re.MULTILINE)
    return folder / "tree", found[1]
