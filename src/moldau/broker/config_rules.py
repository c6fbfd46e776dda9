"""`cluster` stores configs and `config` knows what they mean; here the two are introduced."""

from __future__ import annotations

from moldau.cluster.config_writer import BrokerConfigRules, ConfigRules
from moldau.config import changes
from moldau.config.current import CurrentBrokerOptions
from moldau.model import BrokerId


def topic_config_rules(current: CurrentBrokerOptions) -> ConfigRules:
    return ConfigRules(
        check=lambda configs: changes.check_topic_settings(configs, current.options),
        find_list_default=lambda name: changes.find_topic_list(name, current.options),
    )


def broker_config_rules(current: CurrentBrokerOptions) -> BrokerConfigRules:
    def rules_for(broker_id: BrokerId | None) -> ConfigRules:
        check = (
            changes.check_default_broker_settings
            if broker_id is None
            else changes.check_broker_settings
        )
        return ConfigRules(
            check=lambda configs: check(configs, current.options),
            find_list_default=lambda name: changes.find_broker_list(name, current.options),
        )

    return rules_for
