"""The broker's options by theme. `moldau.config.broker_options` puts them together."""
