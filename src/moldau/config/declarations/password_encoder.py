"""How passwords that are set while brokers run are kept in the store. Kafka 3.9's names."""

from __future__ import annotations

from typing import Final

from moldau.config.kinds import INT, PASSWORD, STRING, Rule, between, one_of
from moldau.config.option import Importance, OptionSet, option, optional

MOST_ITERATIONS: Final = 1_000_000
"""More would take seconds; what has more in the store was not written by a broker."""

_KEY_BITS: Rule[int] = Rule(
    "128, 192 or 256",
    lambda bits: None if bits in (128, 192, 256) else "is not the length of a key of AES",
)


class PasswordEncoderOptions(OptionSet):
    """The encryption of dynamic passwords."""

    password_encoder_secret = optional(
        "password.encoder.secret",
        PASSWORD,
        "Passwords that are set while the broker runs (sasl.jaas.config, ssl.key.password and the "
        "like) are encrypted with it in the coordination store, in Kafka's format. Without it they "
        "stand there as they are. Needs moldau[security]; all brokers of a cluster have the same.",
        sensitive=True,
    )
    password_encoder_old_secret = optional(
        "password.encoder.old.secret",
        PASSWORD,
        "The former password.encoder.secret: what was encrypted with it is encrypted anew when the "
        "broker starts.",
        sensitive=True,
    )
    password_encoder_keyfactory_algorithm = option(
        "password.encoder.keyfactory.algorithm",
        STRING,
        "PBKDF2WithHmacSHA512",
        "How the key is made of the secret.",
        one_of("PBKDF2WithHmacSHA512", "PBKDF2WithHmacSHA256", "PBKDF2WithHmacSHA1"),
        importance=Importance.LOW,
    )
    password_encoder_cipher_algorithm = optional(
        "password.encoder.cipher.algorithm",
        STRING,
        "How passwords are encrypted: always with AES/CBC/PKCS5Padding.",
        one_of("AES/CBC/PKCS5Padding"),
        importance=Importance.LOW,
        ignored=True,
    )
    password_encoder_key_length = option(
        "password.encoder.key.length",
        INT,
        128,
        "How many bits the key has: 128, 192 or 256.",
        _KEY_BITS,
        importance=Importance.LOW,
    )
    password_encoder_iterations = option(
        "password.encoder.iterations",
        INT,
        4096,
        "How often the secret is hashed for the key.",
        between(1024, MOST_ITERATIONS),
        importance=Importance.LOW,
    )
