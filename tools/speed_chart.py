#!/usr/bin/env python3
"""speed_chart.py [FIGURES.tsv] [OUT.svg]: the chart at the top of README.md, drawn from bench/figures.tsv.

Each row of the table is one measurement of anneal beside PyTorch: panel, label, anneal's figure, PyTorch's, unit. A bar is
anneal's figure as a share of PyTorch's, so that milliseconds and gigabytes share one axis: shorter is better, the line at
100 % is PyTorch. Standard library only; the same table gives the same bytes.
"""
import html
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 250, 190, 16, 10, 34


def rows(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            panel, label, ours, peer, unit = line.split("\t")[:5]
            yield panel, label, float(ours), float(peer), unit


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def draw(table):
    panels = {}
    for panel, *row in table:
        panels.setdefault(panel, []).append(row)
    longest = max(1.0, max(ours / peer for p in panels.values() for _, ours, peer, _ in p))
    scale = (WIDTH - LEFT - RIGHT) / longest
    out, y = [], 8
    for panel, content in panels.items():
        y += HEAD
        out.append(f'<text class="head" x="12" y="{y - 12}">{html.escape(panel)}</text>')
        top = y
        for label, ours, peer, unit in content:
            width, middle = ours / peer * scale, y + BAR - 4
            out.append(f'<text class="label" x="{LEFT - 10}" y="{middle}">{html.escape(label)}</text>')
            out.append(f'<rect class="{"ours" if ours <= peer else "lost"}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>')
            text = f"{number(ours)} {unit}, PyTorch {number(peer)}"
            out.append(f'<text class="value" x="{LEFT + max(width, scale) + 8:.1f}" y="{middle}">{html.escape(text)}</text>')
            y += BAR + GAP
        line = LEFT + scale
        out.append(f'<line class="peer" x1="{line:.1f}" y1="{top - 6}" x2="{line:.1f}" y2="{y - 4}"/>')
    y += 22
    out.append(f'<text class="note" x="{LEFT}" y="{y}">bar: anneal as a share of PyTorch (dashed line: 100 %); shorter is better</text>')
    style = (
        "text{font:13px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}.label{text-anchor:end}"
        ".value,.note{fill:#59636e;font-size:12px}.ours{fill:#2f7d4f}.lost{fill:#b35900}"
        ".peer{stroke:#8b949e;stroke-dasharray:4 3}.paper{fill:#fff}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.value,.note{fill:#9198a1}.ours{fill:#4aa971}"
        ".lost{fill:#e08a3c}.paper{fill:#0d1117}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 14}" width="{WIDTH}" height="{y + 14}" role="img" '
        f'aria-label="Time and memory of a training step, anneal beside PyTorch"><style>{style}</style>'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>\n' + "\n".join(out) + "\n</svg>\n"
    )


def main():
    table = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/figures.tsv"
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/speed.svg"
    out.write_text(draw(list(rows(table))), encoding="utf-8")


main()
