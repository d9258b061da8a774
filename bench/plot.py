"""A result as a picture: `python -m bench.plot RESULT.json PICTURE.png`. The only file here that needs matplotlib."""

import json
import sys
from pathlib import Path
from typing import Any

PANELS = (
    ("paced: CPU us per delta", "CPU per delta, paced streams (µs)"),
    ("stream x1: first piece ms", "time to the first piece (ms)"),
    ("whole x16: CPU us per request", "CPU per whole answer (µs)"),
    ("burst x1: deltas per CPU second", "deltas per CPU second, one stream"),
)
COLOURS = {"caretway": "#0b6e4f", "caretway-again": "#7fb8a4", "relay": "#888888", "direct": "#bbbbbb"}


def draw(result: dict[str, Any], picture: Path) -> None:
    panels = [(result["measures"][name], title) for name, title in PANELS if name in result["measures"]]
    if not panels:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(panels), 1, figsize=(8, 2.2 * len(panels)), squeeze=False)
    for axis, (rows, title) in zip(axes[:, 0], panels, strict=True):
        names = list(rows)
        medians = [rows[name]["median"] for name in names]
        below = [rows[name]["median"] - rows[name]["min"] for name in names]
        above = [rows[name]["max"] - rows[name]["median"] for name in names]
        axis.barh(names, medians, xerr=[below, above], color=[COLOURS.get(name, "#b5651d") for name in names])
        axis.set_xscale("log")
        axis.set_title(title, loc="left", fontsize=10)
        axis.invert_yaxis()
        axis.tick_params(labelsize=8)
    figure.text(0.01, 0.005, "median, bars to the least and greatest round; logarithmic", fontsize=7)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(picture, dpi=130)
    print(f"written: {picture}")


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
