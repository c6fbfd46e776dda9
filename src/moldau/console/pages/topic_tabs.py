"""The head of every page about one topic: its name, its tabs, and its deletion."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.topics import delete_topic
from moldau.console.pages.dialogs import confirm
from moldau.console.pages.frame import Frame, heading, topic_path
from moldau.console.rules.wording import plural, size_text
from moldau.model.uuid_text import format_uuid

_TABS = (
    ("", "Messages"),
    ("partitions", "Partitions"),
    ("activity", "Activity"),
    ("settings", "Settings"),
    ("produce", "Produce"),
)


def topic_head(frame: Frame, name: str, active: str) -> None:
    console = frame.console
    with ui.element("div").classes("m-head"):
        heading(name, _describe(frame, name))
        ui.space()
        if console.may_change:
            ui.button(icon="delete", on_click=lambda: _delete(frame, name)).props(
                'flat round color=negative aria-label="Delete topic"'
            )
    with ui.element("nav").classes("m-tabs"):
        for tab, label in _TABS:
            if tab == "produce" and not console.may_change:
                continue
            link = ui.link(label, topic_path(name, tab)).classes("m-tab")
            if tab == active:
                link.classes("m-tab-active").props('aria-current="page"')


def _describe(frame: Frame, name: str) -> str:
    watch = frame.console.watch
    topic = None if watch.view is None else watch.view.topics.get(name)
    if topic is None:
        return "a topic"
    parts = [plural(len(topic.partitions), "partition")]
    if watch.sizes is not None:
        parts.append(size_text(watch.sizes.by_topic.get(name, 0)))
    if topic.topic_id is not None:
        parts.append(f"id {format_uuid(topic.topic_id)}")
    return " · ".join(parts)


async def _delete(frame: Frame, name: str) -> None:
    question = f"Delete topic {name}?"
    if not await confirm(question, "All its records are gone then.", "Delete", typed=name):
        return
    if await frame.attempt(delete_topic(frame.console.cluster, name), f"{name} was deleted"):
        await frame.console.watch.refresh()
        ui.navigate.to("/topics")
