"""Lines over time. Colours are such that they are read on light and dark."""

from __future__ import annotations

from nicegui import ui

from moldau.console.rules.throughput import TimeSeries

_GREY = "#94a3b8"
_LINE = "#0891b2"


class LineChart:
    """One series; gaps stay gaps."""

    def __init__(self, name: str) -> None:
        self._shown: list[list[float | None]] = []
        self._element = ui.echart(
            {
                "animation": False,
                "grid": {"left": 8, "right": 32, "top": 12, "bottom": 8, "containLabel": True},
                "tooltip": {"trigger": "axis"},
                "xAxis": {
                    "type": "time",
                    "axisLabel": {"color": _GREY, "hideOverlap": True},
                    "axisLine": {"lineStyle": {"color": _GREY}},
                    "splitLine": {"show": False},
                },
                "yAxis": {
                    "type": "value",
                    "min": 0,
                    "minInterval": 1,
                    "axisLabel": {"color": _GREY},
                    "splitLine": {"lineStyle": {"color": _GREY, "opacity": 0.25}},
                },
                "series": [
                    {
                        "name": name,
                        "type": "line",
                        "showSymbol": False,
                        "connectNulls": False,
                        "lineStyle": {"width": 2, "color": _LINE},
                        "itemStyle": {"color": _LINE},
                        "areaStyle": {"color": _LINE, "opacity": 0.12},
                        "data": [],
                    }
                ],
            }
        ).classes("m-chart")

    def show(self, history: TimeSeries) -> None:
        series = history.to_series()
        if series != self._shown:
            self._shown = series
            self._element.options["series"][0]["data"] = series
            self._element.update()
