# SPDX-License-Identifier: MIT
"""The reference of the Fortran module `cnn`, by FORD, as pages of the site.

FORD reads the sources and writes pages of its own, whose style comes from elsewhere. What they say is taken out of them
and becomes a page of the site, with its style, its search and its dark colours.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: What is public in `cnn`, and what its types extend
SOURCES = ["library/cnn.f90", "library/array_network.f90", "library/layers.f90", "library/optimizers.f90",
           "core/error.f90", "core/kinds.f90", "core/text.f90", "optimizers/optimizer.f90", "optimizers/sgd.f90",
           "optimizers/adam.f90"]
#: Those that the build writes
WRITTEN = ("typed_network.f90", "arrays.f90")
#: Folders of FORD's pages that become pages here
FOLDERS = ("module", "type", "proc")

PROJECT = """---
project: cnn
src_dir: sources
output_dir: pages
preprocess: false
display: public
source: false
graph: false
search: false
incl_src: false
proc_internals: false
---

The module cnn.
"""

_TEXT = re.compile(r"""<div class="col-md-9" id='text'>""")
_LINK = re.compile(r"""<a\s[^>]*?href=['"]([^'"]*)['"][^>]*>(.*?)</a>""", re.DOTALL)
_ANCHOR = re.compile(r"""<span class="anchor" id="([^"]+)"></span>\s*<h3>""")
#: Between the names of a list in one line
_LISTED = re.compile(r"""</li>(?=\s*<li class="list-inline-item">)""")
#: What is left out: boxes around paragraphs and tables, columns of "::", commas at the end of a cell, and "private",
#: which FORD says of the procedures behind public names
_LEFT_OUT = re.compile(r"""</?(?:div|section|ul|li)\b[^>]*>|,(?=\s*</td>)|(?<=<h3>)\s*private(?=\s)"""
                       r"""|<td>::</td>|<th scope="col"></th>(?=\s*<th scope="col">Name<)""")
#: The title of a part of the page; or the declaration of what has a place of its own, with its name
_HEADING = re.compile(r"""<h2>(?P<part>[A-Z][\w -]*)</h2>|<h3 id="(?P<id>[^"]+)">"""
                      r"""(?P<declaration>(?:(?!</h3>).)*?<strong>(?P<name>[^<]+)</strong>.*?)</h3>""", re.DOTALL)


def pages(root: Path, folder: Path, ford: Sequence[str]) -> dict[str, str]:
    """Run FORD in a folder, which is emptied; return the pages in Markdown by their names, ``type/network_type.md``.

    Parameters
    ----------
    root : of the repository
    folder : for the sources and what FORD writes
    ford : command that starts it

    Raises
    ------
    RuntimeError
        If FORD fails; with all that it has said.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "sources").mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(root / "fortran" / name, folder / "sources" / name.replace("/", "_"))
    subprocess.run([sys.executable, root / "fortran/from_table/write.py", folder / "written"], check=True)
    for name in WRITTEN:
        shutil.copy(folder / "written" / name, folder / "sources" / f"library_{name}")
    (folder / "project.md").write_text(PROJECT, encoding="utf-8")
    done = subprocess.run([*ford, "project.md"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"FORD failed:\n{done.stdout}{done.stderr}")
    found = {f"{one}/{path.stem}.html": path.read_text(encoding="utf-8")
             for one in FOLDERS for path in sorted((folder / "pages" / one).glob("*.html"))}
    contents = {name: _ANCHOR.sub(r'<h3 id="\1">', content(page)) for name, page in found.items()}
    return {name.removesuffix(".html") + ".md": _page(name, text, contents) for name, text in contents.items()}


def content(page: str) -> str:
    """Return what a page of FORD says, without what is around it: the inside of its element ``text``.

    >>> content("<p>menu</p><div class=\\"col-md-9\\" id='text'>a<div>b</div></div></div>")
    'a<div>b</div>'
    """
    start = _TEXT.search(page)
    if start is None:
        raise RuntimeError("FORD has written a page without an element called text")
    depth = 1
    for tag in re.finditer(r"<(/?)div\b", page[start.end():]):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return page[start.end():start.end() + tag.start()]
    raise RuntimeError("FORD has written a page whose element called text has no end")


def _page(name: str, text: str, contents: dict[str, str]) -> str:
    """The page in Markdown; links to what is no page here are left out, and anchors that are not there."""
    def link(found: re.Match[str]) -> str:
        target, _, anchor = found[1].partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
        if there not in contents:
            return found[2]
        sign = f"#{anchor}" if anchor and f'id="{anchor}"' in contents[there] else ""
        return f'<a href="{posixpath.relpath(there, posixpath.dirname(name))}{sign}">{found[2]}</a>'

    title = name.rpartition("/")[2].removesuffix(".html")
    text = _LEFT_OUT.sub("", _LISTED.sub(",", _LINK.sub(link, text)))
    return "\n".join([f"# {title}", "", *_parts(text), ""])


def _parts(text: str) -> list[str]:
    """Lines of Markdown: FORD's HTML with headings between, of which contents are made, and links to what they name."""
    lines, names, start = [], [], 0
    for heading in _HEADING.finditer(text):
        lines += _html(text[start:heading.start()])
        start = heading.end()
        if heading["part"]:
            lines += [f"## {heading['part']}", ""]
        else:
            names.append(f"[{heading['name']}](#{heading['id']})")
            lines += [f"### {heading['name']} {{ #{heading['id']} }}", "",
                      *_html(f'<p class="declaration">{" ".join(heading["declaration"].split())}</p>')]
    lines += _html(text[start:])
    return [" · ".join(names), "", *lines] if len(names) > 1 else lines


def _html(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip()]
    return ['<div class="ford">', *lines, "</div>", ""] if lines else []
