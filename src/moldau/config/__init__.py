"""Options: declared once, and from the declaration parsed, checked, described and documented."""

from moldau.config.broker_options import BrokerOptions
from moldau.config.current import CurrentBrokerOptions
from moldau.config.listeners import Listener, parse_listeners
from moldau.config.static import Static, load_properties, load_settings
from moldau.config.topic_options import TopicOptions
from moldau.config.unknown import UnknownOption, find_unknown

__all__ = (
    "BrokerOptions",
    "CurrentBrokerOptions",
    "Listener",
    "Static",
    "TopicOptions",
    "UnknownOption",
    "find_unknown",
    "load_properties",
    "load_settings",
    "parse_listeners",
)
