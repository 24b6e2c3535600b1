# SPDX-License-Identifier: MIT
"""Links of documents to files of the repository, which the site shows as pages of its own.

The documents are read in the repository, too, where ``../fortran/model/graph.f90`` is a file. On the site it is a page
with the file's text, a folder is a page that lists it, and pictures and large files are there as they are. So no
document has to know an address of the repository, and every link is checked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: Documents outside of docs/, and their pages
DOCUMENTS = {"README.md": "start.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
             "examples/README.md": "examples.md"}
#: Files of docs/ that are pages of another name
MADE = {"docs/story.ipynb": "story.md"}
#: Where the pages of all other files are
FOLDER = "source"
#: A file with more bytes is given as it is
MOST_SHOWN = 64 * 1024
#: Files of a folder with no more bytes are shown on its page
MOST_SHOWN_TOGETHER = 16 * 1024

#: Languages of the highlighter, by how a file's name ends; what is not here is not shown as text
LANGUAGES = {".f90": "fortran", ".inc": "fortran", ".cuf": "fortran", ".py": "python", ".c": "c", ".h": "c",
             ".cu": "cuda", ".toml": "toml", ".cff": "yaml", ".json": "json", ".txt": "text",
             ".build": "meson", ".ini": "ini"}

#: Code, in which nothing is a link; or where a link leads
_LINK = re.compile(r"(?ms)^(?P<fence>`{3,}).*?^(?P=fence)\s*?$|`(?:[^`\n]|\n(?!\n))+`|\]\((?P<target>[^)\s]+)\)")


def with_links(text: str, change: Callable[[str], str]) -> str:
    """Return a document in which `change` was applied to the target of each link to a file.

    >>> with_links("[a](b.py) `[c](d)` [e](#f) [g](https://h)", str.upper)
    '[a](B.PY) `[c](d)` [e](#f) [g](https://h)'
    """
    def one(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or target.startswith("#") or ":" in target:
            return found[0]
        return f"]({change(target)})"

    return _LINK.sub(one, text)


@dataclass
class RepositoryPages:
    """The pages of files that documents link to; `collect` all documents, then `write` each page.

    Attributes
    ----------
    root : of the repository
    origins : by page, the path in the repository of the document that it shows
    shown : by page or file of the site, the path in the repository that it is made of
    """

    root: Path
    origins: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def place(self, path: str) -> str:
        """Return the page, or the file of the site, that shows a path of the repository.

        Raises
        ------
        FileNotFoundError
            If nothing is there.
        """
        if path.startswith("docs/"):
            return MADE.get(path, path.removeprefix("docs/"))
        there = self.root / path
        if not there.exists():
            raise FileNotFoundError(path)
        if there.is_dir():
            return DOCUMENTS.get(f"{path}/README.md", f"{FOLDER}/{path}/index.md")
        if path in DOCUMENTS:
            return DOCUMENTS[path]
        if path.endswith(".md"):
            return f"{FOLDER}/{path}"
        is_text = there.suffix in LANGUAGES and there.stat().st_size <= MOST_SHOWN
        return f"{FOLDER}/{path}{'.md' if is_text else ''}"

    def collect(self, page: str, origin: str, text: str) -> None:
        """Note a document, and the pages of all that it links to, and of what these link to.

        Raises
        ------
        FileNotFoundError
            If a link leads nowhere; it names the document.
        """
        self.origins[page] = origin
        with_links(text, lambda target: self._note(origin, target))

    def _note(self, origin: str, target: str) -> str:
        path = _resolved(origin, target)
        try:
            place = self.place(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"{origin}: the link to {target} leads nowhere") from None
        if path.startswith("docs/") or place in self.shown or place in self.origins:
            return target
        self.shown[place] = path
        if path.endswith(".md") or (self.root / path).is_dir():
            self.collect(place, path if path.endswith(".md") else f"{path}/", self.text(place))
        return target

    def rewritten(self, page: str, text: str) -> str:
        """Return a collected document with the links of the site in place of the repository's."""
        origin = self.origins[page]

        def change(target: str) -> str:
            file, sign, anchor = target.partition("#")
            there = self.place(_resolved(origin, file))
            return posixpath.relpath(there, posixpath.dirname(page) or ".") + sign + anchor

        return with_links(text, change)

    def text(self, place: str) -> str:
        """Return the page of a file or a folder, with the repository's links."""
        path = self.shown[place]
        there = self.root / path
        if path.endswith(".md"):
            return there.read_text(encoding="utf-8")
        if there.is_dir():
            return "\n".join([f"# {path}", "", *self._listing(there)])
        return f"# {path}\n\n{_code(there)}"

    def _listing(self, folder: Path) -> list[str]:
        """The files of a folder, in full where they are few."""
        files = sorted(one for one in folder.iterdir() if one.is_file() and not one.name.startswith("."))
        sources = [one for one in files if one.suffix in LANGUAGES]
        if len(sources) == len(files) and sum(one.stat().st_size for one in files) <= MOST_SHOWN_TOGETHER:
            return [line for one in files for line in (f"## {one.name}", "", _code(one), "")]
        folders = sorted(one.name for one in folder.iterdir() if one.is_dir() and not one.name.startswith(("_", ".")))
        lines = [f"- [{one.name}]({one.name})" for one in files] + [f"- {name}/" for name in folders]
        pictures = [f"![{one.stem}]({one.name})" for one in files if one.suffix == ".png"]
        return [*lines, "", *(line for one in pictures for line in (one, ""))]


def _resolved(origin: str, target: str) -> str:
    """Where a link of a document leads to in the repository.

    >>> _resolved("docs/cuda.md", "../examples/8_gpu_arrays#it")
    'examples/8_gpu_arrays'
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target.partition("#")[0]))


def _code(path: Path) -> str:
    text = path.read_text(encoding="utf-8").rstrip()
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0)) if "```" in text else "```"
    return f"{fence}{LANGUAGES[path.suffix]}\n{text}\n{fence}"
