# SPDX-License-Identifier: MIT
"""The documentation's site: links of the repository become pages, a wrong link is an error, and all of it builds."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import pytest

from docs.tools import fortran_reference
from docs.tools.check_site import main, problems
from docs.tools.repository_pages import DOCUMENTS, MOST_SHOWN, RepositoryPages, with_links


def site(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_right_site_has_no_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Links from and to folders, anchors by id and by name, addresses elsewhere that a reader may follow."""
    site(tmp_path, index_html='<link rel="stylesheet" href="style.css"><a href="b/c.html#d">c</a> <a href="b/">b</a>'
                              '<a href="https://example.org">e</a> <a href="#f">f</a> <i id="f"></i>'
                              '<img src="data:image/png;base64,AA"> <link rel="canonical" href="https://example.org">',
         b__index_html='<a href="../index.html">up</a>', b__c_html='<a name="d"></a><a href="?x=1">itself</a>',
         style_css="p { background: url(data:image/png;base64,AA) }")
    assert problems(tmp_path) == []
    assert main([str(tmp_path)]) == 0 and "nothing is loaded from elsewhere" in capsys.readouterr().out


@pytest.mark.parametrize(("page", "said"), [
    ('<a href="none.html">x</a>', "none.html leads nowhere"),
    ('<a href="../index.html">x</a>', "../index.html leads nowhere"),
    ('<a href="/index.html">x</a>', "/index.html leads nowhere"),
    ('<a href="#none">x</a>', "#none: there is no such anchor"),
    ('<a href="other.html#none">x</a>', "other.html#none: there is no such anchor"),
    ('<img src="none.png">', "none.png leads nowhere"),
    ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js"),
    ('<script src="//example.org/a.js"></script>', "loads //example.org/a.js"),
    ('<link rel="stylesheet" href="https://example.org/a.css">', "loads https://example.org/a.css"),
    ('<link rel="preconnect" href="https://example.org">', "loads https://example.org"),
    ('<img src="https://example.org/a.png">', "loads https://example.org/a.png"),
    ('<style>@import "https://example.org/a.css";</style>', 'loads @import "https://example.org/a.css'),
    ('<p style="background: url(https://example.org/a.png)">', "loads url(https://example.org/a.png"),
])
def test_a_wrong_link_is_found(tmp_path: Path, page: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    site(tmp_path, index_html="outside of the site")
    inside = site(tmp_path / "site", index_html=page, other_html='<p id="there">')
    assert problems(inside) == [f"index.html: {said}"]
    assert main([str(inside)]) == 1 and said in capsys.readouterr().out


def test_a_style_that_loads_is_found(tmp_path: Path) -> None:
    assert problems(site(tmp_path, a_css="@font-face { src: url('//example.org/f.woff2') }")) == [
        "a.css: loads url('//example.org/f.woff2"]


@pytest.fixture
def pages(tmp_path: Path) -> RepositoryPages:
    """A repository with one file of each kind."""
    files = {"docs/a.md": "", "README.md": "", "examples/README.md": "", "code/x.f90": "end\n", "code/y.py": "pass\n",
             "data/big.json": "0" * (MOST_SHOWN + 1), "data/p.png": "",
             "data/t.md": "[x](../code/x.f90) [a](../docs/a.md)"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return RepositoryPages(tmp_path)


@pytest.mark.parametrize(("link", "there"), [
    ("b.md#c", "b.md#c"),
    ("story.ipynb", "story.md"),
    ("../README.md#why", "start.md#why"),
    ("../examples", "examples.md"),
    ("../code/x.f90", "source/code/x.f90.md"),
    ("../code", "source/code/index.md"),
    ("../data/big.json", "source/data/big.json"),
    ("../data/p.png", "source/data/p.png"),
    ("../data/t.md", "source/data/t.md"),
    ("https://example.org/x.f90", "https://example.org/x.f90"),
    ("#here", "#here"),
])
def test_a_link_of_the_repository_leads_to_a_page(pages: RepositoryPages, link: str, there: str) -> None:
    text = f"[`x`]({link}) and ![]({link})"
    pages.collect("a.md", "docs/a.md", text)
    assert pages.rewritten("a.md", text) == f"[`x`]({there}) and ![]({there})"


def test_links_of_a_page_further_down_lead_up(pages: RepositoryPages) -> None:
    """And documents that are linked to have their own links followed."""
    pages.collect("a.md", "docs/a.md", "[t](../data/t.md)")
    assert pages.shown == {"source/data/t.md": "data/t.md", "source/code/x.f90.md": "code/x.f90"}
    text = pages.text("source/data/t.md")
    assert pages.rewritten("source/data/t.md", text) == "[x](../code/x.f90.md) [a](../../a.md)"
    assert pages.text("source/code/x.f90.md") == "# code/x.f90\n\n```fortran\nend\n```"


def test_a_folder_is_shown(pages: RepositoryPages) -> None:
    """A small one in full, another as a list whose links are followed."""
    pages.collect("a.md", "docs/a.md", "[c](../code) [d](../data)")
    assert "```fortran\nend\n```" in pages.text("source/code/index.md")
    listed = pages.text("source/data/index.md")
    assert "[big.json](big.json)" in listed and "![p](p.png)" in listed
    assert pages.rewritten("source/data/index.md", "[t](t.md) [b](big.json)") == "[t](t.md) [b](big.json)"
    assert {"source/data/big.json", "source/data/p.png", "source/data/t.md"} <= set(pages.shown)


def test_a_link_that_leads_nowhere_is_an_error(pages: RepositoryPages) -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/a\.md: the link to \.\./none\.f90 leads nowhere"):
        pages.collect("a.md", "docs/a.md", "[x](../none.f90)")


@pytest.mark.parametrize("code", ["```text\n[x](y)\n```", "`[x](y)`", "`a\nb` and `[x](y)`",
                                  "````md\n```\n[x](y)\n```\n````"])
def test_code_has_no_links(code: str) -> None:
    assert with_links(code, str.upper) == code
    assert with_links(f"{code}\n\n[x](y)", str.upper) == f"{code}\n\n[x](Y)"


def test_every_document_has_its_place(root: Path) -> None:
    """Those outside of docs/ exist, and mkdocs.yml's navigation has all."""
    navigation = (root / "mkdocs.yml").read_text(encoding="utf-8")
    for path, place in DOCUMENTS.items():
        assert (root / path).is_file() and f": {place}\n" in navigation
    for path in (*(root / "docs").glob("*.md"), *(root / "docs/reference").glob("*.md")):
        assert f": {path.relative_to(root / 'docs').as_posix()}\n" in navigation, path


@pytest.mark.parametrize("name", ["check_site", "fortran_reference", "notebook", "repository_pages"])
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"docs.tools.{name}")).failed == 0


#: A program that writes what FORD writes, of one type and one function
FORD = """import pathlib
assert sorted(path.name for path in pathlib.Path("sources").iterdir())[-1] == "optimizers_sgd.f90"
page = "<a href='../lists/types.html'>menu</a><div class=\\"col-md-9\\" id='text'>{}</div>\\n</div><footer>"
texts = {
    "type/a": "<div><h2>type, public :: a</h2>\\n<section><h2>Bound Procedures</h2>"
              '<span class="anchor" id="bound-x"></span>\\n<h3>procedure,\\n public :: <strong>x</strong></h3><ul>\\n'
              "<li><h3>\\n private pure function x(private)</h3>\\n"
              '<th scope="col"></th><th scope="col">Name</th><td>class(a),\\n</td><td>::</td></li></ul>\\n'
              '<span class="anchor" id="bound-y"></span><h3>generic :: <strong>y(=)</strong> => x</h3></section></div>'
              '<a href="../proc/b.html#none">b</a>',
    "proc/b": "<a href='../type/a.html#bound-x'>a</a> <a href='../sourcefile/c.f90.html'>c</a>"
              '<ul><li class="list-inline-item">d</li> <li class="list-inline-item">e</li></ul>'}
for name, text in texts.items():
    path = pathlib.Path("pages", name + ".html")
    path.parent.mkdir(parents=True)
    path.write_text(page.format(text))
"""

#: The pages of both
TYPE = """# a

[x](#bound-x) · [y(=)](#bound-y)

<div class="ford">
<h2>type, public :: a</h2>
</div>

## Bound Procedures

### x { #bound-x }

<div class="ford">
<p class="declaration">procedure, public :: <strong>x</strong></p>
</div>

<div class="ford">
<h3> pure function x(private)</h3>
<th scope="col">Name</th><td>class(a)
</td>
</div>

### y(=) { #bound-y }

<div class="ford">
<p class="declaration">generic :: <strong>y(=)</strong> => x</p>
</div>

<div class="ford">
<a href="../proc/b.html">b</a>
</div>

"""
FUNCTION = """# b

<div class="ford">
<a href="../type/a.html#bound-x">a</a> cd, e
</div>

"""


def test_what_ford_says_becomes_pages(root: Path, tmp_path: Path) -> None:
    """With contents; without its menu, links to what is no page here, anchors that are nowhere, and "private"."""
    (tmp_path / "ford.py").write_text(FORD, encoding="utf-8")
    found = fortran_reference.pages(root, tmp_path / "made", (sys.executable, str(tmp_path / "ford.py")))
    assert found == {"type/a.md": TYPE, "proc/b.md": FUNCTION}
    with pytest.raises(RuntimeError, match="FORD failed:"):
        fortran_reference.pages(root, tmp_path / "made", (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(RuntimeError, match="without an element called text"):
        fortran_reference.content("<p>changed</p>")
