"""The settings of a topic."""

from __future__ import annotations

from nicegui import ui

from moldau.client.admin_values import ConfigResource
from moldau.console.pages.configs import ConfigPanel
from moldau.console.pages.frame import page_frame
from moldau.console.pages.topic_tabs import topic_head


def register() -> None:
    @ui.page("/topics/{name}/settings", response_timeout=15)
    async def show_settings(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            topic_head(frame, name, "settings")
            panel = ConfigPanel(frame, ConfigResource.topic(name))
            frame.every(15.0, panel.refresh)
