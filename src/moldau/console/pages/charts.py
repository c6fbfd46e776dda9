"""Lines over time. Colours are such that they are read on light and dark, and told apart by people
who do not see red and green."""

from __future__ import annotations

from nicegui import ui

from moldau.console.rules.histories import TrafficSeries
from moldau.console.rules.throughput import TimeSeries
from moldau.console.rules.traffic import FROM_LOGS, Traffic
from moldau.console.rules.wording import axis_step

_GREY = "#94a3b8"
_COLOURS = ("#0891b2", "#d97706")
_COUNTS = "value => Intl.NumberFormat('en', {notation: 'compact'}).format(value)"
_SIZES = """value => {
    let unit = 0;
    while (value >= 999.5 && unit < 4) { value /= 1024; unit++; }
    return Number(value.toPrecision(3)) + ' ' + ['B', 'KB', 'MB', 'GB', 'TB'][unit];
}"""


class LineChart:
    """One series or two; gaps stay gaps."""

    def __init__(self, *names: str, is_bytes: bool = False) -> None:
        self._is_bytes = is_bytes
        self._shown: list[list[list[float | None]]] = []
        number = _SIZES if is_bytes else _COUNTS
        self._element = ui.echart(
            {
                "animation": False,
                "grid": {
                    "left": 8,
                    "right": 32,
                    "top": 28 if len(names) > 1 else 12,
                    "bottom": 8,
                    "containLabel": True,
                },
                "legend": {
                    "show": len(names) > 1,
                    "top": 0,
                    "right": 24,
                    "itemHeight": 8,
                    "textStyle": {"color": _GREY},
                },
                "tooltip": {"trigger": "axis", ":valueFormatter": number},
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
                    "axisLabel": {"color": _GREY, ":formatter": number},
                    "splitLine": {"lineStyle": {"color": _GREY, "opacity": 0.25}},
                },
                "series": [
                    {
                        "name": name,
                        "type": "line",
                        "showSymbol": False,
                        "connectNulls": False,
                        "lineStyle": {"width": 2, "color": colour},
                        "itemStyle": {"color": colour},
                        "areaStyle": {"color": colour, "opacity": 0.12},
                        "data": [],
                    }
                    for name, colour in zip(names, _COLOURS, strict=False)
                ],
            }
        ).classes("m-chart")

    def show(self, *histories: TimeSeries) -> None:
        series = [one.to_series() for one in histories]
        if series != self._shown:
            self._shown = series
            for at, data in enumerate(series):
                self._element.options["series"][at]["data"] = data
            if self._is_bytes:
                most = max((value or 0 for data in series for _, value in data), default=0)
                step = axis_step(most)
                self._element.options["yAxis"] |= {"interval": step, "max": step * 4}
            self._element.update()


class TrafficCharts:
    """Records and bytes a second, side by side where there is room."""

    def __init__(self) -> None:
        with ui.element("div").classes("m-charts"):
            with ui.element("section").classes("m-card"):
                ui.label("Records written a second").classes("m-title")
                ui.label("counted from the ends of partitions").classes("m-faint")
                self._records = LineChart("records a second")
            with ui.element("section").classes("m-card"):
                ui.label("Bytes a second").classes("m-title")
                self._source = ui.label(FROM_LOGS).classes("m-faint")
                self._bytes = LineChart("written", "read", is_bytes=True)

    def show(self, series: TrafficSeries, traffic: Traffic | None) -> None:
        self._records.show(series.records)
        self._bytes.show(series.bytes_in, series.bytes_out)
        if traffic is not None and self._source.text != traffic.source:
            self._source.set_text(traffic.source)
