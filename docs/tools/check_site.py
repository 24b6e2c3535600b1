# SPDX-License-Identifier: MIT
"""A built site checked as a reader meets it: every link leads somewhere, and nothing is loaded from elsewhere.

MkDocs checks the links of its own pages before it writes them. This reads what was written, with the Fortran reference
and the sample reports in it: each link to a file of the site, and each anchor, must be there; scripts, styles, pictures
and fonts must be files of the site.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What makes a browser load something, and the attribute with its address
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src",
         "embed": "src", "object": "data"}
#: Relations of <link> that load nothing
NOT_LOADED = {"canonical", "prev", "next", "edit", "alternate", "author", "license"}
#: The page that a server gives where nothing is: its links start at the site's root
NOT_FOUND = "404.html"
_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?(?:https?:)?//[^)"';]+""")


class _Page(HTMLParser):
    """The links, loads and anchors of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.styles: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.styles.append(given.get("style", ""))
        self._in_style = tag == "style"
        if tag in ("a", "area") and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and not set(given.get("rel", "").split()) <= NOT_LOADED:
            self.loads.append(given.get("href", ""))
        elif tag in LOADS and LOADS[tag] in given:
            self.loads.append(given[LOADS[tag]])

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@dataclass
class _Site:
    root: Path
    pages: dict[str, _Page]
    found: list[str] = field(default_factory=list)

    def check(self, name: str) -> None:
        """Note what is wrong with a page."""
        page = self.pages[name]
        for address in page.loads:
            if _is_elsewhere(address):
                self.found.append(f"{name}: loads {address}")
            else:
                self._check_link(name, address)
        for address in page.links:
            if not _is_elsewhere(address):
                self._check_link(name, address)
        for style in page.styles:
            self.found += [f"{name}: loads {one}" for one in _STYLE.findall(style)]

    def _check_link(self, name: str, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme:
            return
        folder = "" if parts.path.startswith("/") and name == NOT_FOUND else posixpath.dirname(name)
        path = unquote(parts.path).lstrip("/") if name == NOT_FOUND else unquote(parts.path)
        there = posixpath.normpath(posixpath.join(folder, path)) if path else name
        if (self.root / there).is_dir():
            there = posixpath.normpath(posixpath.join(there, "index.html"))
        if there.startswith(("/", "..")) or not (self.root / there).is_file():
            self.found.append(f"{name}: {address} leads nowhere")
        # A browser looks for the anchor as it is written, then for what that stands for
        elif (parts.fragment and there in self.pages
              and not {parts.fragment, unquote(parts.fragment)} & self.pages[there].anchors):
            self.found.append(f"{name}: {address}: there is no such anchor")


def _is_elsewhere(address: str) -> bool:
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https")


def problems(root: Path) -> list[str]:
    """Return what is wrong with the site in a folder, one sentence each; none if nothing is."""
    pages = {path.relative_to(root).as_posix(): _read(path) for path in sorted(root.rglob("*.html"))}
    site = _Site(root, pages)
    for name in pages:
        site.check(name)
    for path in sorted(root.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        site.found += [f"{path.relative_to(root)}: loads {one}" for one in _STYLE.findall(text)]
    return site.found


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong with a site; exit code 1 where something is."""
    found = problems(Path(arguments[0]))
    print("\n".join(found) if found else "every link leads somewhere, and nothing is loaded from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
