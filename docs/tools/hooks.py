# SPDX-License-Identifier: MIT
"""What mkdocs.yml calls while it builds the site: pages that are made, links that are rewritten, a last check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.tools import fortran_reference
from docs.tools.check_site import problems
from docs.tools.repository_pages import DOCUMENTS, RepositoryPages

ROOT = Path(__file__).resolve().parents[2]
#: Where samples and the notebook's page are made before they are copied
MADE = ROOT / "build" / "docs"
#: FORD, in an environment of its own beside MkDocs
FORD = (str(Path(sys.prefix) / "ford" / "bin" / "python"), "-I", "-m", "ford")
#: Lines of a page that is not searched
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"

pages = RepositoryPages(ROOT)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of the rest of the repository, of the notebook, and of the tool's own reports."""
    global pages
    pages = RepositoryPages(ROOT)
    _run(sys.executable, "-m", "docs.tools.samples", str(MADE / "samples"))
    _run(sys.executable, "-m", "docs.tools.mistakes", str(MADE / "mistakes"))
    _run(sys.executable, "-m", "docs.tools.notebook", str(ROOT / "docs" / "story.ipynb"), str(MADE / "story.md"))
    for folder, to in ((MADE / "samples", "samples/"), (MADE / "mistakes", "mistakes/"), (MADE, "")):
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.suffix in (".html", ".png", ".md"):
                files.append(File.generated(config, f"{to}{path.name}", abs_src_path=str(path)))
    try:
        _add_fortran(files, config)
        _add_documents(files, config)
    except (FileNotFoundError, RuntimeError) as error:
        raise PluginError(str(error)) from None
    return files


def _add_fortran(files: Files, config: MkDocsConfig) -> None:
    for name, text in fortran_reference.pages(ROOT, MADE / "ford", FORD).items():
        made = File.generated(config, f"fortran-reference/{name}", content=text)
        made.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(made)


def _add_documents(files: Files, config: MkDocsConfig) -> None:
    for path, place in DOCUMENTS.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
        pages.origins[place] = path
    for file in list(files.documentation_pages()):
        origin = pages.origins.get(file.src_uri, f"docs/{file.src_uri}")
        pages.collect(file.src_uri, origin, file.content_string)
    for place, path in pages.shown.items():
        if place.endswith(".md"):
            made = File.generated(config, place, content=UNSEARCHED + pages.text(place))
            made.inclusion = InclusionLevel.NOT_IN_NAV
            pages.origins.setdefault(place, path)
            files.append(made)
        else:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of the repository to those of the site."""
    return pages.rewritten(page.file.src_uri, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Put the search's index where a page finds it that was opened from a folder, and check all that was built."""
    index = Path(config.site_dir, "search", "search_index.json")
    index.with_suffix(".js").write_text(f"var __index = {index.read_text('utf-8')}", "utf-8")
    found = problems(Path(config.site_dir))
    if found:
        raise PluginError("\n".join(["the site is wrong:", *found]))


def _run(*command: str) -> None:
    """Start a program; what it says is shown where it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PluginError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
