# SPDX-License-Identifier: MIT
"""How the HTML report looks: by day and by night, on a phone and on a screen, and on paper."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1a1d21; --soft: #5a626c; --line: #d5dae0; --card: #f5f7f9;
  --right: #1a7f37; --bug: #c4191f; --doubt: #8a5a00;
  --right-back: #e3f5e7; --bug-back: #fdeaea; --doubt-back: #fdf3da; --point: #1f6fb2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e4e8ec; --soft: #9ba6b2; --line: #363d46; --card: #1d2228;
    --right: #5fd17d; --bug: #ff8078; --doubt: #f0b64a;
    --right-back: #173321; --bug-back: #401c1c; --doubt-back: #3a2d10; --point: #6cb4ee;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 64rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word;
}
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; } li h3 { margin-top: 0; }
p { margin: .4rem 0; max-width: 46rem; }
.soft, figcaption { color: var(--soft); font-size: .875rem; }
.verdict { border-left: .4rem solid; border-radius: .4rem; padding: 1rem; }
.verdict p { color: var(--ink); }
.rounding { color: var(--right); } .bug { color: var(--bug); }
.precision, .cannot_tell, .bad_input { color: var(--doubt); }
.verdict.rounding { background: var(--right-back); } .verdict.bug { background: var(--bug-back); }
.verdict.precision, .verdict.cannot_tell, .verdict.bad_input { background: var(--doubt-back); }
.faults { list-style: none; padding: 0; display: grid; gap: .75rem; }
.faults > li { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .75rem 1rem; }
.advice { font-weight: 600; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
.scroll:focus-visible { outline: 2px solid var(--point); }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { border-top: 0; background: var(--card); }
th:first-child, td:first-child, .words { text-align: left; }
tbody th { position: sticky; left: 0; background: var(--page); font-weight: 400; }
tr.failed th, tr.failed td { font-weight: 600; }
td.seen { background: var(--right-back); } td.blind { background: var(--bug-back); }
.prose th, .prose td { white-space: normal; text-align: left; }
.prose td:last-child { min-width: 11rem; }
.prose td:nth-child(2) { white-space: nowrap; }
.prose .family { font-weight: 600; background: var(--card); }
@media (max-width: 30rem) { th, td { padding: .3rem .4rem; } table { font-size: .8125rem; } }
.figures { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.three { grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); }
figure { margin: 0; min-width: 0; }
.pictures { display: grid; gap: .75rem 1.5rem; align-items: end; }
.pictures { grid-template-columns: repeat(2, minmax(0, 1fr)); margin: .5rem 0; }
@media (min-width: 48rem) { .pictures { grid-template-columns: repeat(4, minmax(0, 1fr)); } }
.axes { display: grid; grid-template-columns: max-content minmax(0, 1fr); column-gap: .25rem; }
.axes i { font-style: normal; }
.axes span { font-size: .75rem; line-height: 1.3; display: flex; justify-content: space-between; }
.axes .down { flex-direction: column; text-align: right; }
.axes .across, .axes .blocks, .axes .scale, .axes .bar { grid-column: 2; }
.axes .blocks { justify-content: space-around; }
.axes .blocks i { flex: 1; min-width: 0; overflow-wrap: anywhere; text-align: center; }
.axes img { width: 100%; height: auto; min-height: .75rem; max-height: 24rem; image-rendering: pixelated; }
.axes .bar { height: .6rem; min-height: 0; margin-top: .5rem; }
.dots { max-width: 46rem; }
.dot { fill: var(--point); stroke: var(--point); stroke-width: 1.2; }
.dot.bug { fill: var(--bug); stroke: var(--bug); }
.dot.precision, .dot.cannot_tell { fill: var(--doubt); stroke: var(--doubt); }
.beyond { fill: var(--bug-back); fill-opacity: .7; }
svg { width: 100%; max-width: 32rem; display: block; }
svg[viewBox] { height: auto; }
figure img { width: 100%; max-width: 32rem; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.in, .out { stroke-width: 3; stroke-linecap: round; fill: none; stroke: var(--point); stroke-opacity: .75; }
.out { stroke: var(--bug); } .big { stroke-width: 7; stroke-opacity: 1; }
.limit { stroke: var(--ink); stroke-dasharray: 5 4; fill: none; }
.curve { stroke: var(--point); stroke-width: 1.5; fill: none; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem; margin: .5rem 0; }
dl { font-size: .875rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; margin: .75rem 0; }
@media print { .scroll { overflow: visible; border: 0; } details { display: none; } }
"""
